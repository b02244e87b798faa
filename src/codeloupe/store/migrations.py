"""The schema, as numbered steps. A step that was released is never changed: what is to be different is a new step.

The number of steps that were applied to a file is its `user_version`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

Step = Sequence[str]

# "clou": says of a file that it is ours.
APPLICATION_ID = 0x636C6F75

MIGRATIONS: tuple[Step, ...] = (
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
        """CREATE TABLE results (
            key TEXT PRIMARY KEY NOT NULL,
            created_at REAL NOT NULL,
            size_bytes INTEGER NOT NULL,
            agent TEXT NOT NULL,
            model TEXT,
            cost_usd REAL,
            payload BLOB NOT NULL
        )""",
        # Holds all that the limits and the statistics ask for, so that no payload is read for them.
        "CREATE INDEX results_by_age ON results (created_at, size_bytes, cost_usd)",
        """CREATE TABLE claims (
            key TEXT PRIMARY KEY NOT NULL,
            owner TEXT NOT NULL,
            lease_seconds REAL NOT NULL,
            expires_at REAL NOT NULL
        ) WITHOUT ROWID""",
    ),
)


def schema_version(connection: sqlite3.Connection) -> int:
    """How many steps were applied to the file."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def is_foreign(connection: sqlite3.Connection) -> bool:
    """Whether another program made the file; an empty one is nobody's."""
    application, *_ = connection.execute("PRAGMA application_id").fetchone()
    if application == 0:
        return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    return bool(application != APPLICATION_ID)


def migrate(connection: sqlite3.Connection, steps: Sequence[Step] = MIGRATIONS) -> None:
    """Apply the steps that are missing, each in a transaction of its own; a step that fails leaves no trace.

    Processes that do this at once wait for each other: the version is looked at again behind the lock.
    """
    while schema_version(connection) < len(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            _apply_next(connection, steps)
            connection.execute("COMMIT")
        except BaseException:  # also an interruption: whatever it was, half a step must not stay
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _apply_next(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    version = schema_version(connection)
    if version < len(steps):
        for statement in steps[version]:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version + 1}")
