"""What the list shows of a saved review or sweep. Pure."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from codeloupe.model.history import EntryKind, HistoryEntry, ReviewRecord, SeverityCounts, SweepRecord
from codeloupe.model.sweep import CommitReview


def entry_of_review(record: ReviewRecord) -> HistoryEntry:
    """The line of a review."""
    review = record.review
    counts = Counter(finding.severity.label for finding in review.findings if finding.can_block)
    return HistoryEntry(
        entry_id=review.review_id,
        kind=EntryKind.REVIEW,
        saved_at=record.saved_at,
        repository_label=record.repository_label,
        branch=record.branch,
        scope=review.scope.kind.value,
        description=review.scope.description,
        verdict=review.verdict.value,
        complete=review.complete,
        exit_code=review.exit_code,
        summary=review.summary,
        counts=SeverityCounts(**counts),
        set_aside=len(review.findings) - counts.total(),
        reviewer=review.reviewer.type,
        cost_usd=review.usage.cost_usd,
        unknown_costs=review.usage.unknown_costs,
        duration_seconds=review.usage.duration_seconds,
        head=record.head,
    )


def entry_of_sweep(record: SweepRecord) -> HistoryEntry:
    """The line of a sweep, with all its commits."""
    entry = _without_commits(record)
    for commit in record.sweep.commits:
        entry = with_commit(entry, record, commit)
    if not record.finished:
        return entry
    usage = record.sweep.usage
    return replace(
        entry,
        cost_usd=usage.cost_usd,
        unknown_costs=usage.unknown_costs,
        duration_seconds=usage.duration_seconds,
    )


def with_commit(entry: HistoryEntry, record: SweepRecord, commit: CommitReview) -> HistoryEntry:
    """The line of a sweep when one more of its commits is known."""
    reviewed = replace(entry, commits=entry.commits + 1, complete=entry.complete and commit.reviewed)
    if commit.review is None:
        return reviewed
    its = entry_of_review(record.record_of(commit.review))
    return replace(
        reviewed,
        counts=_sum(entry.counts, its.counts),
        set_aside=entry.set_aside + its.set_aside,
        reviewer=entry.reviewer or its.reviewer,
        cost_usd=entry.cost_usd + its.cost_usd,
        unknown_costs=entry.unknown_costs + its.unknown_costs,
        duration_seconds=entry.duration_seconds + its.duration_seconds,
    )


def _without_commits(record: SweepRecord) -> HistoryEntry:
    sweep = record.sweep
    return HistoryEntry(
        entry_id=sweep.sweep_id,
        kind=EntryKind.SWEEP,
        saved_at=record.saved_at,
        repository_label=record.repository_label,
        branch=record.branch,
        scope="commits",
        description=sweep.description,
        verdict=None,
        complete=record.finished,
        exit_code=sweep.exit_code,
        summary=sweep.summary if record.finished else "not finished",
        counts=SeverityCounts(),
    )


def _sum(one: SeverityCounts, other: SeverityCounts) -> SeverityCounts:
    return SeverityCounts(
        critical=one.critical + other.critical,
        high=one.high + other.high,
        medium=one.medium + other.medium,
        low=one.low + other.low,
    )
