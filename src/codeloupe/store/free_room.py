"""Giving the room of what was removed back to the disk."""

from __future__ import annotations

from codeloupe.store.database import Database

_BATCH_PAGES = 2_000


def give_back_room(database: Database) -> None:
    """Cut the free pages off the file, in batches, so that nobody else waits long. Raises StoreError."""
    with database.reading() as connection:
        (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
    for _ in range(0, free_pages, _BATCH_PAGES):
        with database.reading() as connection:
            # As a script, since `execute` takes only the first step of it: one page.
            connection.executescript(f"PRAGMA incremental_vacuum({_BATCH_PAGES})")


def file_bytes(database: Database) -> int:
    """How large the database is. Raises StoreError."""
    with database.reading() as connection:
        pages, page_bytes = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * page_bytes)
