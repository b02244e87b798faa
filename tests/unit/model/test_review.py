"""What makes a review complete and passed, and what lets a finding block."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

from codeloupe import model
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
from tests.rows import each


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

    @each("reason", SkipReason)
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
    @each("status", FindingStatus)
    def test_it_counts_while_it_is_new_or_open_or_came_back(self, status: FindingStatus) -> None:
        counting = (FindingStatus.NEW, FindingStatus.OPEN, FindingStatus.REGRESSED)
        assert finding(status=status).is_open == (status in counting)

    def test_it_blocks_only_when_open_and_anchored(self) -> None:
        assert finding().can_block
        assert not finding(anchored=False).can_block
        assert not finding(status=FindingStatus.FIXED).can_block


@each(("exit_code", "passed"), [(0, True), (1, False), (3, False), (4, False)])
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


@pytest.mark.requirement("S1")
def test_all_data_of_the_model_is_frozen() -> None:
    modules = [importlib.import_module(f"codeloupe.model.{each.name}") for each in pkgutil.iter_modules(model.__path__)]
    kinds = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    }
    frozen = {kind: getattr(kind, "__dataclass_params__", getattr(kind, "__struct_config__", None)) for kind in kinds}
    data = {kind: parameters for kind, parameters in frozen.items() if parameters is not None}
    assert len(data) > 15
    assert [kind for kind, parameters in data.items() if not parameters.frozen] == []
