"""The side work of a worker: its heartbeat, the jobs of workers that died, lost deliveries, and old jobs."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec import Struct
from procrastinate import exceptions
from procrastinate.manager import JobManager

from codeloupe.agents.calls.ledger import in_thread
from codeloupe.errors import CodeloupeError
from codeloupe.store.maintenance import is_due
from codeloupe.store.processes import Processes
from codeloupe.workers import rescue
from codeloupe.workers.connector import PatientConnector
from codeloupe.workers.jobs import Job
from codeloupe.workers.queue import JobQueue, decoded

_log = logging.getLogger(__name__)
_STALLED_SECONDS = 5.0
_CLEANING_SECONDS = 3600.0
_KEPT_DAYS = 30


class Timing(Struct, frozen=True, kw_only=True):
    """How often a worker shows that it is alive, how often it looks after others, and when another one is dead."""

    heartbeat_seconds: float = 5.0
    look_seconds: float = 3.0
    dead_seconds: float = 30.0


DEFAULT_TIMING = Timing()


class Caretaker:
    """Looks after a worker and its neighbours every few seconds. `running` are the deliveries that this worker has."""

    def __init__(
        self,
        queue: JobQueue,
        connector: PatientConnector,
        manager: JobManager,
        *,
        running: Collection[int],
        give_up: Callable[[Job, str], Awaitable[None]],
        timing: Timing,
    ) -> None:
        self._queue = queue
        self._database = queue.database
        self._connector = connector
        self._manager = manager
        self._running = running
        self._give_up = give_up
        self._timing = timing
        self._processes = Processes(queue.database)
        self._unknown: set[rescue.Held] = set()

    @asynccontextmanager
    async def looking(self, queues: Sequence[str], slots: int) -> AsyncIterator[None]:
        """Register the worker, and look after it while the block runs."""

        async def beat() -> None:
            await in_thread(lambda: self._processes.register_worker(queues, slots))

        await beat()
        # The heartbeat does not wait for the rest, which may take long.
        tasks = [asyncio.create_task(self._repeat(step)) for step in (beat, self.look)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do a step every few seconds, also after an error."""
        while True:
            # Not all workers look at the same moment.
            await asyncio.sleep(self._timing.look_seconds * random.uniform(0.75, 1.25))  # noqa: S311 - no secret
            try:
                await step()
            except CodeloupeError as error:
                if error.retryable:
                    self._connector.note_unreachable(error)
                else:
                    _log.warning("cannot look after the queue: %s", error.message)
            except exceptions.ConnectorException as error:
                self._connector.note_unreachable(error)
            except Exception:  # noqa: BLE001 - the worker must stay visible, and look after the others
                _log.exception("cannot look after the queue")
            else:
                self._connector.note_reached()

    async def look(self) -> None:
        """Deliver the jobs of dead workers and lost deliveries again, and remove old jobs, each if it is due."""
        await self._rescue(await in_thread(lambda: rescue.abandoned_deliveries(self._database)))
        if self._may_judge_others() and await self._is_due("stalled jobs", _STALLED_SECONDS):
            await self._rescue(await rescue.stalled_deliveries(self._manager, dead_seconds=self._timing.dead_seconds))
        if await self._is_due("dead workers", _STALLED_SECONDS):
            await in_thread(self._processes.remove_dead_workers)
        await self._return_lost_deliveries()
        if await self._is_due("old jobs", _CLEANING_SECONDS):
            await in_thread(lambda: self._queue.forget(days=_KEPT_DAYS))
            await self._manager.delete_old_jobs(
                24 * _KEPT_DAYS, include_failed=True, include_cancelled=True, include_aborted=True
            )

    def _may_judge_others(self) -> bool:
        """Return whether all workers had time to renew their heartbeat since the database was last unreachable."""
        seconds_reachable = time.monotonic() - self._connector.unreachable_at
        seconds_up = self._database.clock() - self._database.up_since
        return min(seconds_reachable, seconds_up) > self._timing.dead_seconds

    async def _is_due(self, task: str, every_seconds: float) -> bool:
        return await in_thread(lambda: is_due(self._database, task, every_seconds=every_seconds))

    async def _rescue(self, deliveries: Sequence[rescue.Held]) -> None:
        if not deliveries:
            return
        rescued = await in_thread(lambda: rescue.redeliver(self._database, deliveries))
        await rescue.end_deliveries(self._manager, deliveries)
        if rescued.count:
            _log.warning("requeued %d jobs of workers that died", rescued.count)
        for dead in rescued.dead:
            _log.warning("job %d is dead: %s", dead.number, dead.reason)
            with suppress(msgspec.DecodeError):  # another version of codeloupe has written it
                await self._give_up(decoded(dead.request), dead.reason)

    async def _return_lost_deliveries(self) -> None:
        """Deliver again what was fetched, but whose answer was lost: seen twice, and not running here."""
        fetched = await rescue.fetched_deliveries(self._manager, self._connector.worker_ids)
        unknown = {held for held in fetched if held.delivery not in self._running}
        await self._rescue(sorted(unknown & self._unknown))
        self._unknown = unknown
