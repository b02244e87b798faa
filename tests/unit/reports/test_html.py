import base64
import hashlib
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports import ShownDiff
from codeloupe.reports.html import render_html
from tests.html_page import Node, read_page
from tests.rows import each
from tests.telling_reviews import ATTACK, closed_findings, hostile_review, shown_diff, unplaced_finding
from tests.unit.reports.examples import finding, review


def page_of(whole: Review, diff: ShownDiff | None = None) -> Node:
    return read_page(render_html(whole, diff=diff))


def card_of(one: Finding, diff: ShownDiff | None = None) -> Node:
    return page_of(review(one), diff).one("article")


def code_of(card: Node) -> list[str]:
    return [line.text for line in card.one("table", name="code").all("td", name="line")]


def test_the_policy_names_the_one_style_and_the_one_script() -> None:
    page = page_of(hostile_review())
    (policy,) = [meta.attributes["content"] or "" for meta in page.all("meta") if "http-equiv" in meta.attributes]
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(page.one(kind).text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_a_title_full_of_markup_is_shown_as_it_is() -> None:
    page = page_of(review(finding(title=ATTACK)))
    assert page.one("h3").text == ATTACK
    assert not [node for node in page.all("svg") if "onload" in node.attributes]
    assert card_of(finding(title="a\u202eb\x00c\ud800")).one("h3").text == "a\\u202eb\\x00c\\ud800"


@each(
    ("one", "diff"),
    [
        (finding(file="app/other.py"), shown_diff()),
        (finding(line_start=900, line_end=900), shown_diff()),
        (unplaced_finding(), shown_diff()),
        (finding(), ShownDiff({"app/db.py": FileChange(None, "app/db.py", FileStatus.ADDED)})),
    ],
)
def test_a_finding_that_is_not_in_the_diff_shows_its_quote(one: Finding, diff: ShownDiff) -> None:
    assert code_of(card_of(one, diff)) == ["cursor.execute(query + name)"]


@each(
    "mask",
    [
        lambda text: text.replace("all of them", "[redacted]"),
        lambda text: text.replace("cursor.run", "[redacted]"),
        lambda text: text.replace("\n", ""),
    ],
)
def test_a_hunk_with_a_secret_is_not_shown(mask: Callable[[str], str]) -> None:
    assert code_of(card_of(finding(), replace(shown_diff(), mask=mask))) == ["cursor.execute(query + name)"]


@each("evidence", ["key = 'AKIA[redacted]'", "password = 'h********'"])
def test_a_file_in_which_a_secret_was_found_is_shown_by_its_quotes_alone(evidence: str) -> None:
    secret = finding(line_start=900, line_end=900, evidence=evidence, title="A key")
    shown = page_of(review(finding(), secret), shown_diff()).all("article")
    hidden = page_of(review(finding(), hidden_findings=1, hidden=(secret,)), shown_diff()).all("article")
    omitted = page_of(review(finding(), omitted=(secret,)), shown_diff()).all("article")
    assert ["all of them" in card.text for card in [*shown, *hidden, *omitted]] == [False, False, False, False]


def test_only_the_lines_near_a_finding_are_shown() -> None:
    body = b"".join(b"+line %d\n" % number for number in range(1, 200))
    diff = ShownDiff({"a.py": FileChange(None, "a.py", FileStatus.ADDED, hunks=(Hunk(0, 0, 1, 199, body, added=199),))})
    rows = code_of(card_of(finding(file="a.py", line_start=100, line_end=101), diff))
    assert rows == [f"line {number}" for number in range(96, 106)]


def test_an_endless_quote_is_cut_and_the_cut_is_said() -> None:
    page = render_html(review(finding(evidence="x" * 100_000 + "\ny" * 500)))
    assert len(page) < 60_000
    assert "… 461 more lines" in page


def test_code_is_coloured_by_what_it_is() -> None:
    card = card_of(finding(evidence="if x == 'a # b': return 12  # why"))
    spans = [(span.attributes["class"], span.text) for span in card.one("table").all("span")]
    assert spans == [("k", "if"), ("s", "'a # b'"), ("k", "return"), ("n", "12"), ("c", "# why")]


@each(("path", "comment"), [("a.js", "// why"), ("a.sql", "-- why"), ("a.c", "/* why */"), ("Makefile", "# why")])
def test_a_comment_is_one_in_the_language_of_its_file(path: str, comment: str) -> None:
    card = card_of(finding(file=path, evidence=f"x {comment}"))
    assert [span.text for span in card.one("table").all("span")] == [comment]


def test_prose_has_paragraphs_lists_and_code_and_no_links() -> None:
    card = card_of(
        finding(
            body="First `a<b>` and **more**.\n\n- one\n- two\n  goes on\n\n```py\n  x = 1\n    y\n```\n[l](http://e.test)"
        )
    )
    prose = card.all(name="prose")[0]
    assert [node.tag for node in prose.nodes] == ["p", "ul", "pre", "p"]
    assert [item.text for item in prose.all("li")] == ["one", "two\ngoes on"]
    assert prose.one("pre").text == "x = 1\n  y"
    assert prose.one("code").text == "a<b>"
    assert prose.nodes[-1].text == "[l](http://e.test)"


def test_cards_have_names_that_stay_and_are_their_own() -> None:
    first, again, other = (
        card_of(one).attributes["id"]
        for one in (finding(fingerprint="f"), finding(fingerprint="f", body="said otherwise"), finding(fingerprint="g"))
    )
    assert first == again
    assert first != other
    ids = [card.attributes["id"] for card in page_of(review(finding(), finding(), finding())).all("article")]
    assert len(set(ids)) == 3


def test_more_than_a_browser_can_take_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # As many as it takes would take seconds.
    monkeypatch.setattr("codeloupe.reports.html._MOST_FINDINGS", 10)
    nits = (finding(severity=Severity.LOW, title=f"nit {number}") for number in range(14))
    page = page_of(review(*closed_findings(), *nits, finding(severity=Severity.CRITICAL, title="worst")))
    titles = [card.one("h3").text for card in page.all("article")]
    assert len(titles) == 10
    assert "worst" in titles
    assert "Was wrong" not in titles
    assert "13 more findings are left out here" in page.one("main").text
