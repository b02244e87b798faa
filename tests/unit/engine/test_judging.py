"""A saved review under another policy."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.history import changed_policy, judged, judged_sweep
from codeloupe.errors import UsageError
from codeloupe.model.finding import FindingStatus
from codeloupe.model.history import ReviewRecord
from codeloupe.model.review import Policy, Verdict
from codeloupe.model.severity import Severity
from tests.rows import each
from tests.unit.store.history_samples import commit_review, named, record, sweep_record

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW
ALL = (named("h", severity=HIGH), named("m", severity=MEDIUM, file="a.py"), named("l", severity=LOW))


def saved(
    *, hidden: int = 0, keeps_hidden: bool = True, min_severity: Severity = LOW, **changes: object
) -> ReviewRecord:
    policy = Policy(fail_on=HIGH, min_severity=min_severity)
    shown, rest = ALL[: len(ALL) - hidden], ALL[len(ALL) - hidden :]
    kept = rest if keeps_hidden else ()
    return record(1, *shown, hidden=kept, hidden_findings=hidden, policy=policy, **changes)


def test_by_its_own_policy_it_is_as_it_was() -> None:
    before = saved(summary="as it was said then", exit_code=1)
    assert judged(before, before.review.policy) is before.review


@each(
    ("fail_on", "findings", "exit_code", "verdict"),
    [
        (Severity.CRITICAL, ALL, 0, Verdict.FAIL),
        (HIGH, ALL, 1, Verdict.FAIL),
        (HIGH, ALL[1:], 0, Verdict.NEEDS_WORK),
        (MEDIUM, ALL[1:], 1, Verdict.NEEDS_WORK),
        (LOW, ALL[2:], 1, Verdict.NEEDS_WORK),
        (LOW, (), 0, Verdict.PASS),
    ],
)
def test_another_limit_gives_another_exit_code(
    fail_on: Severity, findings: tuple[object, ...], exit_code: int, verdict: Verdict
) -> None:
    before = saved()
    before = replace(before, review=replace(before.review, findings=findings, policy=Policy(min_severity=HIGH)))
    review = judged(before, Policy(fail_on=fail_on))
    assert (review.exit_code, review.verdict, review.policy.fail_on) == (exit_code, verdict, fail_on)
    assert review.passed is (exit_code == 0)


def test_less_is_shown_and_counted_as_hidden() -> None:
    review = judged(saved(), Policy(fail_on=HIGH, min_severity=HIGH))
    assert [finding.fingerprint for finding in review.findings] == ["h"]
    assert review.hidden_findings == 2
    assert review.summary.startswith("1 finding (1 high)")


def test_what_was_hidden_comes_back_when_it_was_kept() -> None:
    review = judged(saved(hidden=2, min_severity=HIGH), Policy(fail_on=LOW, min_severity=LOW))
    assert sorted(finding.fingerprint for finding in review.findings) == ["h", "l", "m"]
    assert review.findings[0].fingerprint == "m"  # in the order of the files
    assert (review.hidden_findings, review.exit_code) == (0, 1)


def test_what_could_decide_and_was_not_kept_is_an_error_and_never_a_pass() -> None:
    before = saved(hidden=2, keeps_hidden=False, min_severity=HIGH)
    with pytest.raises(UsageError, match="2 findings below high were not kept.*fail_on=medium") as caught:
        judged(before, Policy(fail_on=MEDIUM))
    assert "min_severity medium" in caught.value.hint
    assert judged(before, Policy(fail_on=Severity.CRITICAL)).hidden_findings == 2
    assert judged(before, Policy(fail_on=HIGH, min_severity=LOW)).hidden_findings == 2


def test_a_gap_stays_a_gap_unless_it_may_pass() -> None:
    gap = saved(complete=False, exit_code=3)
    assert judged(gap, Policy(fail_on=Severity.CRITICAL)).exit_code == 3
    accepted = judged(gap, Policy(fail_on=Severity.CRITICAL, pass_when_incomplete=True))
    assert (accepted.exit_code, accepted.complete) == (0, False)


def test_what_cannot_be_read_makes_it_incomplete_by_any_policy() -> None:
    damaged = replace(saved(), problems=("finding 1 cannot be read",))
    damaged = replace(damaged, review=replace(damaged.review, findings=()))
    for policy in (damaged.review.policy, Policy(fail_on=LOW)):
        review = judged(damaged, policy)
        assert (review.complete, review.exit_code) == (False, 3)
        assert "could not review everything" in review.summary


def test_what_was_refuted_does_not_block_by_any_policy() -> None:
    refuted = record(1, named("h", severity=Severity.CRITICAL, status=FindingStatus.REFUTED))
    assert judged(refuted, Policy(fail_on=LOW)).exit_code == 0


def test_only_what_is_given_is_changed() -> None:
    policy = Policy(fail_on=MEDIUM, min_severity=HIGH, pass_when_incomplete=True)
    assert changed_policy(policy) == policy
    assert changed_policy(policy, fail_on=LOW) == replace(policy, fail_on=LOW)
    assert changed_policy(policy, min_severity=LOW) == replace(policy, min_severity=LOW)
    assert changed_policy(policy, pass_when_incomplete=False) == replace(policy, pass_when_incomplete=False)


class TestSweep:
    CLEAN = commit_review(1)
    GRAVE = commit_review(2, named("h", severity=HIGH))

    def test_it_ends_as_it_ended_and_strictly_by_its_findings(self) -> None:
        saved = sweep_record(1, self.CLEAN, self.GRAVE)
        assert judged_sweep(saved).exit_code == 0
        assert judged_sweep(saved, strict=True).exit_code == 1
        assert judged_sweep(sweep_record(1, self.CLEAN), strict=True).exit_code == 0

    @each("change", [{"finished": False}, {"problems": ("a commit cannot be read",)}])
    @each("strict", [False, True])
    def test_what_is_missing_of_it_never_passes_by_itself(self, change: dict[str, Any], *, strict: bool) -> None:
        saved = sweep_record(1, self.CLEAN, **change)
        assert judged_sweep(saved, strict=strict).exit_code == 3
        assert judged_sweep(saved, strict=strict, pass_when_incomplete=True).exit_code == 0

    def test_a_commit_that_could_not_be_reviewed_is_as_it_was_judged_or_as_it_is_asked(self) -> None:
        failed = commit_review(3, review=None, verdict=None, score=None, failure="timeout")
        passed = sweep_record(1, failed)
        assert judged_sweep(passed).exit_code == 0
        assert judged_sweep(passed, pass_when_incomplete=False).exit_code == 3
