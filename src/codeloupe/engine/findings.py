"""From reviewers to findings that count: together, merged, known from earlier rounds, suppressed, verified.

A review of no change needs none of this, so it loads with the first change.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from codeloupe.engine.identity import first_names, with_fingerprints
from codeloupe.engine.lifecycle import Settled
from codeloupe.engine.merge import review_together
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.suppress import suppress
from codeloupe.model.finding import Source
from codeloupe.model.ports import EventSink, ReviewerOutcome
from codeloupe.model.review import NOT_VERIFIED, ReviewError

if TYPE_CHECKING:
    from codeloupe.engine.run import ReviewPlan

_log = logging.getLogger(__name__)


async def find(plan: ReviewPlan, emit: EventSink) -> ReviewerOutcome:
    """What the reviewers of a plan find, with what was found beforehand. Failures are in it."""
    found = await review_together(plan.reviewers, plan.task, emit) if plan.task.files else ReviewerOutcome()
    found = replace(found, findings=(*found.findings, *plan.beforehand))
    settled, old_names = _settled(plan, found)
    named = replace(found, findings=settled.findings)
    # What does not count need not be verified, which costs a call for each.
    today = datetime.now(UTC).date()
    counted = suppress(named, plan.task, baseline=plan.baseline, today=today, first_names=old_names)
    outcome = await _verified(plan, counted, emit)
    return replace(outcome, findings=settled.decided(outcome.findings))


def _settled(plan: ReviewPlan, outcome: ReviewerOutcome) -> tuple[Settled, dict[str, str]]:
    """The findings with their status among earlier rounds, and by fingerprint the one that version 0.1.0 gave."""
    read = TextReader(plan.task).read
    findings = with_fingerprints(outcome.findings, context=read)
    old = first_names(findings, context=read)
    if plan.earlier is None:
        return Settled(findings), old
    failed = (file for unit in outcome.units_failed for file in unit.files)
    unreviewed = frozenset((*outcome.unreviewed, *failed))
    settled = plan.earlier.settle(findings, plan.task, unreviewed=unreviewed, first_names=old)
    # One that was recognised has its old name by now.
    pairs = zip(findings, settled.findings, strict=False)
    return settled, {now.fingerprint: old[one.fingerprint] for one, now in pairs}


async def _verified(plan: ReviewPlan, outcome: ReviewerOutcome, emit: EventSink) -> ReviewerOutcome:
    """The outcome with its findings verified; what an analyser found is no claim and is left alone."""
    claimed = [finding for finding in outcome.findings if finding.source is not Source.ANALYSER]
    if plan.verifier is None or not claimed:
        return outcome
    try:
        verification = await plan.verifier.verify(claimed, plan.task, emit)
        if [one.fingerprint for one in claimed] != [one.fingerprint for one in verification.findings]:
            raise ValueError("the verifier returned other findings than it was given")  # noqa: TRY301 - one more way to fail
    except Exception as error:  # noqa: BLE001 - a verifier that fails takes nothing from what was found
        _log.warning("the findings could not be verified", exc_info=True)
        failed = ReviewError(NOT_VERIFIED, f"the findings could not be verified: {type(error).__name__}: {error}")
        return replace(outcome, errors=(*outcome.errors, failed))
    became = iter(verification.findings)
    return replace(
        outcome,
        findings=tuple(finding if finding.source is Source.ANALYSER else next(became) for finding in outcome.findings),
        errors=(*outcome.errors, *verification.errors),
        usage=outcome.usage.plus(verification.usage),
    )
