"""Keeping the ledger within its limits: what is too old goes, then the oldest until the rest fits."""

from __future__ import annotations

from msgspec import Struct

from codeloupe.store.database import Database

_SECONDS_PER_DAY = 86_400
_BATCH_ROWS = 1_000
_BATCH_PAGES = 2_000


class Limits(Struct, frozen=True, kw_only=True):
    """How old stored results may be, and how many bytes they may take together."""

    max_age_days: float = 90.0
    max_bytes: int = 1024**3


class Pruned(Struct, frozen=True):
    """What was removed."""

    results: int = 0
    size_bytes: int = 0


def prune(database: Database, *, now: float, limits: Limits) -> Pruned:
    """Remove what is beyond the limits, oldest first, give the room back, and tell what went. Raises StoreError.

    Works in batches, so that no other process waits long, and two that do it at once do not remove too much.
    """
    oldest_allowed = now - limits.max_age_days * _SECONDS_PER_DAY
    results = size_bytes = 0
    while True:
        batch = _prune_batch(database, oldest_allowed=oldest_allowed, max_bytes=limits.max_bytes)
        if not batch.results:
            break
        results, size_bytes = results + batch.results, size_bytes + batch.size_bytes
    if results:
        _give_back_room(database)
    with database.writing() as connection:
        connection.execute("DELETE FROM claims WHERE expires_at < ?", (now - _SECONDS_PER_DAY,))
    return Pruned(results, size_bytes)


def _prune_batch(database: Database, *, oldest_allowed: float, max_bytes: int) -> Pruned:
    with database.writing() as connection:
        (total,) = connection.execute("SELECT coalesce(sum(size_bytes), 0) FROM results").fetchone()
        rows = connection.execute(
            "SELECT rowid, created_at, size_bytes FROM results ORDER BY created_at LIMIT ?", (_BATCH_ROWS,)
        ).fetchall()
        doomed, removed = [], 0
        for row, created_at, size_bytes in rows:
            if created_at >= oldest_allowed and total - removed <= max_bytes:
                break
            doomed.append((row,))
            removed += size_bytes
        connection.executemany("DELETE FROM results WHERE rowid = ?", doomed)
        return Pruned(len(doomed), removed)


def _give_back_room(database: Database) -> None:
    with database.reading() as connection:
        (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(0, free_pages, _BATCH_PAGES):
        with database.reading() as connection:
            # As a script, since `execute` takes only the first step of it: one page.
            connection.executescript(f"PRAGMA incremental_vacuum({_BATCH_PAGES})")
