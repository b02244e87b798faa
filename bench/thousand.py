"""A thousand workers on the real tables of the queue, with virtual agents: what one Postgres server carries.

Each worker is a coroutine that uses the server as a worker does: it fetches a delivery, starts its job, waits as long
as an agent would take, and ends both. Connections are pooled, as they must be for so many. Time is compressed, so that
the server has more to do than with a thousand real workers.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

from procrastinate.jobs import Status
from procrastinate.manager import JobManager

from bench.machine import program_seconds
from bench.table import BenchRow
from bench.workers import new_database, our_jobs
from codeloupe.model.agent import Priority
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.workers.connector import PatientConnector
from codeloupe.workers.jobs import JobState, Outcome
from codeloupe.workers.queue import JobQueue
from codeloupe.workers.running import RunningJobs

# A review by agents takes about a minute; here it takes this long.
_JOB_SECONDS = 2.0
_REAL_JOB_SECONDS = 60.0
_JOBS_EACH = 4
_CONNECTIONS = 40


def rows() -> Iterator[BenchRow]:
    """Measure how long jobs take with 10, 100 and 1,000 workers."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer(Path(folder) / "pg") as server:
        for workers in (10, 100, 1_000):
            with new_database(server) as url:
                cpu_before = program_seconds(server.process_id)
                seconds, fetches = asyncio.run(_simulated(url, workers))
                cpu_seconds = program_seconds(server.process_id) - cpu_before
            jobs = workers * _JOBS_EACH
            ideal = _JOBS_EACH * _JOB_SECONDS
            speed = jobs / seconds
            needed = workers / _REAL_JOB_SECONDS
            waits = quantiles(fetches, n=100)
            detail = (
                f"{speed:,.0f} jobs a second, {speed / needed:,.0f} times what {workers:,} workers with jobs of"
                f" {_REAL_JOB_SECONDS:g} s need; a fetch takes {median(fetches) * 1000:.0f} ms,"
                f" {waits[98] * 1000:.0f} ms for one in a hundred; the server uses"
                f" {1000 * cpu_seconds / jobs:.1f} ms of CPU for a job"
            )
            name = f"{workers:,} simulated workers, jobs of {_JOB_SECONDS:g} s / ideal"
            yield BenchRow(name, detail, seconds / ideal, None)


async def _simulated(url: str, workers: int) -> tuple[float, list[float]]:
    with PostgresDatabase(url) as database:
        JobQueue(database).ask(*our_jobs(workers * _JOBS_EACH), priority=Priority.SWEEP)
        connector = PatientConnector(url, most_connections=_CONNECTIONS)
        await connector.open_async()
        fetches: list[float] = []
        rows_of_jobs = RunningJobs(connector, database)
        started = time.perf_counter()
        await asyncio.gather(*(_worker(JobManager(connector), rows_of_jobs, fetches) for _ in range(workers)))
        seconds = time.perf_counter() - started
        await connector.close_async()
        return seconds, fetches


async def _worker(manager: JobManager, rows_of_jobs: RunningJobs, fetches: list[float]) -> None:
    worker_id = await manager.register_worker()
    while True:
        started = time.perf_counter()
        delivery = await manager.fetch_job(None, worker_id)
        fetches.append(time.perf_counter() - started)
        if delivery is None or delivery.id is None:
            return
        job = await rows_of_jobs.start(int(str(delivery.task_kwargs["number"])), delivery.id)
        await asyncio.sleep(_JOB_SECONDS * random.uniform(0.5, 1.5))
        if job is not None:
            await rows_of_jobs.end(job, JobState.DONE, outcome=Outcome(exit_code=0))
        await manager.finish_job_by_id_async(delivery.id, Status.SUCCEEDED, delete_job=True)
        await manager.update_heartbeat(worker_id)
