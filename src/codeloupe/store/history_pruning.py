"""Which entries of the history go, by a rule. Pure, but for removing them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codeloupe.model.history import EntryKind, PruneRule, Removed
from codeloupe.store.columns import text_column
from codeloupe.store.database import Database
from codeloupe.store.free_room import give_back_room

_BATCH_ENTRIES = 50


class Prunable(NamedTuple):
    """An entry as pruning sees it: a review that belongs to no sweep, or a sweep with its reviews."""

    kind: EntryKind
    number: int
    saved_at: float
    turn: int
    reviews: int
    findings: int
    size_bytes: int


def doomed(entries: Sequence[Prunable], rule: PruneRule) -> list[Prunable]:
    """The entries that the rule removes, the oldest first."""
    oldest_first = sorted(entries, key=lambda entry: (entry.turn, entry.number))
    removable = oldest_first[: len(oldest_first) - (rule.keep_last or 0)] if rule.keep_last else oldest_first
    going = [entry for entry in removable if _is_out(entry, rule)]
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


def _is_out(entry: Prunable, rule: PruneRule) -> bool:
    if rule.older_than is not None:
        return entry.saved_at < rule.older_than.timestamp()
    return rule.keep_last is not None


def total(entries: Sequence[Prunable]) -> Removed:
    """What some entries are together."""
    return Removed(
        reviews=sum(entry.reviews for entry in entries),
        sweeps=sum(entry.kind is EntryKind.SWEEP for entry in entries),
        findings=sum(entry.findings for entry in entries),
        size_bytes=sum(entry.size_bytes for entry in entries),
    )


def prunable(connection: sqlite3.Connection, repositories: Sequence[str] | None) -> list[Prunable]:
    """Every entry, of some names of a repository or of all."""
    return [*_reviews(connection, repositories), *_sweeps(connection, repositories)]


def remove(database: Database, entries: Sequence[Prunable]) -> None:
    """Remove entries with all that belongs to them, and give the room back. Raises StoreError.

    In batches, each of which is a transaction: nobody waits long, and an entry is there whole or not at all.
    """
    for start in range(0, len(entries), _BATCH_ENTRIES):
        with database.writing() as connection:
            for entry in entries[start : start + _BATCH_ENTRIES]:
                _remove(connection, entry)
    if entries:
        give_back_room(database)


def _remove(connection: sqlite3.Connection, entry: Prunable) -> None:
    if entry.kind is EntryKind.REVIEW:
        connection.execute("DELETE FROM reviews WHERE number = ?", (entry.number,))
        return
    connection.execute(
        "DELETE FROM reviews WHERE sweep_id = (SELECT sweep_id FROM sweeps WHERE number = ?)", (entry.number,)
    )
    connection.execute("DELETE FROM sweeps WHERE number = ?", (entry.number,))


def _reviews(connection: sqlite3.Connection, repositories: Sequence[str] | None) -> Iterator[Prunable]:
    condition, values = _of(repositories)
    rows = connection.execute(
        "SELECT number, CAST(saved_at AS REAL), CAST(turn AS INTEGER), CAST(size_bytes AS INTEGER),"  # noqa: S608 - marks and words of ours
        " (SELECT count(*) FROM findings WHERE review = reviews.number)"
        f" FROM reviews WHERE sweep_id IS NULL AND {condition}",
        values,
    )
    for number, saved_at, turn, size_bytes, findings in rows:
        yield Prunable(EntryKind.REVIEW, number, saved_at, turn, 1, findings, size_bytes)


def _sweeps(connection: sqlite3.Connection, repositories: Sequence[str] | None) -> Iterator[Prunable]:
    condition, values = _of(repositories)
    rows = connection.execute(
        "SELECT number, CAST(saved_at AS REAL), CAST(turn AS INTEGER), CAST(size_bytes AS INTEGER),"  # noqa: S608 - marks and words of ours
        " (SELECT count(*) FROM reviews WHERE sweep_id = sweeps.sweep_id),"
        " (SELECT coalesce(sum(size_bytes), 0) FROM reviews WHERE sweep_id = sweeps.sweep_id),"
        " (SELECT count(*) FROM findings JOIN reviews ON reviews.number = findings.review"
        "  WHERE reviews.sweep_id = sweeps.sweep_id)"
        f" FROM sweeps WHERE {condition}",
        values,
    )
    for number, saved_at, turn, own_bytes, reviews, review_bytes, findings in rows:
        yield Prunable(EntryKind.SWEEP, number, saved_at, turn, reviews, findings, own_bytes + review_bytes)


def _of(repositories: Sequence[str] | None) -> tuple[str, list[str]]:
    if repositories is None:
        return "1", []
    marks = ", ".join("?" * len(repositories))
    return f"repository IN ({marks})", [text_column(name) for name in repositories]
