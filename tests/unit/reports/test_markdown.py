from msgspec.structs import replace

from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.review import Coverage, FailedUnit, ReviewError, SkippedFile, SkipReason
from codeloupe.reports.markdown import render_markdown
from tests.markdown_page import ACTIVE, code, kinds, shown_text, tokens
from tests.rows import each
from tests.telling_reviews import ATTACK, hostile_review
from tests.unit.reports.examples import finding, review


def headings(page: str) -> list[str]:
    found = tokens(page)
    inlines = (found[index + 1] for index, token in enumerate(found) if token.type == "heading_open")
    return ["".join(child.content for child in inline.children or []) for inline in inlines]


def test_nothing_that_a_stranger_wrote_acts() -> None:
    page = render_markdown(hostile_review())
    assert not kinds(page) & (ACTIVE | {"hr"})
    assert not [word for word in shown_text(page).split() if word.startswith(("@", "#1"))]
    forged = [heading for heading in headings(page) if heading.startswith("Verdict")]
    assert not forged
    assert any(ATTACK in block for block in code(page))


def test_quoted_code_cannot_leave_its_fence() -> None:
    page = render_markdown(review(finding(evidence="x = 1\n````\n# PASS\n<img src=x>")))
    assert not kinds(page) & ACTIVE
    assert headings(page) == ["❌ codeloupe: FAIL", "Findings", "🟧 high P1: Statement is built from a variable"]


def test_a_place_with_a_bar_stays_in_its_cell() -> None:
    page = render_markdown(review(finding(file="a|b.py", title="x | y")))
    assert "| x \\| y | `a\\|b.py:42` |" in page


def test_long_lists_are_cut_and_counted() -> None:
    many: list[Finding] = [finding(title=f"number {number}") for number in range(1_000)]
    skipped = tuple(SkippedFile(f"{number}.lock", SkipReason.LOCK_FILE) for number in range(100))
    page = render_markdown(review(*many, coverage=Coverage(files_total=200, files_reviewed=100, skipped=skipped)))
    assert page.count("and 800 more; the JSON report has them all") == 2
    assert "- and 50 more" in page
    assert len(page) < 200_000


@each("sign", ["x ", "ü", "🟥", "|", "`"])
def test_pages_stay_below_what_github_takes(sign: str) -> None:
    long = finding(title=sign * 1_000, body=sign * 20_000, evidence=(sign * 1_000 + "\n") * 50, file=sign * 900)
    gaps = tuple(FailedUnit(sign * 900, (), sign * 900) for _ in range(200))
    whole = review(
        *([long] * 300),
        *([replace(long, anchored=False)] * 300),
        *([replace(long, status=FindingStatus.REFUTED)] * 300),
        complete=False,
        coverage=Coverage(files_total=1, units_failed=gaps),
        errors=(ReviewError(sign * 900, sign * 900),) * 100,
    )
    assert len(render_markdown(whole).encode()) < 1024 * 1024


def test_an_endless_finding_is_cut() -> None:
    page = render_markdown(
        review(finding(title="t" * 10_000, body="b " * 100_000, evidence="e" * 100_000 + "\nf" * 1_000))
    )
    assert len(page) < 20_000
    assert "… 981 more lines" in page
