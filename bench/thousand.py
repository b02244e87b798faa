"""A thousand workers on the real tables of the queue, with virtual agents: what one Postgres server carries.

Each worker is a coroutine that asks of the server what a worker asks, by the same statements: it fetches a job, waits
as long as an agent would take, ends the job, and sends its pulse. Connections are pooled, as they must be for so many.
Time is compressed, so that the server has more to do than a thousand real workers give it.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from psycopg_pool import AsyncConnectionPool

from bench.table import BenchRow
from bench.workers import new_database, ours
from codeloupe.model.agent import Priority
from codeloupe.store.postgres import SCHEMA, PostgresDatabase
from codeloupe.store.postgres_connection import session_parameters
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.workers.queue import JobQueue
from codeloupe.workers.worker import FETCH, FINISH

# A review by agents takes about a minute; here it takes this long.
_JOB_SECONDS = 2.0
_REAL_JOB_SECONDS = 60.0
_JOBS_EACH = 4
_CONNECTIONS = 40


def rows() -> Iterator[BenchRow]:
    """How long a job is on its way at 10, 100 and 1,000 workers."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer(Path(folder) / "pg") as server:
        for workers in (10, 100, 1_000):
            with new_database(server) as url:
                seconds, fetches = asyncio.run(_simulated(url, workers))
            jobs = workers * _JOBS_EACH
            ideal = _JOBS_EACH * _JOB_SECONDS
            speed, needed = jobs / seconds, workers / _REAL_JOB_SECONDS
            waits = quantiles(fetches, n=100)
            detail = (
                f"{speed:,.0f} jobs a second, {speed / needed:,.0f} times what {workers:,} workers with jobs of"
                f" {_REAL_JOB_SECONDS:g} s need; a fetch takes {median(fetches) * 1000:.0f} ms,"
                f" {waits[98] * 1000:.0f} ms for one in a hundred"
            )
            yield BenchRow(
                f"{workers:,} simulated workers, jobs of {_JOB_SECONDS:g} s / ideal", detail, seconds / ideal, None
            )


async def _simulated(url: str, workers: int) -> tuple[float, list[float]]:
    with PostgresDatabase(url) as database:
        queue = JobQueue(database)
        queue.prepare()
        queue.ask(*ours(workers * _JOBS_EACH), priority=Priority.SWEEP)
    fetches: list[float] = []
    kwargs: dict[str, Any] = {**session_parameters(url, SCHEMA), "autocommit": True}
    async with AsyncConnectionPool(kwargs=kwargs, min_size=_CONNECTIONS, max_size=_CONNECTIONS) as pool:
        started = time.perf_counter()
        await asyncio.gather(*(_worker(pool, fetches) for _ in range(workers)))
        return time.perf_counter() - started, fetches


async def _worker(pool: AsyncConnectionPool, fetches: list[float]) -> None:
    async with pool.connection() as connection:
        row = await (
            await connection.execute("INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id")
        ).fetchone()
    number = row[0] if row else 0
    while True:
        started = time.perf_counter()
        async with pool.connection() as connection:
            values = {"queues": None, "worker_id": number}
            job = await (await connection.execute(FETCH.encode(), values)).fetchone()
        fetches.append(time.perf_counter() - started)
        if job is None or job[0] is None:
            return
        await asyncio.sleep(_JOB_SECONDS * random.uniform(0.5, 1.5))
        async with pool.connection() as connection:
            ended = {"id": job[0], "outcome": None, "reason": "", "failures": 0, "status": "succeeded"}
            await connection.execute(FINISH.encode(), {**ended, "worker_id": number})
            await connection.execute("UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = %s", (number,))
