"""Saved reviews and sweeps in the database, each there whole or not at all. The caller has redacted them."""

from __future__ import annotations

import hashlib
import logging
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model import history as model
from codeloupe.model.finding import Finding
from codeloupe.model.sweep import CommitReview
from codeloupe.store.interface import Connection, Database, persistent
from codeloupe.store.records import Unreadable, decode, encode, pack, unpack
from codeloupe.store.summaries import SPENT, attributes, entry_of_review, entry_of_sweep, read_trends, with_commit

_log = logging.getLogger(__name__)
_Kind = TypeVar("_Kind")
_Problems = list[str]
_NOTHING: Mapping[str, str] = MappingProxyType({})
_LAST_CHARACTER = "\U0010ffff"
_TABLES = (("reviews", "review_id", "sweep_id IS NULL"), ("sweeps", "sweep_id", "1 = 1"))
_COUNT_RAW_OUTPUTS = """
    UPDATE reviews SET size_bytes = size_bytes
        + (SELECT coalesce(sum(length(unit) + length(output)), 0) FROM raw_outputs AS o
            WHERE o.review_id = reviews.review_id)
    WHERE review_id = ?
"""
# In the order of the fields of `_Prunable`; a condition follows.
_PRUNABLE = tuple(
    f"""
    SELECT CAST(turn AS BIGINT), {key}, CAST(saved_at AS DOUBLE PRECISION), {is_sweep},
        (SELECT count(*) FROM reviews AS r WHERE {its}),
        (SELECT count(*) FROM findings AS f JOIN reviews AS r ON r.review_id = f.review_id WHERE {its}),
        (SELECT CAST(coalesce(sum(r.size_bytes), 0) AS BIGINT) FROM reviews AS r WHERE {its}) + {own_bytes}
    FROM {entries} AND """  # noqa: S608 - words of ours
    for entries, key, is_sweep, its, own_bytes in (
        ("reviews WHERE sweep_id IS NULL", "review_id", 0, "r.review_id = reviews.review_id", "0"),
        ("sweeps WHERE 1 = 1", "sweep_id", 1, "r.sweep_id = sweeps.sweep_id", "CAST(size_bytes AS BIGINT)"),
    )
)
_FINDINGS = "findings AS f JOIN reviews AS r ON r.review_id = f.review_id"
_NEWEST_TURN = """
    SELECT max(turn) FROM (SELECT max(turn) AS turn FROM reviews UNION ALL SELECT max(turn) FROM sweeps) AS newest
"""
# In the order of the fields of a sighting.
_SIGHTINGS = f"""
    SELECT f.fingerprint, r.review_id, r.saved_at, f.status, f.severity, f.file, f.is_open, r.turn FROM {_FINDINGS}
"""  # noqa: S608 - words of ours

# Reads as many entries of the index as there are repositories, not as there are reviews.
_DISTINCT_REPOSITORIES = """
    WITH RECURSIVE names (name) AS (
        SELECT min(repository) FROM {table} 1 = 1
        UNION ALL
        SELECT (SELECT min(repository) FROM {table} repository > name) FROM names WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name IS NOT NULL
"""


