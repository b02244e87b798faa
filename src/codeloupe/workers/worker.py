"""A worker: takes jobs from the queue, a few at a time, and brings each one to its end, here or on another worker.

procrastinate's workers take the deliveries. To procrastinate, every delivery that was handled is a success; a job that
is to be delivered again raises `DeliverAgain`. A second procrastinate worker in the same process, which takes no
sweeps, keeps half of the slots free for people and pull requests.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import msgspec
from msgspec import Struct
from procrastinate import App, BaseRetryStrategy, JobContext, RetryDecision, exceptions
from procrastinate.job_context import AbortReason
from procrastinate.jobs import Job as Delivery
from psycopg_pool import PoolTimeout

from codeloupe.agents.calls.ledger import in_thread
from codeloupe.errors import StoreUnavailable
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.postgres_connection import explain_cause, is_conflict, may_pass_soon
from codeloupe.workers.caretaker import DEFAULT_TIMING, Caretaker, Timing
from codeloupe.workers.connector import PatientConnector
from codeloupe.workers.deliveries import TASK, as_time
from codeloupe.workers.failures import (
    MOST_RETRIES,
    JobFailed,
    JobPaused,
    is_expected,
    may_pass,
    outcome_of,
    reason_of,
    seconds_until_retry,
)
from codeloupe.workers.jobs import QUEUES, SWEEPS, WAITING_FOR_QUOTA, Job, JobState, Outcome, Progress
from codeloupe.workers.queue import JobQueue, decoded
from codeloupe.workers.rescue import MOST_DEATHS, seconds_after_deaths
from codeloupe.workers.running import Reporter, RunningJobs, Started

_log = logging.getLogger(__name__)
Report = Callable[[Progress], None]
Execute = Callable[[Job, Report], Awaitable[Outcome]]
GiveUp = Callable[[Job, str], Awaitable[None]]
_START_ATTEMPTS = 30
# When a delivery is made again, at the earliest, if the state of its job could not be stored, as on a full disk.
_UNSTORED_SECONDS = 10.0
# A stop cancels idle workers again after this time, which is longer than an ordinary stop of them.
_CANCEL_SECONDS = 1.0


class DeliverAgain(Exception):
    """The job of this delivery is not finished: deliver it again, at once or at a time of the database."""

    def __init__(self, at: float | None = None) -> None:
        super().__init__("deliver this job again")
        self.at = at


class _Redelivery(BaseRetryStrategy):
    """Delivers a job again if its task asks for it, and after no other error."""

    def get_retry_decision(self, *, exception: BaseException, job: Delivery) -> RetryDecision | None:  # noqa: ARG002 - theirs
        if not isinstance(exception, DeliverAgain):
            return None
        return RetryDecision(retry_at=None if exception.at is None else as_time(exception.at))


class _Share(Struct, frozen=True):
    """The part of the slots that one of procrastinate's workers has. Without queues, it takes all jobs."""

    queues: list[str] | None
    slots: int


