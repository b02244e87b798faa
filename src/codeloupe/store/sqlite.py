"""The SQLite file: its place, its creation and upgrade, and short transactions on it.

Calls are synchronous because they are short: a read takes about ten microseconds, and a write one flush to the disk.
They may come from an event loop and from any thread. A failure is a StoreError that names the file and suggests the
next step. No failure deletes anything.
"""

from __future__ import annotations

import os
import pwd
import re
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from codeloupe.errors import StoreError
from codeloupe.store.interface import Database
from codeloupe.store.records import storable
from codeloupe.store.schema import SchemaStep, for_sqlite, refuse_newer_schema, schema_steps

_Answer = TypeVar("_Answer")

DATABASE_NAME = "codeloupe.sqlite3"
# File systems that more than one machine may write to; those in user space count too.
_SHARED = frozenset(
    b"9p afs beegfs ceph cifs coda gpfs lustre nfs nfs4 orangefs panfs pvfs2 smb3 smbfs vboxsf virtiofs".split()
)
# A process loses its locks on a file when it closes any descriptor of it, so files are created one at a time.
_creation = threading.Lock()

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_MOVE_AWAY = (
    "move it away, with the files next to it whose names begin the same; a new one will be created, without the"
    " saved reviews, dismissals and finished calls"
)
_ELSEWHERE = "give write access to it, or set CODELOUPE_HOME to another directory"
_MISPLACED = "move it away, or set CODELOUPE_HOME to another directory"
_IN_USE = ("is locked by another process", "check for a codeloupe process that hangs, and retry")
# By SQLite's primary result code: what happened, and what to do.
_EXPLANATIONS: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_CORRUPT: ("is damaged", _MOVE_AWAY),
    sqlite3.SQLITE_NOTADB: ("is not a database", _MOVE_AWAY),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free some disk space and retry"),
    sqlite3.SQLITE_READONLY: ("cannot be written", _ELSEWHERE),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened, or the files next to it cannot", _ELSEWHERE),
    sqlite3.SQLITE_IOERR: ("could not be read or written", "check whether the disk is full or broken"),
    **dict.fromkeys(_BUSY, _IN_USE),
}

# "clou" marks a file as ours.
APPLICATION_ID = 0x636C6F75


def state_directory(environment: Mapping[str, str]) -> Path:
    """Return CODELOUPE_HOME, or a folder below XDG_STATE_HOME or the home directory. It is not created here.

    A relative path would lead into the reviewed tree. As XDG_STATE_HOME or HOME it counts as unset; as CODELOUPE_HOME
    it raises StoreError. A user without a home directory raises StoreError too.
    """
    named = environment.get("CODELOUPE_HOME")
    if named:
        if not Path(named).is_absolute():
            raise StoreError(
                f"CODELOUPE_HOME is {named!r}, a relative path, which may point into a work tree",
                hint="set it to an absolute path",
            )
        return Path(named)
    state = Path(environment.get("XDG_STATE_HOME") or ".")
    if state.is_absolute():
        return state / "codeloupe"
    home = Path(environment.get("HOME") or ".")
    try:
        if not home.is_absolute():
            home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        message = "cannot store finished calls: this user has no home directory"
        raise StoreError(message, hint="set CODELOUPE_HOME to a writable directory") from error
    return home / ".local" / "state" / "codeloupe"


def database_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the database file. Raise as `state_directory` does."""
    return state_directory(environment) / DATABASE_NAME


class _Connection(sqlite3.Connection):
    """A connection that stores every value of the model, in a form that SQLite accepts."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return super().execute(sql, [storable(value) for value in parameters])

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        return super().executemany(sql, ([storable(value) for value in row] for row in rows))


