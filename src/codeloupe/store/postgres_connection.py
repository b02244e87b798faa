"""A connection to a Postgres server: how it is made, how long it waits, and what its failures mean in our words."""

from __future__ import annotations

import math
import re
import select
import time
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from codeloupe.errors import StoreError, StoreUnavailable
from codeloupe.store import without_password
from codeloupe.store.interface import Rows
from codeloupe.system.process import is_abandoned

_LARGEST_INTEGER = 2**63 - 1
_POLL_SECONDS = 0.1
# What an interrupted statement is still waited for: an answer that was paid for may just be on its way to the disk.
_LAST_SECONDS = 2.0
_CHECK_URL = "check the URL in `database` or CODELOUPE_DATABASE"
_ESCAPES = "in a user name or password write / as %2F, ? as %3F, @ as %40 and % as %25"
# Where the URL says nothing else. A peer that is gone without a word is noticed within half a minute.
_DEFAULTS = {
    "connect_timeout": 10,
    "application_name": "codeloupe",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# What a server says before there is a connection has no SQLSTATE, only words; and a connection that is lost has none.
_WORDS = (
    ("28000", "authentication failed|no pg_hba.conf entry|no password supplied|role .* does not exist"),
    ("3D000", "database .* does not exist"),
    ("53300", "too many (clients|connections)|remaining connection slots|no more connections allowed"),
    ("57P03", "system is (starting up|shutting down|in recovery)|not (yet )?accepting connections"),
    ("08P01", "unsupported startup parameter"),
    ("08006", "server closed the connection|connection (was|is) (lost|closed)|(consuming input|sending query) failed"),
)
# By the first characters of SQLSTATE, the longest that fits: what happened, what to do, and whether it may pass soon.
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
    """What happened, what to do next, and whether it may pass soon."""
    state = error.sqlstate or next((code for code, words in _WORDS if re.search(words, str(error))), "")
    for length in range(len(state), 1, -1):
        if known := _EXPLANATIONS.get(state[:length]):
            return known
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not state:
        return (
            "cannot be reached",
            f"{_CHECK_URL}, and that the server runs and accepts connections from this machine",
            True,
        )
    return "could not be used", "check the server's log; if the problem persists, report it", False


def may_pass_soon(error: BaseException | None) -> bool:
    """Return whether an error of a library that uses the server may pass soon."""
    return isinstance(error, psycopg.Error) and explanation(error)[2]


def is_refusal(error: BaseException | None) -> bool:
    """Return whether a function in the database has raised the error, by RAISE."""
    return isinstance(error, pg.RaiseException)


def is_conflict(error: BaseException | None) -> bool:
    """Return whether a row conflicted with another one, or referred to one that no longer exists."""
    return isinstance(error, psycopg.IntegrityError)


def explained(error: psycopg.Error, url: str) -> StoreError:
    """The error in our words, without the password: StoreUnavailable for what may pass soon."""
    what, hint, may_pass = explanation(error)
    words = " ".join(str(error).split())
    given = parameters_of(url)
    for secret in (given.get("password"), given.get("sslpassword")):
        if secret:
            words = re.sub(rf"(?<!\w){re.escape(str(secret))}(?!\w)", "…", words)
    kind = StoreUnavailable if may_pass else StoreError
    return kind(f"the database {without_password(url)} {what} ({words})", hint=hint)


def explain_cause(error: BaseException, url: str) -> StoreError:
    """Return the error of a library that used the server, in our words."""
    cause = error.__cause__ or error
    if isinstance(cause, psycopg.Error):
        return explained(cause, url)
    return StoreError(f"the database {without_password(url)} could not be used ({cause})", hint="check its log")


def parameters_of(url: str) -> dict[str, Any]:
    """What to connect with. Raises StoreError for a URL that cannot be read, which may be shown in no message."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        what = re.sub('".*"', '"…"', " ".join(str(error).split()))
    else:
        # So it looks to libpq when a password has a `/`, or an `@`, as it is.
        is_number = re.fullmatch("[0-9,]*", str(given.get("port") or ""))
        if is_number and "@" not in str(given.get("host") or ""):
            # Whatever the environment says, our texts are in UTF-8. Statements that the server keeps prepared would
            # be missing in the next session of a pooler.
            return {**_DEFAULTS, **given, "client_encoding": "utf8", "autocommit": True, "prepare_threshold": None}
        what = "its host contains an @" if is_number else "its port is not a number"
    hint = f"{_CHECK_URL}: postgresql://USER:PASSWORD@HOST:PORT/NAME; {_ESCAPES}"
    raise StoreError(f"cannot parse the URL of the database {without_password(url)}: {what}", hint=hint)


def session_parameters(url: str, schema: str) -> dict[str, Any]:
    """What a queue connects with that stays in one session, in a schema; whether each statement counts is its own."""
    known = parameters_of(url)
    del known["autocommit"]
    return {**known, "options": f"{known.get('options', '')} -csearch_path={schema}".strip()}


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


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait for a silent server for ever, and not at all for what nobody wants any more."""

    silence_seconds = math.inf

    def wait(self, gen: Any, interval: float = _POLL_SECONDS, timeout: float | None = None) -> Any:  # noqa: ARG002 - theirs
        """Run a step of the protocol. When it is given up half way the connection is closed: its state is unknown."""
        try:
            return self._answer(gen)
        except psycopg.Error:
            raise
        except BaseException:  # an interruption: psycopg's own way out would wait for the server once more
            self.pgconn.finish()
            raise

    def _answer(self, steps: Any) -> Any:
        heard = time.monotonic()
        abandoned = math.inf
        socket = select.poll()
        try:
            wanted = next(steps)
            while True:
                # 1 is to read and 2 to write, here as there; a socket that is broken is ready for what will tell so.
                mask = (select.POLLIN if wanted & 1 else 0) | (select.POLLOUT if wanted & 2 else 0)
                socket.register(self.pgconn.socket, mask)
                found = next((events for _, events in socket.poll(_POLL_SECONDS * 1000)), 0)
                now = time.monotonic()
                heard = now if found else heard
                abandoned = min(abandoned, now) if not found and is_abandoned() else math.inf
                if now - heard >= self.silence_seconds or now - abandoned >= _LAST_SECONDS:
                    self.pgconn.finish()
                    raise pg.ConnectionFailure(f"no response within {now - heard:.0f} s")
                is_ready = bool(found & select.POLLIN) + 2 * bool(found & select.POLLOUT)
                wanted = steps.send(is_ready or (wanted if found else 0))
        except StopIteration as end:
            return end.value


class Session:
    """A connection in the words that our statements are written in. Raises StoreError."""

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
        """Run one statement, whose rows are all read."""
        try:
            return self._connection.execute(_translated(sql), [_storable(value) for value in parameters])
        except psycopg.Error as error:
            raise explained(error, self._url) from error

    def run_script(self, statements: str) -> None:
        """Run a file of statements, in which no character is a placeholder."""
        try:
            self._connection.execute(statements.encode())
        except psycopg.Error as error:
            raise explained(error, self._url) from error

    def executemany(self, sql: str, rows: Iterable[Sequence[object]], /) -> None:
        """Run one statement for each row, without waiting for each."""
        try:
            with self._connection.cursor() as cursor:
                cursor.executemany(_translated(sql), ([_storable(value) for value in row] for row in rows))
        except psycopg.Error as error:
            raise explained(error, self._url) from error


def _translated(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()
