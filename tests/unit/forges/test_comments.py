"""What a comment says, and where it can be."""

from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.forges.comments import (
    LONGEST_BODY,
    DiffPlaces,
    Place,
    check_summary,
    finding_body,
    fitted_body,
    hunks_of,
    review_body,
    summary_body,
    verdict_line,
)
from codeloupe.forges.plan import make_plan
from codeloupe.forges.threads import Mark, MarkKind
from codeloupe.model.finding import Finding
from codeloupe.model.publication import Opinion, PublishOptions, PullRequest
from codeloupe.model.review import Coverage, FailedUnit, Review, ReviewError, SkippedFile, SkipReason
from tests.markdown_page import tokens
from tests.publish_material import FIRST, finding, review
from tests.publish_states import MARKER, pull_request, said, thread_about
from tests.rows import each


def body_of(about: Finding, *, takes_edit: bool = True) -> str:
    place = Place(about.file, about.first_line, about.last_line, takes_edit=takes_edit)
    return finding_body(about, place, review=review(about), marker=MARKER)


def fences(body: str) -> list[tuple[str, str]]:
    return [(token.info, token.content) for token in tokens(body) if token.type == "fence"]


def test_an_exact_replacement_is_offered_as_an_edit_whatever_fences_are_in_it() -> None:
    for fence, code in (("```", "value_4 = compute(4, checked=True)"), ("~~~", "value_4 = '````'")):
        about = finding(4, suggestion=f"{fence}suggestion\n{code}\n{fence}")
        assert fences(body_of(about)) == [("suggestion", f"{code}\n")]


def test_what_is_too_long_is_cut_and_an_open_block_is_closed() -> None:
    long = "words and words " * 20_000
    assert len(body_of(finding(4, title=long, body=long, suggestion=long, reason=long, category=long))) < 65_536
    body = fitted_body("```python\n" + "x = 1\n" * 20_000)
    assert len(body) <= LONGEST_BODY
    assert "65,536 characters" in "".join(token.content for token in tokens(body) if token.type == "text")
    assert fitted_body("x" * LONGEST_BODY) == "x" * LONGEST_BODY


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


def summary(reviewed: Review, pull: PullRequest | None = None) -> str:
    made = make_plan(reviewed, pull or pull_request(), marker=MARKER, options=PublishOptions())
    return summary_body(made, (), marker=MARKER)


def test_what_could_not_be_reviewed_is_told_and_the_same_state_gives_the_same_summary() -> None:
    gaps = Coverage(
        files_total=3,
        files_reviewed=1,
        skipped=(SkippedFile("big.py", SkipReason.TOO_LARGE, "9 MB"), SkippedFile("x.lock", SkipReason.LOCK_FILE)),
        units_failed=(FailedUnit("app.py", ("app.py",), "timed out"),),
    )
    body = summary(review(coverage=gaps, complete=False, exit_code=3))
    for words in ("INCOMPLETE", "timed out", "big.py", "9 MB", "x.lock"):
        assert words in body
    assert summary(review(finding(4))) == summary(review(finding(4)), pull_request(thread_about(finding(4))))


def test_a_huge_review_stays_below_what_github_takes_and_says_what_is_left_out() -> None:
    long = "words and more words " * 400
    many = [finding(line, file="x" * 900 + ".py", title=long, body=long, evidence=long) for line in range(1, 900)]
    failed = tuple(FailedUnit(long, (f"{n}.py",), long) for n in range(500))
    skipped = tuple(SkippedFile(f"{n}" * 500, SkipReason.EXCLUDED, long) for n in range(500))
    huge = review(
        *many,
        complete=False,
        coverage=Coverage(files_total=999, skipped=skipped, units_failed=failed),
        errors=tuple(ReviewError("odd", f"{n} {long}") for n in range(500)),
    )
    body = summary(huge, pull_request(*(thread_about(one, said(f"dismiss: {long}")) for one in many[:60])))
    assert len(body) <= LONGEST_BODY
    assert "more; the saved review has them all" in body
    assert body.rstrip().endswith("more")
    assert MARKER.read(body) is not None


def test_the_words_beside_the_commit_fit_and_hold_no_secret() -> None:
    secret = "ghp_" + "Z9y8" * 9
    reviewed = review(finding(4), complete=False, errors=(ReviewError("x", secret),))
    line = "FAIL: 1 finding at or above fail_on=high; and not everything could be reviewed"
    assert verdict_line(reviewed, 140) == line
    assert verdict_line(reviewed, 20) == f"{line[:19]}…"
    assert "redacted" in check_summary(reviewed)
    assert secret[4:] not in check_summary(reviewed)


