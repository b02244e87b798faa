"""The shared limits on a real Postgres: the first call of a job, with many finished jobs and with none."""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.table import BenchRow
from bench.workers import new_database, our_jobs
from codeloupe.config.schema import Settings
from codeloupe.model.agent import AgentRequest, Priority
from codeloupe.model.limits import Ending, LimitedRequest, MonthlyBudget
from codeloupe.runtime import Runtime
from codeloupe.store.limits import SharedLimits
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.testing import ScriptedAgent, Text
from codeloupe.workers.queue import JobQueue

_FINISHED_JOBS = 20_000
_CALLS_OF_A_JOB = 4
_TURNS = 9
_CALLS = 200
_LIMIT = 1.2
_SETTINGS = Settings(shared_concurrency=50, monthly_budget_usd=1000.0)


def rows() -> Iterator[BenchRow]:
    """The time of a job's first call, in a database with 20,000 finished jobs and in an empty one, in turns."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer(Path(folder) / "pg") as server:
        with new_database(server) as empty_url, new_database(server) as full_url:
            _finish_jobs(full_url)
            empty: list[float] = []
            full: list[float] = []
            for _ in range(_TURNS):
                empty.append(_first_call(empty_url))
                full.append(_first_call(full_url))
        detail = f"{min(full) * 1000:.1f} ms / {min(empty) * 1000:.1f} ms, the least of {_TURNS} turns"
        name = f"first call of a job with {_FINISHED_JOBS:,} finished jobs / in an empty database"
        yield BenchRow(name, detail, min(full) / min(empty), _LIMIT)
        with new_database(server) as url, PostgresDatabase(url) as database:
            limits = SharedLimits(database)
            plain: list[float] = []
            paid: list[float] = []
            for _ in range(_CALLS):
                plain.append(_permitted_call(limits, None))
                paid.append(_permitted_call(limits, 1000.0))
        detail = f"{median(paid) * 1000:.1f} ms / {median(plain) * 1000:.1f} ms, medians of {_CALLS} calls in turns"
        yield BenchRow(
            "permit and end of a call with three budgets / without", detail, median(paid) / median(plain), None
        )


def _permitted_call(limits: SharedLimits, budget_usd: float | None) -> float:
    """Return the time that the shared limits take before and after a call."""
    kinds = ("all", "repository", "team")
    request = LimitedRequest(
        id=uuid.uuid4().hex,
        agent="scripted",
        account="scripted",
        priority=Priority.SWEEP,
        budgets=tuple(MonthlyBudget(kind, "", kind, "", budget_usd) for kind in kinds),
        concurrency=50,
        expected_usd=0.01,
    )
    started = time.perf_counter()
    limits.start([request])
    limits.end(request, Ending(usd=0.01, next_usd=0.01, succeeded=True))
    return time.perf_counter() - started


def _finish_jobs(url: str) -> None:
    """Fill a database with finished jobs, their answers, and what they have spent."""
    with PostgresDatabase(url) as database:
        queue = JobQueue(database)
        queue.ask(*our_jobs(_FINISHED_JOBS), priority=Priority.SWEEP)
        for record in queue.list(limit=1):
            assert record.job_id >= _FINISHED_JOBS
        now = database.clock()
        database.change("UPDATE jobs SET state = 'done', started_at = ?, ended_at = ?, attempts = 1", (now, now))
        database.change(
            "INSERT INTO results (key, created_at, size_bytes, agent, model, cost_usd, payload)"
            " SELECT md5(n::text), ?, 500, 'scripted', 'm', 0.01, '' FROM generate_series(1, ?::integer) AS n",
            (now, _FINISHED_JOBS * _CALLS_OF_A_JOB),
        )
        # As a job of every process that has ended in the last hour.
        for _ in range(20):
            _first_call(url)
        with database.writing() as session:
            session.execute("ANALYZE jobs")
            session.execute("ANALYZE results")


def _first_call(url: str) -> float:
    """Return the time of the first call in a runtime of its own, as each job has one."""

    async def call() -> float:
        with PostgresDatabase(url) as database, tempfile.TemporaryDirectory() as folder:
            database.check()
            request = AgentRequest(prompt="Say hello.", working_dir=Path(folder), tools=())
            agent = ScriptedAgent([Text("hello")], cost_usd=0.01)
            async with Runtime(_SETTINGS, agents=[agent], database=database) as runtime:
                started = time.perf_counter()
                await runtime.run_agent(request, fresh=True)
                return time.perf_counter() - started

    return asyncio.run(call())
