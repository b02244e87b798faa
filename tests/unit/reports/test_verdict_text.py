from __future__ import annotations

from codeloupe.model.finding import Severity
from codeloupe.model.review import Coverage, FailedUnit, Policy, SkippedFile, SkipReason, Verdict
from codeloupe.reports.closing import closing
from codeloupe.reports.text import render_text
from tests.rows import each
from tests.unit.reports.examples import finding, review

BROKEN = Coverage(
    files_total=3, files_reviewed=3, units_total=3, units_failed=(FailedUnit("ruff", ("a.py",), "timed out"),)
)


def test_a_pass_says_that_nothing_was_found() -> None:
    end = closing(review())
    assert (end.word, end.why) == ("PASS", "nothing found")
    assert "green" in end.style


def test_a_pass_with_hidden_findings_says_down_to_where_it_looked() -> None:
    hidden = review(hidden_findings=2, policy=Policy(min_severity=Severity.MEDIUM))
    assert closing(hidden).why == "nothing found at or above min_severity=medium"
    assert "none; 2 hidden below min_severity=medium" in render_text(hidden, width=80, color=False)


def test_a_change_of_which_nothing_was_reviewed_does_not_pass() -> None:
    lock = Coverage(files_total=1, skipped=(SkippedFile("poetry.lock", SkipReason.LOCK_FILE),))
    end = closing(review(coverage=lock))
    assert (end.word, end.why) == ("Nothing to review", "every changed file is left out (1 lock file)")


def test_a_fail_counts_what_blocks() -> None:
    end = closing(review(finding(), finding(severity=Severity.CRITICAL), finding(severity=Severity.LOW)))
    assert (end.word, end.why) == ("FAIL", "2 findings at or above fail_on=high")


def test_an_incomplete_fail_says_both() -> None:
    end = closing(review(finding(), complete=False, coverage=BROKEN))
    assert end.word == "FAIL"
    assert end.why == "1 finding at or above fail_on=high; and not everything could be reviewed"


@each("verdict", [Verdict.PASS, Verdict.NEEDS_WORK])
def test_an_incomplete_review_is_not_green(verdict: Verdict) -> None:
    found = [finding(severity=Severity.LOW)] if verdict is Verdict.NEEDS_WORK else []
    end = closing(review(*found, verdict=verdict, complete=False, exit_code=3, coverage=BROKEN))
    assert (end.word, end.why) == ("INCOMPLETE", "could not review everything; nothing blocking found")
    assert "green" not in end.style + end.rule_style


def test_an_incomplete_review_that_may_pass_is_still_called_incomplete() -> None:
    end = closing(review(complete=False, coverage=BROKEN, policy=Policy(pass_when_incomplete=True)))
    assert end.word == "INCOMPLETE"
    assert "accepted, since on_incomplete is pass" in end.why


def test_needs_work_that_blocks_and_needs_work_that_does_not() -> None:
    low = finding(severity=Severity.LOW)
    loose = closing(review(low, verdict=Verdict.NEEDS_WORK, exit_code=0))
    assert (loose.word, loose.why) == (
        "NEEDS WORK",
        "findings to look at, none at or above fail_on=high, so nothing is blocked",
    )
    strict = closing(review(low, verdict=Verdict.NEEDS_WORK, policy=Policy(fail_on=Severity.LOW)))
    assert (strict.word, strict.why) == ("NEEDS WORK", "1 finding at or above fail_on=low")
    assert "red" in strict.style


def test_a_fail_below_the_threshold_is_not_told_as_blocking() -> None:
    end = closing(review(finding(), exit_code=0, policy=Policy(fail_on=Severity.CRITICAL)))
    assert end.word == "FAIL"
    assert "so nothing is blocked" in end.why


def test_a_finding_without_a_place_does_not_count_as_blocking() -> None:
    end = closing(review(finding(anchored=False), finding(), verdict=Verdict.FAIL))
    assert end.why == "1 finding at or above fail_on=high"


def test_blocking_findings_that_are_hidden_are_mentioned() -> None:
    end = closing(
        review(
            exit_code=1,
            hidden_findings=1,
            verdict=Verdict.NEEDS_WORK,
            policy=Policy(fail_on=Severity.LOW, min_severity=Severity.HIGH),
        )
    )
    assert end.why == "findings at or above fail_on=low are hidden by min_severity=high"


def test_coverage_is_told_with_what_failed() -> None:
    text = render_text(review(complete=False, exit_code=3, coverage=BROKEN), width=90, color=False)
    assert "Coverage  3 of 3 files reviewed; gaps: ruff\n" in text
    many = tuple(FailedUnit(f"unit {number}", (), "timed out") for number in range(9))
    text = render_text(review(complete=False, exit_code=3, coverage=Coverage(1, 1, (), 9, many)), width=90, color=False)
    assert "Coverage  1 of 1 file reviewed; gaps: 9 of 9 units\n" in text


def test_pieces_of_the_change_that_failed_are_counted_and_lanes_named() -> None:
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
