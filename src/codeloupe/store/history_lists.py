"""Lists out of the history's tables: entries, newest reviews, sightings of findings. No payload is read for them."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.history import HistoryEntry, HistoryQuery, Listing, Sighting
from codeloupe.store.columns import text_column, text_of
from codeloupe.store.failures import Unreadable
from codeloupe.store.history_reading import with_source
from codeloupe.store.review_text import decode

_log = logging.getLogger(__name__)
_NAMES_AT_ONCE = 500
_MOST_TRIED = 5
_LAST_CHARACTER = "\U0010ffff"


def entries(connection: sqlite3.Connection, query: HistoryQuery) -> Listing:
    """The newest entries that a query names, by the order in which they were saved.

    A review that belongs to a sweep is told by the sweep.
    """
    rows = [
        row
        for table, condition in (("reviews", "sweep_id IS NULL"), ("sweeps", "1"))
        for name in ((None,) if query.repositories is None else query.repositories)
        for row in _newest(connection, table, condition, name=name, query=query)
    ]
    rows.sort(key=lambda row: row[0] if isinstance(row[0], (int, float)) else 0.0, reverse=True)
    return _listing(row[1:] for row in rows[: query.limit])


def _newest(
    connection: sqlite3.Connection, table: str, condition: str, *, name: str | None, query: HistoryQuery
) -> list[tuple[object, ...]]:
    """Asked for one repository at a time, so that an index gives the rows in order."""
    values: list[object] = []
    if name is not None:
        condition += " AND repository = ?"
        values.append(text_column(name))
    if query.branch is not None:
        condition += " AND branch = ?"
        values.append(text_column(query.branch))
    key = "review_id" if table == "reviews" else "sweep_id"
    return connection.execute(
        f"SELECT turn, CAST({key} AS BLOB), entry FROM {table} WHERE {condition}"  # noqa: S608 - words of ours
        " ORDER BY turn DESC, number DESC LIMIT ?",
        (*values, query.limit),
    ).fetchall()


def entries_beginning_with(connection: sqlite3.Connection, prefix: str, *, limit: int) -> Listing:
    """Reviews and sweeps whose id begins so, also the reviews of a sweep."""
    first = text_column(prefix)
    rows = [
        row
        for table, key in (("reviews", "review_id"), ("sweeps", "sweep_id"))
        for row in connection.execute(
            f"SELECT CAST({key} AS BLOB), entry FROM {table}"  # noqa: S608 - words of ours
            f" WHERE {key} >= ? AND {key} <= ? ORDER BY turn DESC LIMIT ?",
            (first, first + _LAST_CHARACTER, limit),
        )
    ]
    return _listing(rows[:limit])


def _listing(rows: Iterable[Sequence[object]]) -> Listing:
    readable: list[HistoryEntry] = []
    problems: list[str] = []
    for name, data in rows:
        try:
            readable.append(decode(HistoryEntry, data))
        except Unreadable as error:
            problems.append(f"the entry {text_of(name)} cannot be read: {error}")
    return Listing(tuple(readable), tuple(problems))


def newest_reviews(
    connection: sqlite3.Connection, repository: str, *, branch: str | None, scope: str | None
) -> list[tuple[int, int]]:
    """In which turn the reviews of a repository were saved, and their numbers, the newest first; none of sweeps."""
    condition, values = "repository = ? AND sweep_id IS NULL", [text_column(repository)]
    for column, value in (("branch", branch), ("scope", scope)):
        if value is not None:
            condition += f" AND {column} = ?"
            values.append(text_column(value))
    return connection.execute(
        f"SELECT turn, number FROM reviews WHERE {condition} ORDER BY turn DESC, number DESC",  # noqa: S608 - words of ours
        values,
    ).fetchall()


def sightings(
    connection: sqlite3.Connection, fingerprints: Sequence[str], repositories: Sequence[str] | None
) -> list[Sighting]:
    """Every time the findings were seen, the oldest first; a row that cannot be read is logged and left out."""
    names = {text_column(fingerprint): fingerprint for fingerprint in fingerprints}
    keys = list(names)
    found: list[Sighting] = []
    for start in range(0, len(keys), _NAMES_AT_ONCE):
        for row in _sighting_rows(connection, keys[start : start + _NAMES_AT_ONCE], repositories):
            try:
                found.append(_sighting(row, names))
            except (ValueError, TypeError, KeyError, OverflowError) as error:
                _log.warning("a finding of review %s in the history cannot be read: %s", text_of(row[0]), error)
    return sorted(found, key=lambda sighting: (sighting.turn, sighting.review_id))


def fingerprints(connection: sqlite3.Connection, prefix: str, repositories: Sequence[str], *, limit: int) -> list[str]:
    """The findings of a repository whose fingerprint begins so."""
    first = text_column(prefix)
    rows = connection.execute(
        "SELECT DISTINCT CAST(f.fingerprint AS BLOB) FROM findings AS f JOIN reviews AS r ON r.number = f.review"  # noqa: S608 - as above
        f" WHERE f.fingerprint >= ? AND f.fingerprint <= ? AND r.repository IN ({_marks(repositories)}) LIMIT ?",
        (first, first + _LAST_CHARACTER, *map(text_column, repositories), limit),
    )
    return [text_of(row[0]) for row in rows]


def newest_finding(connection: sqlite3.Connection, fingerprint: str, repositories: Sequence[str]) -> Finding | None:
    """A finding as it was saved last and can be read."""
    rows = connection.execute(
        "SELECT f.payload FROM findings AS f JOIN reviews AS r ON r.number = f.review"  # noqa: S608 - as above
        f" WHERE f.fingerprint = ? AND r.repository IN ({_marks(repositories)}) ORDER BY r.turn DESC LIMIT ?",
        (text_column(fingerprint), *map(text_column, repositories), _MOST_TRIED),
    )
    for (payload,) in rows:
        with suppress(Unreadable):
            return with_source(decode(Finding, payload))
    return None


def _sighting_rows(
    connection: sqlite3.Connection, keys: Sequence[str], repositories: Sequence[str] | None
) -> list[tuple[object, ...]]:
    condition, values = f"f.fingerprint IN ({_marks(keys)})", list(keys)
    if repositories is not None:
        condition += f" AND r.repository IN ({_marks(repositories)})"
        values += map(text_column, repositories)
    return connection.execute(
        "SELECT CAST(r.review_id AS BLOB), r.saved_at, f.fingerprint, CAST(f.status AS BLOB), f.severity,"  # noqa: S608 - as above
        " CAST(f.file AS BLOB), f.is_open, r.turn FROM findings AS f JOIN reviews AS r ON r.number = f.review"
        f" WHERE {condition}",
        values,
    ).fetchall()


def _sighting(row: Sequence[object], names: Mapping[str, str]) -> Sighting:
    review_id, saved_at, fingerprint, status, severity, file, is_open, turn = row
    return Sighting(
        fingerprint=names[fingerprint],  # type: ignore[index]  # whatever stands there, a wrong one is a KeyError
        review_id=text_of(review_id),
        saved_at=datetime.fromtimestamp(saved_at, UTC),  # type: ignore[arg-type]  # a wrong one is a TypeError
        status=FindingStatus(text_of(status)),
        severity=Severity(severity),
        file=text_of(file),
        is_open=bool(is_open),
        turn=int(turn),  # type: ignore[call-overload]  # a wrong one is a TypeError
    )


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
