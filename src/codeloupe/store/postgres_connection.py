"""A connection to a Postgres server: its parameters, its timeouts, and explanations of its failures."""

from __future__ import annotations

import math
import re
import select
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.waiting import Ready, Wait

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store import without_password
from codeloupe.store.interface import Rows
from codeloupe.store.records import storable
from codeloupe.system.process import is_abandoned

_POLL_SECONDS = 0.1
# How long to wait for the end of an interrupted statement, which may be storing an answer that was paid for.
_LAST_SECONDS = 2.0
_CHECK_URL = "check the URL in `database` or CODELOUPE_DATABASE"
_ESCAPES = "in a user name or password write / as %2F, ? as %3F, @ as %40 and % as %25"
# Used unless the URL sets them. A peer that disappears is noticed within half a minute.
_DEFAULTS = {
    "connect_timeout": 10,
    "application_name": "codeloupe",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# An error before there is a connection has no SQLSTATE, only a message. Nor has a lost connection.
_WORDS = (
    ("28000", "authentication failed|no pg_hba.conf entry|no password supplied|role .* does not exist"),
    ("3D000", "database .* does not exist"),
    ("53300", "too many (clients|connections)|remaining connection slots|no more connections allowed"),
    ("57P03", "system is (starting up|shutting down|in recovery)|not (yet )?accepting connections"),
    ("08P01", "unsupported startup parameter"),
    ("08006", "server closed the connection|connection (was|is) (lost|closed)|(consuming input|sending query) failed"),
)
# By the beginning of SQLSTATE, the longest that fits: the problem, the next step, and whether a retry may succeed.
_EXPLANATIONS: dict[str, tuple[str, str, bool]] = {
    "08": ("lost the connection", "check that the server and the network are up, and retry", True),
    "08P01": ("rejected the connection", "check its log, or the log of the connection pooler", False),
    "25006": ("is read-only, like a standby", "give the URL of the primary server", False),
    "25P": ("aborted a transaction that took too long", "retry", True),
    "28": ("rejected the login", f"{_CHECK_URL}: user name, password and the server's pg_hba.conf", False),
    "3D000": ("does not exist", f"create it with `createdb`, or {_CHECK_URL}", False),
    "40": ("aborted a transaction that conflicted with another", "retry", True),
    "42": ("has unexpected tables", "find out who changed its schema `codeloupe`, or use another database", False),
    "42501": (
        "denies this user permission",
        "have its owner GRANT CREATE on the database, and access to the tables of codeloupe",
        False,
    ),
    "53100": ("cannot grow: its disk is full", "free disk space on the server and retry; nothing is lost", False),
    "53200": ("is out of memory", "retry when the server is less busy", True),
    "53300": ("has no free connections", "raise max_connections on the server, or run fewer workers", True),
    "57014": ("cancelled a statement that took too long", "raise its statement_timeout, or retry later", False),
    "57P": ("is shutting down or starting up", "retry in a moment", True),
    "58": ("could not read or write its files", "check the server's log", False),
    "XX": ("is damaged, or hit a bug in Postgres", "check the server's log", False),
}


def explanation(error: psycopg.Error) -> tuple[str, str, bool]:
    """Return the problem, the next step for the user, and whether a retry may succeed."""
    state = error.sqlstate or _state_of(str(error))
    for length in range(len(state), 1, -1):
        known = _EXPLANATIONS.get(state[:length])
        if known is not None:
            return known
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not state:
        return (
            "cannot be reached",
            f"{_CHECK_URL}, and that the server runs and accepts connections from this machine",
            True,
        )
    return "could not be used", "check the server's log; if the problem persists, report it", False


def _state_of(message: str) -> str:
    """Return the SQLSTATE for the message of an error that has none, or an empty string."""
    for state, words in _WORDS:
        if re.search(words, message):
            return state
    return ""


def may_pass_soon(error: BaseException | None) -> bool:
    """Return whether an error of a library that uses the server may pass soon."""
    return isinstance(error, psycopg.Error) and explanation(error)[2]


def is_refusal(error: BaseException | None) -> bool:
    """Return whether a function in the database has raised the error, by RAISE."""
    return isinstance(error, pg.RaiseException)


def is_duplicate(error: BaseException | None) -> bool:
    """Return whether a row has a value that must be unique, and that another row has."""
    return isinstance(error, pg.UniqueViolation)


def is_conflict(error: BaseException | None) -> bool:
    """Return whether a row conflicted with another one, or referred to one that no longer exists."""
    return isinstance(error, psycopg.IntegrityError)


def explained(error: psycopg.Error, url: str) -> StoreError:
    """Return a StoreError without passwords. It is StoreUnavailable if a retry may succeed."""
    problem, hint, may_pass = explanation(error)
    detail = " ".join(str(error).split())
    parameters = parameters_of(url)
    for name in ("password", "sslpassword"):
        secret = parameters.get(name)
        if secret:
            detail = re.sub(rf"(?<!\w){re.escape(str(secret))}(?!\w)", "…", detail)
    message = f"the database {without_password(url)} {problem} ({detail})"
    if may_pass:
        return StoreUnavailable(message, hint=hint)
    return StoreError(message, hint=hint)


def explain_cause(error: BaseException, url: str) -> StoreError:
    """Return the error of a library that used the server, in our words."""
    cause = error.__cause__ or error
    if isinstance(cause, psycopg.Error):
        return explained(cause, url)
    return StoreError(f"the database {without_password(url)} could not be used ({cause})", hint="check its log")


def parameters_of(url: str) -> dict[str, Any]:
    """Return the parameters of connections. Raise StoreError, without the password, for an invalid URL."""
    given: dict[str, Any] = {}
    try:
        given = conninfo_to_dict(url)
        problem = _problem_of(given)
    except psycopg.Error as error:
        problem = re.sub('".*"', '"…"', " ".join(str(error).split()))
    if problem:
        hint = f"{_CHECK_URL}: postgresql://USER:PASSWORD@HOST:PORT/NAME; {_ESCAPES}"
        raise StoreError(f"cannot parse the URL of the database {without_password(url)}: {problem}", hint=hint)
    # Texts are UTF-8 even if the environment says otherwise. The next session of a pooler would not have statements
    # that the server keeps prepared.
    return {**_DEFAULTS, **given, "client_encoding": "utf8", "autocommit": True, "prepare_threshold": None}


def _problem_of(given: Mapping[str, Any]) -> str:
    """Return the effect of an unescaped `/` or `@` in a password on other parameters, or an empty string."""
    if not re.fullmatch("[0-9,]*", str(given.get("port") or "")):
        return "its port is not a number"
    if "@" in str(given.get("host") or ""):
        return "its host contains an @"
    return ""


def session_parameters(url: str, schema: str) -> dict[str, Any]:
    """Return the parameters of a queue, whose connections use one schema. The queue decides about `autocommit`."""
    known = parameters_of(url)
    del known["autocommit"]
    return {**known, "options": f"{known.get('options', '')} -csearch_path={schema}".strip()}


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that stops waiting for a silent server, and for a call that was cancelled."""

    silence_seconds = math.inf

    def wait(self, gen: Any, interval: float = _POLL_SECONDS, timeout: float | None = None) -> Any:  # noqa: ARG002 - theirs
        """Run a step of the protocol. After an interruption the connection is closed, because its state is unknown."""
        try:
            return self._answer(gen)
        except psycopg.Error:
            raise
        except BaseException:  # an interruption, after which psycopg itself would wait for the server again
            self.pgconn.finish()
            raise

    def _answer(self, steps: Any) -> Any:
        heard = time.monotonic()
        abandoned = math.inf
        socket = select.poll()
        try:
            wanted = next(steps)
            while True:
                socket.register(self.pgconn.socket, _poll_mask(wanted))
                polled = socket.poll(_POLL_SECONDS * 1000)
                events = 0
                now = time.monotonic()
                if polled:
                    events = polled[0][1]
                    heard = now
                if events or not is_abandoned():
                    abandoned = math.inf
                elif abandoned == math.inf:
                    abandoned = now
                if now - heard >= self.silence_seconds or now - abandoned >= _LAST_SECONDS:
                    self.pgconn.finish()
                    raise pg.ConnectionFailure(f"no response within {now - heard:.0f} s")
                wanted = steps.send(_ready(events, wanted))
        except StopIteration as end:
            return end.value


def _poll_mask(wanted: int) -> int:
    """Return the events to wait for."""
    mask = 0
    if wanted & Wait.R:
        mask |= select.POLLIN
    if wanted & Wait.W:
        mask |= select.POLLOUT
    return mask


def _ready(events: int, wanted: int) -> int:
    """Return which of the wanted operations are possible. On a broken socket, any of them reports the error."""
    ready = 0
    if events & select.POLLIN:
        ready |= Ready.R
    if events & select.POLLOUT:
        ready |= Ready.W
    if events and not ready:
        return wanted
    return ready


class Session:
    """A connection for statements with `?` as placeholders. Methods raise StoreError."""

    def __init__(self, connection: PatientConnection, url: str) -> None:
        self._connection = connection
        self._url = url

    @property
    def connection(self) -> PatientConnection:
        """Return the connection itself, for a library that takes part in the transaction."""
        return self._connection

    def explain_cause(self, error: BaseException) -> StoreError:
        """Return the error of a library that used the connection, in our words."""
        return explain_cause(error, self._url)

    def execute(self, sql: str, parameters: Sequence[object] = (), /) -> Rows:
        """Run one statement and read all its rows."""
        try:
            return self._connection.execute(_translated(sql), [storable(value) for value in parameters])
        except psycopg.Error as error:
            raise explained(error, self._url) from error

    def run_script(self, statements: str) -> None:
        """Run a file of statements, in which no character is a placeholder."""
        try:
            self._connection.execute(statements.encode())
        except psycopg.Error as error:
            raise explained(error, self._url) from error

    def executemany(self, sql: str, rows: Iterable[Sequence[object]], /) -> None:
        """Run one statement for each row, without a round trip for each."""
        try:
            with self._connection.cursor() as cursor:
                cursor.executemany(_translated(sql), ([storable(value) for value in row] for row in rows))
        except psycopg.Error as error:
            raise explained(error, self._url) from error


def _translated(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()
