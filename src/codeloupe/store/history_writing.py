"""Reviews and sweeps as rows: what lists show of them, and how they get into their tables, inside a transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from codeloupe.errors import StoreError
from codeloupe.model.history import EntryKind, HistoryEntry, ReviewRecord, SeverityCounts, SweepRecord
from codeloupe.model.sweep import CommitReview
from codeloupe.store.records import encode, pack

_NEXT_TURN = """
    (SELECT 1 + max(
        coalesce((SELECT max(turn) FROM reviews), 0), coalesce((SELECT max(turn) FROM sweeps), 0)
    ))
"""
_COUNT_RAW_OUTPUTS = """
    UPDATE reviews SET size_bytes = size_bytes
        + (SELECT coalesce(sum(length(unit) + length(output)), 0) FROM raw_outputs WHERE review = reviews.number)
    WHERE number = ?
"""
_SPENT = ("cost_usd", "unknown_costs", "duration_seconds")


def _shared_entry(record: ReviewRecord | SweepRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("saved_at", "repository_label", "branch")}


def entry_of_review(record: ReviewRecord) -> HistoryEntry:
    """The line of a review in the list."""
    review = record.review
    counts = Counter(finding.severity.label for finding in review.findings if finding.can_block)
    return HistoryEntry(
        entry_id=review.review_id,
        kind=EntryKind.REVIEW,
        **_shared_entry(record),
        scope=review.scope.kind.value,
        description=review.scope.description,
        verdict=review.verdict.value,
        complete=review.complete,
        exit_code=review.exit_code,
        summary=review.summary,
        counts=SeverityCounts(**counts),
        set_aside=len(review.findings) - counts.total(),
        reviewer=review.reviewer.type,
        **{name: getattr(review.usage, name) for name in _SPENT},
        head=record.head,
    )


def entry_of_sweep(record: SweepRecord) -> HistoryEntry:
    """The line of a sweep, with all its commits."""
    sweep = record.sweep
    entry = HistoryEntry(
        entry_id=sweep.sweep_id,
        kind=EntryKind.SWEEP,
        **_shared_entry(record),
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
    return replace(entry, **{name: getattr(sweep.usage, name) for name in _SPENT}) if record.finished else entry


def with_commit(entry: HistoryEntry, record: SweepRecord, commit: CommitReview) -> HistoryEntry:
    """The line of a sweep when one more of its commits is known."""
    reviewed = replace(entry, commits=entry.commits + 1, complete=entry.complete and commit.reviewed)
    if commit.review is None:
        return reviewed
    its = entry_of_review(record.record_of(commit.review))
    return replace(
        reviewed,
        counts=SeverityCounts(**(Counter(asdict(entry.counts)) + Counter(asdict(its.counts)))),
        reviewer=entry.reviewer or its.reviewer,
        **{name: getattr(entry, name) + getattr(its, name) for name in ("set_aside", *_SPENT)},
    )


class StoredReview(Struct, frozen=True):
    """The payload of a review: all but its findings, and how many of these there are."""

    record: ReviewRecord
    findings: int


def marks(values: Sequence[object]) -> str:
    """The place of each value in a statement."""
    return ", ".join("?" * len(values))


def number_of(connection: sqlite3.Connection, kind: str, name: str) -> int | None:
    """The number of a review or a sweep in its table."""
    statement = f"SELECT number FROM {kind}s WHERE {kind}_id = ?"  # noqa: S608 - words of ours
    row = connection.execute(statement, (name,)).fetchone()
    return None if row is None else int(row[0])


def write_review(connection: sqlite3.Connection, record: ReviewRecord, raw_outputs: Mapping[str, str]) -> None:
    """Write a review in the place of the one with its id, if there is one. Raw outputs stay unless new ones come.

    Raises StoreError when something in it cannot be written.
    """
    review, name = record.review, f"review {record.review.review_id}"
    bare = replace(record, review=replace(review, findings=(), hidden=()), problems=(), turn=0)
    every = [*((finding, False) for finding in review.findings), *((finding, True) for finding in review.hidden)]
    entry, payload = encoded(entry_of_review(record), name), encoded(StoredReview(bare, len(every)), name)
    findings: list[tuple[object, ...]] = [
        (
            *(position, hidden, finding.is_open, finding.fingerprint, finding.severity.value, finding.status.value),
            *(finding.file, finding.expert, finding.reviewer, finding.category, encoded(finding, name)),
        )
        for position, (finding, hidden) in enumerate(every)
    ]
    raw = [(pack(unit), pack(output)) for unit, output in raw_outputs.items()]
    stored = (entry, payload, *(row[-1] for row in findings), *(part for pair in raw for part in pair))
    values = {
        **_shared_columns("review", review.review_id, record),
        "sweep_id": record.sweep_id,
        "scope": review.scope.kind.value,
        "reviewer": review.reviewer.type,
        **{name: getattr(review.usage, name) for name in _SPENT},
        "size_bytes": sum(len(part) for part in stored if isinstance(part, bytes)),
        "entry": entry,
        "payload": payload,
    }
    number = _upsert(connection, "review", values, keep_turn=True)
    connection.execute("DELETE FROM findings WHERE review = ?", (number,))
    connection.executemany(
        "INSERT INTO findings (review, position, hidden, is_open, fingerprint, severity, status, file, expert,"
        " reviewer, category, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((number, *row) for row in findings),
    )
    if not raw:
        connection.execute(_COUNT_RAW_OUTPUTS, (number,))
        return
    connection.execute("DELETE FROM raw_outputs WHERE review = ?", (number,))
    connection.executemany(
        "INSERT INTO raw_outputs (review, unit, output) VALUES (?, ?, ?)", ((number, *pair) for pair in raw)
    )


def write_sweep(connection: sqlite3.Connection, record: SweepRecord, entry: HistoryEntry) -> int:
    """Write a sweep without its commits, in the place of the one with its id; returns its number."""
    name = f"sweep {record.sweep.sweep_id}"
    payload = encoded(replace(record, sweep=replace(record.sweep, commits=()), problems=()), name)
    row = encoded(entry, name)
    shared = _shared_columns("sweep", record.sweep.sweep_id, record)
    values = {**shared, "size_bytes": len(row) + len(payload), "entry": row, "payload": payload}
    return _upsert(connection, "sweep", values, keep_turn=False)


def write_commit(
    connection: sqlite3.Connection,
    sweep: int,
    record: SweepRecord,
    commit: CommitReview,
    raw_outputs: Mapping[str, str],
) -> None:
    """Write one more commit of a sweep, with its review."""
    payload = encoded(replace(commit, review=None), f"sweep {record.sweep.sweep_id}")
    connection.execute(
        "INSERT INTO sweep_commits (sweep, position, review_id, payload)"
        " SELECT ?, coalesce(max(position) + 1, 0), ?, ? FROM sweep_commits WHERE sweep = ?",
        (sweep, commit.review and commit.review.review_id, payload, sweep),
    )
    if commit.review is not None:
        write_review(connection, record.record_of(commit.review), raw_outputs)


def _shared_columns(kind: str, name: str, record: ReviewRecord | SweepRecord) -> dict[str, object]:
    columns = {"repository": record.repository, "branch": record.branch}
    return {f"{kind}_id": name, "saved_at": record.saved_at.timestamp(), **columns}


def _upsert(connection: sqlite3.Connection, kind: str, values: Mapping[str, object], *, keep_turn: bool) -> int:
    """Write the row of a review or a sweep in the place of the one with its id; returns its number."""
    changed = [*values, *([] if keep_turn else ["turn"])]
    (number,) = connection.execute(
        f"INSERT INTO {kind}s ({', '.join(values)}, turn) VALUES ({marks(list(values))}, {_NEXT_TURN})"  # noqa: S608 - words of ours
        f" ON CONFLICT ({kind}_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in changed)}"
        " RETURNING number",
        list(values.values()),
    ).fetchone()
    return int(number)


def encoded(value: object, name: str) -> bytes:
    """A part of something as bytes. Raises StoreError when it cannot be written; nothing of it was stored."""
    try:
        return encode(value)
    except ValueError as error:
        raise StoreError(f"the {name} cannot be saved: {error}", hint="it can be used, but not kept") from error
