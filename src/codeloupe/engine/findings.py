"""From reviewers to findings that count: together, merged, known from earlier rounds, suppressed, verified.

A review of no change needs none of this, so it loads with the first change.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from codeloupe.engine.identity import first_names, with_fingerprints
from codeloupe.engine.merge import review_together
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.suppress import suppress
from codeloupe.model.finding import FindingStatus, Source
from codeloupe.model.ports import EventSink, ReviewerOutcome
from codeloupe.model.review import NOT_VERIFIED, ReviewError

if TYPE_CHECKING:
    from codeloupe.engine.run import ReviewPlan

_log = logging.getLogger(__name__)


async def find(plan: ReviewPlan, emit: EventSink) -> ReviewerOutcome:
    """What the reviewers of a plan find, with what was found beforehand. Failures are in it."""
    found = await review_together(plan.reviewers, plan.task, emit) if plan.task.files else ReviewerOutcome()
    read = TextReader(plan.task).read
    findings = with_fingerprints((*found.findings, *plan.beforehand), context=read)
    old_names = first_names(findings, context=read)
    doubtful: set[str] = set()
    if plan.earlier is not None:
        failed = (file for unit in found.units_failed for file in unit.files)
        unreviewed = frozenset((*found.unreviewed, *failed))
        new = findings
        findings, doubtful = plan.earlier.settle(new, plan.task, unreviewed=unreviewed, first_names=old_names)
        # One that was recognised has its old name by now.
        pairs = zip(new, findings, strict=False)
        old_names = {now.fingerprint: old_names[one.fingerprint] for one, now in pairs}
    # What does not count need not be verified, which costs a call for each.
    today = datetime.now(UTC).date()
    named = replace(found, findings=findings)
    counted = suppress(named, plan.task, baseline=plan.baseline, today=today, first_names=old_names)
    outcome = await _verified(plan, counted, emit)
    decided = list(outcome.findings)
    for index, one in enumerate(decided):
        if one.fingerprint in doubtful and (one.status is FindingStatus.REFUTED or not one.verification):
            decided[index] = replace(one, status=FindingStatus.FIXED)
    return replace(outcome, findings=tuple(decided))


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
