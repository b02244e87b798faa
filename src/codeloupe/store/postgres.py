"""A shared database on a Postgres server: pooled connections, patience during an outage, failures explained.

All tables are in one schema, so that the database may also contain those of other programs. Calls are synchronous and
may come from any thread. A connection that was lost while it was idle is replaced. One that is lost in a transaction
raises StoreUnavailable, and `persist` retries. A server that does not respond ends in an error too, and a cancelled
call does not wait for it.

Settings are made for a transaction, never for a session, because each transaction behind a pooler such as pgbouncer may
run in another session.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

import psycopg
from psycopg.errors import ConnectionFailure

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store import without_password
from codeloupe.store.interface import Database
from codeloupe.store.postgres_connection import PatientConnection, Session, explained, explanation, parameters_of
from codeloupe.store.postgres_upgrade import SCHEMA, applied_steps, check_server, upgrade
from codeloupe.store.schema import SchemaStep, schema_steps
from codeloupe.system.process import is_abandoned

__all__ = ["SCHEMA", "PostgresDatabase"]

_Answer = TypeVar("_Answer")
# The longest wait for a response that needs no work; a server that takes longer hangs.
_RESPONSE_SECONDS = 15.0
# Creating an index over a large table takes long.
_UPGRADE_SECONDS = 3600.0
_TIMES = (
    b"SELECT extract(epoch FROM clock_timestamp())::double precision,"
    b" extract(epoch FROM pg_postmaster_start_time())::double precision"
)


class PostgresDatabase(Database):
    """The tables on a server, for many machines. The first use connects.

    An outage begins with the first failed attempt to reach the server, and ends when the server answers. Until an
    outage has lasted `patience_seconds`, steps wait for its end; after that they fail at once. A server that cannot be
    reached at the first use is an error at once, because the URL may be wrong. `silence_seconds` is how long a
    statement may run without a response. `steps` is the schema that this program knows.
    """

    # As in SQLite: one damaged time outside the calendar must not prevent the counting of all others.
    week = (
        "to_char(date_trunc('week', to_timestamp(least(greatest(saved_at, 0.0), 253400000000.0)) AT TIME ZONE 'UTC'),"
        " 'YYYY-MM-DD')"
    )
    findings_of_reviews = "reviews JOIN findings AS f USING (review_id)"
    is_shared = True

    def __init__(
        self,
        url: str,
        *,
        patience_seconds: float = 60.0,
        silence_seconds: float = 120.0,
        most_connections: int = 8,
        steps: Sequence[SchemaStep] | None = None,
    ) -> None:
        self.url = url
        self.steps = schema_steps() if steps is None else tuple(steps)
        self._patience_seconds = patience_seconds
        self._silence_seconds = silence_seconds
        self._places = threading.BoundedSemaphore(most_connections)
        self._lock = threading.Lock()
        self._idle: list[PatientConnection] = []
        self._process = 0
        self._was_reached = False
        self._ahead = 0.0
        self._up_since = 0.0
        self._outage_began: float | None = None
        # The time until which the steps of a thread are retried.
        self._thread = threading.local()

    @property
    def name(self) -> str:
        """The URL without its password."""
        return without_password(self.url)

    def clock(self) -> float:
        """Return the server's time, as of the newest connection."""
        self._reach()
        return _uptime() + self._ahead

    @property
    def up_since(self) -> float:
        """Return when the server was started, as of the newest connection."""
        self._reach()
        return self._up_since

    def _reach(self) -> None:
        if not self._was_reached:
            with self.reading():
                pass

    def persist(self, step: Callable[[], _Answer]) -> _Answer:
        """Run a step and retry it during an outage; the step must be idempotent. Raise StoreError."""
        with self._deadline() as deadline:
            while True:
                try:
                    return step()
                except StoreUnavailable:
                    if not self._was_reached or not _may_retry(deadline):
                        raise

    @contextmanager
    def once(self) -> Iterator[None]:
        """Let the steps of this thread fail at once if the server cannot be reached."""
        with self._retrying_until(time.monotonic()):
            yield

    @contextmanager
    def _deadline(self) -> Iterator[float]:
        """Yield until when to retry. A step within another step shares its patience."""
        deadline: float | None = getattr(self._thread, "deadline", None)
        if deadline is not None:
            yield deadline
            return
        began = self._outage_began
        if began is None:
            began = time.monotonic()
        deadline = began + self._patience_seconds
        with self._retrying_until(deadline):
            yield deadline

    @contextmanager
    def _retrying_until(self, deadline: float) -> Iterator[None]:
        outer = getattr(self._thread, "deadline", None)
        self._thread.deadline = deadline
        try:
            yield
        finally:
            self._thread.deadline = outer

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Yield a connection for one statement that reads."""
        with self._transaction("READ COMMITTED READ ONLY") as session:
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Yield a connection for several statements that read the same state."""
        with self._transaction("REPEATABLE READ READ ONLY") as session:
            yield session

    @contextmanager
    def writing(self, about: str = "") -> Iterator[Session]:
        """Yield a connection in a transaction, which is durable when the block ends.

        Only one of the transactions `about` the same text runs at a time.
        """
        # A machine that was switched off must not keep its locks for as long as its connection looks alive.
        with self._transaction("READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout TO 60000") as session:
            if about:
                # A process that was stopped in such a transaction must not block all others.
                session.execute(
                    "SELECT set_config('idle_in_transaction_session_timeout', '30s', true),"
                    " pg_advisory_xact_lock(hashtextextended(?, 0))",
                    (about,),
                )
            yield session

    def select(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Return the rows of one statement. Raise StoreError."""
        with self.reading() as session:
            return session.execute(statement, values).fetchall()

    def change(self, statement: str, values: Sequence[object] = ()) -> int:
        """Make one change durably and return the number of changed rows. Raise StoreError."""
        with self.writing() as session:
            return session.execute(statement, values).rowcount

    def check(self) -> None:
        """Raise StoreError if the server cannot be reached, or if its tables cannot be written."""
        with self.writing() as session:
            session.execute("INSERT INTO schema_steps (step) VALUES (0) ON CONFLICT DO NOTHING")
            session.execute("DELETE FROM schema_steps WHERE step = 0")

    def is_made(self) -> bool:
        """Return whether the database has our tables, without creating them. Raise StoreError."""
        try:
            with PatientConnection.connect(**parameters_of(self.url)) as connection:
                self._expect_response(connection)
                return applied_steps(connection) > 0
        except psycopg.Error as error:
            raise explained(error, self.url) from error

    def schema(self) -> int:
        """Return how many steps of the schema were applied. Raise StoreError."""
        return int(self.select("SELECT max(step) FROM schema_steps")[0][0])

    def size_bytes(self) -> int:
        """Return the size of our tables with their indexes."""
        (row,) = self.select(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class AS c"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'",
            (SCHEMA,),
        )
        return int(row[0])

    def give_back_room(self) -> None:
        """Do nothing: the server's own vacuum frees the space of deleted rows."""

    def close(self) -> None:
        """Close the connections that are not in use. The next use opens new ones."""
        with self._lock:
            idle = self._idle
            self._idle = []
        if self._process != os.getpid():
            # These connections are those of the process that this one was forked from.
            return
        for connection in idle:
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
            finally:  # also after an interruption: a transaction must not stay open
                self._return_to_pool(connection)

    def _begun(self, begin: str) -> PatientConnection:
        """Return a connection in a new transaction, and wait for it during an outage."""
        with self._deadline() as deadline:
            while True:
                attempted_at = time.monotonic()
                connection = self._take_idle()
                was_idle = connection is not None
                try:
                    if connection is None:
                        connection = self._connect()
                    self._expect_response(connection)
                    connection.execute(begin.encode())
                except BaseException as error:  # also an interruption, after which no caller could close it
                    if connection is not None:
                        connection.close()
                    if not isinstance(error, psycopg.Error):
                        raise
                    if not self._may_pass(error):
                        raise explained(error, self.url) from error
                    # A server that did not respond would probably let a second attempt wait for as long.
                    is_silent = isinstance(error, ConnectionFailure)
                    if was_idle and not is_silent:
                        # It was lost while it was idle, and probably so were the others. A new one decides.
                        self.close()
                        continue
                    self._note_outage(attempted_at)
                    if not _may_retry(deadline):
                        raise explained(error, self.url) from error
                else:
                    self._outage_began = None
                    connection.silence_seconds = self._silence_seconds
                    return connection

    def _take_idle(self) -> PatientConnection | None:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return None

    def _may_pass(self, error: psycopg.Error) -> bool:
        _, _, may_pass = explanation(error)
        return self._was_reached and may_pass

    def _note_outage(self, began: float) -> None:
        with self._lock:
            if self._outage_began is None:
                self._outage_began = began

    def _expect_response(self, connection: PatientConnection) -> None:
        connection.silence_seconds = min(self._silence_seconds, _RESPONSE_SECONDS)

    def _return_to_pool(self, connection: PatientConnection) -> None:
        try:
            if connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
                self._expect_response(connection)
                connection.execute("ROLLBACK")
        except BaseException as error:  # after any failure, the state of the connection is not known
            connection.close()
            if not isinstance(error, psycopg.Error):
                raise
        if not connection.closed:
            with self._lock:
                self._idle.append(connection)

    def _connect(self) -> PatientConnection:
        connection = PatientConnection.connect(**parameters_of(self.url))
        self._expect_response(connection)
        self._process = os.getpid()
        try:
            if not self._was_reached:
                check_server(connection, self.name)
                connection.silence_seconds = _UPGRADE_SECONDS
                upgrade(connection, self.steps, name=self.name)
            self._read_times(connection)
            self._was_reached = True
        except BaseException:  # after any failure, the connection must not stay open
            connection.close()
            raise
        return connection

    def _read_times(self, connection: PatientConnection) -> None:
        self._expect_response(connection)
        row = connection.execute(_TIMES).fetchone()
        if row is not None:
            now, up_since = row
            self._ahead = float(now) - _uptime()
            self._up_since = float(up_since)


def _uptime() -> float:
    """Return a steady time in seconds, which includes the time that the machine slept if the system counts it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic()
    return time.clock_gettime(clock)


def _may_retry(deadline: float) -> bool:
    """Return whether to retry, after a short wait: before the deadline, and unless the call was cancelled."""
    if time.monotonic() >= deadline:
        return False
    time.sleep(0.1)
    return not is_abandoned()