class Worker:
    """Works on jobs until it is stopped: `execute` does one, `give_up` is called for one that is not retried.

    At a stop, no job is started. Running jobs that do not end within `grace_seconds` return to the queue, and another
    worker continues them with the stored answers.
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
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        self.queue = JobQueue(database)
        self._database = database
        self._execute = execute
        self._give_up = give_up
        self._queues = tuple(queues)
        self._slots = concurrency
        self._grace_seconds = grace_seconds
        self._timing = timing
        self.connector = PatientConnector(database.url)
        self._rows = RunningJobs(self.connector, database)
        self._app = App(connector=self.connector)
        self._app.task(name=TASK, pass_context=True, retry=_Redelivery())(self._handle)
        # The work on each delivery; None before it begins, and while its end is being stored.
        self._running: dict[int, asyncio.Future[Outcome] | None] = {}
        self._caretaker = Caretaker(
            self.queue,
            self.connector,
            self._app.job_manager,
            running=self._running,
            give_up=self._give_up_job,
            timing=timing,
        )
        self._handled = 0
        self._serving: list[asyncio.Task[None]] = []

    async def run(self, *, wait: bool = True) -> None:
        """Work until a signal comes or, without `wait`, until no job is due. Raise StoreError if that is impossible."""
        # Their messages repeat ours, and contain what jobs were asked with.
        for name in ("procrastinate", "psycopg"):
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        await self._prepare()
        async with self._opened(), self._caretaker.looking(self._queues, self._slots):
            with self._stopping_by_signals():
                if wait:
                    await self._serve([partial(self._serve_always, share) for share in self._shares()])
                else:
                    await self._serve_until_idle()

    async def _prepare(self) -> None:
        """Wait for a server that is starting, as both may do at the start of a machine."""
        attempts = 0
        while True:
            try:
                await in_thread(self.queue.prepare)
                return
            except StoreUnavailable as error:
                attempts += 1
                if attempts > _START_ATTEMPTS:
                    raise
                self.connector.note_unreachable(error)
            await asyncio.sleep(1.0)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[None]:
        """Open the connections to the queue."""
        try:
            await self._app.open_async()
        except (exceptions.ConnectorException, PoolTimeout) as error:
            raise explain_cause(error, self._database.url) from error
        try:
            yield
        finally:
            # From here on, no statement is repeated.
            self.connector.has_to_end = True
            with suppress(exceptions.ConnectorException):
                await self._rows.remove_worker()
            await self._app.close_async()

    def _shares(self) -> list[_Share]:
        """Return how the slots are shared: half of them never run sweeps, if the worker has more than one queue."""
        all_queues = None if set(self._queues) == set(QUEUES) else list(self._queues)
        urgent = [queue for queue in self._queues if queue != SWEEPS]
        if self._slots < 2 or not urgent or SWEEPS not in self._queues:
            return [_Share(all_queues, self._slots)]
        half = self._slots // 2
        return [_Share(urgent, half), _Share(all_queues, self._slots - half)]

    async def _serve(self, loops: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Run loops at the same time until they end. If one fails, the others stop too."""
        self._serving = [asyncio.ensure_future(loop()) for loop in loops]
        try:
            await asyncio.wait(self._serving, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            if not self.connector.is_stopping and not all(task.done() for task in self._serving):
                self._stop(grace_seconds=0.0)
            results = await asyncio.gather(*self._serving, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _serve_until_idle(self) -> None:
        """Take jobs until none is due. A job may have waited for one of the same pull request or run to end."""
        handled = -1
        while handled != self._handled and not self.connector.is_stopping:
            handled = self._handled
            await self._serve([partial(self._run_share, share, wait=False) for share in self._shares()])

    async def _serve_always(self, share: _Share) -> None:
        """Take jobs until a stop. procrastinate's worker ends if its registration was removed; then it starts anew."""
        while not self.connector.is_stopping:
            await self._run_share(share, wait=True)
            await asyncio.sleep(random.uniform(0.1, 1.0))  # noqa: S311 - no secret

    async def _run_share(self, share: _Share, *, wait: bool) -> None:
        try:
            await self._app.run_worker_async(
                queues=share.queues,  # type: ignore[arg-type]  # its documentation allows None
                concurrency=share.slots,
                wait=wait,
                fetch_job_polling_interval=self._timing.look_seconds,
                abort_job_polling_interval=self._timing.look_seconds,
                install_signal_handlers=False,
                update_heartbeat_interval=self._timing.heartbeat_seconds,
                # Deliveries of stalled workers are found by their heartbeat, long before their row is removed.
                stalled_worker_timeout=3600.0,
                # A delivery that was handled is no longer needed: our row has the result.
                delete_jobs="always",
            )
        except exceptions.ConnectorException as error:
            if self.connector.is_stopping:
                return  # The database is unreachable, and other workers notice the end of this process.
            if not is_conflict(error.__cause__):
                raise explain_cause(error, self._database.url) from error

    @contextmanager
    def _stopping_by_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._take_signal)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _take_signal(self) -> None:
        if self.connector.is_stopping:
            self._end_running_jobs()
            return
        if self._running:
            _log.warning("stopping: %d running jobs have %g s to finish", len(self._running), self._grace_seconds)
        self._stop(grace_seconds=self._grace_seconds)

    def _stop(self, *, grace_seconds: float) -> None:
        """Start no job any more, and give the running ones so long to finish."""
        self.connector.is_stopping = True
        self._end_if_idle()
        asyncio.get_running_loop().call_later(grace_seconds, self._end_running_jobs)
        self._cancel_workers()

    def _cancel_workers(self) -> None:
        """Cancel procrastinate's workers, which then wait for their jobs.

        A cancellation can be lost while such a worker starts, because a statement that ends at the same moment returns
        its result instead. So workers without jobs are cancelled again until they end.
        """
        workers = [task for task in self._serving if not task.done()]
        for task in workers:
            task.cancel()
        if workers:
            asyncio.get_running_loop().call_later(_CANCEL_SECONDS, self._cancel_idle_workers)

    def _cancel_idle_workers(self) -> None:
        if self._running:
            asyncio.get_running_loop().call_later(_CANCEL_SECONDS, self._cancel_idle_workers)
        else:
            self._cancel_workers()

    def _end_if_idle(self) -> None:
        """End a stop without running jobs at once: it does not wait for an unreachable database."""
        if self.connector.is_stopping and not self._running:
            self.connector.has_to_end = True

    def _end_running_jobs(self) -> None:
        """Cancel the work on all running jobs, which return to the queue."""
        self.connector.has_to_end = True
        for work in self._running.values():
            if work is not None:
                work.cancel()

    async def _handle(self, context: JobContext, number: int) -> None:
        """Do the job of a delivery, unless it has ended or has a newer delivery."""
        delivery = context.job.id
        assert delivery is not None  # noqa: S101 - it was fetched
        if self.connector.is_stopping:
            raise DeliverAgain(self._database.clock() + _CANCEL_SECONDS)
        self._handled += 1
        self._running[delivery] = None
        started = None
        try:
            started = await self._rows.start(number, delivery)
            if started is not None:
                await self._do(started)
        except asyncio.CancelledError:
            # The command that cancelled the job has stored its end. Any other delivery is made again.
            if context.abort_reason() is not AbortReason.USER_REQUEST:
                raise DeliverAgain from None
        except DeliverAgain:
            raise
        except Exception as error:  # noqa: BLE001 - any error is the reason why the state was not stored
            _log.warning("the state of job %s could not be stored", number, exc_info=error)
            await self._end_unstored(started, error)
        finally:
            del self._running[delivery]
            self._end_if_idle()

    async def _end_unstored(self, started: Started | None, error: Exception) -> None:
        """End a job as dead because its state could not be stored. After an outage, it is delivered again instead.

        It is also delivered again, ever later, if its end cannot be stored either. The next start counts that as a
        death. After too many of them, the job is not executed any more, and a start only tries to store its end.
        """
        if started is None:
            raise DeliverAgain(self._database.clock() + _UNSTORED_SECONDS) from error
        if not may_pass_soon(error.__cause__):
            cause = error
            if isinstance(error, exceptions.ConnectorException):
                cause = explain_cause(error, self._database.url)
            with suppress(exceptions.ConnectorException):
                await self._bury(started, f"its state could not be stored: {reason_of(cause)}")
                return
        seconds = max(seconds_after_deaths(started.deaths), _UNSTORED_SECONDS)
        raise DeliverAgain(self._database.clock() + seconds) from error

    async def _bury(self, started: Started, reason: str) -> None:
        """End a job as dead, without a result."""
        await self._rows.end(started, JobState.DEAD, outcome=None, reason=reason)
        with suppress(msgspec.DecodeError):  # another version of codeloupe has written it
            await self._give_up_job(decoded(started.request), reason)

    async def _do(self, started: Started) -> None:
        if started.deaths > MOST_DEATHS:
            await self._bury(started, f"the end of {started.deaths} attempts could not be stored")
            return
        try:
            job = decoded(started.request)
        except msgspec.DecodeError as error:
            reason = f"it cannot be read; another version of codeloupe may have written it: {error}"
            await self._bury(started, reason)
            return
        _log.info("job %s: %s", started.number, job.description[:200])
        try:
            outcome = await self._execute_job(started, job)
        except asyncio.CancelledError:
            if not self.connector.has_to_end:
                raise
            await self._hand_back(started)
        except JobPaused as pause:
            await self._pause(started, pause)
        except Exception as error:  # noqa: BLE001 - any error is the reason why this job failed
            await self._fail(started, job, error)
        else:
            _log.info("job %s is done: %s", started.number, outcome.summary or outcome.exit_code)
            await self._rows.end(started, JobState.DONE, outcome=outcome)

    async def _execute_job(self, started: Started, job: Job) -> Outcome:
        with Reporter(partial(self._rows.report, started)) as reporter:
            work = asyncio.ensure_future(self._execute(job, reporter.note))
            self._running[started.delivery] = work
            if self.connector.has_to_end:
                work.cancel()
            try:
                return await work
            finally:
                self._running[started.delivery] = None

    async def _hand_back(self, started: Started) -> None:
        """Return a job to the queue, because this worker stops."""
        await self._wait(started, again_at=None, failures=started.failures, reason="")

    async def _wait(self, started: Started, *, again_at: float | None, failures: int, reason: str) -> None:
        """Have a job delivered again, unless another job that does the same waits."""
        is_waiting = await self._rows.wait(started, again_at=again_at, failures=failures, reason=reason)
        if is_waiting:
            raise DeliverAgain(again_at)

    async def _pause(self, started: Started, pause: JobPaused) -> None:
        """Let a job wait until a quota resets. Its slot is free meanwhile."""
        _log.info("job %s is waiting for a quota", started.number)
        await self._wait(started, again_at=pause.until, failures=started.failures, reason=WAITING_FOR_QUOTA)

    async def _fail(self, started: Started, job: Job, error: Exception) -> None:
        """Let a job that failed wait for its next attempt or, after the last one, end it with its partial result."""
        reason = reason_of(error)
        outcome = outcome_of(error)
        failures = started.failures + 1
        _log.warning("job %s failed: %s", started.number, reason, exc_info=None if is_expected(error) else error)
        if may_pass(error) and failures <= MOST_RETRIES:
            at = self._database.clock() + seconds_until_retry(failures)
            await self._wait(started, again_at=at, failures=failures, reason=reason)
            return
        await self._give_up_job(job, reason)
        if isinstance(error, JobFailed) and error.retryable and outcome is not None:
            # The result itself says what is missing.
            await self._rows.end(started, JobState.DONE, outcome=outcome)
        else:
            await self._rows.end(started, JobState.DEAD, outcome=outcome, reason=reason)

    async def _give_up_job(self, job: Job, reason: str) -> None:
        if self._give_up is None:
            return
        try:
            await self._give_up(job, reason)
        except Exception:  # noqa: BLE001 - the job has failed in any case, and its end must be stored
            _log.exception("cannot record that the job %r was given up", job.description[:200])
