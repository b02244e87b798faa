"""A shared database on a Postgres server: connections kept at hand, schema brought up to date, failures explained.

Everything of ours is in one schema of that database, so that it can be one that is there already. Calls are synchronous
and may come from any thread. A connection that was idle while the server restarted is replaced unnoticed; what was
lost in the middle of a transaction raises StoreUnavailable, which `persist` answers by trying again.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
from psycopg import errors as pg
from psycopg import sql

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store.interface import Rows

_Answer = TypeVar("_Answer")
SCHEMA = "codeloupe"
OLDEST_SERVER = 130000
_LARGEST_INTEGER = 2**63 - 1
# How each connection is made, also those of the queue.
CONNECTING: dict[str, Any] = {
    "connect_timeout": 10,
    "application_name": "codeloupe",
    "options": f"-csearch_path={SCHEMA}",
}
# Names the lock under which a schema is made or changed; any number that nobody else uses.
_MIGRATING = 0x636C6F75
_CHECK_URL = "check the URL in `database` or CODELOUPE_DATABASE"
# What a server says before there is a connection has no SQLSTATE, only words.
_WORDS = (
    ("28000", "authentication failed|no pg_hba.conf entry|no password supplied|role .* does not exist"),
    ("3D000", "database .* does not exist"),
    ("53300", "too many clients|remaining connection slots"),
    ("57P03", "system is (starting up|shutting down|in recovery)|not yet accepting connections"),
)
# By the first characters of SQLSTATE, the longest that fits: what happened, what to do, and whether it may pass soon.
_EXPLANATIONS: dict[str, tuple[str, str, bool]] = {
    "08": ("lost the connection", "look whether the server and the network are up, and try again", True),
    "25006": ("is read-only, as a standby is", "give the URL of the primary server", False),
    "25P03": ("ended a transaction in which nothing happened for long", "try again", True),
    "28": ("refused the login", f"{_CHECK_URL}: user name, password and the server's pg_hba.conf", False),
    "3D000": ("does not have that database", f"create it with `createdb`, or {_CHECK_URL}", False),
    "40": ("ended a transaction that met another", "try again", True),
    "42501": ("does not let this user do that", "let its owner GRANT CREATE on the database, and on our tables", False),
    "53100": ("cannot grow: its disk is full", "make room on the server's disk and try again; nothing is lost", False),
    "53200": ("is out of memory", "try again when it has less to do", True),
    "53300": ("has no connection left", "raise max_connections there, or run fewer workers", True),
    "57P": ("is being stopped or started", "try again in a moment", True),
    "58": ("could not read or write its files", "look into the server's log", False),
    "XX": ("is damaged, or met a bug of its own", "look into the server's log", False),
}


def is_postgres(url: str) -> bool:
    """Whether a text is a URL that libpq understands."""
    return url.startswith(("postgresql://", "postgres://"))


def without_password(url: str) -> str:
    """The URL as it may be shown: no password, wherever it is written."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")
    user = host[0].partition(":")[0]
    kept = "&".join(each for each in parts.query.split("&") if each and not each.lower().startswith("password="))
    return urlunsplit((parts.scheme, f"{user}{host[1]}{host[2]}", parts.path, kept, ""))


def _passwords(url: str) -> set[str]:
    """What may be a password in a URL, as it is written and as it is meant."""
    found = re.findall(r"//[^/@]*?:([^/@]*)@|[?&]password=([^&]*)", url)
    written = {text for pair in found for text in pair if text}
    return written | {unquote(text) for text in written}


def _storable(value: object) -> Any:
    """A value as Postgres can hold it: no half of a character and no NUL in a text, no number that is none."""
    match value:
        case bool():
            return int(value)
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
        case int():
            return max(-_LARGEST_INTEGER, min(_LARGEST_INTEGER, value))
        case float():
            return value if math.isfinite(value) else 0.0
    return value


class _Session:
    """A connection in the words that our statements are written in."""

    next_turn = "nextval('turns')"

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[object] = (), /) -> Rows:
        return self._connection.execute(_translated(statement), [_storable(value) for value in parameters])

    def executemany(self, statement: str, rows: Iterable[Sequence[object]], /) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(_translated(statement), ([_storable(value) for value in row] for row in rows))


def _translated(statement: str) -> bytes:
    return statement.replace("%", "%%").replace("?", "%s").encode()


