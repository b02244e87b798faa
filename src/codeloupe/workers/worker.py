"""A worker: takes jobs from the queue, a few at a time, and brings each to its end, here or on another worker.

The queue is procrastinate's. Its worker stops when the database goes away for a moment; ours waits until it is back,
so that a restart of the server costs no running job. Jobs of a worker that died are found by the others: at once where
the process is known to be gone, else when its pulse has stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import platform
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar

import msgspec
from procrastinate import App, BaseRetryStrategy, JobContext, PsycopgConnector, RetryDecision, exceptions, jobs, manager
from procrastinate.job_context import AbortReason
from procrastinate.worker import Worker as QueueWorker
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from codeloupe.errors import CodeloupeError, StoreUnavailable
from codeloupe.store.owner import Owner
from codeloupe.store.postgres import SCHEMA, PostgresDatabase
from codeloupe.store.postgres_connection import session_parameters
from codeloupe.system.redaction import redact
from codeloupe.workers.jobs import QUEUES, SWEEPS, Job, Outcome, Progress
from codeloupe.workers.queue import CHANNEL, TASK, JobQueue, put_back

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
Report = Callable[[Progress], None]
Execute = Callable[[Job, Report], Awaitable[Outcome]]
GiveUp = Callable[[Job, str], Awaitable[None]]
# Tries after the first that failed; waits begin with this many seconds and grow by this factor.
_MOST_FAILURES, _FIRST_WAIT, _FACTOR, _LONGEST_WAIT = 4, 10.0, 3.0, 1800.0
_PULSE_SECONDS, _DEAD_SECONDS, _LOOK_SECONDS = 5.0, 30.0, 3.0
_START_TRIES, _FORGET_SECONDS, _ANNOUNCE_SECONDS = 30, 3600.0, 0.1
FETCH = """
SELECT j.id, j.status, j.task_name, j.priority, j.lock, j.queueing_lock, j.args, j.scheduled_at, j.queue_name,
    j.attempts, j.worker_id, coalesce(s.failures, 0) AS failures
