"""The one SQLite file: opened late, brought to the present schema, and used in short transactions.

All calls are synchronous, since they are short: a read takes some ten microseconds, a write one flush to the disk,
and a cancellation cannot leave either half way. They may be made from an event loop, and from any thread where not
even the wait for another process's write is wanted in the loop.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from codeloupe.errors import StoreError
from codeloupe.store.failures import (
    damaged,
    database_failure,
    file_failure,
    is_busy,
    not_a_file,
    not_ours,
    too_new,
    too_short,
)
from codeloupe.store.file_systems import may_be_shared
from codeloupe.store.journal import may_be_for_the_log, use_rollback_journal, use_write_ahead_log
from codeloupe.store.migrations import MIGRATIONS, is_foreign, migrate, schema_version
from codeloupe.store.setting_aside import set_aside

_BUSY_TIMEOUT_SECONDS = 15.0
_PAUSE_SECONDS = 0.02
_SMALLEST_PAGE_BYTES = 512
# A process loses its locks on a file when it closes any descriptor of it, so none may be made while one is used.
_creation = threading.Lock()


class Database:
    """A database file, safe for the threads of this process and for other processes.

    Nothing is touched before the first use. Every failure is a StoreError that names the file; what was committed
    before it stays. Not to be carried over a fork: the child gets a StoreError.
    """

    def __init__(self, path: Path, *, busy_timeout_seconds: float = _BUSY_TIMEOUT_SECONDS) -> None:
        self._path = path.absolute()
        self._busy_timeout_seconds = busy_timeout_seconds
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._process = 0

    @property
    def path(self) -> Path:
        """Where the file is, or will be."""
        return self._path

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for one statement that reads; nobody else of this process uses it meanwhile."""
        with self._lock:
            try:
                yield self._opened()
            except sqlite3.Error as error:
                raise database_failure(error, self._path) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction of the only writer: on the disk when the block ends, undone when it raises."""
        with self.reading() as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:  # also an interruption: half a transaction must not stay open
                _undo(connection)
                raise

    def check(self) -> None:
        """Raises StoreError when the file cannot be read whole, or not be written."""
        with self.writing() as connection:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            raise damaged(self._path, str(said))

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._lock:
            # A connection from before a fork is the parent's; closing it here would take the parent's locks away.
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
                self._connection = None

    def set_aside(self) -> Path:
        """Move a file that cannot be used out of the way, and tell where to; the next use makes a new one.

        Never done without being asked for. Raises StoreError when another process has the file open.
        """
        with self._lock:
            self.close()
            return set_aside(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is not None and self._process != os.getpid():
            raise StoreError(
                f"the database {self._path} was opened before this process was forked",
                hint="open it after the fork, in each process for itself",
            )
        if self._connection is not None and self._file_identity() != self._identity:
            # Somebody moved the file away: what is stored from now on belongs into the one that is found by its name.
            self.close()
        if self._connection is None:
            self._connection = self._open()
            self._process, self._identity = os.getpid(), self._file_identity()
        return self._connection

    def _file_identity(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return (0, 0)
        return status.st_dev, status.st_ino

    def _open(self) -> sqlite3.Connection:
        """Open the file, and again while others are busy with it: SQLite itself does not wait in every such case."""
        _make_file(self._path)
        deadline = time.monotonic() + self._busy_timeout_seconds
        log = not may_be_shared(self._path)
        while True:
            try:
                return self._prepared(log=log)
            except sqlite3.OperationalError as error:
                if log and may_be_for_the_log(error):
                    log = False
                elif is_busy(error) and time.monotonic() < deadline:
                    time.sleep(_PAUSE_SECONDS)
                else:
                    raise

    def _prepared(self, *, log: bool) -> sqlite3.Connection:
        connection = self._connect()
        try:
            self._prepare(connection, log=log)
        except BaseException:  # whatever it was, the connection must not outlive it
            connection.close()
            raise
        return connection

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, timeout=self._busy_timeout_seconds, isolation_level=None, check_same_thread=False
        )

    def _prepare(self, connection: sqlite3.Connection, *, log: bool) -> None:
        if not log:
            use_rollback_journal(connection)
        if self._known_version(connection) == 0:
            # Only an empty file takes this, and only before its first page is written.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        if log:
            use_write_ahead_log(connection)
        migrate(connection)
        connection.execute("PRAGMA foreign_keys = ON")

    def _known_version(self, connection: sqlite3.Connection) -> int:
        """The version of the file's schema, unless it is not ours or too new: then nothing in it is changed."""
        # In one transaction, so that tables which another process is just making are not taken for foreign ones.
        connection.execute("BEGIN")
        try:
            foreign, version = is_foreign(connection), schema_version(connection)
        finally:
            _undo(connection)
        if foreign:
            raise not_ours(self._path)
        if version > len(MIGRATIONS):
            raise too_new(self._path, found=version, known=len(MIGRATIONS))
        return version


def _undo(connection: sqlite3.Connection) -> None:
    # After a full disk or a read error SQLite has undone it already; the error that led here is the one to tell.
    with suppress(sqlite3.Error):
        connection.execute("ROLLBACK")


def _make_file(path: Path) -> None:
    """Make the file, and its directory, for this user's eyes only, unless they are there."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise file_failure(error, path.parent, doing="make the directory") from error
    try:
        with _creation, suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077 and status.st_uid == os.geteuid():
            path.chmod(0o600)
    except OSError as error:
        raise file_failure(error, path, doing="make the database") from error
    if not stat.S_ISREG(status.st_mode):
        raise not_a_file(path)
    if 0 < status.st_size < _SMALLEST_PAGE_BYTES:
        # SQLite takes less than a page for an empty file and writes over it.
        raise too_short(path)
