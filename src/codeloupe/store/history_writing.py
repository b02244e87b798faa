"""Reviews and sweeps as rows: what lists show of them, and how they get into their tables.

Rows are made before the transaction, which is then short; what writes them is called inside it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from codeloupe.errors import StoreError
from codeloupe.model.history import EntryKind, HistoryEntry, ReviewRecord, SeverityCounts, SweepRecord
from codeloupe.model.sweep import CommitReview
from codeloupe.store.records import encode, pack, real_column, text_column, whole_column

_NEXT_TURN = """
    (SELECT 1 + max(
        coalesce((SELECT max(turn) FROM reviews), 0), coalesce((SELECT max(turn) FROM sweeps), 0)
    ))
"""
_COUNT_RAW_OUTPUTS = """
    UPDATE reviews SET size_bytes = size_bytes
        + (SELECT coalesce(sum(length(unit) + length(output)), 0) FROM raw_outputs WHERE review = :review)
    WHERE number = :review
"""


def entry_of_review(record: ReviewRecord) -> HistoryEntry:
    """The line of a review in the list."""
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
    sweep = record.sweep
    entry = HistoryEntry(
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
    for commit in sweep.commits:
        entry = with_commit(entry, record, commit)
    if not record.finished:
        return entry
    usage = sweep.usage
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
        counts=SeverityCounts(**(Counter(asdict(entry.counts)) + Counter(asdict(its.counts)))),
        set_aside=entry.set_aside + its.set_aside,
        reviewer=entry.reviewer or its.reviewer,
        cost_usd=entry.cost_usd + its.cost_usd,
        unknown_costs=entry.unknown_costs + its.unknown_costs,
        duration_seconds=entry.duration_seconds + its.duration_seconds,
    )


class StoredReview(Struct, frozen=True):
    """The payload of a review: all but its findings, and how many of these there are."""

    record: ReviewRecord
    findings: int


class _ReviewRows(NamedTuple):
    """A review as rows, made before the transaction, which is then short."""

    record: ReviewRecord
    entry: bytes
    payload: bytes
    findings: list[tuple[object, ...]]
    raw_outputs: list[tuple[bytes, bytes]]
    size_bytes: int


class _CommitRows(NamedTuple):
    commit: CommitReview
    payload: bytes
    review: _ReviewRows | None


def marks(values: Sequence[object]) -> str:
    """The place of each value in a statement."""
    return ", ".join("?" * len(values))


def number_of(connection: sqlite3.Connection, kind: str, name: str) -> int | None:
    """The number of a review or a sweep in its table."""
    row = connection.execute(
        f"SELECT number FROM {kind}s WHERE {kind}_id = ?",  # noqa: S608 - words of ours
        (text_column(name),),
    ).fetchone()
    return None if row is None else int(row[0])


def review_rows(record: ReviewRecord, raw_outputs: Mapping[str, str]) -> _ReviewRows:
    """The rows of a review. Raises StoreError when something in it cannot be written."""
    review = record.review
    bare = replace(record, review=replace(review, findings=(), hidden=()), problems=(), turn=0)
    every = [*((finding, False) for finding in review.findings), *((finding, True) for finding in review.hidden)]
    try:
        entry, payload = encode(entry_of_review(record)), encode(StoredReview(bare, len(every)))
        encoded = [encode(finding) for finding, _ in every]
        raw = [(pack(unit), pack(output)) for unit, output in raw_outputs.items()]
    except ValueError as error:
        raise unwritable("review", review.review_id, error) from error
    findings: list[tuple[object, ...]] = [
        (
            position,
            int(hidden),
            int(finding.is_open),
            text_column(finding.fingerprint),
            finding.severity.value,
            finding.status.value,
            text_column(finding.file),
            None if finding.expert is None else text_column(finding.expert),
            text_column(finding.reviewer),
            text_column(finding.category),
            encoded[position],
        )
        for position, (finding, hidden) in enumerate(every)
    ]
    size_bytes = sum(map(len, (entry, payload, *encoded, *(part for pair in raw for part in pair))))
    return _ReviewRows(bare, entry, payload, findings, raw, size_bytes)


def commit_rows(record: SweepRecord, commit: CommitReview, raw_outputs: Mapping[str, str]) -> _CommitRows:
    """The rows of one commit of a sweep, with its review. Raises as `review_rows`."""
    review = None if commit.review is None else review_rows(record.record_of(commit.review), raw_outputs)
    try:
        return _CommitRows(commit, encode(replace(commit, review=None)), review)
    except ValueError as error:
        raise unwritable("sweep", record.sweep.sweep_id, error) from error


def write_review(connection: sqlite3.Connection, rows: _ReviewRows) -> None:
    """Write a review in the place of the one with its id, if there is one. Raw outputs stay unless new ones come."""
    record = rows.record
    review, usage = record.review, record.review.usage
    number = _upsert(
        connection,
        "review",
        {
            "review_id": text_column(review.review_id),
            "sweep_id": None if record.sweep_id is None else text_column(record.sweep_id),
            "saved_at": record.saved_at.timestamp(),
            "repository": text_column(record.repository),
            "branch": None if record.branch is None else text_column(record.branch),
            "scope": review.scope.kind.value,
            "reviewer": text_column(review.reviewer.type),
            "cost_usd": real_column(usage.cost_usd),
            "unknown_costs": whole_column(usage.unknown_costs),
            "duration_seconds": real_column(usage.duration_seconds),
            "size_bytes": rows.size_bytes,
            "entry": rows.entry,
            "payload": rows.payload,
        },
        keep_turn=True,
    )
    connection.execute("DELETE FROM findings WHERE review = ?", (number,))
    connection.executemany(
        "INSERT INTO findings (review, position, hidden, is_open, fingerprint, severity, status, file, expert,"
        " reviewer, category, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((number, *row) for row in rows.findings),
    )
    if rows.raw_outputs:
        connection.execute("DELETE FROM raw_outputs WHERE review = ?", (number,))
        connection.executemany(
            "INSERT INTO raw_outputs (review, unit, output) VALUES (?, ?, ?)",
            ((number, unit, output) for unit, output in rows.raw_outputs),
        )
    else:
        connection.execute(_COUNT_RAW_OUTPUTS, {"review": number})


def write_sweep(connection: sqlite3.Connection, record: SweepRecord, entry: HistoryEntry) -> int:
    """Write a sweep without its commits, in the place of the one with its id; returns its number."""
    bare = replace(record, sweep=replace(record.sweep, commits=()), problems=())
    try:
        row, payload = encode(entry), encode(bare)
    except ValueError as error:
        raise unwritable("sweep", record.sweep.sweep_id, error) from error
    values = {
        "sweep_id": text_column(record.sweep.sweep_id),
        "saved_at": record.saved_at.timestamp(),
        "repository": text_column(record.repository),
        "branch": None if record.branch is None else text_column(record.branch),
        "size_bytes": len(row) + len(payload),
        "entry": row,
        "payload": payload,
    }
    return _upsert(connection, "sweep", values, keep_turn=False)


def write_commit(connection: sqlite3.Connection, sweep: int, position: int, rows: _CommitRows) -> None:
    """Write a commit of a sweep, with its review."""
    review_id = None if rows.commit.review is None else text_column(rows.commit.review.review_id)
    connection.execute(
        "INSERT INTO sweep_commits (sweep, position, review_id, payload) VALUES (?, ?, ?, ?)",
        (sweep, position, review_id, rows.payload),
    )
    if rows.review is not None:
        write_review(connection, rows.review)


def _upsert(connection: sqlite3.Connection, kind: str, values: Mapping[str, object], *, keep_turn: bool) -> int:
    """Write the row of a review or a sweep in the place of the one with its id; returns its number."""
    changed = [*values, *([] if keep_turn else ["turn"])]
    connection.execute(
        f"INSERT INTO {kind}s ({', '.join(values)}, turn) VALUES ({marks(list(values))}, {_NEXT_TURN})"  # noqa: S608 - words of ours
        f" ON CONFLICT ({kind}_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in changed)}",
        list(values.values()),
    )
    number = number_of(connection, kind, str(values[f"{kind}_id"]))
    if number is None:
        raise AssertionError(f"the {kind} was just written")
    return number


def unwritable(what: str, name: str, error: ValueError) -> StoreError:
    """The error for what cannot be written; nothing of it was stored."""
    return StoreError(f"the {what} {name} cannot be saved: {error}", hint="it can be used, but not kept")
