from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from msgspec.structs import replace

from codeloupe.engine.run import ReviewPlan, run_review
from codeloupe.engine.selection import SelectionRules, select_by_diff
from codeloupe.engine.suppression_step import reviewed_lines, suppress
from codeloupe.model.baseline import Baseline, BaselineEntry
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import Finding
from codeloupe.model.ports import EventSink, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, Policy, Review, ReviewerInfo, Verdict
from tests.review_factories import make_task
from tests.unit.engine.samples import finding

TODAY = date(2030, 6, 15)
NAME = "f" * 32


def test_the_lines_of_a_reviewed_file_are_those_of_its_content(tmp_path: Path) -> None:
    lines_of = reviewed_lines(make_task(tmp_path, {"a.py": "x\r\ny\x0c\n"}))
    assert lines_of("a.py") == ["x\r", "y\x0c", ""]
    assert lines_of("other.py") is None
    assert lines_of("../a.py") is None


def test_of_a_file_that_is_known_by_its_diff_the_shown_lines_are_known(tmp_path: Path) -> None:
    hunk = Hunk(3, 2, 3, 2, b" x\n-old\n+y # codeloupe: ignore legacy\n", added=1, deleted=1)
    far = Hunk(9, 0, 2_000_000_000, 1, b"+z\n", added=1)
    file = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(hunk, far))
    task = replace(make_task(tmp_path, {}), files=(file,), without_content=frozenset({"a.py"}))
    assert reviewed_lines(task)("a.py") == ["", "", "x", "y # codeloupe: ignore legacy"]
    outcome = suppress(ReviewerOutcome((finding(line=4),)), task, baseline=Baseline(), today=TODAY)
    assert not outcome.findings[0].is_open


def test_what_could_not_be_reviewed_tells_nothing_about_the_baseline(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.py": "x\n"})
    baseline = Baseline((BaselineEntry(fingerprint=NAME, file="a.py", reason="legacy"),))
    failed = ReviewerOutcome(units_failed=(FailedUnit("a.py", ("a.py",), "timeout"),))
    assert suppress(failed, task, baseline=baseline, today=TODAY).errors == ()
    unseen = ReviewerOutcome(unreviewed=frozenset({"a.py"}))
    assert suppress(unseen, task, baseline=baseline, today=TODAY).errors == ()
    whole = suppress(ReviewerOutcome(), task, baseline=baseline, today=TODAY)
    assert [error.kind for error in whole.errors] == ["baseline_unused"]


class ScriptedReviewer:
    """Finds what it was given."""

    def __init__(self, *findings: Finding) -> None:
        self.findings = findings

    @property
    def info(self) -> ReviewerInfo:
        return ReviewerInfo("scripted", "for a test")

    async def review(self, _task: ReviewTask, _emit: EventSink) -> ReviewerOutcome:
        return ReviewerOutcome(self.findings, units_total=1)


class CountingVerifier:
    """Verifies nothing and counts what could still block."""

    def __init__(self) -> None:
        self.asked = 0

    async def verify(self, findings: Sequence[Finding], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        del task, emit
        self.asked += sum(each.can_block for each in findings)
        return ReviewerOutcome(findings=tuple(findings))


def reviewed(task: ReviewTask, *findings: Finding, baseline: Baseline | None = None) -> tuple[Review, CountingVerifier]:
    verifier = CountingVerifier()
    plan = ReviewPlan(
        task=task,
        selection=select_by_diff(task.change, SelectionRules()),
        policy=Policy(),
        reviewers=(ScriptedReviewer(*findings),),
        verifier=verifier,
        baseline=baseline or Baseline(),
    )
    review = asyncio.run(run_review(plan, clock=lambda: 0.0, started=0.0, emit=lambda _event: None))
    return review, verifier


def test_a_suppressed_finding_stays_and_decides_nothing(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.py": "x = 1  # codeloupe: ignore checked by hand\n"})
    review, verifier = reviewed(task, finding())
    assert (review.verdict, review.exit_code, review.complete) == (Verdict.PASS, 0, True)
    assert review.findings[0].suppression is not None
    assert verifier.asked == 0


def test_in_an_untrusted_change_it_counts(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.py": "x = 1  # codeloupe: ignore checked by hand\n"}, trusted=False)
    review, verifier = reviewed(task, finding())
    assert (review.verdict, review.exit_code) == (Verdict.FAIL, 1)
    assert "ignores_not_followed" in {error.kind for error in review.errors}
    assert verifier.asked == 1


def test_the_baseline_of_a_plan_holds_and_its_problems_leave_the_review_complete(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.py": "x = 1\n"})
    (seen,) = reviewed(task, finding())[0].findings
    entry = BaselineEntry(fingerprint=seen.fingerprint, file="a.py", reason="legacy")
    old = replace(entry, fingerprint=NAME, expires=date(2000, 1, 1))
    review, _ = reviewed(task, finding(), baseline=Baseline((entry, old)))
    assert (review.verdict, review.exit_code, review.complete) == (Verdict.PASS, 0, True)
    assert [error.kind for error in review.errors] == ["baseline_expired"]
