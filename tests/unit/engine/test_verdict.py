import pytest

from codeloupe.engine.verdict import exit_code, judge, summarise
from codeloupe.model.finding import FindingStatus, Severity
from codeloupe.model.review import Coverage, Policy, Verdict
from tests.unit.engine.samples import finding

CRITICAL, HIGH, MEDIUM, LOW = (finding(severity) for severity in Severity)
LOOSE = finding(Severity.CRITICAL, anchored=False)


@pytest.mark.requirement("V7")
def test_the_verdict_follows_from_the_worst_finding() -> None:
    for findings, verdict in (([], Verdict.PASS), ([LOW], Verdict.NEEDS_WORK), ([MEDIUM, LOW], Verdict.NEEDS_WORK)):
        assert judge(findings, complete=True) is verdict
    assert [judge(findings, complete=True) for findings in ([LOW, HIGH], [CRITICAL])] == [Verdict.FAIL] * 2


def test_only_what_is_open_and_reaches_the_policy_blocks() -> None:
    closed = (FindingStatus.REFUTED, FindingStatus.DISMISSED, FindingStatus.FIXED)
    for one in (LOOSE, *(finding(Severity.CRITICAL, status=status) for status in closed)):
        assert judge([one], complete=True) is Verdict.PASS
        assert exit_code([one], Policy(), complete=True) == 0
    for one, fail_on, expected in (
        (HIGH, Severity.HIGH, 1),
        (MEDIUM, Severity.HIGH, 0),
        (MEDIUM, Severity.LOW, 1),
        (HIGH, Severity.CRITICAL, 0),
    ):
        assert exit_code([one], Policy(fail_on=fail_on), complete=True) == expected
    # An incomplete review is 3 unless something blocks or policy lets it pass.
    for passes, codes in ((False, [3, 1]), (True, [0, 1])):
        policy = Policy(pass_when_incomplete=passes)
        assert [exit_code(findings, policy, complete=False) for findings in ([], [HIGH])] == codes


@pytest.mark.requirement("C5")
def test_the_summary_counts_and_leaves_nothing_unsaid() -> None:
    assert summarise((), Coverage(), complete=True) == "No changes to review"
    coverage = Coverage(files_total=3, files_reviewed=2)
    assert summarise((HIGH, LOW, LOW), coverage, complete=True) == "3 findings (1 high, 2 low); 2 of 3 files reviewed"
    assert summarise((), coverage, complete=False).endswith("could not review everything")
    # The summary names what was found and does not count.
    findings = (LOW, finding(Severity.HIGH, status=FindingStatus.REFUTED), LOOSE)
    assert summarise(findings, Coverage(files_total=1, files_reviewed=1), complete=True) == (
        "1 finding (1 low); 1 refuted; 1 without a place in the code; 1 of 1 file reviewed"
    )