class SqliteDatabase(Database):
    """A database file, safe between threads and processes. The first use opens it. Failures are StoreErrors."""

    # The Monday of the week, in UTC. One damaged time outside the calendar must not prevent the counting of all others.
    week = "date(min(max(CAST(saved_at AS REAL), 0.0), 253400000000.0), 'unixepoch', 'weekday 0', '-6 days')"
    findings_of_reviews = "reviews CROSS JOIN findings AS f INDEXED BY findings_for_trends USING (review_id)"
    is_shared = False
    up_since = 0.0
    clock = staticmethod(time.time)

    def __init__(
        self, path: Path, *, busy_timeout_seconds: float = 15.0, steps: Sequence[SchemaStep] | None = None
    ) -> None:
        self.path = path.absolute()
        self.steps = schema_steps() if steps is None else tuple(steps)
        self._busy_timeout_seconds = busy_timeout_seconds
        self._lock = threading.RLock()
        self._connection: _Connection | None = None
        self._process = 0

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self.path)

    def persist(self, step: Callable[[], _Answer]) -> _Answer:
        """Run a step once. A file has no outages, and SQLite itself waits while the file is busy."""
        return step()

    @contextmanager
    def once(self) -> Iterator[None]:
        """Do nothing: steps are never retried."""
        yield

    @contextmanager
    def reading(self) -> Iterator[_Connection]:
        """Yield a connection for one statement that reads; the rest of this process waits for it."""
        with self._lock:
            if self._connection is not None and self._process != os.getpid():
                hint = "open it after the fork, separately in each process"
                raise StoreError(f"the database {self.path} was opened before this process was forked", hint=hint)
            try:
                if self._connection is None:
                    self._connection = self._open()
                    self._process = os.getpid()
                yield self._connection
            except sqlite3.Error as error:
                raise self.explained(error) from error

    def explained(self, error: sqlite3.Error) -> StoreError:
        """Return a StoreError that explains what happened to this file."""
        what, hint = _EXPLANATIONS.get(_code(error), ("could not be used", f"if the problem persists, {_MOVE_AWAY}"))
        return StoreError(f"the database {self.path} {what} ({error})", hint=hint)

    @contextmanager
    def snapshot(self) -> Iterator[_Connection]:
        """Yield a connection for several statements that read the same state."""
        with self.reading() as connection, _transaction(connection, "BEGIN"):
            yield connection

    @contextmanager
    def writing(self, _about: str = "") -> Iterator[_Connection]:
        """Yield a connection in the transaction of the only writer, which is durable when the block ends."""
        with self.reading() as connection, _transaction(connection, "BEGIN IMMEDIATE"):
            yield connection

    def select(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Return the rows of one statement. Raise StoreError."""
        with self.reading() as connection:
            return connection.execute(statement, values).fetchall()

    def change(self, statement: str, values: Sequence[object] = ()) -> int:
        """Make one change durably and return the number of changed rows. Raise StoreError."""
        with self.writing() as connection:
            return connection.execute(statement, values).rowcount

    def check(self) -> None:
        """Raise StoreError if the file is damaged or cannot be written."""
        with self.writing() as connection:
            (report,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if report != "ok":
            raise StoreError(f"the database {self.path} is damaged ({' '.join(report.split())})", hint=_MOVE_AWAY)

    def is_made(self) -> bool:
        """Return whether the file exists and is not empty, without creating it."""
        try:
            status = self.path.stat()
        except OSError:
            return os.path.lexists(self.path)
        return status.st_size > 0

    def schema(self) -> int:
        """Return how many steps of the schema were applied. Raise StoreError."""
        return int(self.select("PRAGMA user_version")[0][0])

    def size_bytes(self) -> int:
        """Return the size of the file. Raise StoreError."""
        pages = int(self.select("PRAGMA page_count")[0][0])
        page_bytes = int(self.select("PRAGMA page_size")[0][0])
        return pages * page_bytes

    def give_back_room(self) -> None:
        """Remove the free pages from the file, in batches, so that others wait only briefly. Raise StoreError."""
        free_pages = self.select("PRAGMA freelist_count")[0][0]
        for _ in range(0, free_pages, 2_000):
            with self.reading() as connection:
                # As a script, because `execute` would remove only one page.
                connection.executescript("PRAGMA incremental_vacuum(2000)")

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        with self._lock:
            # A connection from before a fork is the parent's, and closing it here would release the parent's locks.
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
                self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> _Connection:
        """Open the file, and retry while other processes use it, because SQLite does not wait in all such cases."""
        _make_file(self.path)
        deadline = time.monotonic() + self._busy_timeout_seconds
        while True:
            connection = sqlite3.connect(
                self.path,
                timeout=self._busy_timeout_seconds,
                isolation_level=None,
                check_same_thread=False,
                factory=_Connection,
            )
            # One damaged text must not prevent the reading of the others.
            connection.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
            try:
                self._prepare(connection)
            except BaseException as error:  # after any failure, the connection must not stay open
                connection.close()
                is_busy = isinstance(error, sqlite3.Error) and _code(error) in _BUSY
                if not is_busy or time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)
            else:
                return connection

    def _prepare(self, connection: _Connection) -> None:
        """Create or upgrade the tables. Raise StoreError, without a change, for another program's or a newer file."""
        # In one transaction, so that tables that another process is creating are not mistaken for another program's.
        with _transaction(connection, "BEGIN"):
            application = _pragma(connection, "application_id")
            version = _pragma(connection, "user_version")
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application not in (0, APPLICATION_ID) or (tables and not application):
            raise StoreError(f"{self.path} belongs to another program", hint=_MISPLACED)
        refuse_newer_schema(
            version,
            self.steps,
            name=self.name,
            hint="use the newer codeloupe, or set CODELOUPE_HOME to another directory; the file was not changed",
        )
        if version == 0:
            # This works only before the first page of the file is written.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # The write-ahead log lets readers and a writer work at the same time, but all of them must be on one machine.
        journal_mode = "WAL"
        if may_be_shared(self.path):
            journal_mode = "DELETE"
        connection.execute(f"PRAGMA journal_mode = {journal_mode}").fetchall()
        connection.execute(f"PRAGMA journal_size_limit = {16 * 1024 * 1024}").fetchall()
        # A rollback journal commits by removing a file; only EXTRA makes sure that the removal is on the disk.
        connection.execute("PRAGMA synchronous = EXTRA")
        # On macOS, a plain flush stops at the disk's own cache.
        connection.execute("PRAGMA fullfsync = ON")
        upgrade(connection, self.steps)
        connection.execute("PRAGMA foreign_keys = ON")


def upgrade(connection: sqlite3.Connection, steps: Sequence[SchemaStep]) -> None:
    """Apply the missing steps, each in its own transaction. Processes that do so at the same time wait."""
    while _pragma(connection, "user_version") < len(steps):
        with _transaction(connection, "BEGIN IMMEDIATE"):
            version = _pragma(connection, "user_version")
            if version == 0:
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            if version < len(steps):
                for statement in steps[version].statements:
                    connection.execute(for_sqlite(statement))
                connection.execute(f"PRAGMA user_version = {version + 1}")


def may_be_shared(path: Path, *, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Return whether other machines may use the path too; False if the system does not list its mounts."""
    try:
        lines = mounts.read_bytes().split(b"\n")
        place = os.fsencode(path.resolve())
    except OSError:
        return False
    kinds: dict[bytes, bytes] = {}
    for line in lines:
        mount, _, rest = line.partition(b" - ")
        words = mount.split()
        if len(words) >= 5:
            point = re.sub(rb"\\([0-7]{3})", lambda escape: bytes([int(escape[1], 8) & 0xFF]), words[4])
            # A later mount on the same point hides the earlier one.
            kinds[point.rstrip(b"/")] = rest.split(b" ", 1)[0]
    while place and place not in kinds:
        place = place.rpartition(b"/")[0]
    kind = kinds.get(place.rstrip(b"/"), b"")
    return kind in _SHARED or kind.startswith(b"fuse")


def _make_file(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _creation, suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077 and status.st_uid == os.geteuid():
            path.chmod(0o600)
    except OSError as error:
        hint = "check that path and its permissions, or set CODELOUPE_HOME to another directory"
        raise StoreError(f"cannot create the database {path}: {error.strerror or error}", hint=hint) from error
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a file, so it cannot be the database", hint=_MISPLACED)
    if 0 < status.st_size < 512:
        # SQLite would treat it as an empty file and overwrite it.
        raise StoreError(f"{path} is not a database (it is too short)", hint=_MOVE_AWAY)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    number: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return number


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    try:
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    except BaseException:  # also an interruption: a transaction must not stay open
        # After a full disk or a read error, SQLite has already rolled back. The original error is the one to report.
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
