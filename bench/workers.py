"""Workers on a real Postgres: empty jobs against bare procrastinate, and jobs that take a second against the ideal."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import procrastinate
import psycopg

from bench.table import BenchRow
from codeloupe.model.agent import Priority
from codeloupe.store.postgres import SCHEMA, PostgresDatabase
from codeloupe.store.postgres_connection import session_parameters
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.workers.jobs import Job, JobKind, Outcome
from codeloupe.workers.queue import JobQueue
from codeloupe.workers.worker import Report, Worker

_JOBS, _SLOTS = 2_000, 10
_LONG_JOBS, _LONG_WORKERS, _LONG_SLOTS = 1_000, 4, 25
_LEAST = 0.8
_BARE = "nothing"


def rows() -> Iterator[BenchRow]:
    """Jobs a second with 1, 2 and 4 workers, ours and bare, each in a database of its own on one server."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer(Path(folder) / "pg") as server:
        for count in (1, 2, 4):
            bare, ours = (max(_jobs_a_second(server, kind, count) for _ in range(2)) for kind in ("bare", "ours"))
            detail = f"{ours:,.0f} / {bare:,.0f} empty jobs a second, {count} x {_SLOTS} at a time"
            yield BenchRow(f"bare procrastinate / ours, {count} workers", detail, bare / ours, 1 / _LEAST)
        waits = [_pull_request_wait(server, sweep=sweep) for sweep in (False, True)]
        detail = f"{waits[1]:.2f} s / {waits[0]:.2f} s on average, 20 at once on 4 x 4 places, 1 s each"
        yield BenchRow("wait of a pull request beside 2,000 commits / without", detail, waits[1] / waits[0], 1.5)
        seconds = _long_jobs(server)
        ideal = _LONG_JOBS / (_LONG_WORKERS * _LONG_SLOTS)
        name = f"{_LONG_JOBS:,} jobs of 1 s on {_LONG_WORKERS} x {_LONG_SLOTS} places / ideal"
        yield BenchRow(name, f"{seconds:.2f} s / {ideal:g} s", seconds / ideal, 1.1)


def _jobs_a_second(server: PostgresServer, kind: str, workers: int) -> float:
    with new_database(server) as url, _running(kind, url, workers, _SLOTS) as queue:
        started = time.perf_counter()
        if kind == "ours":
            queue.ask(*ours(_JOBS), priority=Priority.SWEEP)
        else:
            asyncio.run(_ask_bare(url))
        _wait(queue, _JOBS)
        return _JOBS / (time.perf_counter() - started)


def _pull_request_wait(server: PostgresServer, *, sweep: bool) -> float:
    """How long twenty pull requests wait on average, which come at once while a sweep runs, or while none does."""
    with new_database(server) as url, _running("second", url, 4, 4) as queue:
        if sweep:
            queue.ask(*_commits(2_000), priority=Priority.SWEEP)
            time.sleep(3.0)
        for number in range(20):
            job = Job(kind=JobKind.REVIEW, repository="r", description=str(number), pull_request=str(number))
            queue.ask(job, priority=Priority.PULL_REQUEST)
        of_requests = "args #>> '{job,pull_request}' IS NOT NULL"
        while queue.database.select(f"SELECT count(*) FROM procrastinate_jobs WHERE {of_requests} AND status = 'todo'")[
            0
        ][0]:
            time.sleep(0.05)
        ((wait,),) = queue.database.select(
            "SELECT avg(extract(epoch FROM s.at - d.at)) FROM procrastinate_jobs AS j"
            " JOIN procrastinate_events AS d ON d.job_id = j.id AND d.type = 'deferred'"
            f" JOIN procrastinate_events AS s ON s.job_id = j.id AND s.type = 'started' WHERE {of_requests}"
        )
        return float(wait)


def _commits(count: int) -> list[Job]:
    return [Job(kind=JobKind.COMMIT, repository="r", description=str(number)) for number in range(count)]


def _long_jobs(server: PostgresServer) -> float:
    with new_database(server) as url, _running("second", url, _LONG_WORKERS, _LONG_SLOTS) as queue:
        started = time.perf_counter()
        queue.ask(*ours(_LONG_JOBS), priority=Priority.PULL_REQUEST)
        _wait(queue, _LONG_JOBS)
        return time.perf_counter() - started


def ours(count: int) -> list[Job]:
    """So many jobs of ours."""
    return [Job(kind=JobKind.REVIEW, repository="r", description=str(number), commit="c") for number in range(count)]


@contextmanager
def new_database(server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database, which is gone afterwards."""
    name = f"bench_{time.monotonic_ns()}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield server.url.replace("@/codeloupe?", f"@/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def _running(kind: str, url: str, workers: int, slots: int) -> Iterator[JobQueue]:
    """So many worker processes, all of them in the books of the queue."""
    with PostgresDatabase(url) as database:
        queue = JobQueue(database)
        queue.prepare()
        words = (sys.executable, "-m", "bench.workers", kind, url, str(slots))
        processes = [subprocess.Popen(words) for _ in range(workers)]
        try:
            while database.select("SELECT count(*) FROM procrastinate_workers")[0][0] < workers:
                time.sleep(0.05)
            # Registered is not yet listening.
            time.sleep(0.5)
            yield queue
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait(60)


def _wait(queue: JobQueue, count: int) -> None:
    select = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
    while queue.database.select(select)[0][0] < count:
        time.sleep(0.02)


def _bare_app(url: str) -> procrastinate.App:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(kwargs=session_parameters(url, SCHEMA)))

    @app.task(name=_BARE)
    async def nothing() -> None:
        return None

    return app


async def _ask_bare(url: str) -> None:
    app = _bare_app(url)
    async with app.open_async():
        await app.tasks[_BARE].batch_defer_async(*({} for _ in range(_JOBS)))


async def _work(kind: str, url: str, slots: int) -> None:
    if kind == "bare":
        app = _bare_app(url)
        async with app.open_async():
            await app.run_worker_async(concurrency=slots)
        return

    async def execute(job: Job, _report: Report) -> Outcome:
        # A commit of a sweep is less than a pull request.
        await asyncio.sleep(0.0 if kind == "ours" else 0.3 if job.kind is JobKind.COMMIT else 1.0)
        return Outcome(exit_code=0)

    with PostgresDatabase(url) as database:
        await Worker(database, execute, concurrency=slots).run()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], sys.argv[2], int(sys.argv[3])))
