"""From reviewers to findings that count: together, merged, known from earlier rounds, suppressed, verified.

Of what several units, experts, passes, agents or analysers saw, there is one finding for each defect. Two findings are
joined only if each member of the one group is the same defect as each member of the other, so that no chain of small
likenesses joins two that differ. The order in which the findings come does not matter. A review of no change needs none
of this, so it loads with the first change.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import astuple, replace

from codeloupe.engine.calls import failure_of
from codeloupe.engine.identity import first_names, with_fingerprints
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.similarity import NEAR_LINES, SAME, Profile, are_nearly_identical, likeness
from codeloupe.engine.suppress import suppress
from codeloupe.model.agent import Usage
from codeloupe.model.events import LaneFinished
from codeloupe.model.finding import Finding, FindingStatus, Source
from codeloupe.model.ports import EventSink, Reviewer, ReviewerOutcome, ReviewTask
from codeloupe.model.review import NOT_VERIFIED, FailedUnit, ReviewError

if TYPE_CHECKING:
    from codeloupe.engine.run import ReviewPlan

DROPPED_FINDING = "dropped_finding"
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


async def review_together(reviewers: Sequence[Reviewer], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
    """Let all review at the same time, and merge what they found; one that fails makes the review incomplete."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_outcome(reviewer, task, emit)) for reviewer in reviewers]
    outcomes = [one.result() for one in running]
    findings = tuple(finding for outcome in outcomes for finding in outcome.findings)
    if any(finding.source is not Source.ANALYSER for finding in findings):
        # The analysers merge their own, since they know their rules.
        findings = merge_findings(findings)
    # Where agents review, analysers do not make a file a reviewed one.
    asked = [one for reviewer, one in zip(reviewers, outcomes, strict=True) if reviewer.info.type != "offline"]
    return ReviewerOutcome(
        findings=findings,
        units_total=sum(outcome.units_total for outcome in outcomes),
        units_failed=tuple(unit for outcome in outcomes for unit in outcome.units_failed),
        errors=tuple(error for outcome in outcomes for error in outcome.errors),
        usage=reduce(Usage.plus, (outcome.usage for outcome in outcomes), Usage()),
        unreviewed=frozenset.intersection(*(outcome.unreviewed for outcome in asked or outcomes)),
    )


