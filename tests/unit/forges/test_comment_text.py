from __future__ import annotations

import pytest

from codeloupe.forges.comments import LONGEST_BODY, Place, answer_body, finding_body, fitted_body, review_body
from codeloupe.forges.marker import Mark, MarkKind, key_of
from codeloupe.model.finding import Finding
from codeloupe.model.publication import AnswerKind, Opinion
from tests.markdown_page import ACTIVE, code, tokens
from tests.publish_material import FIRST, finding, review
from tests.publish_states import MARKER
from tests.rows import each

ATTACK = (
    "@everyone see ![x](https://evil.example/p.png) [link](https://evil.example) <img src=x onerror=y> "
    "<!-- codeloupe:1 summary x --> #12 \x1b[31m \u202e ```\n</details>\n/close\n## heading\n"
    + MARKER.line(Mark(MarkKind.SUMMARY, "a" * 40))
)


def body_of(about: Finding, *, takes_edit: bool = True) -> str:
    place = Place(about.file, about.first_line, about.last_line, takes_edit=takes_edit)
    return finding_body(about, place, review=review(about), marker=MARKER)


def fences(body: str) -> list[tuple[str, str]]:
    return [(token.info, token.content) for token in tokens(body) if token.type == "fence"]


def test_a_comment_begins_with_its_mark_and_tells_what_why_and_from_whom() -> None:
    body = body_of(finding(4, expert="correctness", verification="Tried with 0: it fails."))
    assert MARKER.read(body) == Mark(MarkKind.FINDING, key_of(finding(4)), "scripted")
    for words in ("**high P1** · Wrong result in line 4", "It fails for zero.", "Tried with 0", "scripted", "dismiss"):
        assert words in body


def test_an_exact_replacement_is_offered_as_an_edit() -> None:
    about = finding(4, suggestion="```suggestion\nvalue_4 = compute(4, checked=True)\n```")
    assert fences(body_of(about)) == [("suggestion", "value_4 = compute(4, checked=True)\n")]


def test_an_edit_with_fences_in_it_stays_one_edit() -> None:
    about = finding(4, suggestion="~~~suggestion\nvalue_4 = '````'\n~~~")
    assert fences(body_of(about)) == [("suggestion", "value_4 = '````'\n")]


@each(
    ("suggestion", "takes_edit"),
    [
        ("Check for zero first.", True),
        ("```python\nsomething.entirely(different)\n```", True),
        ("```suggestion\nvalue_4 = compute(4, checked=True)\n```", False),
        ("```suggestion\nvalue_4 = '\u202e'\n```", True),
    ],
)
def test_anything_else_is_advice(suggestion: str, *, takes_edit: bool) -> None:
    body = body_of(finding(4, suggestion=suggestion), takes_edit=takes_edit)
    assert "suggestion" not in {info for info, _ in fences(body)}
    assert "**Fix:**" in body


def test_a_secret_in_a_suggestion_makes_it_no_edit() -> None:
    about = finding(4, suggestion="```suggestion\nvalue_4 = '[redacted]'\n```")
    assert "suggestion" not in {info for info, _ in fences(body_of(about))}


def test_hostile_text_stays_text() -> None:
    about = finding(4, title=ATTACK, body=ATTACK, suggestion=ATTACK, verification=ATTACK, category=ATTACK, rule=ATTACK)
    body = body_of(about)
    ours = [token for token in tokens(body) if token.type in ACTIVE]
    # Our own mark and the small print at the end, and nothing of theirs.
    assert all(
        token.content.startswith(("<!-- codeloupe:1 finding ", "<sub>", "</sub>", "<code>", "</code>"))
        for token in ours
    )
    assert "heading_open" not in {token.type for token in tokens(body)}
    assert "\x1b" not in body
    assert "\u202e" not in body
    outside = "".join(token.content for token in tokens(body) if token.type == "text")
    assert "@everyone" not in outside
    assert any("@everyone" in span for span in code(body))
    read = MARKER.read(body)
    assert read is not None
    assert read.kind is MarkKind.FINDING


def test_a_comment_stays_below_what_github_takes() -> None:
    long = "words and words " * 20_000
    body = body_of(finding(4, title=long, body=long, suggestion=long, verification=long, category=long))
    assert len(body) < LONGEST_BODY


def test_what_is_too_long_is_cut_with_words_and_an_open_block_is_closed() -> None:
    body = fitted_body("```python\n" + "x = 1\n" * 20_000)
    assert len(body) <= LONGEST_BODY
    assert "65,536 characters" in "".join(token.content for token in tokens(body) if token.type == "text")
    assert fitted_body("x" * LONGEST_BODY) == "x" * LONGEST_BODY


@each("kind", list(AnswerKind))
def test_an_answer_has_its_mark_and_its_commit(kind: AnswerKind) -> None:
    body = answer_body(kind, "abcdefgh", head=FIRST, why="@somebody said so", marker=MARKER)
    assert MARKER.read(body) == Mark(MarkKind(kind.value), "abcdefgh")
    assert "`111111111111`" in body
    assert "`@somebody`" in body


@each(
    ("opinion", "count", "words"),
    [
        (Opinion.COMMENT, 1, "1 new finding at"),
        (Opinion.COMMENT, 3, "3 new findings at"),
        (Opinion.APPROVE, 0, "Nothing blocks this change at"),
        (Opinion.REQUEST_CHANGES, 2, "Findings block this change; 2 new findings at"),
    ],
)
def test_a_review_says_in_a_sentence_what_it_is(opinion: Opinion, count: int, words: str) -> None:
    body = review_body(opinion, count, head=FIRST, marker=MARKER)
    assert MARKER.read(body) == Mark(MarkKind.REVIEW, FIRST)
    assert words in body


@pytest.mark.defect("U1")
def test_new_code_of_any_length_is_one_edit_beside_its_advice() -> None:
    code = "if value_4:\n    value_4 = compute(4)\nelse:\n    raise ValueError(4)"
    about = finding(4, suggestion="Check for zero first.", replacement=code)
    body = body_of(about)
    assert fences(body) == [("suggestion", f"{code}\n")]
    assert "**Fix:** Check for zero first." in body
    shown = body_of(about, takes_edit=False)
    assert fences(shown) == [("python", f"{code}\n")]
    masked = body_of(finding(4, replacement='value_4 = "[redacted]"'))
    assert "suggestion" not in {info for info, _ in fences(masked)}
