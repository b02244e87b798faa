"""Saved reviews and sweeps in the database, each there whole or not at all. The caller has redacted them."""

from __future__ import annotations

import logging
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from msgspec import ValidationError, convert
from msgspec.structs import replace

from codeloupe.errors import StoreError
from codeloupe.model import history as model
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import ANALYSER_NAMES, Finding, FindingStatus, Source
from codeloupe.model.sweep import CommitReview
from codeloupe.store import history_writing as rows_of
from codeloupe.store.database import Database
from codeloupe.store.records import Unreadable, decode, unpack

_log = logging.getLogger(__name__)
_Kind = TypeVar("_Kind")
# A sweep, what is wrong with it, and its commits with the ids of their reviews.
_Sweep = tuple[model.SweepRecord, list[str], list[tuple[CommitReview, str | None]]]
_NOTHING: Mapping[str, str] = MappingProxyType({})
_LAST_CHARACTER = "\U0010ffff"
# The end of the calendar; a damaged time must not end the counting of all others.
_LAST_MOMENT = 253_402_300_799.0
_PRUNABLE_REVIEWS = """
    SELECT number, CAST(saved_at AS REAL), CAST(turn AS INTEGER), 1,
        (SELECT count(*) FROM findings WHERE review = reviews.number), CAST(size_bytes AS INTEGER)
    FROM reviews WHERE sweep_id IS NULL
"""
_PRUNABLE_SWEEPS = """
    SELECT number, CAST(saved_at AS REAL), CAST(turn AS INTEGER),
        (SELECT count(*) FROM reviews WHERE sweep_id = sweeps.sweep_id),
        (SELECT count(*) FROM findings JOIN reviews ON reviews.number = findings.review
            WHERE reviews.sweep_id = sweeps.sweep_id),
        CAST(size_bytes AS INTEGER)
            + (SELECT coalesce(sum(size_bytes), 0) FROM reviews WHERE sweep_id = sweeps.sweep_id)
    FROM sweeps WHERE 1
"""
_REVIEW_FACTS = """
    SELECT number, min(max(CAST(saved_at AS REAL), 0.0), ?), repository, reviewer, CAST(cost_usd AS REAL),
        CAST(unknown_costs AS INTEGER), CAST(duration_seconds AS REAL)
    FROM reviews WHERE 1
"""
# In no order: to sort them all is not the index's business.
_FINDING_FACTS = """
    SELECT f.review, f.fingerprint, f.expert, f.status = 'fixed', f.is_open
    FROM reviews CROSS JOIN findings AS f INDEXED BY findings_of_review ON f.review = reviews.number
    WHERE NOT f.hidden
"""
# In the order of the fields of a sighting.
_SIGHTINGS = """
    SELECT f.fingerprint, r.review_id, r.saved_at, f.status, f.severity, f.file, f.is_open, r.turn
    FROM findings AS f JOIN reviews AS r ON r.number = f.review WHERE 1
"""


class ReviewFact(NamedTuple):
    """What trends need of a review; `number` names it."""

    number: int
    saved_at: float
    repository: str
    reviewer: str
    cost_usd: float
    unknown_costs: int
    duration_seconds: float


# Of a finding the number of its review, its fingerprint, its expert, whether it is fixed, and whether it is open, as
# the database gives them: a hundred thousand of them are not copied.
FindingRow = tuple[int, str, str | None, bool, bool]


def trend_rows(
    by: Sequence[model.TrendKey], reviews: Sequence[ReviewFact], findings: Iterable[FindingRow]
) -> tuple[model.Trends, ...]:
    """For each key its rows, from reviews with the oldest first. A finding counts once, where it was first open."""
    seen: dict[int, list[FindingRow]] = {review.number: [] for review in reviews}
    # One that is not known was saved since the reviews were read.
    unknown: list[FindingRow] = []
    for finding in findings:
        seen.get(finding[0], unknown).append(finding)
    first: dict[tuple[str, str], tuple[str | None, ReviewFact]] = {}
    last: dict[tuple[str, str], bool] = {}
    for review in reviews:
        for _, fingerprint, expert, is_fixed, is_open in seen[review.number]:
            key = (review.repository, fingerprint)
            if key in first:
                last[key] = is_fixed
            elif is_open:
                first[key] = expert, review
    lives = [(expert, review, last.get(key, False)) for key, (expert, review) in first.items()]
    return tuple(model.Trends(key, _rows(key, reviews, lives)) for key in by)


