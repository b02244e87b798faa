"""The row of a job while a worker runs it: started, its progress, and its end.

A row changes only while the delivery is the job's newest one and the job is open. So a worker that was slow, and whose
job was delivered again, changes nothing. Each change may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

from msgspec import Struct
from procrastinate import exceptions

from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.processes import Processes
from codeloupe.workers.connector import PatientConnector
from codeloupe.workers.jobs import JobState, Outcome, Progress, as_json

_REPORT_SECONDS = 0.5
# These changes need not reach the disk by themselves. If the server crashes, procrastinate's delivery, whose end is
# written after them, is made again.
_START = """
UPDATE jobs SET state = 'running', owner = %(owner)s, host = %(host)s, started_at = %(now)s, again_at = NULL,
    attempts = attempts + 1, deaths = deaths + (state = 'running')::integer, reason = ''
FROM (SELECT set_config('synchronous_commit', 'off', true)) AS unsynced
WHERE number = %(number)s AND delivery = %(delivery)s AND state IN ('waiting', 'running')
RETURNING request, failures, deaths
"""
_END = """
UPDATE jobs SET state = %(state)s, ended_at = %(now)s, outcome = %(outcome)s, reason = %(reason)s
FROM (SELECT set_config('synchronous_commit', 'off', true)) AS unsynced
WHERE number = %(number)s AND delivery = %(delivery)s AND state IN ('waiting', 'running')
"""
# At most one job with the same subject and options waits.
_MAKE_WAY = """
UPDATE jobs SET state = 'cancelled', ended_at = %(now)s, again_at = NULL, reason = %(reason)s
WHERE number = %(number)s AND delivery = %(delivery)s AND state IN ('waiting', 'running') AND EXISTS (
    SELECT 1 FROM jobs AS other
    WHERE other.subject = jobs.subject AND other.options = jobs.options AND other.state = 'waiting'
        AND other.number <> jobs.number
)
"""
_WAIT = """
UPDATE jobs SET state = 'waiting', owner = '', host = '', again_at = %(again_at)s, failures = %(failures)s,
    reason = %(reason)s
WHERE number = %(number)s AND delivery = %(delivery)s AND state IN ('waiting', 'running')
RETURNING number
"""
_PROGRESS = """
UPDATE jobs SET progress = %(progress)s
FROM (SELECT set_config('synchronous_commit', 'off', true)) AS unsynced
WHERE number = %(number)s AND delivery = %(delivery)s AND state = 'running'
"""
_REMOVE_WORKER = "DELETE FROM processes WHERE owner = %(owner)s"
HAS_SUCCESSOR = "another job, which does the same, is waiting"


class Started(Struct, frozen=True):
    """A job that this worker has started: its request as it is stored, and how many attempts failed or had no end.

    An attempt without an end counts as a death: its worker died, or could not store the end.
    """

    number: int
    delivery: int
    request: bytes
    failures: int = 0
    deaths: int = 0


class RunningJobs:
    """Changes the rows of jobs that this process runs, by the connection of its worker."""

    def __init__(self, connector: PatientConnector, database: PostgresDatabase) -> None:
        self._connector = connector
        self._database = database
        processes = Processes(database)
        self._owner = str(processes.owner)
        self._host = processes.host

    async def start(self, number: int, delivery: int) -> Started | None:
        """Start the job of a delivery; None if the job has ended or has a newer delivery."""
        rows = await self._connector.execute_query_all_async(
            _START,
            number=number,
            delivery=delivery,
            owner=self._owner,
            host=self._host,
            now=self._database.clock(),
        )
        if not rows:
            return None
        (row,) = rows
        return Started(number, delivery, bytes(row["request"]), row["failures"], row["deaths"])

    async def end(self, job: Started, state: JobState, *, outcome: Outcome | None, reason: str = "") -> None:
        """Store the end of a job."""
        await self._connector.execute_query_async(
            _END,
            number=job.number,
            delivery=job.delivery,
            now=self._database.clock(),
            state=state.value,
            outcome=None if outcome is None else as_json(outcome),
            reason=_storable(reason),
        )

    async def wait(self, job: Started, *, again_at: float | None, failures: int, reason: str) -> bool:
        """Let a job wait for its next attempt; False if it ends, because another job that does the same waits."""
        while True:
            await self._connector.execute_query_async(
                _MAKE_WAY,
                number=job.number,
                delivery=job.delivery,
                now=self._database.clock(),
                reason=HAS_SUCCESSOR,
            )
            # A request for the same that has come meanwhile is a conflict, and then this job makes way.
            with suppress(exceptions.UniqueViolation):
                waiting = await self._connector.execute_query_all_async(
                    _WAIT,
                    number=job.number,
                    delivery=job.delivery,
                    again_at=again_at,
                    failures=failures,
                    reason=_storable(reason),
                )
                return bool(waiting)

    async def report(self, job: Started, progress: Progress) -> None:
        """Store the progress of a job, for those who watch it."""
        await self._connector.execute_query_async(
            _PROGRESS,
            number=job.number,
            delivery=job.delivery,
            progress=as_json(progress),
        )

    async def remove_worker(self) -> None:
        """Remove this process from the list of workers."""
        await self._connector.execute_query_async(_REMOVE_WORKER, owner=self._owner)


class Reporter:
    """Passes on the newest progress of a job, at most twice a second. No job waits for it."""

    def __init__(self, report: Callable[[Progress], Awaitable[None]]) -> None:
        self._report = report
        self._newest: Progress | None = None
        self._reporting: asyncio.Task[None] | None = None

    def note(self, progress: Progress) -> None:
        """Pass on a progress soon. It replaces an earlier one that was not passed on yet."""
        self._newest = progress
        if self._reporting is None or self._reporting.done():
            self._reporting = asyncio.create_task(self._pass_on())

    async def _pass_on(self) -> None:
        while self._newest is not None:
            newest = self._newest
            self._newest = None
            await self._report(newest)
            await asyncio.sleep(_REPORT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reporting is not None:
            self._reporting.cancel()


def _storable(text: str) -> str:
    """Return a text without NUL and halves of characters, which Postgres cannot store."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