FROM procrastinate_fetch_job_v2(%(queues)s::varchar[], %(worker_id)s) AS j LEFT JOIN job_states AS s ON s.job_id = j.id
"""
# In one statement: what a job came to is known when it has ended, and not before. One that went to another worker is
# ended by that alone.
_KEEP = """
WITH ours AS (
    SELECT * FROM procrastinate_jobs WHERE id = %(id)s AND status = 'doing' AND worker_id = %(worker_id)s FOR UPDATE
), kept AS (
    INSERT INTO job_states (job_id, outcome, reason, failures)
    SELECT id, %(outcome)s::jsonb, %(reason)s::text, %(failures)s::integer FROM ours
    ON CONFLICT (job_id) DO UPDATE SET outcome = excluded.outcome, failures = excluded.failures,
        reason = CASE WHEN excluded.reason = '' THEN job_states.reason ELSE excluded.reason END
)
"""
FINISH = f"""{_KEEP}
SELECT procrastinate_finish_job_v1(j.id, %(status)s, false) FROM ours AS j
"""  # noqa: S608 - words of ours
_RETRY = f"""{_KEEP}
SELECT {put_back("%(at)s::timestamptz")} FROM ours AS j
"""  # noqa: S608 - words of ours
# Apart, and for several at once: transactions that notify are written to the disk one after the other.
_ANNOUNCE = f"SELECT pg_notify('{CHANNEL}', id::text) FROM unnest(%(ids)s::bigint[]) AS id"  # noqa: S608 - words of ours
_PROGRESS = f"""
WITH told AS (
    INSERT INTO job_states (job_id, progress) VALUES (%(id)s, %(progress)s)
    ON CONFLICT (job_id) DO UPDATE SET progress = excluded.progress RETURNING job_id
)
SELECT pg_notify('{CHANNEL}', job_id::text) FROM told
"""  # noqa: S608 - words of ours
_OURS = "SELECT id FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = ?"
# Others may have taken a worker for dead that was only cut off, and removed it: then it is there again.
_BEAT = """
WITH alive AS (
    INSERT INTO procrastinate_workers (id) OVERRIDING SYSTEM VALUE VALUES (%(worker_id)s)
    ON CONFLICT (id) DO UPDATE SET last_heartbeat = now()
)
INSERT INTO workers (worker_id, machine, owner, host, queues, concurrency)
VALUES (%(worker_id)s, %(machine)s, %(owner)s, %(host)s, %(queues)s, %(concurrency)s)
ON CONFLICT (worker_id) DO NOTHING
"""


class JobFailed(Exception):
    """A job did not come to its end. `retryable` says whether it may on another day; `outcome` is what there is.

    To try it again within `wait_seconds` would be in vain.
    """

    def __init__(
        self, reason: str, *, retryable: bool, outcome: Outcome | None = None, wait_seconds: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.reason, self.retryable, self.outcome, self.wait_seconds = reason, retryable, outcome, wait_seconds


class _Ending(msgspec.Struct):
    """What is known of a running job for the moment when it ends."""

    failures: int = 0
    reason: str = ""
    outcome: Outcome | None = None
    is_cancelled: bool = False


class _Manager(manager.JobManager):
    """The queue's access to the database, which outlasts a server that is away, and keeps what jobs came to."""

    def __init__(self, connector: Any, worker: Worker) -> None:
        super().__init__(connector)
        self._worker = worker
        self.endings: dict[int, _Ending] = {}
        self.number = 0
        self._ended: list[int] = []
        self._announcing: asyncio.Task[None] | None = None

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> jobs.Job | None:  # noqa: ARG002 - as there
        row: dict[str, Any] = {"id": None}
        wanted: list[str] = []

        async def fetch() -> Any:
            # Where every queue will do, the server takes the first job of all by an index, and sorts nothing.
            named = None if set(wanted) == set(QUEUES) else wanted
            return await self.connector.execute_query_one_async(FETCH, queues=named, worker_id=worker_id)

        # A sweep's place that became free meanwhile is looked at again: the next look would be seconds away.
        while row["id"] is None and wanted != (wanted := self._worker.open_queues()):
            try:
                row = await self._outlasting(fetch, until=lambda: self._worker.is_stopping)
            except exceptions.ConnectorException:
                return None
        if row["id"] is None:
            self._worker.note_idle()
            return None
        self.endings[row["id"]] = _Ending(failures=row.pop("failures"))
        return jobs.Job.from_row(row)

    async def finish_job(self, job: jobs.Job, status: jobs.Status, delete_job: bool) -> None:  # noqa: ARG002, FBT001 - as there
        await self._end(FINISH, job, status=status.value)

    async def retry_job(
        self, job: jobs.Job, retry_at: datetime | None = None, *_others: object, **_more: object
    ) -> None:
        await self._end(_RETRY, job, at=retry_at)

    async def _end(self, statement: str, job: jobs.Job, **values: Any) -> None:
        # Known until that is recorded: a job that nobody here knows of is handed back.
        ending = self.endings.setdefault(job.id or 0, _Ending())
        known = {
            "id": job.id,
            "worker_id": job.worker_id,
            "outcome": None if ending.outcome is None else msgspec.to_builtins(ending.outcome),
            "reason": ending.reason.replace("\0", ""),
            "failures": ending.failures,
        }
        try:
            await self._outlasting(lambda: self.connector.execute_query_async(statement, **known, **values))
        finally:
            # Handed back, it may be here again already.
            if self.endings.get(job.id or 0) is ending:
                del self.endings[job.id or 0]
            self._worker.wake()
        self._ended.append(job.id or 0)
        if self._announcing is None or self._announcing.done():
            self._announcing = asyncio.create_task(self._announce())

    async def _announce(self) -> None:
        """Say which jobs have ended to those who watch, who look for themselves every second in any case."""
        while self._ended:
            await asyncio.sleep(_ANNOUNCE_SECONDS)
            ended, self._ended = self._ended, []
            with contextlib.suppress(exceptions.ConnectorException):
                await self.connector.execute_query_async(_ANNOUNCE, ids=ended)

    async def prune_stalled_workers(self, seconds_since_heartbeat: float) -> list[int]:  # noqa: ARG002 - as there
        return []  # that is for those who look for the dead, together with their jobs

    async def register_worker(self) -> int:
        self.number = await self._outlasting(super().register_worker)
        await self.update_heartbeat(self.number)
        return self.number

    async def update_heartbeat(self, worker_id: int) -> None:
        known = {"worker_id": worker_id, **self._worker.about()}
        await self._outlasting(lambda: self.connector.execute_query_async(_BEAT, **known))

    async def unregister_worker(self, worker_id: int) -> None:
        self.number = 0
        # If that fails, others see that this process is gone.
        with contextlib.suppress(exceptions.ConnectorException, TimeoutError):
            async with asyncio.timeout(5.0):
                await super().unregister_worker(worker_id)

    async def listen_for_jobs(self, **named: Any) -> None:
        while True:
            await self._outlasting(lambda: super(_Manager, self).listen_for_jobs(**named))

    async def list_jobs_to_abort_async(self, queue: str | None = None) -> Iterable[int]:
        return await self._outlasting(lambda: super(_Manager, self).list_jobs_to_abort_async(queue))

    async def _outlasting(
        self, step: Callable[[], Awaitable[_Answer]], *, until: Callable[[], bool] | None = None
    ) -> _Answer:
        """Run a step, which may be run twice, again while the database is away: until then, or the end of a stop."""
        wait = 0.1
        while True:
            try:
                return await step()
            except exceptions.ConnectorException as error:
                self._worker.note_lost(error)
                if (until or self._worker.has_to_end)():
                    raise
            await asyncio.sleep(wait * (0.5 + random.random()))  # noqa: S311 - so that not all come back at once
            wait = min(2 * wait, 5.0)