def _rows(
    by: model.TrendKey, reviews: Sequence[ReviewFact], lives: Iterable[tuple[str | None, ReviewFact, bool]]
) -> tuple[model.TrendRow, ...]:
    # Experts share a review, so that its cost and time are nobody's.
    spent = () if by is model.TrendKey.EXPERT else ("reviews", "cost_usd", "unknown_costs", "duration_seconds")
    sums: defaultdict[str, dict[str, Any]] = defaultdict(lambda: dict.fromkeys(("findings", "fixed", *spent), 0))

    def its(review: ReviewFact, expert: str | None = None) -> dict[str, Any]:
        if by is model.TrendKey.EXPERT:
            return sums[expert or "(no expert)"]
        if by is model.TrendKey.REVIEWER:
            return sums[review.reviewer]
        # The Monday of the week, in UTC.
        day = datetime.fromtimestamp(review.saved_at, UTC).date()
        return sums[(day - timedelta(days=day.weekday())).isoformat()]

    for review in reviews if spent else ():
        total = its(review)
        total["reviews"] += 1
        for name in spent[1:]:
            total[name] += getattr(review, name)
    for expert, review, is_fixed in lives:
        found = its(review, expert)
        found["findings"] += 1
        found["fixed"] += is_fixed
    ordered = sorted(sums, key=lambda key: (-sums[key]["findings"], key))
    if by is model.TrendKey.WEEK and sums:
        ordered = sorted(sums)
        first, last = (datetime.fromisoformat(ordered[place]) for place in (0, -1))
        weeks = range((last - first).days // 7 + 1)
        # Weeks without a review are there too; but a clock that was wrong once must not fill the screen with them.
        if len(weeks) <= 520:
            ordered = [(first + timedelta(weeks=number)).date().isoformat() for number in weeks]
    return tuple(model.TrendRow(key=key, **sums[key]) for key in ordered)


def with_source(finding: Finding) -> Finding:
    """The finding with its source, which 0.1.0 did not save; no model refutes an analyser."""
    if finding.source is not Source.AGENT or ANALYSER_NAMES.isdisjoint((finding.reviewer, *finding.seen_by)):
        return finding
    if finding.status is FindingStatus.REFUTED:
        finding = replace(finding, status=FindingStatus.OPEN, verification="")
    return replace(finding, source=Source.ANALYSER)


class SqliteHistory:
    """The history in a database file; see `interface.History`. A row that cannot be read costs that row."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, record: model.ReviewRecord, *, raw_outputs: Mapping[str, str] = _NOTHING) -> None:
        """Save a review whole, in the place of the one with its id. `raw_outputs` is what agents printed, by unit."""
        with self._database.writing() as connection:
            if record.sweep_id is not None and rows_of.number_of(connection, "sweep", record.sweep_id) is None:
                raise StoreError(
                    f"the review {record.review.review_id} cannot be saved before its sweep {record.sweep_id}",
                    hint="save the sweep first",
                )
            rows_of.write_review(connection, record, raw_outputs)

    def save_sweep(self, record: model.SweepRecord) -> None:
        """Save a sweep with all its commits and their reviews, in the place of what there is of it."""
        with self._database.writing() as connection:
            number = rows_of.write_sweep(connection, record, rows_of.entry_of_sweep(record))
            connection.execute("DELETE FROM sweep_commits WHERE sweep = ?", (number,))
            for commit in record.sweep.commits:
                rows_of.write_commit(connection, number, record, commit, {})

    def add_commit(
        self, record: model.SweepRecord, commit: CommitReview, *, raw_outputs: Mapping[str, str] = _NOTHING
    ) -> None:
        """Save one more commit of a sweep, which counts as unfinished until it is saved whole."""
        unfinished = replace(record, finished=False)
        before = rows_of.entry_of_sweep(replace(unfinished, sweep=replace(record.sweep, commits=())))
        with self._database.writing() as connection:
            for (entry,) in connection.execute("SELECT entry FROM sweeps WHERE sweep_id = ?", (record.sweep.sweep_id,)):
                # One that cannot be read is made again from here on; the commits themselves are all there.
                with suppress(Unreadable):
                    before = decode(model.HistoryEntry, entry)
            number = rows_of.write_sweep(connection, unfinished, rows_of.with_commit(before, record, commit))
            rows_of.write_commit(connection, number, record, commit, raw_outputs)

    def get(self, review_id: str) -> model.ReviewRecord | None:
        """A saved review, or None."""
        with self._database.snapshot() as connection:
            number = rows_of.number_of(connection, "review", review_id)
            return None if number is None else self._review(connection, number)

    def raw_outputs(self, review_id: str) -> Mapping[str, str]:
        """What agents printed for a review, by unit; empty when nothing was saved."""
        rows = self._database.select(
            "SELECT unit, output FROM raw_outputs WHERE review = (SELECT number FROM reviews WHERE review_id = ?)"
            " ORDER BY number",
            (review_id,),
        )
        try:
            return {unpack(unit): unpack(output) for unit, output in rows}
        except Unreadable as error:
            raise self._unreadable("raw output of review", review_id, error) from error

    def get_sweep(self, sweep_id: str) -> model.SweepRecord | None:
        """A saved sweep with its reviews, or None."""
        with self._database.snapshot() as connection:
            found = self._sweep(connection, sweep_id)
            if found is None:
                return None
            record, problems, pairs = found
            commits = []
            for commit, review_id in pairs:
                number = None if review_id is None else rows_of.number_of(connection, "review", review_id)
                if review_id is not None and number is None:
                    problems.append(f"the review {review_id} is gone")
                try:
                    its = None if number is None else self._review(connection, number)
                except StoreError as error:
                    its = None
                    problems.append(error.message)
                problems += () if its is None else its.problems
                commits.append(replace(commit, review=its and its.review))
        return replace(record, sweep=replace(record.sweep, commits=tuple(commits)), problems=tuple(problems))

    def outline(self, sweep_id: str) -> model.SweepOutline | None:
        """A saved sweep without the findings of its reviews, or None; quick, however large it is."""
        with self._database.snapshot() as connection:
            found = self._sweep(connection, sweep_id)
            rows = connection.execute("SELECT review_id, entry FROM reviews WHERE sweep_id = ?", (sweep_id,)).fetchall()
        if found is None:
            return None
        (record, problems, pairs), known = found, dict(rows)
        entries: list[model.HistoryEntry | None] = []
        for _, review_id in pairs:
            entry = None
            if review_id is not None and review_id not in known:
                problems.append(f"the review {review_id} is gone")
            elif review_id is not None:
                entry = _decoded(model.HistoryEntry, known[review_id], f"the review {review_id}", problems)
            entries.append(entry)
        sweep = replace(record.sweep, commits=tuple(commit for commit, _ in pairs))
        return model.SweepOutline(replace(record, sweep=sweep, problems=tuple(problems)), tuple(entries))

    def last(
        self, repositories: Sequence[str], *, branch: str | None = None, scope: ScopeKind | None = None
    ) -> model.ReviewRecord | None:
        """The newest review of a repository that can be read, of a branch and a kind of scope; none of a sweep."""
        condition, values = _of(repositories)
        chosen = {"branch": branch, "scope": scope and scope.value}
        given = {column: value for column, value in chosen.items() if value is not None}
        condition += "".join(f" AND {column} = ?" for column in given)
        statement = f"SELECT number FROM reviews WHERE sweep_id IS NULL{condition} ORDER BY turn DESC, number DESC"  # noqa: S608 - words of ours
        with self._database.snapshot() as connection:
            for (number,) in connection.execute(statement, [*values, *given.values()]).fetchall():
                try:
                    return self._review(connection, number)
                except StoreError as error:
                    _log.warning("%s", error.message)
        return None

    def list(self, query: model.HistoryQuery) -> model.Listing:
        """The newest entries, by the order of saving; no payload is read. A sweep is one entry."""
        rows: list[tuple[object, ...]] = []
        with self._database.snapshot() as connection:
            for table, key, condition in (("reviews", "review_id", "sweep_id IS NULL"), ("sweeps", "sweep_id", "1")):
                # Asked for one repository at a time, so that an index gives the rows in order.
                for name in (None,) if query.repositories is None else query.repositories:
                    wanted = [("repository", name), ("branch", query.branch)]
                    given = [(column, value) for column, value in wanted if value is not None]
                    conditions = " AND ".join([condition, *(f"{column} = ?" for column, _ in given)])
                    rows += connection.execute(
                        f"SELECT turn, {key}, entry FROM {table} WHERE {conditions}"  # noqa: S608 - words of ours
                        " ORDER BY turn DESC, number DESC LIMIT ?",
                        (*(value for _, value in given), query.limit),
                    )
        rows.sort(key=lambda row: row[0] if isinstance(row[0], (int, float)) else 0.0, reverse=True)
        return _listing(row[1:] for row in rows[: query.limit])

    def matching(self, prefix: str, *, limit: int = 10) -> model.Listing:
        """Reviews, also those of sweeps, and sweeps whose id begins so, at most `limit` of each."""
        with self._database.snapshot() as connection:
            rows = [
                row
                for table, key in (("reviews", "review_id"), ("sweeps", "sweep_id"))
                for row in connection.execute(
                    f"SELECT {key}, entry FROM {table} WHERE {key} >= ? AND {key} <= ? ORDER BY turn DESC LIMIT ?",  # noqa: S608 - words of ours
                    (prefix, prefix + _LAST_CHARACTER, limit),
                )
            ]
        return _listing(rows[:limit])

    def findings_of(
        self, fingerprints: Sequence[str], *, repositories: Sequence[str] | None = None
    ) -> tuple[model.Sighting, ...]:
        """Every time these findings were seen, the oldest first; a row that cannot be read is logged and left out."""
        condition, values = _of(repositories, "r.repository")
        rows: list[tuple[object, ...]] = []
        with self._database.snapshot() as connection:
            for start in range(0, len(fingerprints), 500):
                some = fingerprints[start : start + 500]
                marked = f"{_SIGHTINGS}{condition} AND f.fingerprint IN ({rows_of.marks(some)})"
                rows += connection.execute(marked, [*values, *some])
        found: list[model.Sighting] = []
        for row in rows:
            try:
                named = dict(zip(model.Sighting.__struct_fields__, row, strict=True))
                found.append(convert(named, model.Sighting, strict=False))
            except (ValidationError, OverflowError) as error:
                _log.warning("a finding of review %s in the history cannot be read: %s", row[1], error)
        return tuple(sorted(found, key=lambda sighting: (sighting.turn, sighting.review_id)))

    def fingerprints(self, prefix: str, *, repositories: Sequence[str], limit: int) -> Sequence[str]:
        """The findings of a repository whose fingerprint begins so, at most `limit`."""
        condition, values = _of(repositories, "r.repository")
        rows = self._database.select(
            "SELECT DISTINCT f.fingerprint FROM findings AS f JOIN reviews AS r ON r.number = f.review"  # noqa: S608 - marks of ours
            f" WHERE f.fingerprint >= ? AND f.fingerprint <= ?{condition} LIMIT ?",
            (prefix, prefix + _LAST_CHARACTER, *values, limit),
        )
        return [fingerprint for (fingerprint,) in rows]

    def finding(self, fingerprint: str, *, repositories: Sequence[str]) -> Finding | None:
        """A finding of a repository as it was saved last and can be read, or None."""
        condition, values = _of(repositories, "r.repository")
        rows = self._database.select(
            "SELECT f.payload FROM findings AS f JOIN reviews AS r ON r.number = f.review"  # noqa: S608 - marks of ours
            f" WHERE f.fingerprint = ?{condition} ORDER BY r.turn DESC LIMIT 5",
            (fingerprint, *values),
        )
        for (payload,) in rows:
            with suppress(Unreadable):
                return with_source(decode(Finding, payload))
        return None

    def dismiss(self, dismissal: model.Dismissal) -> None:
        """Keep that a person set a finding aside, in the place of an earlier word on it."""
        payload = rows_of.encoded(dismissal, f"dismissal {dismissal.fingerprint}")
        row = (dismissal.repository, dismissal.fingerprint, payload)
        self._database.change("INSERT OR REPLACE INTO dismissals VALUES (?, ?, ?)", row)

    def take_back(self, fingerprint: str, *, repositories: Sequence[str]) -> bool:
        """Forget that a finding was dismissed; False when it was not."""
        condition, values = _of(repositories)
        statement = f"DELETE FROM dismissals WHERE fingerprint = ?{condition}"  # noqa: S608 - marks of ours
        return self._database.change(statement, (fingerprint, *values)) > 0

    def dismissals(self, repositories: Sequence[str]) -> tuple[model.Dismissal, ...]:
        """What persons set aside in a repository, the oldest first; a row that cannot be read is logged."""
        condition, values = _of(repositories)
        statement = f"SELECT fingerprint, payload FROM dismissals WHERE 1{condition}"  # noqa: S608 - marks of ours
        rows, problems = self._database.select(statement, values), list[str]()
        read = [_decoded(model.Dismissal, payload, f"the dismissal of {name}", problems) for name, payload in rows]
        for problem in problems:
            _log.warning("%s", problem)
        found = [each for each in read if each is not None]
        return tuple(sorted(found, key=lambda dismissal: (dismissal.at, dismissal.fingerprint)))

    def trends(
        self, by: Sequence[model.TrendKey], *, repositories: Sequence[str] | None = None
    ) -> tuple[model.Trends, ...]:
        """Findings, cost, time and what was fixed, for each key by which they are wanted; no payload is read."""
        condition, values = _of(repositories)
        with self._database.snapshot() as connection:
            facts = connection.execute(f"{_REVIEW_FACTS}{condition} ORDER BY turn, number", [_LAST_MOMENT, *values])
            reviews = [ReviewFact(*row) for row in facts]
            findings: list[FindingRow] = connection.execute(f"{_FINDING_FACTS}{condition}", values).fetchall()
        return trend_rows(by, reviews, findings)

    def prune(self, rule: model.PruneRule, *, dry_run: bool = False) -> model.Removed:
        """Remove what the rule names, in batches, and return what went; with `dry_run`, what would."""
        condition, values = _of(rule.repositories)
        with self._database.snapshot() as connection:
            entries = [
                _Prunable(kind, *row)
                for kind, query in (
                    (model.EntryKind.REVIEW, _PRUNABLE_REVIEWS),
                    (model.EntryKind.SWEEP, _PRUNABLE_SWEEPS),
                )
                for row in connection.execute(f"{query}{condition}", values)
            ]
        going = _doomed(entries, rule)
        of_sweep = "sweep_id = (SELECT sweep_id FROM sweeps WHERE number = ?)"
        for start in range(0, 0 if dry_run else len(going), 50):
            with self._database.writing() as connection:
                for entry in going[start : start + 50]:
                    which = of_sweep if entry.kind is model.EntryKind.SWEEP else "number = ?"
                    connection.execute(f"DELETE FROM reviews WHERE {which}", (entry.number,))  # noqa: S608 - ours
                    if entry.kind is model.EntryKind.SWEEP:
                        connection.execute("DELETE FROM sweeps WHERE number = ?", (entry.number,))
        if going and not dry_run:
            self._database.give_back_room()
        return model.Removed(
            reviews=sum(entry.reviews for entry in going),
            sweeps=sum(entry.kind is model.EntryKind.SWEEP for entry in going),
            findings=sum(entry.findings for entry in going),
            size_bytes=sum(entry.size_bytes for entry in going),
        )

    def file_bytes(self) -> int:
        """How large the database is, with all that is in it."""
        return self._database.size_bytes()

    def known_root(self, place: bytes) -> str | None:
        """The root commit of the repository at a place, as it was found out before."""
        rows = self._database.select("SELECT root FROM repositories WHERE place = ?", (place,))
        return str(rows[0][0]) if rows else None

    def remember_root(self, place: bytes, root: str) -> None:
        """Keep the root commit of the repository at a place."""
        self._database.change("INSERT OR REPLACE INTO repositories VALUES (?, ?)", (place, root))

    def _review(self, connection: sqlite3.Connection, number: int) -> model.ReviewRecord:
        """A review with its findings. Raises StoreError when it cannot be read; a finding that cannot is a problem."""
        name, turn, payload = connection.execute(
            "SELECT review_id, turn, payload FROM reviews WHERE number = ?", (number,)
        ).fetchone()
        try:
            stored = decode(rows_of.StoredReview, payload)
        except Unreadable as error:
            raise self._unreadable("review", name, error) from error
        shown: list[Finding] = []
        hidden: list[Finding] = []
        problems: list[str] = []
        rows = connection.execute(
            "SELECT position, hidden, payload FROM findings WHERE review = ? ORDER BY position", (number,)
        ).fetchall()
        for position, is_hidden, data in rows:
            finding = _decoded(Finding, data, f"finding {position + 1} of review {name}", problems)
            if finding is not None:
                (hidden if is_hidden else shown).append(with_source(finding))
        if len(rows) != stored.findings:
            problems.append(f"review {name} had {stored.findings} findings, and {len(rows)} are left")
        review = replace(stored.record.review, findings=tuple(shown), hidden=tuple(hidden))
        return replace(stored.record, review=review, problems=tuple(problems), turn=int(turn))

    def _sweep(self, connection: sqlite3.Connection, sweep_id: str) -> _Sweep | None:
        row = connection.execute("SELECT number, payload FROM sweeps WHERE sweep_id = ?", (sweep_id,)).fetchone()
        if row is None:
            return None
        try:
            record = decode(model.SweepRecord, row[1])
        except Unreadable as error:
            raise self._unreadable("sweep", sweep_id, error) from error
        problems: list[str] = []
        commits = []
        for position, review_id, payload in connection.execute(
            "SELECT position, review_id, payload FROM sweep_commits WHERE sweep = ? ORDER BY position", (row[0],)
        ):
            commit = _decoded(CommitReview, payload, f"commit {position + 1} of sweep {sweep_id}", problems)
            if commit is not None:
                commits.append((commit, review_id))
        return record, problems, commits

    def _unreadable(self, what: str, name: str, error: Unreadable) -> StoreError:
        hint = "use the codeloupe that saved it; the other entries of the history are not touched by this"
        return StoreError(f"the {what} {name} in the database {self._database.path} cannot be read: {error}", hint=hint)


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


def _of(repositories: Sequence[str] | None, column: str = "repository") -> tuple[str, list[str]]:
    if repositories is None:
        return "", []
    return f" AND {column} IN ({rows_of.marks(repositories)})", list(repositories)


class _Prunable(NamedTuple):
    """An entry as pruning sees it: a review that belongs to no sweep, or a sweep with its reviews."""

    kind: model.EntryKind
    number: int
    saved_at: float
    turn: int
    reviews: int
    findings: int
    size_bytes: int


def _doomed(entries: Sequence[_Prunable], rule: model.PruneRule) -> list[_Prunable]:
    oldest_first = sorted(entries, key=lambda entry: (entry.turn, entry.number))
    removable = oldest_first[: len(oldest_first) - rule.keep_last] if rule.keep_last else oldest_first
    before = None if rule.older_than is None else rule.older_than.timestamp()
    going = [
        entry for entry in removable if (rule.keep_last is not None if before is None else entry.saved_at < before)
    ]
    if rule.max_bytes is None:
        return going
    gone = frozenset(going)
    left = sum(entry.size_bytes for entry in oldest_first if entry not in gone)
    for entry in removable:
        if left <= rule.max_bytes:
            break
        if entry not in gone:
            going.append(entry)
            left -= entry.size_bytes
    return going
