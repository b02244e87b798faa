"""A worker's connection to the queue, which outlasts a database that is unreachable for a while.

procrastinate's worker ends if a statement fails. This connector repeats a statement for as long as the error may pass,
so that a restart of the server costs no running job.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, LiteralString, TypeVar

from procrastinate import PsycopgConnector, exceptions
from procrastinate.connector import Notify
from psycopg_pool import AsyncConnectionPool

from codeloupe.store.postgres import SCHEMA
from codeloupe.store.postgres_connection import is_refusal, may_pass_soon, session_parameters
from codeloupe.system.redaction import redact

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 5.0
# A fetch reads the first waiting delivery from an index. Without statistics, as in a new database or after a large
# sweep was added, Postgres would sort all waiting ones instead.
_INDEXED = "-cenable_sort=off"


class PatientConnector(PsycopgConnector):
    """Repeats statements while the database is unreachable, until a stop of the worker has no time left.

    `worker_ids` are the numbers under which procrastinate's workers in this process fetch jobs.
    """

    def __init__(self, url: str, *, most_connections: int = 4) -> None:
        # By default, a pool backs off for minutes while a server is down.
        parameters = session_parameters(url, SCHEMA)
        super().__init__(
            kwargs={**parameters, "options": f"{parameters['options']} {_INDEXED}", "prepare_threshold": 5},
            configure=_commit_each_statement,
            pool_factory=_unchecked_pool,
            min_size=1,
            max_size=most_connections,
            timeout=2.0,
            reconnect_timeout=2.0,
        )
        self.worker_ids: set[int] = set()
        self.is_stopping = False
        self.has_to_end = False
        # When the database was last unreachable, by the monotonic clock.
        self.unreachable_at = time.monotonic()
        self._is_reported = False

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        """Run a statement that returns nothing."""
        statement = super().execute_query_async
        try:
            await self._repeat(lambda: statement(query, **arguments), until=self._has_to_end)
        except exceptions.ConnectorException as error:
            # procrastinate refuses to end a delivery twice. Another process has ended this one, or the answer to our
            # first attempt was lost.
            if not is_refusal(error.__cause__):
                raise

    async def execute_query_one_async(self, query: LiteralString, **arguments: Any) -> dict[str, Any]:
        """Return the row of a statement. Workers fetch jobs with it, so a stop need not wait for it."""
        # procrastinate names this argument so in each statement about a worker. A test loses the answer to a fetch, and
        # fails if it is named otherwise.
        worker_id = arguments.get("worker_id")
        if worker_id is not None:
            self.worker_ids.add(worker_id)
        statement = super().execute_query_one_async
        return await self._repeat(lambda: statement(query, **arguments), until=self._is_stopping)

    async def execute_query_all_async(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        """Return all rows of a statement."""
        statement = super().execute_query_all_async
        return await self._repeat(lambda: statement(query, **arguments), until=self._has_to_end)

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Listen until this is cancelled, also after a lost connection."""
        listen = super().listen_notify
        names = tuple(channels)
        await self._repeat(lambda: listen(on_notification, names), until=self._is_stopping)

    def note_unreachable(self, error: BaseException) -> None:
        """Log that the database cannot be reached, once for each outage."""
        self.unreachable_at = time.monotonic()
        if not self._is_reported:
            words = " ".join(str(error.__cause__ or error).split())
            _log.warning("cannot reach the database; retrying: %s", redact(words))
        self._is_reported = True

    def note_reached(self) -> None:
        """End an outage: the next one is logged again."""
        self._is_reported = False

    def _is_stopping(self) -> bool:
        return self.is_stopping

    def _has_to_end(self) -> bool:
        return self.has_to_end

    async def _repeat(self, step: Callable[[], Awaitable[_Answer]], *, until: Callable[[], bool]) -> _Answer:
        """Run a step, which must be idempotent, again while the database is unreachable."""
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                return await step()
            except exceptions.ConnectorException as error:
                if not may_pass_soon(error.__cause__):
                    raise
                self.note_unreachable(error)
                if until():
                    raise
            # Not all workers come back at the same moment.
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


async def _commit_each_statement(connection: Any) -> None:
    """Let each statement be its own transaction, which saves two round trips."""
    await connection.set_autocommit(True)


def _unchecked_pool(**options: Any) -> AsyncConnectionPool:
    """Return a pool that does not check a connection before each use, because a failed statement is repeated."""
    return AsyncConnectionPool(**{**options, "check": None})
