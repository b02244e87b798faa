"""Tasks that one process at a time does for all users of a database, at most once in a while."""

from __future__ import annotations

from codeloupe.store.interface import Database


def is_due(database: Database, task: str, *, every_seconds: float) -> bool:
    """Return whether this process should do a task now, and record the task as done. Raise StoreError."""
    now = database.clock()
    with database.writing(f"maintenance {task}") as connection:
        row = connection.execute("SELECT done_at FROM maintenance WHERE task = ?", (task,)).fetchone()
        # A time in the future is that of a clock that was wrong.
        if row is not None and now - every_seconds < row[0] <= now:
            return False
        connection.execute(
            "INSERT INTO maintenance (task, done_at) VALUES (?, ?)"
            " ON CONFLICT (task) DO UPDATE SET done_at = excluded.done_at",
            (task, now),
        )
    return True
