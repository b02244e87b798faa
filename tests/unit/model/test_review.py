"""What makes a review complete and passed, and what lets a finding block."""

from __future__ import annotations

import pytest

from codeloupe.model.change import FileChange, FileStatus, Scope, ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.review import (
    Check,
    Coverage,
    Diagnosis,
    FailedUnit,
    Policy,
    PreviewFile,
    Review,
    ReviewerInfo,
    SkippedFile,
    SkipReason,
    Verdict,
)


def finding(*, status: FindingStatus = FindingStatus.NEW, anchored: bool = True) -> Finding:
    return Finding(
        file="a.py",
        line_start=1,
        line_end=1,
        severity=Severity.HIGH,
        category="injection",
        title="t",
        body="b",
        evidence="e",
        reviewer="ruff",
        status=status,
        anchored=anchored,
    )


class TestCoverage:
    def test_an_empty_review_is_complete(self) -> None:
        assert Coverage().complete

    @pytest.mark.parametrize("reason", SkipReason)
    def test_only_a_file_that_should_have_been_read_makes_a_gap(self, reason: SkipReason) -> None:
        gap = reason in (SkipReason.TOO_LARGE, SkipReason.UNREADABLE)
        assert SkippedFile("a", reason).is_gap is gap
        assert Coverage(skipped=(SkippedFile("a", reason),)).complete is not gap
        assert SkippedFile("a", reason, accepted=True).is_gap is False
        assert SkippedFile("a", reason, accepted=False).is_gap is True

    def test_a_failed_unit_makes_the_review_incomplete(self) -> None:
        assert not Coverage(units_failed=(FailedUnit("ruff", ("a.py",), "timeout"),)).complete

    def test_a_reason_reads_as_one_phrase(self) -> None:
        assert SkippedFile("a", SkipReason.LOCK_FILE).in_words() == "lock file"
        assert SkippedFile("a", SkipReason.TOO_LARGE, "2 MB").in_words() == "too large: 2 MB"


class TestFinding:
    @pytest.mark.parametrize("status", FindingStatus)
    def test_it_counts_while_it_is_new_or_open_or_came_back(self, status: FindingStatus) -> None:
        counting = (FindingStatus.NEW, FindingStatus.OPEN, FindingStatus.REGRESSED)
        assert finding(status=status).is_open == (status in counting)

    def test_it_blocks_only_when_open_and_anchored(self) -> None:
        assert finding().can_block
        assert not finding(anchored=False).can_block
        assert not finding(status=FindingStatus.FIXED).can_block


@pytest.mark.parametrize(("exit_code", "passed"), [(0, True), (1, False), (3, False), (4, False)])
def test_a_review_passes_when_its_exit_code_says_so(exit_code: int, passed: bool) -> None:
    review = Review(
        review_id="r",
        scope=Scope(ScopeKind.STAGED, None, None, "staged changes"),
        reviewer=ReviewerInfo("offline", "chosen"),
        verdict=Verdict.PASS,
        complete=True,
        exit_code=exit_code,
        summary="s",
        policy=Policy(),
    )
    assert review.passed is passed


def test_the_default_policy_blocks_at_high_and_shows_all() -> None:
    policy = Policy()
    assert (policy.fail_on, policy.min_severity, policy.pass_when_incomplete) == (Severity.HIGH, Severity.LOW, False)


def test_a_previewed_file_is_reviewed_unless_it_has_a_reason_not_to_be() -> None:
    change = FileChange("a", "a", FileStatus.MODIFIED)
    assert PreviewFile(change).reviewed
    assert not PreviewFile(change, SkippedFile("a", SkipReason.BINARY)).reviewed


def test_a_diagnosis_is_healthy_when_all_that_is_needed_is_there() -> None:
    reviewer = ReviewerInfo("offline", "chosen")
    optional = Check("agents", "claude", ok=False, detail="not found", needed=False)
    git = Check("git", "git", ok=True, detail="2.39")
    assert Diagnosis((git, optional), reviewer).healthy
    assert not Diagnosis((Check("git", "git", ok=False, detail="not found"),), reviewer).healthy
