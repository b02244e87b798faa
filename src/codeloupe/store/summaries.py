"""What lists and trends show of reviews and sweeps: the line of one, and sums over many, made by the database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any

from msgspec.structs import asdict, replace

from codeloupe.model import history as model
from codeloupe.model.sweep import CommitReview
from codeloupe.store.interface import Database

SPENT = ("cost_usd", "unknown_costs", "duration_seconds")
_REVIEW_SUMS = """
    SELECT {week}, reviewer, count(*), sum(CAST(cost_usd AS DOUBLE PRECISION)),
        CAST(sum(CAST(unknown_costs AS BIGINT)) AS BIGINT), sum(CAST(duration_seconds AS DOUBLE PRECISION))
    FROM reviews WHERE {condition} GROUP BY 1, 2
"""
# A finding counts once, where it was first open; it is fixed when the last review that names it says so.
_FINDING_SUMS = """
    SELECT week, reviewer, coalesce(nullif(expert, ''), '(no expert)'), count(*), sum(fixed) FROM (
        SELECT {week} AS week, reviews.reviewer, f.expert, f.is_open,
            row_number() OVER (PARTITION BY repository, f.fingerprint, f.is_open ORDER BY turn) AS place,
            last_value(CASE WHEN f.status = 'fixed' THEN 1 ELSE 0 END) OVER (
                PARTITION BY repository, f.fingerprint ORDER BY turn
                ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
            ) AS fixed
        FROM {findings_of_reviews}
        WHERE f.hidden = 0 AND {condition}
    ) AS seen WHERE is_open <> 0 AND place = 1 GROUP BY 1, 2, 3
"""


def entry_of_review(record: model.ReviewRecord) -> model.HistoryEntry:
    """The line of a review in the list."""
    review = record.review
    counts = Counter(finding.severity.label for finding in review.findings if finding.can_block)
    return model.HistoryEntry(
        entry_id=review.review_id,
        kind=model.EntryKind.REVIEW,
        **attributes(record, "saved_at", "repository_label", "branch", "head"),
        **attributes(review, "complete", "exit_code", "summary"),
        **attributes(review.usage, *SPENT),
        scope=review.scope.kind.value,
        description=review.scope.description,
        verdict=review.verdict.value,
        counts=model.SeverityCounts(**counts),
        set_aside=len(review.findings) - counts.total(),
        reviewer=review.reviewer.type,
    )


def entry_of_sweep(record: model.SweepRecord) -> model.HistoryEntry:
    """The line of a sweep, with all its commits."""
    sweep = record.sweep
    entry = model.HistoryEntry(
        entry_id=sweep.sweep_id,
        kind=model.EntryKind.SWEEP,
        **attributes(record, "saved_at", "repository_label", "branch"),
        **attributes(sweep, "description", "exit_code"),
        scope="commits",
        verdict=None,
        complete=record.finished,
        summary=sweep.summary if record.finished else "not finished",
        counts=model.SeverityCounts(),
    )
    for commit in sweep.commits:
        entry = with_commit(entry, record, commit)
    return replace(entry, **attributes(sweep.usage, *SPENT)) if record.finished else entry


def with_commit(entry: model.HistoryEntry, record: model.SweepRecord, commit: CommitReview) -> model.HistoryEntry:
    """The line of a sweep when one more of its commits is known."""
    entry = replace(entry, commits=entry.commits + 1, complete=entry.complete and commit.reviewed)
    if commit.review is None:
        return entry
    its = entry_of_review(record.record_of(commit.review))
    return replace(
        entry,
        counts=model.SeverityCounts(**(Counter(asdict(entry.counts)) + Counter(asdict(its.counts)))),
        reviewer=entry.reviewer or its.reviewer,
        **{name: getattr(entry, name) + getattr(its, name) for name in ("set_aside", *SPENT)},
    )


def attributes(value: object, *names: str) -> dict[str, Any]:
    """Some attributes of an object by their names."""
    return {name: getattr(value, name) for name in names}


def read_trends(
    database: Database, by: Sequence[model.TrendKey], *, condition: str, values: Sequence[object]
) -> tuple[model.Trends, ...]:
    """The trends of the reviews for which a condition holds, for each key by which they are wanted."""
    words = {"week": database.week, "findings_of_reviews": database.findings_of_reviews, "condition": condition}
    with database.snapshot() as connection:
        reviews, findings = (
            connection.execute(sums.format(**words), values).fetchall() for sums in (_REVIEW_SUMS, _FINDING_SUMS)
        )
    return tuple(model.Trends(key, _trend_rows(key, reviews, findings)) for key in by)


def _trend_rows(
    by: model.TrendKey, reviews: Iterable[tuple[Any, ...]], findings: Iterable[tuple[Any, ...]]
) -> tuple[model.TrendRow, ...]:
    # Experts share a review, so that its cost and time are nobody's.
    spent = () if by is model.TrendKey.EXPERT else ("reviews", *SPENT)
    sums: defaultdict[str, dict[str, Any]] = defaultdict(lambda: dict.fromkeys(("findings", "fixed", *spent), 0))
    column = {model.TrendKey.WEEK: 0, model.TrendKey.REVIEWER: 1, model.TrendKey.EXPERT: 2}[by]
    for names, rows in ((spent, reviews), (("findings", "fixed"), findings)):
        for row in rows if names else ():
            total = sums[row[column]]
            for name, number in zip(names, row[-len(names) :], strict=True):
                total[name] += number
    ordered = sorted(sums, key=lambda key: (-sums[key]["findings"], key))
    if by is model.TrendKey.WEEK and sums:
        ordered = sorted(sums)
        first, last = (date.fromisoformat(ordered[place]) for place in (0, -1))
        weeks = range((last - first).days // 7 + 1)
        # Weeks without a review are there too; but a clock that was wrong once must not fill the screen with them.
        if len(weeks) <= 520:
            ordered = [(first + timedelta(weeks=number)).isoformat() for number in weeks]
    return tuple(model.TrendRow(key=key, **sums[key]) for key in ordered)