class PostgresDatabase:
    """The tables of ledger and history on a server, for many machines; touched with the first use.

    `patience_seconds` is how long a server that was there before is waited for. One that cannot be reached at the first
    use is an error at once: the URL may be wrong.
    """

    # As in SQLite: a damaged time, which no calendar has, must not end the counting of all others.
    week = (
        "to_char(date_trunc('week', to_timestamp(least(greatest(saved_at, 0.0), 253400000000.0)) AT TIME ZONE 'UTC'),"
        " 'YYYY-MM-DD')"
    )
    findings_of_reviews = "reviews JOIN findings AS f ON f.review = reviews.number"
    is_shared = True

    def __init__(self, url: str, *, patience_seconds: float = 60.0, most_connections: int = 8) -> None:
        self.url = url
        self._patience_seconds = patience_seconds
        self._places = threading.BoundedSemaphore(most_connections)
        self._lock = threading.Lock()
        self._idle: list[psycopg.Connection[tuple[Any, ...]]] = []
        self._process = os.getpid()
        self._was_reached = False
        self._ahead = 0.0

    @property
    def name(self) -> str:
        """The URL without its password."""
        return without_password(self.url)

    def clock(self) -> float:
        """The server's time, as of the last connection that was made."""
        if not self._was_reached:
            with self.reading():
                pass
        return time.monotonic() + self._ahead

    def persist(self, step: Callable[[], _Answer]) -> _Answer:
        """Run a step, again while the server is away; so it must bear being run twice. Raises StoreError."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                return step()
            except StoreUnavailable:
                if not self._was_reached or time.monotonic() >= deadline:
                    raise
                time.sleep(0.2)

    @contextmanager
    def reading(self) -> Iterator[_Session]:
        """A connection for one statement that reads."""
        with self._transaction("BEGIN READ ONLY") as session:
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[_Session]:
        """A connection for several statements that read, to which nothing changes meanwhile."""
        with self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as session:
            yield session

    @contextmanager
    def writing(self, about: str = "") -> Iterator[_Session]:
        """A connection in a transaction, on the server's disk when the block ends; of those `about` the same, one."""
        with self._transaction("BEGIN") as session:
            if about:
                # One that stands still meanwhile, as a stopped process does, must not hold up all others.
                session.execute(
                    "SELECT set_config('idle_in_transaction_session_timeout', '30s', true),"
                    " pg_advisory_xact_lock(hashtextextended(?, 0))",
                    (about,),
                )
            yield session

    def select(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """The rows of one statement. Raises StoreError."""
        with self.reading() as session:
            return session.execute(statement, values).fetchall()

    def change(self, statement: str, values: Sequence[object] = ()) -> int:
        """Make one change, durably; how many rows it touched. Raises StoreError."""
        with self.writing() as session:
            return session.execute(statement, values).rowcount

    def check(self) -> None:
        """Raises StoreError when the server cannot be reached, or its tables not be written."""
        with self.writing() as session:
            session.execute("INSERT INTO schema_steps (step) VALUES (0) ON CONFLICT DO NOTHING")
            session.execute("DELETE FROM schema_steps WHERE step = 0")

    def size_bytes(self) -> int:
        """How much room our tables take, with their indexes."""
        (row,) = self.select(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class AS c"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'",
            (SCHEMA,),
        )
        return int(row[0])

    def give_back_room(self) -> None:
        """Nothing to do: the server's own vacuum returns what removed rows took."""

    def heard(self, channel: str, *, seconds: float) -> Iterator[tuple[str, ...]]:
        """What is said on a channel, at least every so many seconds, for ever; after a lost connection too.

        What was said while there was no connection is not heard: whoever listens looks for itself each time.
        """
        while True:
            try:
                with psycopg.connect(self.url, autocommit=True, **CONNECTING) as connection:
                    connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                    yield ()
                    while True:
                        heard = connection.notifies(timeout=seconds, stop_after=1)
                        yield tuple(each.payload for each in heard)
            except psycopg.Error:
                time.sleep(min(seconds, 1.0))
                yield ()

    def close(self) -> None:
        """Let go of the connections that are not in use; the next use makes new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle if self._process == os.getpid() else ():
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[_Session]:
        if self._process != os.getpid():
            hint = "open it after the fork, in each process for itself"
            raise StoreError(f"the database {self.name} was opened before this process was forked", hint=hint)
        with self._places:
            connection = self._begun(begin)
            try:
                yield _Session(connection)
                connection.execute("COMMIT")
            except psycopg.Error as error:
                self._put_back(connection)
                self._explain(error)
            except BaseException:  # also an interruption: half a transaction must not stay open
                self._put_back(connection)
                raise
            self._put_back(connection)

    def _begun(self, begin: str) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection in a new transaction; one that was cut off while it was idle is replaced."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            try:
                if connection is None:
                    connection = self._connect()
                connection.execute(begin.encode())
                return connection
            except psycopg.Error as error:
                if connection is not None:
                    connection.close()
                may_pass = self._was_reached and _explanation(error)[2]
                if not may_pass or time.monotonic() >= deadline:
                    self._explain(error)
            time.sleep(0.05 if self._idle else 0.2)

    def _put_back(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        try:
            if connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        with self._lock:
            if not connection.closed:
                self._idle.append(connection)

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = psycopg.connect(self.url, autocommit=True, **CONNECTING)
        try:
            if not self._was_reached:
                self._prepare(connection)
            row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
            self._ahead = float(row[0] if row else 0.0) - time.monotonic()
            self._was_reached = True
        except BaseException:  # whatever it was, the connection must not outlive it
            connection.close()
            raise
        return connection

    def _prepare(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Bring our schema up to date, unless the server is too old or the schema too new: then nothing is changed."""
        encoding, version = connection.info.parameter_status("server_encoding"), connection.info.server_version
        if encoding != "UTF8" or version < OLDEST_SERVER:
            what = f"has the encoding {encoding}" if encoding != "UTF8" else f"is Postgres {version // 10_000}"
            hint = "use a database of Postgres 13 or newer with the encoding UTF8: `createdb -E UTF8 -T template0 NAME`"
            raise StoreError(f"the database {self.name} {what}", hint=hint)
        steps = schema_steps()
        if self._applied(connection) == len(steps):
            return
        # Processes that find it missing at once wait for each other.
        connection.execute("SELECT pg_advisory_lock(%s)", (_MIGRATING,))
        try:
            while (version := self._applied(connection)) < len(steps):
                with connection.transaction():
                    if not version:
                        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
                        connection.execute(
                            "CREATE TABLE IF NOT EXISTS schema_steps"
                            " (step integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
                        )
                    connection.execute(steps[version].encode())
                    connection.execute("INSERT INTO schema_steps (step) VALUES (%s)", (version + 1,))
        finally:
            with suppress(psycopg.Error):
                connection.execute("SELECT pg_advisory_unlock(%s)", (_MIGRATING,))
        if version > len(steps):
            raise StoreError(
                f"the database {self.name} was written by a newer codeloupe (schema {version}, this one knows up to"
                f" {len(steps)})",
                hint="use the newer codeloupe; the database was left as it is",
            )

    @staticmethod
    def _applied(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
        try:
            row = connection.execute("SELECT coalesce(max(step), 0) FROM schema_steps").fetchone()
        except (pg.UndefinedTable, pg.InvalidSchemaName):
            return 0
        return int(row[0]) if row else 0

    def _explain(self, error: psycopg.Error) -> NoReturn:
        what, hint, may_pass = _explanation(error)
        words = " ".join(str(error).split())
        for password in _passwords(self.url):
            words = words.replace(password, "…")
        kind = StoreUnavailable if may_pass else StoreError
        raise kind(f"the database {self.name} {what} ({words})", hint=hint) from error


def schema_steps() -> tuple[str, ...]:
    """The schema, as numbered steps. One that was released is never changed: what is to be different is a new step."""
    folder = resources.files("codeloupe.store") / "postgres_schema"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text("utf-8") for file in files)


def _explanation(error: psycopg.Error) -> tuple[str, str, bool]:
    state = error.sqlstate or next((code for code, words in _WORDS if re.search(words, str(error))), "")
    for length in range(len(state), 1, -1):
        if known := _EXPLANATIONS.get(state[:length]):
            return known
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not state:
        return "cannot be reached", f"{_CHECK_URL}, and that the server runs and lets this machine in", True
    if isinstance(error, psycopg.ProgrammingError) and not state:
        return "has a URL that cannot be read", f"{_CHECK_URL}: postgresql://USER@HOST/NAME", False
    return "could not be used", "look into the server's log; if it stays so, report it", False