async def _outcome(reviewer: Reviewer, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
    started, name = time.monotonic(), reviewer.info.type
    try:
        return await reviewer.review(task, emit)
    except Exception as error:  # noqa: BLE001 - whatever a reviewer trips over, it is this reviewer that failed
        _log.warning("the reviewer %s failed", name, exc_info=True)
        reason = failure_of(error).reason
    files = tuple(dict.fromkeys(file.path for file in task.files))
    emit(LaneFinished(name, 0, time.monotonic() - started, reason))
    return ReviewerOutcome(
        units_total=1,
        units_failed=(FailedUnit(name, files, reason),),
        errors=(ReviewError("reviewer_failed", f"{name} could not review: {reason}"),),
        unreviewed=frozenset(files),
    )


# With how many findings at its place one is compared: real reviews never come near, and hostile answers stay linear.
_MOST_COMPARED = 60
_WORD_FOR_WORD = attrgetter("line_start", "line_end", "anchored", "evidence", "category", "rule", "title", "body")
_Group = list[Finding]


def merge_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings with duplicates joined, in order of file and line.

    A joined finding has the worst severity of its members, the fullest text, the narrowest place, and all names in
    `seen_by`. A name is one reviewer and pass, which is not believed to report one defect twice: its own findings are
    joined only when they are nearly identical. What an analyser found stays an analyser's finding.
    """
    places: defaultdict[tuple[str, str], _Group] = defaultdict(list)
    for finding in findings:
        places[finding.commit_sha or "", finding.file].append(finding)
    merged = [_joined(group) for place in places.values() for group in _groups(sorted(place, key=_order))]
    return tuple(sorted(merged, key=lambda item: (item.file, item.first_line, item.severity.priority, _order(item))))


def _groups(findings: Sequence[Finding]) -> Iterator[_Group]:
    """The findings of one file, in order, grouped by defect."""
    exact: defaultdict[tuple[object, ...], _Group] = defaultdict(list)
    for finding in findings:
        exact[_WORD_FOR_WORD(finding)].append(finding)
    groups = list(exact.values())
    likely = dict(_likely_pairs(groups))
    clusters: list[list[int]] = [[index] for index in range(len(groups))]
    for one, other in sorted(likely, key=lambda pair: (-likely[pair], pair)):
        left, right = clusters[one], clusters[other]
        if left is right or any((min(a, b), max(a, b)) not in likely for a in left for b in right):
            continue
        left += right
        for index in right:
            clusters[index] = left
    for index, cluster in enumerate(clusters):
        if cluster[0] == index:
            yield [finding for member in cluster for finding in groups[member]]


def _likely_pairs(groups: Sequence[_Group]) -> Iterator[tuple[tuple[int, int], float]]:
    """Pairs that are the same defect, by their place in the order, with how sure that is."""
    profiles = [Profile(group[0]) for group in groups]
    seen_by = [frozenset().union(*map(_seen_by, group)) for group in groups]
    for one, profile in enumerate(profiles):
        # What has no place comes first, and may be the same as any other.
        reach = math.inf if profile.finding.line_start is None else profile.finding.last_line + NEAR_LINES
        for other in range(one + 1, min(one + 1 + _MOST_COMPARED, len(profiles))):
            if profiles[other].finding.first_line > reach:
                break
            if seen_by[one].isdisjoint(seen_by[other]):
                sure = likeness(profile, profiles[other])
            else:
                sure = 1.0 if are_nearly_identical(profile, profiles[other]) else 0.0
            if sure >= SAME:
                yield (one, other), sure


def _joined(group: _Group) -> Finding:
    def place(one: Finding) -> tuple[bool, bool]:
        return not one.anchored, one.outside_change

    # What comes first explains the defect best: at a known place, open, and in full but not endlessly.
    ranked = sorted(group, key=lambda one: (*place(one), not one.is_open, -min(len(one.body), 1_200), _order(one)))
    fullest = ranked[0]
    placed = min(ranked, key=lambda one: (*place(one), one.last_line - one.first_line, _order(one)))
    names = frozenset().union(*map(_seen_by, group))
    # An analyser may count agreement without naming who agrees.
    unnamed = max(max(0, finding.agreement - len(_seen_by(finding))) for finding in group)
    exact = [finding for finding in group if finding.source is Source.ANALYSER]
    judged = next((finding for finding in ranked if finding.is_open), fullest)
    same_lines = [one for one in ranked if (one.line_start, one.evidence) == (placed.line_start, placed.evidence)]
    return replace(
        fullest,
        source=Source.ANALYSER if exact else fullest.source,
        line_start=placed.line_start,
        line_end=placed.line_end,
        evidence=placed.evidence,
        anchored=placed.anchored,
        outside_change=placed.outside_change,
        # The worst that anybody says: a critical claim is refuted by a verification, not outvoted.
        severity=min((finding.severity for finding in group), key=lambda severity: severity.priority),
        category=Counter(finding.category for finding in ranked).most_common(1)[0][0],
        rule=min((finding.rule for finding in exact or group if finding.rule), default=None),
        suggestion=next((finding.suggestion for finding in ranked if finding.suggestion), fullest.suggestion),
        replacement=next((one.replacement for one in same_lines if one.replacement is not None), None),
        confidence=max((finding.confidence for finding in group if finding.confidence is not None), default=None),
        status=judged.status,
        verification="\n".join(sorted({finding.verification for finding in group if finding.verification})),
        agreement=len(names) + unnamed,
        seen_by=tuple(sorted(names)),
    )


def _seen_by(finding: Finding) -> tuple[str, ...]:
    return finding.seen_by or (finding.reviewer,)


def _order(finding: Finding) -> tuple[object, ...]:
    """A total order by content, so that nothing depends on the order of arrival."""
    values = (value if isinstance(value, str) else repr(value) for value in astuple(finding))
    return finding.first_line, finding.last_line, finding.severity.priority, *values
