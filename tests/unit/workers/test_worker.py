"""A worker on a real server, with jobs that are scripted: each kind of ending, and what happens to those it leaves."""

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from procrastinate import exceptions

from codeloupe.errors import RevisionError
from codeloupe.model.agent import Priority
from codeloupe.store.limits import SharedLimits
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.workers import worker as module
from codeloupe.workers.jobs import Job, JobState, Outcome, Progress
from codeloupe.workers.queue import JobQueue
from codeloupe.workers.worker import Execute, JobFailed, Report, Worker
from tests.unit.workers.test_queue import commits, pull_request, running, take

pytestmark = pytest.mark.program
DONE = Outcome(exit_code=0, summary="all is well", review_id="r")


@pytest.fixture
def queue(postgres_url: str) -> Iterator[JobQueue]:
    with PostgresDatabase(postgres_url) as database:
        yield JobQueue(database)


def doing(step: Callable[[Job, Report], Awaitable[Outcome] | Outcome]) -> Execute:
    async def execute(job: Job, report: Report) -> Outcome:
        made = step(job, report)
        return made if isinstance(made, Outcome) else await made

    return execute


def work(queue: JobQueue, execute: Execute, **options: object) -> Worker:
    """Work until nothing is left."""
    worker = Worker(queue.database, execute, **options)  # type: ignore[arg-type]  # by name
    asyncio.run(worker.run(wait=False))
    return worker


