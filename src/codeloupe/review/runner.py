"""One review from selected files to outcome: reviewer, identity, verdict, in that order."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace

from codeloupe.model.events import StageStarted, Warned
from codeloupe.model.finding import Finding
from codeloupe.model.review import Coverage, Policy, Review, ReviewerInfo, ReviewError
from codeloupe.ports import Clock, EventSink, Reviewer, ReviewerOutcome, ReviewTask
from codeloupe.review.identity import with_fingerprints
from codeloupe.review.selection import Selection
from codeloupe.review.verdict import exit_code, judge, summarise

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPlan:
    """All that a run needs: the task, what was left out, who reviews, and the policy."""

    task: ReviewTask
    selection: Selection
    reviewer: Reviewer
    policy: Policy


async def run_review(plan: ReviewPlan, *, clock: Clock, started: float, emit: EventSink) -> Review:
    """Review the plan's files. A failed part makes the review incomplete; only cancellation is raised."""
    info = plan.reviewer.info
    outcome = ReviewerOutcome()
    if plan.task.files:
        count = len(plan.task.files)
        emit(StageStarted("analysing", f"{count} file{'' if count == 1 else 's'}"))
        outcome = await plan.reviewer.review(plan.task, emit)
    review = _conclude(plan, info, outcome)
    for error in review.errors:
        _log.warning("%s: %s", error.kind, error.message)
    for gap in _gaps(review.coverage):
        emit(Warned(gap.message))
    return replace(review, usage=replace(outcome.usage, duration_seconds=clock() - started))


def _conclude(plan: ReviewPlan, info: ReviewerInfo, outcome: ReviewerOutcome) -> Review:
    coverage = Coverage(
        files_total=plan.selection.total,
        files_reviewed=len(plan.task.files),
        skipped=plan.selection.skipped,
        units_total=outcome.units_total,
        units_failed=outcome.units_failed,
    )
    everything = with_fingerprints(outcome.findings)
    findings = tuple(finding for finding in everything if _shown(finding, plan.policy))
    complete = coverage.complete
    return Review(
        review_id=uuid.uuid4().hex,
        scope=plan.task.change.scope,
        reviewer=info,
        verdict=judge(findings),
        complete=complete,
        exit_code=exit_code(findings, plan.policy, complete=complete),
        summary=summarise(findings, coverage, complete=complete),
        policy=plan.policy,
        findings=findings,
        hidden_findings=len(everything) - len(findings),
        coverage=coverage,
        errors=outcome.errors + _gaps(coverage),
    )


def _shown(finding: Finding, policy: Policy) -> bool:
    """What could block is always shown, so that no gate closes for a reason nobody sees."""
    return finding.severity.at_least(policy.min_severity) or finding.severity.at_least(policy.fail_on)


def _gaps(coverage: Coverage) -> tuple[ReviewError, ...]:
    """A file that should have been reviewed and was not is an error of the review."""
    return tuple(
        ReviewError("not_reviewed", f"{skip.file}: {skip.in_words()}")
        for skip in coverage.skipped
        if skip.reason.is_gap
    )