class _Retries(BaseRetryStrategy):
    """What happens to a job that failed: tried again later, at once when its worker stops, or dead."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def get_retry_decision(self, *, exception: BaseException, job: jobs.Job) -> RetryDecision | None:
        ending = self._worker.manager.endings.setdefault(job.id or 0, _Ending())
        if isinstance(exception, exceptions.JobAborted | asyncio.CancelledError):
            return None if ending.is_cancelled else RetryDecision()
        ending.failures += 1
        if not may_pass(exception) or ending.failures > _MOST_FAILURES:
            return None
        wait = min(_FIRST_WAIT * _FACTOR ** (ending.failures - 1), _LONGEST_WAIT)
        wait = getattr(exception, "wait_seconds", 0.0) + wait * (0.75 + random.random() / 2)  # noqa: S311 - spread
        return RetryDecision(retry_in={"seconds": round(wait)})


def may_pass(error: BaseException) -> bool:
    """Whether a job that failed so may come to its end another time: all but what somebody has to mend."""
    if isinstance(error, JobFailed | CodeloupeError):
        return error.retryable
    return True


class Worker:
    """Works on jobs until it is stopped: `execute` does one, `give_up` is told of one that is not tried again.

    Half of the `concurrency` places are kept free of sweeps: a sweep of thousands of commits does not hold up whoever
    waits for a review. A worker for sweeps alone has all its places for them. At a stop nothing new is begun; what does
    not end within `grace_seconds` is handed back, and goes on elsewhere with all that was bought so far.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        execute: Execute,
        *,
        give_up: GiveUp | None = None,
        queues: Sequence[str] = QUEUES,
        concurrency: int = 4,
        grace_seconds: float = 30.0,
        dead_seconds: float = _DEAD_SECONDS,
    ) -> None:
        self.queue = JobQueue(database)
        self._execute, self._give_up, self._queues = execute, give_up, tuple(queues)
        self._concurrency, self._grace_seconds, self._dead_seconds = concurrency, grace_seconds, dead_seconds
        self._owner = Owner.here()
        self._sweeps_running = 0
        self._unknown: set[int] = set()
        self._worker: QueueWorker | None = None
        self._is_lost = self._stops_idle = False
        # Since when the database can be reached: the pulse of the others says nothing about the time before.
        self._reached_at = time.monotonic()
        self._ends_at = math.inf
        self._forgets_at = time.monotonic() + random.uniform(0.0, _FORGET_SECONDS)  # noqa: S311 - not all at once
        # By itself a pool tries ever more seldom, and is away for minutes after a server that was.
        sizes: dict[str, Any] = {"min_size": 1, "max_size": 4, "timeout": 5.0, "reconnect_timeout": 2.0}
        kwargs = session_parameters(database.url, SCHEMA)
        connector = PsycopgConnector(kwargs=kwargs, configure=_each_by_itself, pool_factory=_pool, **sizes)
        self._app = App(connector=connector)
        self.manager = _Manager(connector, self)
        self._app.job_manager = self.manager
        self._app.task(name=TASK, pass_context=True, retry=_Retries(self))(self._perform)

    def about(self) -> dict[str, Any]:
        """What others may know of this worker."""
        host = f"{platform.node()} process {os.getpid()}"
        known = {"machine": self._owner.machine, "owner": str(self._owner), "host": host}
        return {**known, "queues": ",".join(self._queues), "concurrency": self._concurrency}

    def open_queues(self) -> list[str]:
        """The queues from which a job may be taken now."""
        kept_free = self._concurrency // 2 if len(self._queues) > 1 else 0
        is_full = self._sweeps_running >= self._concurrency - kept_free
        return [queue for queue in self._queues if queue != SWEEPS or not is_full]

    @property
    def is_stopping(self) -> bool:
        """Whether nothing new is begun."""
        return self._ends_at < math.inf

    def has_to_end(self) -> bool:
        """Whether a stop has no time left."""
        return time.monotonic() >= self._ends_at

    def wake(self) -> None:
        """Have the queue looked at again: a job has ended."""
        if self._worker is not None:
            self._worker._new_job_event.set()  # noqa: SLF001 - it has no other way

    def note_idle(self) -> None:
        """Stop, if that is wanted, when there was no job for any place and none is running."""
        if self._stops_idle and self._worker is not None and not self.manager.endings:
            self._worker.stop()  # type: ignore[no-untyped-call]  # it has no types

    def note_lost(self, error: Exception) -> None:
        """Log once that the database cannot be reached."""
        cause = error.__cause__ or error
        if not self._is_lost:
            _log.warning("cannot reach the database; retrying: %s", redact(" ".join(str(cause).split())))
        self._is_lost = True
        self._reached_at = time.monotonic()

    async def run(self, *, wait: bool = True) -> None:
        """Work until a signal comes, or without `wait` until no job is due. Raises StoreError if it cannot begin."""
        # What they log is in our own words too, and theirs hold what jobs were asked with.
        for name in ("procrastinate", "psycopg"):
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        self._stops_idle = not wait
        await self._prepared()
        async with self._opened():
            self._worker = QueueWorker(
                self._app,
                queues=None,
                name=None,
                concurrency=self._concurrency,
                fetch_job_polling_interval=_LOOK_SECONDS,
                abort_job_polling_interval=_LOOK_SECONDS,
                shutdown_graceful_timeout=self._grace_seconds,
                install_signal_handlers=False,
                update_heartbeat_interval=_PULSE_SECONDS,
                stalled_worker_timeout=10**9,
            )
            with self._stopping_by_signals(self._worker):
                await self._worker.run()  # type: ignore[no-untyped-call]  # it has no types

    async def _prepared(self) -> None:
        """Wait for a server that just starts, as both may do at the start of a machine; one that is wrong is said."""
        tries = 0
        while True:
            try:
                await asyncio.to_thread(self.queue.prepare)
                return
            except StoreUnavailable as error:
                tries += 1
                if tries > _START_TRIES:
                    raise
                self.note_lost(error)
            await asyncio.sleep(1.0)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        try:
            await self._app.open_async()
        except (exceptions.ConnectorException, PoolTimeout) as error:
            message = f"this worker cannot reach the database {self.queue.database.name}"
            raise StoreUnavailable(message, hint="check that it is up, then restart the worker") from error
        looking = asyncio.create_task(self._look_for_the_dead())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            await self._app.close_async()

    @contextlib.contextmanager
    def _stopping_by_signals(self, worker: QueueWorker) -> Any:
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if self.is_stopping:
                # A second signal means: stop without waiting.
                worker.shutdown_graceful_timeout = 0.0
                self._ends_at = time.monotonic()
                for task, context in list(worker._running_jobs.items()):  # noqa: SLF001 - it has no other way
                    worker._abort_job(task, context, AbortReason.SHUTDOWN)  # noqa: SLF001 - as above
            else:
                self._ends_at = time.monotonic() + self._grace_seconds
                if count := len(worker._running_jobs):  # noqa: SLF001 - as above
                    _log.warning("stopping: %d running jobs have %g s to finish", count, self._grace_seconds)
            worker.stop()  # type: ignore[no-untyped-call]  # as below

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def _perform(self, context: JobContext, /, job: object = None, **_others: object) -> None:
        ending = self.manager.endings.setdefault(context.job.id or 0, _Ending())
        is_of_sweep = context.job.queue == SWEEPS
        self._sweeps_running += is_of_sweep
        try:
            await self._do(context.job.id or 0, job, ending)
        except asyncio.CancelledError:
            ending.is_cancelled = context.abort_reason() is AbortReason.USER_REQUEST
            raise
        finally:
            self._sweeps_running -= is_of_sweep
            # To the queue a place that is kept free of sweeps is a place without a job: it waits for the next word.
            self.wake()

    async def _do(self, number: int, job: object, ending: _Ending) -> None:
        asked: Job | None = None
        try:
            asked = _readable(job)
            _log.info("job %s: %s", number, asked.description[:200])
            with _Reporter(partial(self._tell, number)) as reporter:
                ending.outcome = await self._execute(asked, reporter.take)
            _log.info("job %s is done: %s", number, ending.outcome.summary or ending.outcome.exit_code)
        except Exception as error:  # whatever it was, it is why this job failed
            ending.reason = _reason(error)
            ending.outcome = getattr(error, "outcome", None)
            if isinstance(error, CodeloupeError):
                ending.outcome = Outcome(exit_code=error.exit_code)
            _log.warning("job %s failed: %s", number, ending.reason, exc_info=not _is_known(error))
            is_last = not may_pass(error) or ending.failures >= _MOST_FAILURES
            if self._give_up is not None and asked is not None and is_last:
                await self._give_up(asked, ending.reason)
            if isinstance(error, JobFailed) and ending.outcome is not None and ending.failures >= _MOST_FAILURES:
                return  # there is an outcome, which says itself what it lacks
            raise

    async def _tell(self, job_id: int, progress: Progress) -> None:
        """Tell others how far a job is. It is only for those who watch: no job waits for a database that is away."""
        with contextlib.suppress(exceptions.ConnectorException):
            known = msgspec.to_builtins(progress)
            await self.manager.connector.execute_query_async(_PROGRESS, id=job_id, progress=known)

    async def _look_for_the_dead(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS * (0.75 + random.random() / 2))  # noqa: S311 - not all at once
            if not self.manager.number:
                continue
            try:
                # After a sleep of this machine, for example, its own pulse is old too.
                await self.manager.update_heartbeat(self.manager.number)
                found = await asyncio.to_thread(self._rescue)
                self._is_lost = False
            except (CodeloupeError, exceptions.ConnectorException) as error:
                self.note_lost(error)
            else:
                if found:
                    _log.warning("requeued %d jobs of workers that died", found)

    def _rescue(self) -> int:
        # Of another machine's processes nothing can be known but their pulse.
        here = "SELECT worker_id, owner FROM workers WHERE machine = ?"
        rows = self.queue.database.select(here, (self._owner.machine,))
        known = ((number, Owner.parse(owner)) for number, owner in rows)
        gone = [number for number, owner in known if owner is not None and owner.is_gone()]
        # While the database was away nobody's pulse could be seen: the living have time to show theirs.
        has_watched = time.monotonic() - self._reached_at > self._dead_seconds
        if time.monotonic() >= self._forgets_at:
            self._forgets_at = time.monotonic() + _FORGET_SECONDS
            self.queue.forget()
        found = self.queue.rescue(dead_seconds=self._dead_seconds if has_watched else None, gone=gone)
        # The answer to a fetch may be lost on its way: then a job is ours, and nobody here knows of it.
        ours = {number for (number,) in self.queue.database.select(_OURS, (self.manager.number,))}
        unknown = ours - set(self.manager.endings)
        for job_id in unknown & self._unknown:
            self.queue.hand_back(job_id)
        self._unknown = unknown
        return found


