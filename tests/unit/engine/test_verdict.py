from __future__ import annotations

import pytest

from codeloupe.engine.verdict import exit_code, judge, summarise
from codeloupe.model.finding import FindingStatus, Severity
from codeloupe.model.review import Coverage, Policy, Verdict
from tests.unit.engine.samples import finding


@pytest.mark.requirement("V7")
def test_the_verdict_follows_from_the_worst_finding() -> None:
    low, medium, high, critical = (finding(severity) for severity in reversed(Severity))
    for findings, verdict in (
        ([], Verdict.PASS),
        ([low], Verdict.NEEDS_WORK),
        ([medium, low], Verdict.NEEDS_WORK),
        ([low, high], Verdict.FAIL),
        ([critical], Verdict.FAIL),
    ):
        assert judge(findings, complete=True) is verdict


def test_only_what_is_open_and_reaches_the_policy_blocks() -> None:
    # A closed finding does not count.
    for status in (FindingStatus.REFUTED, FindingStatus.DISMISSED, FindingStatus.FIXED):
        assert judge([finding(Severity.CRITICAL, status=status)], complete=True) is Verdict.PASS
    # A finding without a place in the file never blocks.
    loose = finding(Severity.CRITICAL, anchored=False)
    assert judge([loose], complete=True) is Verdict.PASS
    assert exit_code([loose], Policy(), complete=True) == 0
    # Fail on decides what blocks.
    high, medium, low = Severity.HIGH, Severity.MEDIUM, Severity.LOW
    for severity, fail_on, expected in (
        (high, high, 1),
        (medium, high, 0),
        (medium, low, 1),
        (high, Severity.CRITICAL, 0),
    ):
        assert exit_code([finding(severity)], Policy(fail_on=fail_on), complete=True) == expected
    # An incomplete review is 3 unless something blocks or policy lets it pass.
    for passes, codes in ((False, [3, 1]), (True, [0, 1])):
        policy = Policy(pass_when_incomplete=passes)
        assert [exit_code(findings, policy, complete=False) for findings in ([], [finding()])] == codes


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
