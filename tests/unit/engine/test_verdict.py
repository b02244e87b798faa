from __future__ import annotations

import pytest

from codeloupe.engine.verdict import exit_code, judge, summarise
from codeloupe.model.finding import FindingStatus, Severity
from codeloupe.model.review import Coverage, Policy, Verdict
from tests.unit.engine.samples import each_row, finding


@pytest.mark.requirement("V7")
def test_the_verdict_follows_from_the_worst_finding() -> None:
    def check(severities: list[Severity], verdict: Verdict) -> None:
        assert judge([finding(severity) for severity in severities], complete=True) is verdict

    each_row(
        [
            ([], Verdict.PASS),
            ([Severity.LOW], Verdict.NEEDS_WORK),
            ([Severity.MEDIUM, Severity.LOW], Verdict.NEEDS_WORK),
            ([Severity.LOW, Severity.HIGH], Verdict.FAIL),
            ([Severity.CRITICAL], Verdict.FAIL),
        ],
        check,
    )


def test_only_what_is_open_and_reaches_the_policy_blocks() -> None:
    # A closed finding does not count.
    def check(status: FindingStatus) -> None:
        assert judge([finding(Severity.CRITICAL, status=status)], complete=True) is Verdict.PASS

    each_row([FindingStatus.REFUTED, FindingStatus.DISMISSED, FindingStatus.FIXED], check)
    # A finding without a place in the file never blocks.
    loose = finding(Severity.CRITICAL, anchored=False)
    assert judge([loose], complete=True) is Verdict.PASS
    assert exit_code([loose], Policy(), complete=True) == 0

    # Fail on decides what blocks.
    def check_2(severity: Severity, fail_on: Severity, expected: int) -> None:
        assert exit_code([finding(severity)], Policy(fail_on=fail_on), complete=True) == expected

    each_row(
        [
            (Severity.HIGH, Severity.HIGH, 1),
            (Severity.MEDIUM, Severity.HIGH, 0),
            (Severity.MEDIUM, Severity.LOW, 1),
            (Severity.HIGH, Severity.CRITICAL, 0),
        ],
        check_2,
    )
    # An incomplete review is 3 unless something blocks or policy lets it pass.
    assert exit_code([], Policy(), complete=False) == 3
    assert exit_code([finding()], Policy(), complete=False) == 1
    assert exit_code([], Policy(pass_when_incomplete=True), complete=False) == 0
    assert exit_code([finding()], Policy(pass_when_incomplete=True), complete=False) == 1


@pytest.mark.requirement("C5")
def test_the_summary_of_an_empty_change_says_so() -> None:
    assert summarise((), Coverage(), complete=True) == "No changes to review"


def test_the_summary_counts_and_leaves_nothing_unsaid() -> None:
    # The summary counts and says what is missing.
    findings = (finding(Severity.HIGH), finding(Severity.LOW), finding(Severity.LOW))
    coverage = Coverage(files_total=3, files_reviewed=2)
    assert summarise(findings, coverage, complete=True) == "3 findings (1 high, 2 low); 2 of 3 files reviewed"
    assert summarise((), coverage, complete=False).endswith("could not review everything")
    # The summary names what was found and does not count.
    findings = (
        finding(Severity.LOW),
        finding(Severity.HIGH, status=FindingStatus.REFUTED),
        finding(Severity.HIGH, anchored=False),
    )
    assert summarise(findings, Coverage(files_total=1, files_reviewed=1), complete=True) == (
        "1 finding (1 low); 1 refuted; 1 without a place in the code; 1 of 1 file reviewed"
    )