async def _each_by_itself(connection: Any) -> None:
    """Let each statement be a transaction of its own, as all of ours are: that saves two ways to the server."""
    await connection.set_autocommit(True)


def _pool(**options: Any) -> AsyncConnectionPool:
    """Connections that are not tried before each use: one that was cut is replaced when a statement fails."""
    return AsyncConnectionPool(**{**options, "check": None})


class _Reporter:
    """Passes the progress of a job on, the newest at most twice a second; a job that reports nothing costs nothing."""

    def __init__(self, tell: Callable[[Progress], Awaitable[None]]) -> None:
        self._tell = tell
        self._newest: Progress | None = None
        self._telling: asyncio.Task[None] | None = None

    def take(self, progress: Progress) -> None:
        self._newest = progress
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._pass_on())

    async def _pass_on(self) -> None:
        while self._newest is not None:
            newest, self._newest = self._newest, None
            await self._tell(newest)
            await asyncio.sleep(0.5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._telling is not None:
            self._telling.cancel()


def _readable(job: object) -> Job:
    try:
        return msgspec.convert(job, Job)
    except msgspec.ValidationError as error:
        reason = f"it cannot be read; another version of codeloupe may have written it: {error}"
        raise JobFailed(reason, retryable=False) from error


def _is_known(error: BaseException) -> bool:
    return isinstance(error, CodeloupeError | JobFailed)


def _reason(error: BaseException) -> str:
    if isinstance(error, CodeloupeError):
        return redact(f"{error.message} ({error.hint})" if error.hint else error.message)
    return redact(str(error) if isinstance(error, JobFailed) else f"{type(error).__name__}: {error}")
