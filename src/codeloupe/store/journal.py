"""How the database keeps a commit through a crash: a write-ahead log, or a rollback journal where that cannot work.

Both keep every commit that returned through a loss of power. The write-ahead log lets readers and a writer work at
once, but needs memory that all of its users share, so it ends at the machine's border.
"""

from __future__ import annotations

import sqlite3

from codeloupe.store.failures import error_code

_SHARED_MEMORY_FAILURES = frozenset(
    {
        sqlite3.SQLITE_IOERR_SHMLOCK,
        sqlite3.SQLITE_IOERR_SHMMAP,
        sqlite3.SQLITE_IOERR_SHMOPEN,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    }
)
_LARGEST_IDLE_LOG_BYTES = 16 * 1024 * 1024


def may_be_for_the_log(error: sqlite3.Error) -> bool:
    """Whether a failure may have no other reason than that the write-ahead log cannot be used here."""
    return (
        error_code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        or getattr(error, "sqlite_errorcode", 0) in _SHARED_MEMORY_FAILURES
    )


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Turn the file to the write-ahead log, unless SQLite knows that this cannot work and stays with the journal."""
    mode, *_ = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode == "wal":
        # SQLite believes in shared memory until it is used.
        _look_into(connection)
        connection.execute(f"PRAGMA journal_size_limit = {_LARGEST_IDLE_LOG_BYTES}")
    _make_durable(connection, log=mode == "wal")


def use_rollback_journal(connection: sqlite3.Connection) -> None:
    """Turn the file to the rollback journal; to be called before anything else looks into it.

    Out of the log, that works without shared memory only for one who has the file for himself from the first look.
    """
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    connection.execute("PRAGMA locking_mode = NORMAL")
    # The lock is let go at the end of the next look.
    _look_into(connection)
    _make_durable(connection, log=False)


def _look_into(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT count(*) FROM sqlite_master").fetchall()


def _make_durable(connection: sqlite3.Connection, *, log: bool) -> None:
    # A rollback journal commits by removing a file; only EXTRA makes sure that the removal is on the disk.
    connection.execute(f"PRAGMA synchronous = {'FULL' if log else 'EXTRA'}")
    # On macOS a plain flush stops at the disk's own cache; elsewhere this changes nothing.
    connection.execute("PRAGMA fullfsync = ON")
