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
    (
        # `entry` is what the list shows, so that no payload is read for it; `payload` is all but the findings. No
        # number is given twice: what was looked up by one is not mixed up with what came since.
        """CREATE TABLE reviews (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            review_id TEXT NOT NULL UNIQUE,
            sweep_id TEXT,
            saved_at REAL NOT NULL,
            repository TEXT NOT NULL,
            branch TEXT,
            scope TEXT NOT NULL,
            reviewer TEXT NOT NULL,
            cost_usd REAL NOT NULL,
            unknown_costs INTEGER NOT NULL,
            duration_seconds REAL NOT NULL,
            size_bytes INTEGER NOT NULL,
            entry BLOB NOT NULL,
            payload BLOB NOT NULL
        )""",
        "CREATE INDEX reviews_of_repository ON reviews (repository, saved_at) WHERE sweep_id IS NULL",
        "CREATE INDEX reviews_by_age ON reviews (saved_at) WHERE sweep_id IS NULL",
        "CREATE INDEX reviews_of_sweep ON reviews (sweep_id) WHERE sweep_id IS NOT NULL",
        """CREATE TABLE findings (
            number INTEGER PRIMARY KEY,
            review INTEGER NOT NULL REFERENCES reviews (number) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            hidden INTEGER NOT NULL,
            is_open INTEGER NOT NULL,
            fingerprint TEXT NOT NULL,
            severity INTEGER NOT NULL,
            status TEXT NOT NULL,
            file TEXT NOT NULL,
            expert TEXT,
            reviewer TEXT NOT NULL,
            category TEXT NOT NULL,
            payload BLOB NOT NULL
        )""",
        # Holds all that the trends ask for, so that no payload is read for them.
        """CREATE INDEX findings_of_review
            ON findings (review, position, hidden, is_open, fingerprint, status, expert)""",
        "CREATE INDEX findings_by_fingerprint ON findings (fingerprint, review)",
        """CREATE TABLE raw_outputs (
            number INTEGER PRIMARY KEY,
            review INTEGER NOT NULL REFERENCES reviews (number) ON DELETE CASCADE,
            unit BLOB NOT NULL,
            output BLOB NOT NULL
        )""",
        "CREATE INDEX raw_outputs_of_review ON raw_outputs (review)",
        """CREATE TABLE sweeps (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            sweep_id TEXT NOT NULL UNIQUE,
            saved_at REAL NOT NULL,
            repository TEXT NOT NULL,
            branch TEXT,
            size_bytes INTEGER NOT NULL,
            entry BLOB NOT NULL,
            payload BLOB NOT NULL
        )""",
        "CREATE INDEX sweeps_of_repository ON sweeps (repository, saved_at)",
        "CREATE INDEX sweeps_by_age ON sweeps (saved_at)",
        """CREATE TABLE sweep_commits (
            number INTEGER PRIMARY KEY,
            sweep INTEGER NOT NULL REFERENCES sweeps (number) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            review_id TEXT,
            payload BLOB NOT NULL
        )""",
        "CREATE INDEX commits_of_sweep ON sweep_commits (sweep, position)",
        """CREATE TABLE dismissals (
            repository TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            payload BLOB NOT NULL,
            PRIMARY KEY (repository, fingerprint)
        ) WITHOUT ROWID""",
        # What a repository is called, by the place of its git directory: to find it out may take long.
        """CREATE TABLE repositories (
            place BLOB PRIMARY KEY NOT NULL,
            root TEXT NOT NULL
        ) WITHOUT ROWID""",
    ),
    (
        # The order in which reviews and sweeps were saved, counted over both: a clock may be wrong, and then right.
        "ALTER TABLE reviews ADD COLUMN turn INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE sweeps ADD COLUMN turn INTEGER NOT NULL DEFAULT 0",
        "UPDATE reviews SET turn = number",
        """UPDATE sweeps SET turn = coalesce(
            (SELECT max(number) FROM reviews WHERE reviews.sweep_id = sweeps.sweep_id),
            (SELECT max(number) FROM reviews WHERE reviews.saved_at <= sweeps.saved_at),
            0
        )""",
        "DROP INDEX reviews_of_repository",
        "DROP INDEX reviews_by_age",
        "DROP INDEX sweeps_of_repository",
        "DROP INDEX sweeps_by_age",
        "CREATE INDEX reviews_of_repository ON reviews (repository, turn) WHERE sweep_id IS NULL",
        "CREATE INDEX reviews_in_order ON reviews (turn)",
        "CREATE INDEX sweeps_of_repository ON sweeps (repository, turn)",
        "CREATE INDEX sweeps_in_order ON sweeps (turn)",
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
