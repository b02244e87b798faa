"""Several reviewers on one change at the same time, and what they found together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import reduce

from codeloupe.engine.failures import failure_of
from codeloupe.engine.merge import merge_findings
from codeloupe.model.agent import Usage
from codeloupe.model.events import LaneFinished
from codeloupe.model.finding import Finding, Source
from codeloupe.model.ports import EventSink, Reviewer, ReviewerOutcome, ReviewTask
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError

OFFLINE = "offline"
_log = logging.getLogger(__name__)


async def review_in_lanes(lanes: Sequence[Reviewer], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
    """Let all review, and merge what they found.

    One that fails leaves the others alone and the review incomplete; only cancellation is raised.
    """
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_outcome(lane, task, emit)) for lane in lanes]
    outcomes = [lane.result() for lane in running]
    return ReviewerOutcome(
        findings=_merged([finding for outcome in outcomes for finding in outcome.findings]),
        units_total=sum(outcome.units_total for outcome in outcomes),
        units_failed=tuple(unit for outcome in outcomes for unit in outcome.units_failed),
        errors=tuple(error for outcome in outcomes for error in outcome.errors),
        usage=reduce(Usage.plus, (outcome.usage for outcome in outcomes), Usage()),
        unreviewed=_unreviewed(lanes, outcomes),
    )


def _merged(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """One finding for each defect."""
    if all(finding.source is Source.ANALYSER for finding in findings):
        return tuple(findings)  # merged by their own lane, which knows their rules
    return merge_findings(findings)


def joined_info(lanes: Sequence[ReviewerInfo]) -> ReviewerInfo:
    """Who reviewed, as one line: a single reviewer as it is, several with their types and reasons in order."""
    if len(lanes) == 1:
        return lanes[0]
    models = dict.fromkeys(info.model for info in lanes if info.model)
    return ReviewerInfo(
        type="+".join(info.type for info in lanes),
        why="; ".join(f"{info.type}: {info.why}" for info in lanes),
        model="+".join(models) or None,
    )


def _unreviewed(lanes: Sequence[Reviewer], outcomes: Sequence[ReviewerOutcome]) -> frozenset[str]:
    """Files about which nobody can say anything. Where agents review, analysers do not make a file a reviewed one."""
    asked = [outcome for lane, outcome in zip(lanes, outcomes, strict=True) if lane.info.type != OFFLINE] or outcomes
    return frozenset.intersection(*(outcome.unreviewed for outcome in asked))


async def _outcome(lane: Reviewer, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
    started = time.monotonic()
    try:
        return await lane.review(task, emit)
    except Exception as error:  # noqa: BLE001 - whatever a reviewer trips over, it is this lane that failed
        _log.warning("the reviewer %s failed", lane.info.type, exc_info=True)
        reason = failure_of(error).reason
    files = tuple(dict.fromkeys(file.path for file in task.files))
    emit(LaneFinished(lane.info.type, 0, time.monotonic() - started, reason))
    return ReviewerOutcome(
        units_total=1,
        units_failed=(FailedUnit(lane.info.type, files, reason),),
        errors=(ReviewError("reviewer_failed", f"{lane.info.type} could not review: {reason}"),),
        unreviewed=frozenset(files),
    )
