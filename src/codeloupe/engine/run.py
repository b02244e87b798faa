"""One review from files to outcome: reviewers, merge, identity, suppressions, verification, verdict, in that order."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.failures import NOT_VERIFIED
from codeloupe.engine.identity import first_names, with_fingerprints
from codeloupe.engine.lanes import joined_info, review_in_lanes
from codeloupe.engine.lifecycle import EarlierRounds, Settled, converged
from codeloupe.engine.prepare import with_and_without_lines
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.selection import Selection
from codeloupe.engine.suppression_step import suppress
from codeloupe.engine.verdict import exit_code, judge, summarise
from codeloupe.model.baseline import Baseline
from codeloupe.model.events import Event, StageStarted, Warned
from codeloupe.model.finding import Finding, Source
from codeloupe.model.ports import Clock, EventSink, Reviewer, ReviewerOutcome, ReviewTask, Verifier
from codeloupe.model.review import (
    Coverage,
    Policy,
    Review,
    ReviewerInfo,
    ReviewError,
    unplaced_errors,
    unsettled_claims,
)

_log = logging.getLogger(__name__)


class ReviewPlan(Struct, frozen=True, kw_only=True):
    """All that a run needs: the task, what was left out, who reviews, who verifies, and the policy.

    `reviewers` all review the same files at the same time; there is at least one. `baseline` holds the findings that
    are known and do not count; of an untrusted change it must not come from the change itself. `earlier` is what
    earlier rounds of this review found. `beforehand` is what analysers found in files that no reviewer gets.
    """

    task: ReviewTask
    selection: Selection
    policy: Policy
    reviewers: tuple[Reviewer, ...]
    verifier: Verifier | None = None
    baseline: Baseline = Baseline()
    earlier: EarlierRounds | None = None
    beforehand: tuple[Finding, ...] = ()

    def __post_init__(self) -> None:
        if not self.reviewers:
            raise ValueError("a review needs a reviewer")


async def run_review(plan: ReviewPlan, *, clock: Clock, started: float, emit: EventSink) -> Review:
    """Review the plan's files. A failed part makes the review incomplete; only cancellation is raised.

    A change without files to review is concluded at once, and nobody is asked.
    """
    sink = _Sink(emit)
    for lane in plan.reviewers:
        _log.info("Initializing code reviewer: %s (%s)", lane.info.type, lane.info.why)
    outcome = ReviewerOutcome()
    if plan.task.files or plan.beforehand:
        count = len(plan.task.files)
        sink(StageStarted("analysing", f"{count} file{'' if count == 1 else 's'}"))
        found = await review_in_lanes(plan.reviewers, plan.task, sink) if plan.task.files else outcome
        found = replace(found, findings=(*found.findings, *plan.beforehand))
        settled, old_names = _settled(plan, found)
        named = replace(found, findings=settled.findings)
        # What does not count need not be verified, which costs a call for each.
        today = datetime.now(UTC).date()
        counted = suppress(named, plan.task, baseline=plan.baseline, today=today, first_names=old_names)
        outcome = await _verified(plan, counted, sink)
        outcome = replace(outcome, findings=settled.decided(outcome.findings))
    review = _conclude(plan, joined_info([lane.info for lane in plan.reviewers]), outcome)
    for error in review.errors:
        if error.message not in sink.warnings:
            _log.warning("%s: %s", error.kind, error.message)
    for gap in (*_gaps(review.coverage), *unplaced_errors(review.unsettled)):
        sink(Warned(gap.message))
    return replace(review, usage=replace(outcome.usage, duration_seconds=clock() - started))


def _settled(plan: ReviewPlan, outcome: ReviewerOutcome) -> tuple[Settled, dict[str, str]]:
    """The findings with fingerprints, and with their status where earlier rounds are known.

    Beside them, by fingerprint, the one that version 0.1.0 would have given.
    """
    read = TextReader(plan.task).read
    findings = with_fingerprints(outcome.findings, context=read)
    old = first_names(findings, context=read)
    if plan.earlier is None:
        return Settled(findings), old
    failed = (file for unit in outcome.units_failed for file in unit.files)
    unreviewed = frozenset((*outcome.unreviewed, *failed))
    settled = plan.earlier.settle(findings, plan.task, unreviewed=unreviewed, first_names=old)
    # One that was recognised has its old name by now.
    return settled, {
        now.fingerprint: old[one.fingerprint] for one, now in zip(findings, settled.findings, strict=False)
    }


class _Sink:
    """Passes events on, a warning once. A listener that fails takes nothing from the review.

    `warnings` are those already told: reviewers and the verifier may have the same to say.
    """

    def __init__(self, emit: EventSink) -> None:
        self._emit = emit
        self._broken = False
        self.warnings: set[str] = set()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Warned):
            if event.message in self.warnings:
                return
            self.warnings.add(event.message)
        try:
            self._emit(event)
        except Exception:  # noqa: BLE001 - a display may fail at anything, and what was bought for the review is not lost for it
            if not self._broken:
                _log.warning("an event of the review could not be shown", exc_info=True)
            self._broken = True


async def _verified(plan: ReviewPlan, outcome: ReviewerOutcome, emit: EventSink) -> ReviewerOutcome:
    """The outcome with its findings verified; what an analyser found is no claim and is left alone."""
    claimed = [finding for finding in outcome.findings if finding.source is not Source.ANALYSER]
    if plan.verifier is None or not claimed:
        return outcome
    try:
        verification = await plan.verifier.verify(claimed, plan.task, emit)
        _check_nothing_is_lost(claimed, verification.findings)
    except Exception as error:  # noqa: BLE001 - a verifier that fails takes nothing from what was found
        _log.warning("the findings could not be verified", exc_info=True)
        told = ReviewError(NOT_VERIFIED, f"the findings could not be verified: {type(error).__name__}: {error}")
        return replace(outcome, errors=(*outcome.errors, told))
    became = iter(verification.findings)
    return replace(
        outcome,
        findings=tuple(finding if finding.source is Source.ANALYSER else next(became) for finding in outcome.findings),
        errors=(*outcome.errors, *verification.errors),
        usage=outcome.usage.plus(verification.usage),
    )


def _check_nothing_is_lost(given: Sequence[Finding], returned: Sequence[Finding]) -> None:
    if [finding.fingerprint for finding in given] != [finding.fingerprint for finding in returned]:
        raise ValueError("the verifier returned other findings than it was given")


def _conclude(plan: ReviewPlan, info: ReviewerInfo, outcome: ReviewerOutcome) -> Review:
    read, unchanged = with_and_without_lines(plan.task.files)
    coverage = Coverage(
        files_total=plan.selection.total,
        files_reviewed=sum(file.path not in outcome.unreviewed for file in read) + len(plan.selection.lock_files),
        skipped=(*plan.selection.skipped, *unchanged),
        units_total=outcome.units_total,
        units_failed=outcome.units_failed,
    )
    findings = tuple(finding for finding in outcome.findings if _shown(finding, plan.policy))
    hidden = tuple(finding for finding in outcome.findings if not _shown(finding, plan.policy))
    unsettled = unsettled_claims(findings, plan.policy)
    complete = coverage.complete and not unsettled
    return Review(
        review_id=secrets.token_hex(16),
        scope=plan.task.change.scope,
        reviewer=info,
        verdict=judge(findings, complete=complete, fail_on=plan.policy.fail_on),
        complete=complete,
        exit_code=exit_code(findings, plan.policy, complete=complete),
        summary=summarise(findings, coverage, complete=complete) + _converged(plan, findings, complete=complete),
        policy=plan.policy,
        findings=findings,
        hidden_findings=len(hidden),
        hidden=hidden,
        coverage=coverage,
        errors=(*outcome.errors, *_gaps(coverage), *unplaced_errors(unsettled)),
    )


def _converged(plan: ReviewPlan, findings: Sequence[Finding], *, complete: bool) -> str:
    """A word on whether a further round is worth its price: this one brought nothing new that could block."""
    if plan.earlier is None or not plan.task.files:
        return ""
    if plan.earlier.is_first or not complete or not converged(findings, plan.policy.fail_on):
        return plan.earlier.remark
    return f"{plan.earlier.remark}; converged: nothing new of {plan.policy.fail_on.label} or above"


def _shown(finding: Finding, policy: Policy) -> bool:
    """What could block is always shown, so that no gate closes for a reason nobody sees."""
    return finding.severity.at_least(policy.min_severity) or finding.severity.at_least(policy.fail_on)


def _gaps(coverage: Coverage) -> tuple[ReviewError, ...]:
    """A file that should have been reviewed and was not is an error of the review."""
    return tuple(
        ReviewError("not_reviewed", f"{skip.file}: {skip.in_words()}") for skip in coverage.skipped if skip.is_gap
    )