def test_what_a_job_came_to_is_kept_and_its_progress_is_told(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

    async def execute(_job: Job, report: Report) -> Outcome:
        report(Progress(stage="reading"))
        report(Progress(stage="reviewing", done=1, total=2))
        await _until(lambda: queue.find(number).progress.done)
        return DONE

    work(queue, execute)
    found = queue.find(number)
    assert (found.state, found.outcome, found.attempts) == (JobState.DONE, DONE, 1)
    assert found.progress == Progress(stage="reviewing", done=1, total=2)


def test_what_may_pass_is_tried_later_and_what_somebody_has_to_mend_is_dead_with_its_reason(queue: JobQueue) -> None:
    (passing,) = queue.ask(pull_request(1), priority=Priority.PERSON)
    (wrong,) = queue.ask(pull_request(2), priority=Priority.PERSON)
    (broken,) = queue.ask(pull_request(3), priority=Priority.PERSON)
    given_up: list[str] = []

    async def execute(job: Job, _report: Report) -> Outcome:
        if job.pull_request == "1":
            raise JobFailed("the service is overloaded", retryable=True)
        if job.pull_request == "2":
            raise RevisionError("there is no such commit", hint="push it")
        raise RuntimeError("what nobody thought of")

    async def give_up(job: Job, reason: str) -> None:
        given_up.append(f"{job.pull_request}: {reason}")

    work(queue, execute, give_up=give_up)
    records = [queue.find(number) for number in (passing, wrong, broken)]
    assert [record.state for record in records] == [JobState.WAITING, JobState.DEAD, JobState.WAITING]
    assert [record.reason for record in records] == [
        "the service is overloaded",
        "there is no such commit (push it)",
        "RuntimeError: what nobody thought of",
    ]
    assert records[0].again_at is not None
    assert given_up == ["2: there is no such commit (push it)"]
    assert queue.retry(wrong).state is JobState.WAITING


def test_after_some_tries_a_job_is_dead_or_is_done_with_what_there_is(queue: JobQueue) -> None:
    (dead,) = queue.ask(pull_request(1), priority=Priority.PERSON)
    (partial,) = queue.ask(pull_request(2), priority=Priority.PERSON)
    incomplete = Outcome(exit_code=3, summary="not all was reviewed", review_id="r")
    tries: Counter[str | None] = Counter()

    async def execute(job: Job, _report: Report) -> Outcome:
        tries[job.pull_request] += 1
        outcome = incomplete if job.pull_request == "2" else None
        raise JobFailed("the service is overloaded", retryable=True, outcome=outcome)

    for _ in range(6):
        work(queue, execute)
        queue.database.change("UPDATE procrastinate_jobs SET scheduled_at = NULL")
    assert queue.find(dead).state is JobState.DEAD
    assert (queue.find(partial).state, queue.find(partial).outcome) == (JobState.DONE, incomplete)
    assert tries == {"1": 5, "2": 5}


def test_a_job_under_a_quota_waits_until_that_opens_again(queue: JobQueue) -> None:
    limits = SharedLimits(queue.database)
    assert limits.seconds_until_open() == 0.0
    for account, seconds in (("a", -60), ("b", 7200), ("c", 3600)):
        now = "extract(epoch FROM clock_timestamp())"
        insert = f"INSERT INTO limit_accounts (account, opens_at) VALUES (?, {now} + ?)"
        queue.database.change(insert, (account, seconds))
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

    async def execute(_job: Job, _report: Report) -> Outcome:
        raise JobFailed("the quota has ended", retryable=True, wait_seconds=limits.seconds_until_open())

    work(queue, execute)
    again = queue.find(number).again_at
    assert again is not None
    assert 3500 < (again - datetime.now(UTC)).total_seconds() < 3700


def test_a_sweep_leaves_a_place_for_whoever_waits(queue: JobQueue) -> None:
    queue.ask(*commits("r", 8), priority=Priority.SWEEP)
    running = most = 0
    asked = asyncio.Event()

    async def execute(job: Job, _report: Report) -> Outcome:
        nonlocal running, most
        if job.sweep is None:
            asked.set()
            return DONE
        running += 1
        most = max(most, running)
        if running == 2 and not asked.is_set():
            # All places that sweeps may have are taken, and none of them ends before the review has been made.
            await asyncio.to_thread(queue.ask, pull_request(), priority=Priority.PULL_REQUEST)
        await asked.wait()
        running -= 1
        return DONE

    async def run() -> None:
        task = asyncio.create_task(Worker(queue.database, execute, concurrency=4).run())
        await _until(lambda: {record.state for record in queue.list()} == {JobState.DONE})
        signal.raise_signal(signal.SIGTERM)
        await task

    asyncio.run(run())
    assert most == 2
    assert {record.state for record in queue.list()} == {JobState.DONE}


async def _until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - it comes about in the database
        await asyncio.sleep(0.02)


def test_a_cancelled_job_ends_where_it_runs_and_a_newer_push_takes_its_place(queue: JobQueue) -> None:
    (first,) = queue.ask(pull_request(head="old"), priority=Priority.PULL_REQUEST)
    ended: list[str] = []

    async def execute(job: Job, _report: Report) -> Outcome:
        if job.head == "new":
            return DONE
        try:
            await asyncio.to_thread(queue.ask, pull_request(head="new"), priority=Priority.PULL_REQUEST)
            await asyncio.Event().wait()
        finally:
            ended.append(job.head)
        return DONE

    async def run() -> None:
        worker = Worker(queue.database, execute)
        task = asyncio.create_task(worker.run())
        await asyncio.to_thread(lambda: None)
        await _until(lambda: [one.state for one in queue.list()] == [JobState.DONE, JobState.CANCELLED])
        signal.raise_signal(signal.SIGTERM)
        await task

    asyncio.run(run())
    assert ended == ["old"]
    assert "a newer commit was pushed" in queue.find(first).reason


def test_a_stop_hands_back_what_does_not_end_in_time(queue: JobQueue) -> None:
    slow, quick = queue.ask(*commits("r", 2), priority=Priority.SWEEP)
    stopped = asyncio.Event()

    async def execute(job: Job, _report: Report) -> Outcome:
        await stopped.wait()
        if job.description == "r0":
            await asyncio.Event().wait()
        return DONE

    async def run() -> None:
        worker = Worker(queue.database, execute, concurrency=4, grace_seconds=0.3)
        task = asyncio.create_task(worker.run())
        await _until(lambda: len(queue.list(states=[JobState.RUNNING])) == 2)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        stopped.set()
        await task

    asyncio.run(run())
    assert (queue.find(slow).state, queue.find(quick).state) == (JobState.WAITING, JobState.DONE)
    assert queue.database.select("SELECT count(*) FROM procrastinate_workers") == [(0,)]


def test_a_server_that_restarts_costs_no_running_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = PostgresServer(tmp_path / "pg", durable=False)
    calls: Counter[str] = Counter()
    with server, PostgresDatabase(server.url) as database:
        queue = JobQueue(database)
        numbers = queue.ask(*commits("r", 6), priority=Priority.SWEEP)

        async def execute(job: Job, _report: Report) -> Outcome:
            calls[job.description] += 1
            if job.description == "r1":
                server.stop()
                # The other jobs end while there is no server.
                await asyncio.sleep(0.3)
                server.start()
            return DONE

        work(queue, execute, concurrency=3)
        assert {queue.find(number).state for number in numbers} == {JobState.DONE}
    assert calls == {f"r{n}": 1 for n in range(6)}
    assert "cannot reach the database; retrying" in caplog.text


def test_a_job_that_went_to_another_worker_is_ended_by_that_alone(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

    async def execute(_job: Job, _report: Report) -> Outcome:
        # Taken for dead, while it only was slow.
        queue.database.change("UPDATE procrastinate_jobs SET worker_id = NULL")
        return DONE

    work(queue, execute)
    found = queue.find(number)
    assert (found.state, found.attempts) == (JobState.RUNNING, 0)


def test_a_job_whose_fetch_was_lost_on_its_way_is_found_again(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.1)

    async def run() -> None:
        worker = Worker(queue.database, doing(lambda _job, _report: DONE))
        fetch = worker.manager.connector.execute_query_one_async
        lost: list[int] = []

        async def losing(query: str, **values: object) -> object:
            row = await fetch(query, **values)
            if row.get("id") is not None and not lost:
                lost.append(row["id"])
                raise exceptions.ConnectorException
            return row

        monkeypatch.setattr(worker.manager.connector, "execute_query_one_async", losing)
        task = asyncio.create_task(worker.run())
        await _until(lambda: queue.find(number).state is JobState.DONE)
        signal.raise_signal(signal.SIGTERM)
        await task
        assert lost == [number]

    asyncio.run(run())


def test_a_job_whose_end_is_being_recorded_is_not_handed_back(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.05)
    worker = Worker(queue.database, doing(lambda _job, _report: DONE))
    execute, looks = worker.manager.connector.execute_query_async, Counter[str]()
    rescue = worker._rescue

    def counted() -> int:
        looks["done"] += 1
        return rescue()

    async def slow(query: str, **values: object) -> None:
        if query == module.FINISH:
            await _until(lambda: looks["done"] > 3)
        await execute(query, **values)

    monkeypatch.setattr(worker, "_rescue", counted)
    monkeypatch.setattr(worker.manager.connector, "execute_query_async", slow)
    asyncio.run(worker.run(wait=False))
    found = queue.find(number)
    assert (found.state, found.attempts, worker.manager.endings) == (JobState.DONE, 1, {})


def test_a_worker_that_was_taken_for_dead_goes_on_and_what_it_lost_is_not_its_own(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.1)
    lost, later = queue.ask(*commits("r", 2), priority=Priority.SWEEP)
    queue.database.change("UPDATE procrastinate_jobs SET queue_name = 'reviews' WHERE id = ?", (later,))
    ours = queue.database.select("SELECT 1")

    async def execute(job: Job, _report: Report) -> Outcome:
        if job.description == "r0" and ours:
            ours.clear()
            # As another worker does, which has its end before this one has its own.
            queue.database.change("DELETE FROM procrastinate_workers")
            queue.database.change("DELETE FROM workers")
            queue.database.change("UPDATE procrastinate_jobs SET status = 'succeeded' WHERE id = ?", (lost,))
            queue.database.change("INSERT INTO job_states (job_id, reason) VALUES (?, 'of another')", (lost,))
            raise JobFailed("too late", retryable=True)
        return DONE

    async def run() -> None:
        worker = Worker(queue.database, execute, concurrency=1)
        task = asyncio.create_task(worker.run())
        await _until(lambda: queue.find(later).state is JobState.DONE)
        signal.raise_signal(signal.SIGTERM)
        await task

    asyncio.run(run())
    assert queue.find(lost).reason == "of another"


def test_nobody_is_taken_for_dead_by_a_worker_that_was_cut_off_itself(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    take(queue, worker=running(queue, pulse_seconds_ago=40))
    worker = Worker(queue.database, doing(lambda _job, _report: DONE))
    assert (worker._rescue(), queue.find(number).state) == (0, JobState.RUNNING)
    monkeypatch.setattr(worker, "_reached_at", time.monotonic() - 31)
    assert (worker._rescue(), queue.find(number).state) == (1, JobState.WAITING)
    worker.note_lost(OSError("gone"))
    take(queue, worker=running(queue, pulse_seconds_ago=40))
    assert (worker._rescue(), queue.find(number).state) == (0, JobState.RUNNING)


def test_a_worker_that_ends_when_idle_leaves_nothing_and_breaks_nothing_off(queue: JobQueue) -> None:
    numbers = queue.ask(*commits("r", 6), priority=Priority.SWEEP)

    async def execute(_job: Job, _report: Report) -> Outcome:
        await asyncio.sleep(0.1)
        return DONE

    # More than sweeps have places for, and each takes longer than a stop would wait.
    work(queue, execute, concurrency=2, grace_seconds=0.01)
    assert {queue.find(number).state for number in numbers} == {JobState.DONE}


def test_a_stop_ends_in_time_while_the_server_is_away(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "pg", durable=False)
    with server, PostgresDatabase(server.url, patience_seconds=0.5) as database:
        queue = JobQueue(database)
        (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

        async def execute(_job: Job, _report: Report) -> Outcome:
            server.stop()
            signal.raise_signal(signal.SIGTERM)
            return DONE

        worker = Worker(database, execute, grace_seconds=0.2)
        worker._app.connector._pool_args["timeout"] = 0.5  # type: ignore[attr-defined]  # it is theirs
        asyncio.run(asyncio.wait_for(worker.run(), 30))
        server.start()
        # Another worker finds it.
        assert queue.find(number).state is JobState.RUNNING


def test_a_job_that_cannot_be_read_is_dead_at_once_and_says_so(queue: JobQueue) -> None:
    odd = queue.ask(*commits("r", 2), priority=Priority.SWEEP)
    queue.database.change('UPDATE procrastinate_jobs SET args = \'{"job": 7, "more": 1}\' WHERE id = ?', (odd[0],))
    queue.database.change("UPDATE procrastinate_jobs SET args = '{}' WHERE id = ?", (odd[1],))
    work(queue, doing(lambda _job, _report: DONE))
    assert [queue.find(number).state for number in odd] == [JobState.DEAD] * 2
    assert all("cannot be read" in queue.find(number).reason for number in odd)


def test_a_job_that_fails_or_is_stopped_as_somebody_cancels_it_is_cancelled(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

    async def execute(_job: Job, _report: Report) -> Outcome:
        queue.cancel(number)
        raise JobFailed("the service is overloaded", retryable=True)

    work(queue, execute)
    assert queue.find(number).state is JobState.CANCELLED


def test_the_pulse_is_quicker_than_what_takes_a_worker_for_dead() -> None:
    assert module._PULSE_SECONDS * 3 <= module._DEAD_SECONDS


def test_no_agent_can_read_the_variables_of_a_worker() -> None:
    # By the number of PR_GET_DUMPABLE: what is not dumpable belongs to root below /proc, whoever runs it.
    script = (
        "import ctypes; from codeloupe.system.process import hide_from_others as hide;"
        "asked = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0); before = asked(); hide(); print(before, asked())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]
