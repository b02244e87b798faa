"""Workers on a real Postgres: empty jobs against bare procrastinate, jobs of a second, and waiting pull requests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import procrastinate
import psycopg
from msgspec.structs import replace

from bench.machine import machine_seconds, program_seconds
from bench.table import BenchRow
from codeloupe.model.agent import Priority
from codeloupe.store.postgres import SCHEMA, PostgresDatabase
from codeloupe.store.postgres_connection import session_parameters
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.workers.jobs import Job, JobKind, Outcome
from codeloupe.workers.queue import JobQueue
from codeloupe.workers.worker import Report, Worker

_JOBS = 2_000
_SLOTS = 10
_TURNS = 6
_ROUNDS = 3
_LONG_JOBS = 1_000
_LONG_WORKERS = 4
_LONG_SLOTS = 25
_REQUESTS = 10
# Half of the slots are free of sweeps, which is enough for these requests.
_REQUEST_SLOTS = 6
_COMMITS = 500
_WAITING = 100_000
_LEAST = 0.8
_MOST_WAIT = 1.5
_BARE = "nothing"


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn of one contender: its time, the CPU of its workers and the server, and the share of other programs."""

    seconds: float
    cpu_seconds: float
    others: float


def rows() -> Iterator[BenchRow]:
    """Jobs a second with 1, 2 and 4 workers, ours and bare in turns, each in its own database on one server."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer(Path(folder) / "pg") as server:
        for workers in (1, 2, 4):
            yield _against_bare(server, workers)
        idle, busy = _best_waits(server)
        detail = f"{busy:.3f} s / {idle:.3f} s on average, {_REQUESTS} at once on 4 x {_REQUEST_SLOTS} slots, 1 s each"
        name = f"wait of a pull request beside {_COMMITS} commits / on an idle queue"
        yield BenchRow(name, detail, busy / idle, _MOST_WAIT)
        seconds = _long_jobs(server)
        ideal = _LONG_JOBS / (_LONG_WORKERS * _LONG_SLOTS)
        name = f"{_LONG_JOBS:,} jobs of 1 s on {_LONG_WORKERS} x {_LONG_SLOTS} slots / ideal"
        yield BenchRow(name, f"{seconds:.2f} s / {ideal:g} s", seconds / ideal, 1.1)
        empty, full = _requests(server)
        name = f"one request with {_WAITING:,} waiting jobs / with none"
        yield BenchRow(name, f"{1000 * full:.1f} ms / {1000 * empty:.1f} ms, least of {_REQUESTS}", full / empty, 3.0)


def _against_bare(server: PostgresServer, workers: int) -> BenchRow:
    """Compare ours with bare procrastinate in turns, in which each is first once, so that both meet the same noise."""
    bare: list[_Turn] = []
    ours: list[_Turn] = []
    for turn in range(_TURNS):
        kinds = ("bare", "ours") if turn % 2 == 0 else ("ours", "bare")
        for kind in kinds:
            measured = _empty_jobs(server, kind, workers)
            (bare if kind == "bare" else ours).append(measured)
    ratios = [mine.seconds / other.seconds for mine, other in zip(ours, bare, strict=True)]
    others = 100 * median(turn.others for turn in ours + bare)
    detail = (
        f"{_most_jobs_a_second(ours):,.0f} / {_most_jobs_a_second(bare):,.0f} empty jobs a second at best,"
        f" {workers} x {_SLOTS} at a time; CPU of workers and server {_cpu_of_job(ours):.2f} / {_cpu_of_job(bare):.2f}"
        f" ms a job; other programs used {others:.0f} % of the machine; {_TURNS} turns, ratios {min(ratios):.2f} to"
        f" {max(ratios):.2f}"
    )
    return BenchRow(f"time of ours / bare procrastinate, {workers} workers", detail, median(ratios), 1 / _LEAST)


def _most_jobs_a_second(turns: Sequence[_Turn]) -> float:
    return _JOBS / min(turn.seconds for turn in turns)


def _cpu_of_job(turns: Sequence[_Turn]) -> float:
    return 1000.0 * median(turn.cpu_seconds for turn in turns) / _JOBS


def _best_waits(server: PostgresServer) -> tuple[float, float]:
    """Return the shortest wait of pull requests on an idle queue and beside a sweep, measured in turns."""
    idle: list[float] = []
    busy: list[float] = []
    for _ in range(_ROUNDS):
        idle.append(_pull_request_wait(server, commits=0))
        busy.append(_pull_request_wait(server, commits=_COMMITS))
    return min(idle), min(busy)


def _empty_jobs(server: PostgresServer, kind: str, workers: int) -> _Turn:
    """Run empty jobs, from asking for them until the last one has ended."""
    with new_database(server) as url, _running(kind, url, workers, _SLOTS) as (queue, processes):
        programs = [server.process_id, *(process.pid for process in processes)]
        cpu_before = sum(map(program_seconds, programs))
        own_before = time.process_time()
        machine_before = machine_seconds()
        started = time.perf_counter()
        if kind == "bare":
            _do_bare_jobs(url, queue)
        else:
            queue.ask(*our_jobs(_JOBS), priority=Priority.PULL_REQUEST)
            _wait_for_end(queue)
        seconds = time.perf_counter() - started
        cpu_seconds = sum(map(program_seconds, programs)) - cpu_before
        own_seconds = time.process_time() - own_before
        others = machine_seconds() - machine_before - cpu_seconds - own_seconds
        return _Turn(seconds, cpu_seconds, others / seconds / (os.cpu_count() or 1))


def _do_bare_jobs(url: str, queue: JobQueue) -> None:
    asyncio.run(_ask_bare(url))
    select = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"
    while queue.database.select(select)[0][0] < _JOBS:
        time.sleep(0.02)


def _pull_request_wait(server: PostgresServer, *, commits: int) -> float:
    """Return how long pull requests that come at once wait on average, beside a sweep of so many commits."""
    with new_database(server) as url, _running("second", url, 4, _REQUEST_SLOTS) as (queue, _):
        if commits:
            queue.ask(*_commits(commits), priority=Priority.SWEEP)
            time.sleep(3.0)
        for number in range(_REQUESTS):
            job = Job(kind=JobKind.REVIEW, repository="r", description=str(number), pull_request=str(number))
            queue.ask(job, priority=Priority.PULL_REQUEST)
        waiting = "SELECT count(*) FROM jobs WHERE queue = 'reviews' AND state = 'waiting'"
        while queue.database.select(waiting)[0][0]:
            time.sleep(0.02)
        select = "SELECT avg(started_at - asked_at) FROM jobs WHERE queue = 'reviews'"
        return float(queue.database.select(select)[0][0])


def _commits(count: int) -> list[Job]:
    return [Job(kind=JobKind.COMMIT, repository="r", description=str(number)) for number in range(count)]


def _long_jobs(server: PostgresServer) -> float:
    with new_database(server) as url, _running("second", url, _LONG_WORKERS, _LONG_SLOTS) as (queue, _):
        started = time.perf_counter()
        queue.ask(*our_jobs(_LONG_JOBS), priority=Priority.PULL_REQUEST)
        _wait_for_end(queue)
        return time.perf_counter() - started


def _requests(server: PostgresServer) -> tuple[float, float]:
    """Return the time of one request on an empty queue and beside many waiting jobs of ten repositories."""
    with new_database(server) as url, PostgresDatabase(url) as database:
        queue = JobQueue(database)
        empty = min(_request(queue, number) for number in range(_REQUESTS))
        for repository in range(10):
            jobs = [replace(job, repository=f"r{repository}") for job in our_jobs(_WAITING // 10)]
            queue.ask(*jobs, priority=Priority.SWEEP)
        full = min(_request(queue, number) for number in range(_REQUESTS))
        return empty, full


def _request(queue: JobQueue, number: int) -> float:
    job = replace(our_jobs(1)[0], repository=f"new {number}")
    started = time.perf_counter()
    queue.ask(job, priority=Priority.SWEEP)
    return time.perf_counter() - started


def our_jobs(count: int) -> list[Job]:
    """Return so many reviews of commits."""
    return [Job(kind=JobKind.REVIEW, repository="r", description=str(number), commit="c") for number in range(count)]


@contextmanager
def new_database(server: PostgresServer) -> Iterator[str]:
    """Yield the URL of an empty database, which is dropped afterwards."""
    name = f"bench_{time.monotonic_ns()}"
    with psycopg.connect(server.admin_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} OWNER codeloupe".encode())
        yield server.url.replace("@/codeloupe?", f"@/{name}?")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def _running(
    kind: str, url: str, workers: int, slots: int
) -> Iterator[tuple[JobQueue, Sequence[subprocess.Popen[bytes]]]]:
    """Run so many worker processes, and yield the queue and the processes when all of them are registered."""
    with PostgresDatabase(url) as database:
        queue = JobQueue(database)
        queue.prepare()
        words = (sys.executable, "-m", "bench.workers", kind, url, str(slots))
        processes = [subprocess.Popen(words) for _ in range(workers)]
        # Ours are two workers of procrastinate in one process.
        registered = workers if kind == "bare" else 2 * workers
        try:
            while database.select("SELECT count(*) FROM procrastinate_workers")[0][0] < registered:
                time.sleep(0.05)
            # A worker that is registered does not listen yet.
            time.sleep(0.5)
            yield queue, processes
        finally:
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait(60)


def _wait_for_end(queue: JobQueue) -> None:
    while queue.has_open_jobs():
        time.sleep(0.02)


def _bare_app(url: str) -> procrastinate.App:
    # As procrastinate's documentation shows it, except for the schema.
    parameters = session_parameters(url, SCHEMA)
    del parameters["prepare_threshold"]
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(kwargs=parameters))

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
        seconds = 0.0
        if kind == "second":
            # A commit of a sweep is smaller than a pull request.
            seconds = 0.3 if job.kind is JobKind.COMMIT else 1.0
        await asyncio.sleep(seconds)
        return Outcome(exit_code=0)

    with PostgresDatabase(url) as database:
        await Worker(database, execute, concurrency=slots).run()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], sys.argv[2], int(sys.argv[3])))
