"""Reviews and sweeps into their tables. To be called inside a transaction: each is there whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.finding import Finding
from codeloupe.model.history import HistoryEntry, ReviewRecord, SweepRecord
from codeloupe.model.sweep import CommitReview
from codeloupe.store.columns import real_column, text_column, whole_column
from codeloupe.store.failures import Unreadable
from codeloupe.store.history_entries import entry_of_review, entry_of_sweep, with_commit
from codeloupe.store.review_text import decode, encode, pack

_NEXT_TURN = """
    (SELECT 1 + max(
        coalesce((SELECT max(turn) FROM reviews), 0), coalesce((SELECT max(turn) FROM sweeps), 0)
    ))
"""
_REVIEW = f"""
    INSERT INTO reviews (review_id, sweep_id, saved_at, repository, branch, scope, reviewer, cost_usd, unknown_costs,
        duration_seconds, size_bytes, entry, payload, turn) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {_NEXT_TURN})
    ON CONFLICT (review_id) DO UPDATE SET sweep_id = excluded.sweep_id, saved_at = excluded.saved_at,
        repository = excluded.repository, branch = excluded.branch, scope = excluded.scope,
        reviewer = excluded.reviewer, cost_usd = excluded.cost_usd, unknown_costs = excluded.unknown_costs,
        duration_seconds = excluded.duration_seconds, size_bytes = excluded.size_bytes, entry = excluded.entry,
        payload = excluded.payload
