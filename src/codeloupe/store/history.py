"""Saved reviews and sweeps in the database, each in a transaction of its own.

What is stored here has been redacted by the caller.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from codeloupe.errors import StoreError
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import Finding
from codeloupe.model.history import (
    Dismissal,
    HistoryQuery,
    Listing,
    PruneRule,
    Removed,
    ReviewRecord,
    Sighting,
    SweepOutline,
    SweepRecord,
    TrendKey,
    Trends,
)
from codeloupe.model.sweep import CommitReview
from codeloupe.store import history_lists, history_pruning, history_writing
from codeloupe.store.columns import text_column, text_of
from codeloupe.store.database import Database
from codeloupe.store.failures import Unreadable
from codeloupe.store.free_room import file_bytes
from codeloupe.store.history_facts import finding_facts, review_facts
from codeloupe.store.history_reading import Reader
from codeloupe.store.history_trends import trend_rows
from codeloupe.store.review_text import decode, encode

_log = logging.getLogger(__name__)
_NOTHING: Mapping[str, str] = MappingProxyType({})


class SqliteHistory:
    """The history in a database file. Raises StoreError throughout; what was saved before stays.

    A row that cannot be read costs that row: lists tell of it in words, and a record has it in its `problems`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, record: ReviewRecord, *, raw_outputs: Mapping[str, str] = _NOTHING) -> None:
        """Save a review whole, in the place of the one with its id if there is one.

        `raw_outputs` is what agents printed, by unit, without secrets. A review of a sweep is saved with the sweep.
        """
        prepared = history_writing.prepare_review(record, raw_outputs)
        with self._database.writing() as connection:
            if record.sweep_id is not None and not _has_sweep(connection, record.sweep_id):
                raise StoreError(
                    f"the review {record.review.review_id} cannot be saved before its sweep {record.sweep_id}",
                    hint="save the sweep first",
                )
            history_writing.write_review(connection, prepared)

    def save_sweep(self, record: SweepRecord) -> None:
        """Save a sweep with all its commits and their reviews, in the place of what there is of it."""
        commits = history_writing.prepare_commits(record, record.sweep.commits)
        with self._database.writing() as connection:
            history_writing.write_sweep(connection, record, commits)

    def add_commit(
        self, record: SweepRecord, commit: CommitReview, *, raw_outputs: Mapping[str, str] = _NOTHING
    ) -> None:
        """Save one more commit of a sweep that goes on, so that it is there whatever happens to the rest.

        The commits that `record` holds are not looked at. The sweep counts as not finished until it is saved whole,
        which leaves `raw_outputs`, as in `save`, where they are.
        """
        prepared = history_writing.prepare_commit(record, commit, raw_outputs)
        with self._database.writing() as connection:
            history_writing.add_commit(connection, record, prepared)

    def get(self, review_id: str) -> ReviewRecord | None:
        """A saved review, or None."""
        with self._snapshot() as connection:
            reader = Reader(connection, self._database.path)
            number = reader.review_number(review_id)
            return None if number is None else reader.review(number)

    def raw_outputs(self, review_id: str) -> Mapping[str, str]:
        """What agents printed for a review, by unit; empty when nothing was saved."""
        with self._snapshot() as connection:
            reader = Reader(connection, self._database.path)
            number = reader.review_number(review_id)
            return {} if number is None else reader.raw_outputs(number)

    def get_sweep(self, sweep_id: str) -> SweepRecord | None:
        """A saved sweep with its reviews, or None."""
        with self._snapshot() as connection:
            return Reader(connection, self._database.path).sweep(sweep_id)

    def outline(self, sweep_id: str) -> SweepOutline | None:
        """A saved sweep without the findings of its reviews, or None; quick, however large it is."""
        with self._snapshot() as connection:
            return Reader(connection, self._database.path).outline(sweep_id)

    def last(
        self, repositories: Sequence[str], *, branch: str | None = None, scope: ScopeKind | None = None
    ) -> ReviewRecord | None:
        """The newest review of a repository that can be read, of a branch and a kind of scope; none of a sweep."""
        kind = None if scope is None else scope.value
        with self._snapshot() as connection:
            newest = sorted(
                (
                    found
                    for name in repositories
                    for found in history_lists.newest_reviews(connection, name, branch=branch, scope=kind)
                ),
                reverse=True,
            )
            reader = Reader(connection, self._database.path)
            for _, number in newest:
                try:
                    return reader.review(number)
                except StoreError as error:
                    _log.warning("%s", error.message)
        return None

    def list(self, query: HistoryQuery) -> Listing:
        """The newest entries; no payload is read."""
        with self._snapshot() as connection:
            return history_lists.entries(connection, query)

    def matching(self, prefix: str, *, limit: int = 10) -> Listing:
        """Reviews, also those of sweeps, and sweeps whose id begins so, at most so many of each."""
        with self._snapshot() as connection:
            return history_lists.entries_beginning_with(connection, prefix, limit=limit)

    def findings_of(
        self, fingerprints: Sequence[str], *, repositories: Sequence[str] | None = None
    ) -> tuple[Sighting, ...]:
        """Every time these findings were seen, the oldest first."""
        with self._snapshot() as connection:
            return tuple(history_lists.sightings(connection, fingerprints, repositories))

    def fingerprints(self, prefix: str, *, repositories: Sequence[str], limit: int) -> Sequence[str]:
        """The findings of a repository whose fingerprint begins so, at most so many."""
        with self._snapshot() as connection:
            return history_lists.fingerprints(connection, prefix, repositories, limit=limit)

    def finding(self, fingerprint: str, *, repositories: Sequence[str]) -> Finding | None:
        """A finding of a repository as it was saved last, or None."""
        with self._snapshot() as connection:
            return history_lists.newest_finding(connection, fingerprint, repositories)

    def dismiss(self, dismissal: Dismissal) -> None:
        """Keep that a person set a finding aside, in the place of an earlier word on it."""
        try:
            payload = encode(dismissal)
        except ValueError as error:
            raise history_writing.unwritable("dismissal", dismissal.fingerprint, error) from error
        key = (text_column(dismissal.repository), text_column(dismissal.fingerprint))
        with self._database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO dismissals VALUES (?, ?, ?)", (*key, payload))

    def take_back(self, fingerprint: str, *, repositories: Sequence[str]) -> bool:
        """Forget that a finding was dismissed; False when it was not."""
        with self._database.writing() as connection:
            gone = [
                connection.execute(
                    "DELETE FROM dismissals WHERE repository = ? AND fingerprint = ?",
                    (text_column(name), text_column(fingerprint)),
                ).rowcount
                for name in repositories
            ]
        return any(gone)

    def dismissals(self, repositories: Sequence[str]) -> tuple[Dismissal, ...]:
        """What persons set aside in a repository, the oldest first; a row that cannot be read is logged."""
        found: list[Dismissal] = []
        with self._database.reading() as connection:
            rows = [
                row
                for name in repositories
                for row in connection.execute(
                    "SELECT CAST(fingerprint AS BLOB), payload FROM dismissals WHERE repository = ?",
                    (text_column(name),),
                )
            ]
        for fingerprint, payload in rows:
            try:
                found.append(decode(Dismissal, payload))
            except Unreadable as error:
                _log.warning("the dismissal of %s cannot be read: %s", text_of(fingerprint), error)
        return tuple(sorted(found, key=lambda dismissal: (dismissal.at, dismissal.fingerprint)))

    def trends(self, by: Sequence[TrendKey], *, repositories: Sequence[str] | None = None) -> tuple[Trends, ...]:
        """Findings, cost, time and what was fixed, for each key by which they are wanted; no payload is read."""
        with self._snapshot() as connection:
            reviews = review_facts(connection, repositories)
            findings = finding_facts(connection, repositories)
        return trend_rows(by, reviews, findings)

    def prune(self, rule: PruneRule, *, dry_run: bool = False) -> Removed:
        """Remove what the rule names, give the room back, and tell what went; with `dry_run`, what would."""
        with self._snapshot() as connection:
            entries = history_pruning.prunable(connection, rule.repositories)
        going = history_pruning.doomed(entries, rule)
        if not dry_run:
            history_pruning.remove(self._database, going)
        return history_pruning.total(going)

    def file_bytes(self) -> int:
        """How large the database is, with all that is in it."""
        return file_bytes(self._database)

    def known_root(self, place: bytes) -> str | None:
        """The root commit of the repository at a place, as it was found out before."""
        with self._database.reading() as connection:
            row = connection.execute("SELECT CAST(root AS BLOB) FROM repositories WHERE place = ?", (place,)).fetchone()
        return None if row is None else text_of(row[0])

    def remember_root(self, place: bytes, root: str) -> None:
        """Keep the root commit of the repository at a place."""
        with self._database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO repositories VALUES (?, ?)", (place, root))

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection for several statements that read, to which nothing changes meanwhile."""
        with self._database.reading() as connection:
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                # After some errors SQLite has ended it already.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")


def _has_sweep(connection: sqlite3.Connection, sweep_id: str) -> bool:
    row = connection.execute("SELECT 1 FROM sweeps WHERE sweep_id = ?", (text_column(sweep_id),)).fetchone()
    return row is not None