def name_work_tree(root: Path) -> str:
    """Return the name of a work tree on this machine, by its host and path. It is the same in every database."""
    digest = hashlib.sha256(f"{platform.node()}:{root}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"tree:{digest}"


class StoredReview(Struct, frozen=True):
    """The payload of a review: all but its findings, and how many of these there are."""

    record: model.ReviewRecord
    findings: int


class _Prunable(NamedTuple):
    """An entry as pruning sees it: a review that belongs to no sweep, or a sweep with its reviews."""

    turn: int
    entry_id: str
    saved_at: float
    is_sweep: int
    reviews: int
    findings: int
    size_bytes: int


class DatabaseHistory:
    """The history in a database file; see `interface.History`. A row that cannot be read costs that row."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._commits: dict[bytes, str] = {}

    @persistent
    def save(self, record: model.ReviewRecord, *, raw_outputs: Mapping[str, str] = _NOTHING) -> None:
        """Save a review whole, in the place of the one with its id. `raw_outputs` is what agents printed, by unit."""
        with self.database.writing() as connection:
            sweep = connection.execute("SELECT 1 FROM sweeps WHERE sweep_id = ?", (record.sweep_id,)).fetchone()
            if record.sweep_id is not None and sweep is None:
                message = f"cannot save the review {record.review.review_id} before its sweep {record.sweep_id}"
                raise StoreError(message, hint="save the sweep first")
            self._write_review(connection, record, raw_outputs)

    @persistent
    def save_sweep(self, record: model.SweepRecord) -> None:
        """Save a sweep with all its commits and their reviews, in the place of what there is of it."""
        with self.database.writing(f"sweep {record.sweep.sweep_id}") as connection:
            self._write_sweep(connection, record, entry_of_sweep(record))
            connection.execute("DELETE FROM sweep_commits WHERE sweep_id = ?", (record.sweep.sweep_id,))
            for commit in record.sweep.commits:
                self._write_commit(connection, record, commit, {})

    @persistent
    def add_commit(
        self,
        record: model.SweepRecord,
        commit: CommitReview,
        *,
        raw_outputs: Mapping[str, str] = _NOTHING,
        position: int | None = None,
    ) -> None:
        """Save one more commit of a sweep, which counts as unfinished until it is saved whole; in the place of itself.

        `position` is its place among the commits of the sweep, where those do not come in their order.
        """
        unfinished = replace(record, finished=False)
        before = entry_of_sweep(replace(unfinished, sweep=replace(record.sweep, commits=())))
        with self.database.writing(f"sweep {record.sweep.sweep_id}") as connection:
            for (entry,) in connection.execute("SELECT entry FROM sweeps WHERE sweep_id = ?", (record.sweep.sweep_id,)):
                # One that cannot be read is made again from here on; the commits themselves are all there.
                with suppress(Unreadable):
                    before = decode(model.HistoryEntry, entry)
            again = connection.execute(
                "SELECT 1 FROM sweep_commits WHERE sweep_id = ? AND sha = ?",
                (record.sweep.sweep_id, commit.commit.sha),
            ).fetchone()
            if not again:
                before = with_commit(before, record, commit)
            self._write_sweep(connection, unfinished, before)
            self._write_commit(connection, record, commit, raw_outputs, position)

    def count_commits(self, sweep_id: str) -> int:
        """How many commits of a sweep are saved."""
        (row,) = self.database.select("SELECT count(*) FROM sweep_commits WHERE sweep_id = ?", (sweep_id,))
        return int(row[0])

    @persistent
    def finish_sweep(self, record: model.SweepRecord) -> None:
        """Save what a sweep came to whose commits are all saved."""
        with self.database.writing(f"sweep {record.sweep.sweep_id}") as connection:
            self._write_sweep(connection, record, entry_of_sweep(record))

    def get(self, review_id: str) -> model.ReviewRecord | None:
        """A saved review, or None."""
        with self.database.snapshot() as connection:
            return self._review(connection, review_id)

    def raw_outputs(self, review_id: str) -> Mapping[str, str]:
        """What agents printed for a review, by unit; empty when nothing was saved."""
        rows = self.database.select(
            "SELECT unit, output FROM raw_outputs WHERE review_id = ? ORDER BY position", (review_id,)
        )
        try:
            return {unpack(unit): unpack(output) for unit, output in rows}
        except Unreadable as error:
            raise self._unreadable("raw output of review", review_id, error) from error

    def get_sweep(self, sweep_id: str) -> model.SweepRecord | None:
        """A saved sweep with its reviews, or None."""
        with self.database.snapshot() as connection:

            def read(review_id: str, problems: _Problems) -> model.ReviewRecord | None:
                try:
                    found = self._review(connection, review_id)
                except StoreError as error:
                    problems.append(error.message)
                    return None
                if found is None:
                    problems.append(f"the review {review_id} no longer exists")
                    return None
                problems += found.problems
                return found

            found = self._sweep(connection, sweep_id, read)
        if found is None:
            return None
        sweep, pairs = found[0].sweep, zip(found[0].sweep.commits, found[1], strict=True)
        commits = tuple(replace(commit, review=its and its.review) for commit, its in pairs)
        return replace(found[0], sweep=replace(sweep, commits=commits))

    def outline(self, sweep_id: str) -> model.SweepOutline | None:
        """A saved sweep without the findings of its reviews, or None; quick, however large it is."""
        with self.database.snapshot() as connection:

            def read(review_id: str, problems: _Problems) -> model.HistoryEntry | None:
                row = connection.execute("SELECT entry FROM reviews WHERE review_id = ?", (review_id,)).fetchone()
                if row is None:
                    problems.append(f"the review {review_id} no longer exists")
                    return None
                return _decoded(model.HistoryEntry, row[0], f"the review {review_id}", problems)

            found = self._sweep(connection, sweep_id, read)
        return None if found is None else model.SweepOutline(*found)

    def last(self, work_tree: str, *, back: int = 0) -> model.ReviewRecord | None:
        """Return the newest review of a work tree, or the one so far `back`; one that cannot be read does not count."""
        statement = (
            "SELECT review_id FROM reviews WHERE sweep_id IS NULL AND work_tree = ? ORDER BY turn DESC, review_id DESC"
        )
        readable = 0
        with self.database.snapshot() as connection:
            for (review_id,) in connection.execute(statement, (work_tree,)).fetchall():
                try:
                    found = self._review(connection, review_id)
                except StoreError as error:
                    _log.warning("%s", error.message)
                    continue
                if readable == back:
                    return found
                readable += 1
        return None

    def list(self, query: model.HistoryQuery) -> model.Listing:
        """The newest entries, by the order of saving; no payload is read. A sweep is one entry."""
        rows: list[tuple[object, ...]] = []
        with self.database.snapshot() as connection:
            for table, key, alone in _TABLES:
                # Asked for one repository at a time, so that an index gives the rows in order.
                for name in (None,) if query.repositories is None else query.repositories:
                    wanted = {"repository": name, "work_tree": query.work_tree, "branch": query.branch}
                    condition, values = _where(None, **wanted)
                    rows += connection.execute(
                        f"SELECT turn, {key}, entry FROM {table} WHERE {alone} AND {condition}"  # noqa: S608 - words of ours
                        f" ORDER BY turn DESC, {key} DESC LIMIT ?",
                        (*values, query.limit),
                    )
        rows.sort(key=lambda row: row[0] if isinstance(row[0], (int, float)) else 0.0, reverse=True)
        return _listing(row[1:] for row in rows[: query.limit])

    def matching(self, prefix: str, *, limit: int = 10) -> model.Listing:
        """Reviews, also those of sweeps, and sweeps whose id begins so, at most `limit` in all."""
        rows: list[tuple[object, ...]] = []
        for table, key, _ in _TABLES:
            rows += self.database.select(
                f"SELECT {key}, entry FROM {table} WHERE {key} >= ? AND {key} <= ? ORDER BY turn DESC LIMIT ?",  # noqa: S608 - words of ours
                (prefix, prefix + _LAST_CHARACTER, limit),
            )
        return _listing(rows[:limit])

    def findings_of(
        self, fingerprints: Sequence[str], *, repositories: Sequence[str] | None = None
    ) -> tuple[model.Sighting, ...]:
        """Every time these findings were seen, the oldest first; a row that cannot be read is logged and left out."""
        condition, values = _where(repositories)
        found: list[model.Sighting] = []
        for start in range(0, len(fingerprints), 500):
            some = fingerprints[start : start + 500]
            marked = f"{_SIGHTINGS} WHERE {condition} AND f.fingerprint IN ({_marks(some)})"
            for row in self.database.select(marked, [*values, *some]):
                try:
                    named = dict(zip(model.Sighting.__struct_fields__, row, strict=True))
                    found.append(convert(named, model.Sighting, strict=False))
                except (ValidationError, OverflowError) as error:
                    _log.warning("cannot read a finding of review %s in the history: %s", row[1], error)
        return tuple(sorted(found, key=lambda sighting: (sighting.turn, sighting.review_id)))

    def fingerprints(self, prefix: str, *, repositories: Sequence[str], limit: int) -> Sequence[str]:
        """The findings of a repository whose fingerprint begins so, at most `limit`."""
        condition, values = _where(repositories)
        rows = self.database.select(
            f"SELECT DISTINCT f.fingerprint FROM {_FINDINGS}"  # noqa: S608 - words of ours
            f" WHERE {condition} AND f.fingerprint >= ? AND f.fingerprint <= ? LIMIT ?",
            (*values, prefix, prefix + _LAST_CHARACTER, limit),
        )
        return [fingerprint for (fingerprint,) in rows]

    def finding(self, fingerprint: str, *, repositories: Sequence[str]) -> Finding | None:
        """A finding of a repository as it was saved last and can be read, or None."""
        condition, values = _where(repositories)
        condition += " AND f.fingerprint = ? ORDER BY r.turn DESC LIMIT 5"
        statement = f"SELECT f.payload FROM {_FINDINGS} WHERE {condition}"  # noqa: S608 - words of ours
        for (payload,) in self.database.select(statement, (*values, fingerprint)):
            with suppress(Unreadable):
                return decode(Finding, payload)
        return None

    @persistent
    def dismiss(self, dismissal: model.Dismissal) -> None:
        """Keep that a person set a finding aside, in the place of an earlier word on it."""
        name = dismissal.fingerprint
        row = (dismissal.repository, name, _encoded(dismissal, f"dismissal {name}"))
        self.database.change(
            "INSERT INTO dismissals (repository, fingerprint, payload) VALUES (?, ?, ?)"
            " ON CONFLICT (repository, fingerprint) DO UPDATE SET payload = excluded.payload",
            row,
        )

    def take_back(self, fingerprint: str, *, repositories: Sequence[str]) -> bool:
        """Forget that a finding was dismissed; False when it was not."""
        condition, values = _where(repositories, fingerprint=fingerprint)
        return self.database.change(f"DELETE FROM dismissals WHERE {condition}", values) > 0  # noqa: S608 - ours

    def dismissals(self, repositories: Sequence[str]) -> tuple[model.Dismissal, ...]:
        """What persons set aside in a repository, the oldest first; a row that cannot be read is logged."""
        condition, values = _where(repositories)
        rows = self.database.select(f"SELECT fingerprint, payload FROM dismissals WHERE {condition}", values)  # noqa: S608 - ours
        problems: list[str] = []
        read = [_decoded(model.Dismissal, payload, f"the dismissal of {name}", problems) for name, payload in rows]
        for problem in problems:
            _log.warning("%s", problem)
        found = [each for each in read if each is not None]
        return tuple(sorted(found, key=lambda dismissal: (dismissal.at, dismissal.fingerprint)))

    def trends(
        self,
        by: Sequence[model.TrendKey],
        *,
        repositories: Sequence[str] | None = None,
        work_tree: str | None = None,
    ) -> tuple[model.Trends, ...]:
        """Return findings, cost, time and the share that was fixed, for each of the keys; no payload is read."""
        condition, values = _where(repositories, work_tree=work_tree)
        return read_trends(self.database, by, condition=condition, values=values)

    def prune(self, rule: model.PruneRule, *, dry_run: bool = False) -> model.Removed:
        """Remove what the rule names, in batches, and return what went; with `dry_run`, what would."""
        condition, values = _where(rule.repositories, work_tree=rule.work_tree)
        with self.database.snapshot() as connection:
            rows = (row for query in _PRUNABLE for row in connection.execute(query + condition, values))
            oldest_first = sorted(_Prunable(*row) for row in rows)
        removable = oldest_first[: len(oldest_first) - (rule.keep_last or 0)]
        before = None if rule.older_than is None else rule.older_than.timestamp()
        is_old = [rule.keep_last is not None if before is None else entry.saved_at < before for entry in removable]
        left = sum(entry.size_bytes for entry in oldest_first)
        left -= sum(entry.size_bytes for entry, goes in zip(removable, is_old, strict=True) if goes)
        going: list[_Prunable] = []
        for entry, goes in zip(removable, is_old, strict=True):
            is_too_much = rule.max_bytes is not None and left > rule.max_bytes
            if goes or is_too_much:
                going.append(entry)
                left -= 0 if goes else entry.size_bytes
        for start in range(0, 0 if dry_run else len(going), 50):
            with self.database.writing() as connection:
                for entry in going[start : start + 50]:
                    if entry.is_sweep:
                        connection.execute("DELETE FROM reviews WHERE sweep_id = ?", (entry.entry_id,))
                        connection.execute("DELETE FROM sweeps WHERE sweep_id = ?", (entry.entry_id,))
                    else:
                        connection.execute("DELETE FROM reviews WHERE review_id = ?", (entry.entry_id,))
        if going and not dry_run:
            self.database.give_back_room()
        return model.Removed(
            reviews=sum(entry.reviews for entry in going),
            sweeps=sum(entry.is_sweep for entry in going),
            findings=sum(entry.findings for entry in going),
            size_bytes=sum(entry.size_bytes for entry in going),
        )

    def file_bytes(self) -> int:
        """How large the database is, with all that is in it."""
        return self.database.size_bytes()

    def work_tree_of(self, root: Path) -> str:
        """Return the name under which this history knows a work tree."""
        return name_work_tree(root)

    def commit_of(self, place: bytes) -> str | None:
        """Return the commit of the repository at a place on this machine, if it is known."""
        # In a shared database, the place may be that of another repository on another machine.
        if self.database.is_shared:
            return self._commits.get(place)
        rows = self.database.select("SELECT root FROM repositories WHERE place = ?", (place,))
        return str(rows[0][0]) if rows else None

    def remember_commit(self, place: bytes, commit: str) -> None:
        """Store the commit of the repository at a place on this machine."""
        if self.database.is_shared:
            self._commits[place] = commit
            return
        self.database.change(
            "INSERT INTO repositories (place, root) VALUES (?, ?)"
            " ON CONFLICT (place) DO UPDATE SET root = excluded.root",
            (place, commit),
        )

    def known_commits(self) -> Iterable[str]:
        """Return the commits of all repositories that have reviews, sweeps or dismissals."""
        names: set[str] = set()
        for table in ("reviews WHERE sweep_id IS NULL AND", "sweeps WHERE", "dismissals WHERE"):
            rows = self.database.select(_DISTINCT_REPOSITORIES.format(table=table), ())
            names.update(str(name) for (name,) in rows)
        return [name.removeprefix(model.COMMIT_PREFIX) for name in names if name.startswith(model.COMMIT_PREFIX)]

    def _review(self, connection: Connection, name: str) -> model.ReviewRecord | None:
        """Return a review with its findings, or None. Raise StoreError if it cannot be read.

        A finding that cannot be read is a problem of the review.
        """
        row = connection.execute("SELECT turn, payload FROM reviews WHERE review_id = ?", (name,)).fetchone()
        if row is None:
            return None
        turn, payload = row
        try:
            stored = decode(StoredReview, payload)
        except Unreadable as error:
            raise self._unreadable("review", name, error) from error
        findings: tuple[list[Finding], list[Finding]] = ([], [])
        problems: list[str] = []
        select = "SELECT position, hidden, payload FROM findings WHERE review_id = ? ORDER BY position"
        rows = connection.execute(select, (name,)).fetchall()
        for position, is_hidden, data in rows:
            finding = _decoded(Finding, data, f"finding {position + 1} of review {name}", problems)
            if finding is not None:
                findings[bool(is_hidden)].append(finding)
        if len(rows) != stored.findings:
            problems.append(f"review {name} had {stored.findings} findings, but only {len(rows)} are left")
        review = replace(stored.record.review, findings=tuple(findings[0]), hidden=tuple(findings[1]))
        return replace(stored.record, review=review, problems=tuple(problems), turn=int(turn))

    def _sweep(
        self, connection: Connection, sweep_id: str, read: Callable[[str, _Problems], _Kind | None]
    ) -> tuple[model.SweepRecord, tuple[_Kind | None, ...]] | None:
        """Return a sweep with its commits, and the result of reading the review of each, or None."""
        row = connection.execute("SELECT payload FROM sweeps WHERE sweep_id = ?", (sweep_id,)).fetchone()
        if row is None:
            return None
        try:
            record = decode(model.SweepRecord, row[0])
        except Unreadable as error:
            raise self._unreadable("sweep", sweep_id, error) from error
        commits, reviews, problems = list[CommitReview](), list[_Kind | None](), list[str]()
        select = "SELECT position, review_id, payload FROM sweep_commits WHERE sweep_id = ? ORDER BY position"
        for position, review_id, payload in connection.execute(select, (sweep_id,)).fetchall():
            commit = _decoded(CommitReview, payload, f"commit {position + 1} of sweep {sweep_id}", problems)
            if commit is not None:
                commits.append(commit)
                reviews.append(None if review_id is None else read(review_id, problems))
        sweep = replace(record.sweep, commits=tuple(commits))
        return replace(record, sweep=sweep, problems=tuple(problems)), tuple(reviews)

    def _unreadable(self, what: str, name: str, error: Unreadable) -> StoreError:
        hint = "use the version of codeloupe that saved it; other entries are not affected"
        return StoreError(f"cannot read the {what} {name} in the database {self.database.name}: {error}", hint=hint)

    def _write_review(self, connection: Connection, record: model.ReviewRecord, raw_outputs: Mapping[str, str]) -> None:
        """Write a review in the place of the one with its id, if any. Raw outputs stay unless new ones come."""
        review, name = record.review, f"review {record.review.review_id}"
        bare = replace(record, review=replace(review, findings=(), hidden=()), problems=(), turn=0)
        every = [*((finding, False) for finding in review.findings), *((finding, True) for finding in review.hidden)]
        entry, payload = _encoded(entry_of_review(record), name), _encoded(StoredReview(bare, len(every)), name)
        findings: list[tuple[Any, ...]] = [
            (
                *(review.review_id, position, hidden, finding.is_open, finding.fingerprint, finding.severity.value),
                *(finding.status.value, finding.file, finding.expert, finding.reviewer, finding.category),
                _encoded(finding, name),
            )
            for position, (finding, hidden) in enumerate(every)
        ]
        values = {
            "sweep_id": record.sweep_id,
            "scope": review.scope.kind.value,
            "reviewer": review.reviewer.type,
            **attributes(review.usage, *SPENT),
            "size_bytes": sum(map(len, (entry, payload, *(row[-1] for row in findings)))),
            "entry": entry,
            "payload": payload,
        }
        self._upsert(connection, "review", review.review_id, record, values)
        connection.execute("DELETE FROM findings WHERE review_id = ?", (review.review_id,))
        connection.executemany(
            "INSERT INTO findings (review_id, position, hidden, is_open, fingerprint, severity, status, file, expert,"
            " reviewer, category, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            findings,
        )
        if raw_outputs:
            raw: list[tuple[object, ...]] = []
            for position, (unit, output) in enumerate(raw_outputs.items()):
                raw.append((review.review_id, position, pack(unit), pack(output)))
            connection.execute("DELETE FROM raw_outputs WHERE review_id = ?", (review.review_id,))
            connection.executemany(
                "INSERT INTO raw_outputs (review_id, position, unit, output) VALUES (?, ?, ?, ?)", raw
            )
        connection.execute(_COUNT_RAW_OUTPUTS, (review.review_id,))

    def _write_sweep(self, connection: Connection, record: model.SweepRecord, entry: model.HistoryEntry) -> None:
        """Write a sweep without its commits, in the place of the one with its id."""
        name = f"sweep {record.sweep.sweep_id}"
        payload = _encoded(replace(record, sweep=replace(record.sweep, commits=()), problems=()), name)
        row = _encoded(entry, name)
        values = {"size_bytes": len(row) + len(payload), "entry": row, "payload": payload}
        self._upsert(connection, "sweep", record.sweep.sweep_id, record, values)

    def _write_commit(
        self,
        connection: Connection,
        record: model.SweepRecord,
        commit: CommitReview,
        raw_outputs: Mapping[str, str],
        position: int | None = None,
    ) -> None:
        sweep_id = record.sweep.sweep_id
        payload = _encoded(replace(commit, review=None), f"sweep {sweep_id}")
        review_id = commit.review and commit.review.review_id
        connection.execute(
            "INSERT INTO sweep_commits (sweep_id, sha, position, review_id, payload)"
            " SELECT ?, ?, coalesce(CAST(? AS BIGINT), max(position) + 1, 0), ?, ? FROM sweep_commits"
            " WHERE sweep_id = ?"
            " ON CONFLICT (sweep_id, sha) DO UPDATE SET review_id = excluded.review_id, payload = excluded.payload",
            (sweep_id, commit.commit.sha, position, review_id, payload, sweep_id),
        )
        if commit.review is not None:
            self._write_review(connection, record.record_of(commit.review), raw_outputs)

    def _upsert(
        self,
        connection: Connection,
        kind: str,
        name: str,
        record: model.ReviewRecord | model.SweepRecord,
        values: Mapping[str, object],
    ) -> None:
        """Write the row of a review or a sweep in the place of the one with its id."""
        shared = {f"{kind}_id": name, "saved_at": record.saved_at.timestamp()}
        values = {**shared, **attributes(record, "repository", "work_tree", "branch"), **values}
        # A review that is saved again keeps its turn.
        changed = [*values, *(["turn"] if kind == "sweep" else [])]
        connection.execute(
            f"INSERT INTO {kind}s ({', '.join(values)}, turn) VALUES ({_marks(values)}, ?)"  # noqa: S608 - words of ours
            f" ON CONFLICT ({kind}_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in changed)}",
            [*values.values(), self._next_turn(connection)],
        )

    def _next_turn(self, connection: Connection) -> int:
        """Return the time in microseconds, or a later one if the database already has a turn that is not earlier."""
        turn = int(self.database.clock() * 1e6)
        (newest,) = connection.execute(_NEWEST_TURN).fetchone()
        if isinstance(newest, int):
            turn = max(turn, newest + 1)
        return turn


def _encoded(value: object, name: str) -> bytes:
    """Return a record as bytes. Raise StoreError if it cannot be encoded; then nothing was stored."""
    try:
        return encode(value)
    except ValueError as error:
        raise StoreError(f"cannot save the {name}: {error}", hint="it was used, but not stored") from error


def _decoded(kind: type[_Kind], data: object, what: str, problems: list[str]) -> _Kind | None:
    try:
        return decode(kind, data)
    except Unreadable as error:
        problems.append(f"{what} cannot be read: {error}")
        return None


def _listing(rows: Iterable[Sequence[object]]) -> model.Listing:
    problems: list[str] = []
    entries = [_decoded(model.HistoryEntry, data, f"the entry {name}", problems) for name, data in rows]
    return model.Listing(tuple(entry for entry in entries if entry is not None), tuple(problems))


def _marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)


def _where(repositories: Sequence[str] | None, **wanted: str | None) -> tuple[str, list[str]]:
    """The condition for some repositories, or all, and for columns that have a wanted value; and its values."""
    given = {column: value for column, value in wanted.items() if value is not None}
    conditions = ["1 = 1"] if repositories is None else [f"repository IN ({_marks(repositories)})"]
    return " AND ".join([*conditions, *(f"{column} = ?" for column in given)]), [*(repositories or ()), *given.values()]


OpenedHistory = Callable[[], AbstractContextManager[DatabaseHistory]]
"""Opens the history; it may stay open afterwards."""
