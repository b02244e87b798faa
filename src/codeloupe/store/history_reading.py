"""Whole reviews and sweeps out of their tables. What of them cannot be read is told in words, and the rest is read."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model.finding import ANALYSER_NAMES, Finding, FindingStatus, Source
from codeloupe.model.history import HistoryEntry, ReviewRecord, SweepOutline, SweepRecord
from codeloupe.model.review import Review
from codeloupe.model.sweep import CommitReview
from codeloupe.store.columns import text_column, text_of
from codeloupe.store.failures import Unreadable
from codeloupe.store.history_writing import StoredReview
from codeloupe.store.review_text import decode, unpack


def with_source(finding: Finding) -> Finding:
    """The finding with its source, which version 0.1.0 did not save: no agent has the name of an analyser.

    Nor may that version's word hold that a model had refuted it.
    """
    if finding.source is not Source.AGENT or ANALYSER_NAMES.isdisjoint((finding.reviewer, *finding.seen_by)):
        return finding
    if finding.status is FindingStatus.REFUTED:
        finding = replace(finding, status=FindingStatus.OPEN, verification="")
    return replace(finding, source=Source.ANALYSER)


_CommitRow = tuple[int, str | None, bytes]


class Reader(NamedTuple):
    """Reads whole records through a connection; `path` names the database in what it raises."""

    connection: sqlite3.Connection
    path: Path

    def review_number(self, review_id: str) -> int | None:
        """The number of a review in the tables."""
        row = self.connection.execute(
            "SELECT number FROM reviews WHERE review_id = ?", (text_column(review_id),)
        ).fetchone()
        return None if row is None else int(row[0])

    def review(self, number: int) -> ReviewRecord:
        """A review with its findings. Raises StoreError when it cannot be read; a finding that cannot is a problem."""
        name, turn, payload = self.connection.execute(
            "SELECT CAST(review_id AS BLOB), turn, payload FROM reviews WHERE number = ?", (number,)
        ).fetchone()
        try:
            stored = decode(StoredReview, payload)
        except Unreadable as error:
            raise self._unreadable("review", text_of(name), error) from error
        shown: list[Finding] = []
        hidden: list[Finding] = []
        problems: list[str] = []
        rows = self.connection.execute(
            "SELECT position, hidden, payload FROM findings WHERE review = ? ORDER BY position", (number,)
        ).fetchall()
        for position, is_hidden, data in rows:
            try:
                (hidden if is_hidden else shown).append(with_source(decode(Finding, data)))
            except Unreadable as error:
                problems.append(f"finding {position + 1} of review {text_of(name)} cannot be read: {error}")
        if len(rows) != stored.findings:
            problems.append(f"review {text_of(name)} had {stored.findings} findings, and {len(rows)} are left")
        record = stored.record
        return replace(
            record,
            review=replace(record.review, findings=tuple(shown), hidden=tuple(hidden)),
            problems=tuple(problems),
            turn=int(turn),
        )

    def raw_outputs(self, number: int) -> dict[str, str]:
        """What the agents of a review printed, by unit. Raises StoreError."""
        rows = self.connection.execute(
            "SELECT unit, output FROM raw_outputs WHERE review = ? ORDER BY number", (number,)
        ).fetchall()
        try:
            return {unpack(unit): unpack(output) for unit, output in rows}
        except Unreadable as error:
            raise self._unreadable("raw output of review", str(number), error) from error

    def sweep(self, sweep_id: str) -> SweepRecord | None:
        """A sweep with its commits and their reviews. Raises StoreError when the sweep itself cannot be read."""
        found = self._sweep_rows(sweep_id)
        if found is None:
            return None
        record, rows = found
        problems: list[str] = []
        commits = [
            replace(commit, review=self._review_of(review_id, problems))
            for commit, review_id in self._commits(sweep_id, rows, problems)
        ]
        return replace(record, sweep=replace(record.sweep, commits=tuple(commits)), problems=tuple(problems))

    def outline(self, sweep_id: str) -> SweepOutline | None:
        """A sweep with its commits and the entries of their reviews, which are quickly read. Raises as `sweep`."""
        found = self._sweep_rows(sweep_id)
        if found is None:
            return None
        record, rows = found
        problems: list[str] = []
        known = self._entries_of(sweep_id)
        commits = self._commits(sweep_id, rows, problems)
        reviews = tuple(self._entry_of(review_id, known, problems) for _, review_id in commits)
        bare = tuple(commit for commit, _ in commits)
        return SweepOutline(
            replace(record, sweep=replace(record.sweep, commits=bare), problems=tuple(problems)), reviews
        )

    def _commits(
        self, sweep_id: str, rows: list[_CommitRow], problems: list[str]
    ) -> list[tuple[CommitReview, str | None]]:
        commits = []
        for position, review_id, payload in rows:
            try:
                commits.append((decode(CommitReview, payload), review_id))
            except Unreadable as error:
                problems.append(f"commit {position + 1} of sweep {sweep_id} cannot be read: {error}")
        return commits

    def _review_of(self, review_id: str | None, problems: list[str]) -> Review | None:
        """The review of a commit, or None: there was none, or it cannot be read, which is then a problem."""
        if review_id is None:
            return None
        number = self.review_number(review_id)
        if number is None:
            problems.append(f"the review {review_id} is gone")
            return None
        try:
            record = self.review(number)
        except StoreError as error:
            problems.append(error.message)
            return None
        problems += record.problems
        return record.review

    def _entry_of(self, review_id: str | None, known: dict[str, bytes], problems: list[str]) -> HistoryEntry | None:
        if review_id is None:
            return None
        if review_id not in known:
            problems.append(f"the review {review_id} is gone")
            return None
        try:
            return decode(HistoryEntry, known[review_id])
        except Unreadable as error:
            problems.append(f"the review {review_id} cannot be read: {error}")
            return None

    def _entries_of(self, sweep_id: str) -> dict[str, bytes]:
        return dict(
            self.connection.execute(
                "SELECT review_id, entry FROM reviews WHERE sweep_id = ?", (text_column(sweep_id),)
            ).fetchall()
        )

    def _sweep_rows(self, sweep_id: str) -> tuple[SweepRecord, list[_CommitRow]] | None:
        row = self.connection.execute(
            "SELECT number, payload FROM sweeps WHERE sweep_id = ?", (text_column(sweep_id),)
        ).fetchone()
        if row is None:
            return None
        try:
            record = decode(SweepRecord, row[1])
        except Unreadable as error:
            raise self._unreadable("sweep", sweep_id, error) from error
        rows = self.connection.execute(
            "SELECT position, review_id, payload FROM sweep_commits WHERE sweep = ? ORDER BY position", (row[0],)
        )
        return record, rows.fetchall()

    def _unreadable(self, what: str, name: str, error: Unreadable) -> StoreError:
        return StoreError(
            f"the {what} {name} in the database {self.path} cannot be read: {error}",
            hint="use the codeloupe that saved it; the other entries of the history are not touched by this",
        )