def test_no_secret_reaches_a_comment_or_the_summary_from_wherever_it_is() -> None:
    secret = "ghp_" + "Q7w8" * 9
    gaps = Coverage(
        files_total=2,
        skipped=(SkippedFile("x", SkipReason.TOO_LARGE, secret),),
        units_failed=(FailedUnit(secret, ("app.py",), secret),),
    )
    reviewed = review(finding(400, title=secret, reason=secret), coverage=gaps, errors=(ReviewError("x", secret),))
    reviewed = replace(
        reviewed, scope=replace(reviewed.scope, description=secret), reviewer=replace(reviewed.reviewer, why=secret)
    )
    pull = pull_request(thread_about(finding(4, title=secret), said(f"dismiss: {secret}")))
    for body in (summary(reviewed, pull), summary(review(finding(4, title=secret)), pull)):
        assert "redacted" in body
        # Without the underscore, which Markdown escapes.
        assert secret[4:] not in body
    leaky = finding(4, title=f"token {secret}", body=secret, evidence=f"key = '{secret}'", suggestion=f"    '{secret}'")
    assert "\\[redacted\\]" in body_of(leaky)
    assert secret[4:] not in body_of(leaky)


TWO_HUNKS = "@@ -1,3 +1,4 @@\n a\n+b\n c\n d\n@@ -20,4 +21,3 @@ def f():\n x\n-y\n z\n w\n\\ No newline at end of file"


@each(
    ("patch", "spans"),
    [
        (TWO_HUNKS, [(1, 4), (21, 23)]),
        ("@@ -0,0 +1 @@\n+only", [(1, 1)]),
        ("@@ -1 +0,0 @@\n-gone", []),
        ("@@ -1,2 +1,2 @@\n-@@ -1,9 +1,900 @@\n+@@ -5,9 +5,900 @@\n x", [(1, 2)]),
        ("", []),
        ("no patch at all", []),
        ("@@ nonsense @@", []),
    ],
)
def test_only_the_header_of_a_hunk_counts(patch: str, spans: list[tuple[int, int]]) -> None:
    assert [(hunk.first, hunk.last) for hunk in hunks_of(patch)] == spans


PLACES = DiffPlaces(
    {"app.py": TWO_HUNKS, "image.png": None, "gone.py": "@@ -1 +0,0 @@\n-gone"},
    forge="GitHub",
)


@each(
    ("lines", "place", "takes_edit"),
    [
        ((2, 2), (2, 2), True),
        ((1, 4), (1, 4), True),
        ((23, 23), (23, 23), True),
        ((3, 9), (3, 4), False),
        ((10, 22), (21, 22), False),
        ((3, 22), (3, 4), False),
        # Between lines 21 and 22 one is deleted.
        ((21, 22), (21, 22), False),
        ((22, 23), (22, 23), True),
        ((21, 21), (21, 21), True),
        ((2, 1), (2, 2), True),
    ],
)
def test_a_comment_is_on_the_lines_of_its_finding_within_one_hunk(
    lines: tuple[int, int], place: tuple[int, int], takes_edit: bool
) -> None:
    assert PLACES.find(finding(lines[0], line_end=lines[1])) == Place("app.py", *place, takes_edit=takes_edit)


@each(
    ("rows", "lines"),
    [
        (["-a", "-b", "+A", "+B", " c"], ()),
        ([" a", "-b", "+B", " c"], (2,)),
        ([" a", "-b", "\\ No newline at end of file", "+B"], (2,)),
        (["+A", "-b", "-c", " d", "-e", "+E\r"], (2, 3)),
        (["+a", "", "-b"], ()),
    ],
)
def test_the_lines_below_deleted_ones_are_known(rows: list[str], lines: tuple[int, ...]) -> None:
    old = sum(row[:1] in ("-", " ", "") for row in rows)
    new = sum(row[:1] in ("+", " ", "") for row in rows)
    [hunk] = hunks_of("\n".join([f"@@ -1,{old} +1,{new} @@", *rows]))
    assert tuple(line for line in hunk.below_deleted if line > 1) == lines


@each(
    ("changes", "words"),
    [
        ({"line_start": 10, "line_end": 12}, "its lines are not"),
        ({"line_start": 900, "line_end": 900}, "its lines are not"),
        ({"file": "other.py"}, "its file is not"),
        ({"file": "image.png"}, "does not show the diff"),
        ({"file": "gone.py"}, "its lines are not"),
        ({"anchored": False}, "no place"),
        ({"line_start": 0, "line_end": 0}, "no place"),
    ],
)
def test_one_outside_of_the_diff_has_no_place_and_says_why(changes: dict[str, Any], words: str) -> None:
    assert words in str(PLACES.find(finding(2, **changes)))
