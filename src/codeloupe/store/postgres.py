"""A shared database on a Postgres server: connections kept at hand, schema brought up to date, failures explained.

Everything of ours is in one schema of that database, so that it can be one that is there already. Calls are synchronous
and may come from any thread. A connection that was idle while the server restarted is replaced unnoticed; what was
lost in the middle of a transaction raises StoreUnavailable, which `persist` answers by trying again. A server that says
nothing ends in an error too, and whoever is interrupted does not wait for it.

Nothing is set for a session, only for a transaction: behind a pooler such as pgbouncer each may meet another session.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import psycopg

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store import without_password
from codeloupe.store.postgres_connection import PatientConnection, Session, explained, explanation, parameters_of
from codeloupe.store.schema import SchemaStep, schema_steps
from codeloupe.system.process import is_abandoned

_Answer = TypeVar("_Answer")
SCHEMA = "codeloupe"
OLDEST_SERVER = 130000
# Names the lock under which a schema is made or changed; any number that nobody else uses.
_MIGRATING = 0x636C6F75
# How long to wait for what needs no work: a server that takes longer is stuck.
_AT_ONCE_SECONDS = 15.0
# An index over a large table takes its time.
_MIGRATING_SECONDS = 3600.0
_TIMES = (
    b"SELECT extract(epoch FROM clock_timestamp())::double precision,"
    b" extract(epoch FROM pg_postmaster_start_time())::double precision"
)


class PostgresDatabase:
    """The tables of ledger and history on a server, for many machines; touched with the first use.

    `patience_seconds` is how long a server that was there before is waited for. One that cannot be reached at the first
    use is an error at once: the URL may be wrong. `silence_seconds` is how long a statement may go without an answer.
    """

    # As in SQLite: a damaged time, which no calendar has, must not end the counting of all others.
    week = (
        "to_char(date_trunc('week', to_timestamp(least(greatest(saved_at, 0.0), 253400000000.0)) AT TIME ZONE 'UTC'),"
        " 'YYYY-MM-DD')"
    )
    findings_of_reviews = "reviews JOIN findings AS f ON f.review = reviews.number"
    is_shared = True

    def __init__(
        self, url: str, *, patience_seconds: float = 60.0, silence_seconds: float = 120.0, most_connections: int = 8
    ) -> None:
        self.url = url
        self._patience_seconds = patience_seconds
        self._silence_seconds = silence_seconds
        self._places = threading.BoundedSemaphore(most_connections)
        self._lock = threading.Lock()
        self._idle: list[PatientConnection] = []
        self._process = 0
        self._was_reached = False
        self._ahead = 0.0
        self._up_since = 0.0
        # Until when what this thread does is tried again.
        self._until = threading.local()

    @property
    def name(self) -> str:
        """The URL without its password."""
        return without_password(self.url)

    def clock(self) -> float:
        """The server's time, as of the last connection that was made."""
        self._reach()
        return _uptime() + self._ahead

    @property
    def up_since(self) -> float:
        """Return when the server was started, as of the last connection that was made."""
        self._reach()
        return self._up_since

    def _reach(self) -> None:
        if not self._was_reached:
            with self.reading():
                pass

    def persist(self, step: Callable[[], _Answer]) -> _Answer:
        """Run a step, again while the server is away; so it must bear being run twice. Raises StoreError."""
        with self._deadline() as deadline:
            while True:
                try:
                    return step()
                except StoreUnavailable:
                    if not self._was_reached or time.monotonic() >= deadline or not _slept():
                        raise

    @contextmanager
    def _deadline(self) -> Iterator[float]:
        """Until when to try: one within another has no time of its own."""
        outer = getattr(self._until, "deadline", None)
        self._until.deadline = outer or time.monotonic() + self._patience_seconds
        try:
            yield self._until.deadline
        finally:
            self._until.deadline = outer

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A connection for one statement that reads."""
        with self._transaction("READ COMMITTED READ ONLY") as session:
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """A connection for several statements that read, to which nothing changes meanwhile."""
        with self._transaction("REPEATABLE READ READ ONLY") as session:
            yield session

    @contextmanager
    def writing(self, about: str = "") -> Iterator[Session]:
        """A connection in a transaction, on the server's disk when the block ends; of those `about` the same, one."""
        # The locks of a machine that is gone must not be held for as long as its connection looks alive.
        with self._transaction("READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout TO 60000") as session:
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

    def is_made(self) -> bool:
        """Whether our tables are there; nothing is made for that. Raises StoreError."""
        try:
            with PatientConnection.connect(**parameters_of(self.url)) as connection:
                connection.silence_seconds = min(self._silence_seconds, _AT_ONCE_SECONDS)
                return _applied_steps(connection) > 0
        except psycopg.Error as error:
            raise explained(error, self.url) from error

    def schema(self) -> int:
        """How many steps of our schema were applied. Raises StoreError."""
        return int(self.select("SELECT max(step) FROM schema_steps")[0][0])

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

    def close(self) -> None:
        """Let go of the connections that are not in use; the next use makes new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
        # Those from before a fork are the parent's.
        for connection in idle if self._process == os.getpid() else ():
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[Session]:
        if self._process not in (0, os.getpid()):
            hint = "open it after the fork, separately in each process"
            raise StoreError(f"the database {self.name} was opened before this process was forked", hint=hint)
        with self._places:
            connection = self._begun(f"BEGIN ISOLATION LEVEL {kind}; SET LOCAL search_path TO {SCHEMA}")
            session = Session(connection, self.url)
            try:
                yield session
                session.execute("COMMIT")
            finally:  # also after an interruption: half a transaction must not stay open
                self._put_back(connection)

    def _begun(self, begin: str) -> PatientConnection:
        """A connection in a new transaction; one that was cut off while it was idle is replaced."""
        with self._deadline() as deadline:
            while True:
                with self._lock:
                    connection = self._idle.pop() if self._idle else None
                was_idle = connection is not None
                try:
                    connection = connection or self._connect()
                    connection.silence_seconds = min(self._silence_seconds, _AT_ONCE_SECONDS)
                    connection.execute(begin.encode())
                    connection.silence_seconds = self._silence_seconds
                    return connection
                except BaseException as error:  # also an interruption: nobody would close it
                    if connection is not None:
                        connection.close()
                    if not isinstance(error, psycopg.Error):
                        raise
                    may_pass = self._was_reached and explanation(error)[2]
                    if not may_pass or time.monotonic() >= deadline or not (was_idle or _slept()):
                        raise explained(error, self.url) from error

    def _put_back(self, connection: PatientConnection) -> None:
        try:
            if connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
                connection.silence_seconds = min(self._silence_seconds, _AT_ONCE_SECONDS)
                connection.execute("ROLLBACK")
        except BaseException as error:  # whatever it was, nobody may use this connection again
            connection.close()
            if not isinstance(error, psycopg.Error):
                raise
        if not connection.closed:
            with self._lock:
                self._idle.append(connection)

    def _connect(self) -> PatientConnection:
        connection = PatientConnection.connect(**parameters_of(self.url))
        connection.silence_seconds = min(self._silence_seconds, _AT_ONCE_SECONDS)
        self._process = os.getpid()
        try:
            if not self._was_reached:
                self._prepare(connection)
            now, up_since = connection.execute(_TIMES).fetchone() or (0.0, 0.0)
            self._ahead = float(now) - _uptime()
            self._up_since = float(up_since)
            self._was_reached = True
        except BaseException:  # whatever it was, the connection must not outlive it
            connection.close()
            raise
        return connection

    def _prepare(self, connection: PatientConnection) -> None:
        """Bring our schema up to date, unless the server is too old or the schema too new: then nothing is changed."""
        encoding, version = connection.info.parameter_status("server_encoding"), connection.info.server_version
        if encoding != "UTF8" or version < OLDEST_SERVER:
            what = f"has the encoding {encoding}" if encoding != "UTF8" else f"is Postgres {version // 10_000}"
            hint = "use a database of Postgres 13 or newer with the encoding UTF8: `createdb -E UTF8 -T template0 NAME`"
            raise StoreError(f"the database {self.name} {what}", hint=hint)
        steps = schema_steps()
        applied = _applied_steps(connection)
        if applied < len(steps):
            connection.silence_seconds = _MIGRATING_SECONDS
            with connection.transaction():
                # Processes that find a step missing at the same time wait for each other.
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
                applied = _apply_missing(connection, steps)
        if applied > len(steps):
            raise StoreError(
                f"the database {self.name} was written by a newer codeloupe (schema {applied}; this version supports"
                f" up to {len(steps)})",
                hint="use the newer codeloupe; the database was not changed",
            )


_Raw = psycopg.Connection[tuple[Any, ...]]


def _applied_steps(connection: _Raw) -> int:
    """Return how many steps of the schema were applied."""
    # The catalogue itself is searched. Functions such as to_regclass may answer from a cache of the session, which a
    # process that has just waited for another one to create the tables still has.
    found = _one(
        connection,
        "SELECT count(*) FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = %s AND c.relname = 'schema_steps'",
        SCHEMA,
    )
    if not found:
        return 0
    return int(_one(connection, f"SELECT coalesce(max(step), 0) FROM {SCHEMA}.schema_steps") or 0)  # noqa: S608 - ours


def _apply_missing(connection: _Raw, steps: Sequence[SchemaStep]) -> int:
    """Apply the missing steps of the schema in this transaction; return how many steps there are then."""
    applied = _applied_steps(connection)
    if not applied:
        # CREATE SCHEMA IF NOT EXISTS needs the right to create a schema, which the owner of an existing one may lack.
        if not _one(connection, "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = %s", SCHEMA):
            connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
        connection.execute(
            f"CREATE TABLE {SCHEMA}.schema_steps"
            " (step integer PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())".encode()
        )
    connection.execute(f"SET LOCAL search_path TO {SCHEMA}".encode())
    for number, step in enumerate(steps[applied:], start=applied + 1):
        for statement in step.statements:
            connection.execute(statement.encode())
        connection.execute("INSERT INTO schema_steps (step) VALUES (%s)", (number,))
    return max(applied, len(steps))


def _one(connection: _Raw, statement: str, *values: object) -> Any:
    row = connection.execute(statement.encode(), values or None).fetchone()
    return row and row[0]


def _uptime() -> float:
    """Seconds since some moment, also those in which the machine slept, where the system counts them."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


def _slept() -> bool:
    """Wait a moment before the next try; False when nobody wants that any more."""
    time.sleep(0.1)
    return not is_abandoned()
