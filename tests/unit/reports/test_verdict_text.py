from __future__ import annotations

from codeloupe.model.review import Coverage, FailedUnit
from codeloupe.reports.text import render_text
from tests.unit.reports.examples import finding, review

BROKEN = Coverage(
    files_total=3, files_reviewed=3, units_total=3, units_failed=(FailedUnit("ruff", ("a.py",), "timed out"),)
)


def test_coverage_is_told_with_what_failed() -> None:
    text = render_text(review(complete=False, exit_code=3, coverage=BROKEN), width=90, color=False)
    assert "Coverage  3 of 3 files reviewed; gaps: ruff\n" in text
    many = tuple(FailedUnit(f"unit {number}", (), "timed out") for number in range(9))
    text = render_text(review(complete=False, exit_code=3, coverage=Coverage(1, 1, (), 9, many)), width=90, color=False)
    assert "Coverage  1 of 1 file reviewed; gaps: 9 of 9 units\n" in text


def test_pieces_of_the_change_that_failed_are_counted_and_analysers_named() -> None:
    pieces = tuple(FailedUnit(f"{name}.py:1-9", (f"{name}.py",), "timeout") for name in "abc")
    broken = Coverage(9, 6, (), 23, (*pieces, FailedUnit("ruff", ("x.py",), "crashed")))
    text = render_text(review(complete=False, exit_code=3, coverage=broken), width=90, color=False)
    assert "Coverage  6 of 9 files reviewed; gaps: 3 of 23 units, ruff\n" in text


def test_the_reason_is_wrapped_beside_the_verdict_or_below_it_where_that_is_too_narrow() -> None:
    wide = render_text(review(finding()), width=30, color=False).split("\n")
    start = wide.index("FAIL  1 finding at or above")
    assert wide[start + 1] == "      fail_on=high"
    narrow = render_text(review(complete=False, exit_code=3, coverage=BROKEN), width=20, color=False).split("\n")
    start = narrow.index("INCOMPLETE")
    assert narrow[start + 1] == "  could not review"