"""  # noqa: S608 - words of ours
_FINDING = """
    INSERT INTO findings (review, position, hidden, is_open, fingerprint, severity, status, file, expert, reviewer,
        category, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_COUNT_RAW_OUTPUTS = """
    UPDATE reviews SET size_bytes = size_bytes
        + (SELECT coalesce(sum(length(unit) + length(output)), 0) FROM raw_outputs WHERE review = :review)
    WHERE number = :review
"""
_SWEEP = f"""
    INSERT INTO sweeps (sweep_id, saved_at, repository, branch, size_bytes, entry, payload, turn)
    VALUES (?, ?, ?, ?, ?, ?, ?, {_NEXT_TURN})
    ON CONFLICT (sweep_id) DO UPDATE SET saved_at = excluded.saved_at, repository = excluded.repository,
        branch = excluded.branch, size_bytes = excluded.size_bytes, entry = excluded.entry,
        payload = excluded.payload, turn = excluded.turn
"""  # noqa: S608 - words of ours
_COMMIT = "INSERT INTO sweep_commits (sweep, position, review_id, payload) VALUES (?, ?, ?, ?)"


class StoredReview(Struct, frozen=True):
    """The payload of a review: all but its findings, and how many of these there are."""

    record: ReviewRecord
    findings: int


class PreparedReview(NamedTuple):
    """A review as rows, ready to be written; made before the transaction, which is then short."""

    record: ReviewRecord
    entry: bytes
    payload: bytes
    findings: tuple[tuple[object, ...], ...]
    raw_outputs: tuple[tuple[bytes, bytes], ...]

    @property
    def size_bytes(self) -> int:
        """What it takes in the database, but for the columns."""
        findings = sum(len(row[-1]) for row in self.findings if isinstance(row[-1], bytes))
        raw = sum(len(unit) + len(output) for unit, output in self.raw_outputs)
        return len(self.entry) + len(self.payload) + findings + raw


def prepare_review(record: ReviewRecord, raw_outputs: Mapping[str, str]) -> PreparedReview:
    """The rows of a review. Raises StoreError when something in it cannot be written."""
    review = record.review
    bare = replace(record, review=replace(review, findings=(), hidden=()), problems=(), turn=0)
    every = [*((finding, False) for finding in review.findings), *((finding, True) for finding in review.hidden)]
    try:
        return PreparedReview(
            record=bare,
            entry=encode(entry_of_review(record)),
            payload=encode(StoredReview(bare, len(every))),
            findings=tuple(_finding(number, finding, hidden=hidden) for number, (finding, hidden) in enumerate(every)),
            raw_outputs=tuple((pack(unit), pack(output)) for unit, output in raw_outputs.items()),
        )
    except ValueError as error:
        raise unwritable("review", review.review_id, error) from error


def _finding(position: int, finding: Finding, *, hidden: bool) -> tuple[object, ...]:
    return (
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
        encode(finding),
    )


def write_review(connection: sqlite3.Connection, prepared: PreparedReview) -> None:
    """Write a review in the place of the one with its id, if there is one. Raw outputs stay unless new ones come."""
    record = prepared.record
    review, usage = record.review, record.review.usage
    key = text_column(review.review_id)
    connection.execute(
        _REVIEW,
        (
            key,
            None if record.sweep_id is None else text_column(record.sweep_id),
            record.saved_at.timestamp(),
            text_column(record.repository),
            None if record.branch is None else text_column(record.branch),
            review.scope.kind.value,
            text_column(review.reviewer.type),
            real_column(usage.cost_usd),
            whole_column(usage.unknown_costs),
            real_column(usage.duration_seconds),
            prepared.size_bytes,
            prepared.entry,
            prepared.payload,
        ),
    )
    (number,) = connection.execute("SELECT number FROM reviews WHERE review_id = ?", (key,)).fetchone()
    connection.execute("DELETE FROM findings WHERE review = ?", (number,))
    connection.executemany(_FINDING, ((number, *row) for row in prepared.findings))
    if prepared.raw_outputs:
        connection.execute("DELETE FROM raw_outputs WHERE review = ?", (number,))
        connection.executemany(
            "INSERT INTO raw_outputs (review, unit, output) VALUES (?, ?, ?)",
            ((number, unit, output) for unit, output in prepared.raw_outputs),
        )
    else:
        connection.execute(_COUNT_RAW_OUTPUTS, {"review": number})


class PreparedCommit(NamedTuple):
    """A commit of a sweep as a row, with its review."""

    commit: CommitReview
    payload: bytes
    review: PreparedReview | None

    @property
    def row(self) -> tuple[str | None, bytes]:
        """What stands behind the sweep and the position."""
        review = self.commit.review
        return None if review is None else text_column(review.review_id), self.payload


def prepare_commits(record: SweepRecord, commits: Iterable[CommitReview]) -> tuple[PreparedCommit, ...]:
    """The rows of some commits of a sweep. Raises StoreError when something in them cannot be written."""
    return tuple(prepare_commit(record, commit, {}) for commit in commits)


def prepare_commit(record: SweepRecord, commit: CommitReview, raw_outputs: Mapping[str, str]) -> PreparedCommit:
    """The rows of one commit, with what agents printed for it. Raises as `prepare_commits`."""
    try:
        return _commit(record, commit, raw_outputs)
    except ValueError as error:
        raise unwritable("sweep", record.sweep.sweep_id, error) from error


def _commit(record: SweepRecord, commit: CommitReview, raw_outputs: Mapping[str, str]) -> PreparedCommit:
    review = None if commit.review is None else prepare_review(record.record_of(commit.review), raw_outputs)
    return PreparedCommit(commit, encode(replace(commit, review=None)), review)


def write_sweep(connection: sqlite3.Connection, record: SweepRecord, commits: tuple[PreparedCommit, ...]) -> None:
    """Write a sweep with its commits in the place of what there is of it."""
    number = _write_sweep_row(connection, record, entry_of_sweep(record))
    connection.execute("DELETE FROM sweep_commits WHERE sweep = ?", (number,))
    for position, commit in enumerate(commits):
        _write_commit(connection, (number, position), commit)


def add_commit(connection: sqlite3.Connection, record: SweepRecord, commit: PreparedCommit) -> None:
    """Write one more commit of a sweep that is not finished, and the sweep itself when this is its first."""
    found = connection.execute(
        "SELECT number, entry FROM sweeps WHERE sweep_id = ?", (text_column(record.sweep.sweep_id),)
    ).fetchone()
    before = entry_of_sweep(replace(record, sweep=replace(record.sweep, commits=()), finished=False))
    if found is not None:
        # One that cannot be read is made anew from here on; the commits themselves are all there.
        with suppress(Unreadable):
            before = decode(HistoryEntry, found[1])
    number = _write_sweep_row(connection, replace(record, finished=False), with_commit(before, record, commit.commit))
    (position,) = connection.execute(
        "SELECT coalesce(max(position) + 1, 0) FROM sweep_commits WHERE sweep = ?", (number,)
    ).fetchone()
    _write_commit(connection, (number, position), commit)


def _write_sweep_row(connection: sqlite3.Connection, record: SweepRecord, entry: HistoryEntry) -> int:
    bare = replace(record, sweep=replace(record.sweep, commits=()), problems=())
    try:
        row, payload = encode(entry), encode(bare)
    except ValueError as error:
        raise unwritable("sweep", record.sweep.sweep_id, error) from error
    key = text_column(record.sweep.sweep_id)
    connection.execute(
        _SWEEP,
        (
            key,
            record.saved_at.timestamp(),
            text_column(record.repository),
            None if record.branch is None else text_column(record.branch),
            len(row) + len(payload),
            row,
            payload,
        ),
    )
    number: int
    (number,) = connection.execute("SELECT number FROM sweeps WHERE sweep_id = ?", (key,)).fetchone()
    return number


def _write_commit(connection: sqlite3.Connection, place: tuple[int, int], commit: PreparedCommit) -> None:
    connection.execute(_COMMIT, (*place, *commit.row))
    if commit.review is not None:
        write_review(connection, commit.review)


def unwritable(what: str, name: str, error: ValueError) -> StoreError:
    """The error for what cannot be written; nothing of it was stored."""
    return StoreError(f"the {what} {name} cannot be saved: {error}", hint="it can be used, but not kept")
