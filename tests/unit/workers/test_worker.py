"""A worker on a real server, with scripted jobs: each kind of end, stops, outages, and jobs of workers that died."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, LiteralString

import pytest
from msgspec.structs import replace
from procrastinate import App, exceptions

from codeloupe.errors import RevisionError, StoreError
from codeloupe.model.agent import Priority
from codeloupe.store.owner import Owner
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.processes import Processes, WorkerRecord
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.workers import rescue
from codeloupe.workers.caretaker import DEFAULT_TIMING, Timing
from codeloupe.workers.connector import PatientConnector
from codeloupe.workers.failures import JobFailed, JobPaused
from codeloupe.workers.jobs import WAITING_FOR_QUOTA, Job, JobState, Outcome, Progress
from codeloupe.workers.queue import JobQueue
from codeloupe.workers.rescue import MOST_DEATHS, seconds_after_deaths
from codeloupe.workers.worker import Execute, Report, Worker
from tests.endings import ends_soon
from tests.unit.workers.test_queue import commits, pull_request, run, take

pytestmark = pytest.mark.program
DONE = Outcome(exit_code=0, summary="all is well", review_id="r")
# A worker that looks after others all the time, and takes everyone for dead who does not run here.
QUICK = Timing(heartbeat_seconds=0.05, look_seconds=0.05, dead_seconds=0.0)
# A process of this machine that has ended: no number is that high.
GONE = str(Owner(Owner.here().machine, 2**22 + 1, "gone"))


@pytest.fixture
def queue(postgres_url: str) -> Iterator[JobQueue]:
    with PostgresDatabase(postgres_url) as database:
        yield JobQueue(database)


async def succeed(_job: Job, _report: Report) -> Outcome:
    return DONE


def work(queue: JobQueue, execute: Execute, **options: Any) -> None:
    """Work until no job is due."""
    asyncio.run(Worker(queue.database, execute, **options).run(wait=False))


def work_until(queue: JobQueue, execute: Execute, condition: Callable[[], object], **options: Any) -> None:
    """Work until a condition holds, and stop as by a service manager."""

    async def working() -> None:
        task = asyncio.create_task(Worker(queue.database, execute, **options).run())
        await _until(lambda: condition() or task.done())
        if not task.done():
            signal.raise_signal(signal.SIGTERM)
        await task

    asyncio.run(working())


async def _until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - it comes about in the database
        await asyncio.sleep(0.02)


def states(queue: JobQueue, *numbers: int) -> list[str]:
    return [queue.find(number).state.value for number in numbers]


def test_the_result_and_the_progress_of_a_job_are_stored(queue: JobQueue) -> None:
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
    assert queue.workers() == ()


def test_a_stop_reaches_a_worker_that_lost_a_cancellation(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    async def lose_a_cancellation(_app: App, **_options: object) -> None:
        started.append("worker")
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    monkeypatch.setattr(App, "run_worker_async", lose_a_cancellation)
    with ends_soon():
        work_until(queue, succeed, lambda: started)


def test_errors_that_may_pass_are_retried_and_others_are_not(queue: JobQueue) -> None:
    passing, wrong, broken = (queue.ask(pull_request(n), priority=Priority.PERSON)[0] for n in (1, 2, 3))
    given_up: list[str] = []

    async def execute(job: Job, _report: Report) -> Outcome:
        if job.pull_request == "1":
            raise JobFailed("the service is overloaded", retryable=True)
        if job.pull_request == "2":
            raise RevisionError("there is no such commit", hint="push it")
        raise RuntimeError("an unexpected error")

    async def give_up(job: Job, reason: str) -> None:
        given_up.append(f"{job.pull_request}: {reason}")

    work(queue, execute, give_up=give_up)
    assert states(queue, passing, wrong, broken) == ["waiting", "dead", "waiting"]
    assert [queue.find(number).reason for number in (passing, wrong, broken)] == [
        "the service is overloaded",
        "there is no such commit (push it)",
        "RuntimeError: an unexpected error",
    ]
    assert queue.find(passing).again_at is not None
    assert given_up == ["2: there is no such commit (push it)"]
    assert queue.retry(wrong).state is JobState.WAITING


def test_after_four_retries_a_job_is_dead_or_has_a_partial_result(queue: JobQueue) -> None:
    (dead,) = queue.ask(pull_request(1), priority=Priority.PERSON)
    (partial,) = queue.ask(pull_request(2), priority=Priority.PERSON)
    incomplete = Outcome(exit_code=3, summary="not everything was reviewed", review_id="r")
    attempts: Counter[str | None] = Counter()

    async def execute(job: Job, _report: Report) -> Outcome:
        attempts[job.pull_request] += 1
        outcome = incomplete if job.pull_request == "2" else None
        raise JobFailed("the service is overloaded", retryable=True, outcome=outcome)

    for _ in range(6):
        work(queue, execute)
        _make_due(queue)
    assert states(queue, dead, partial) == ["dead", "done"]
    assert (queue.find(partial).outcome, queue.find(partial).reason) == (incomplete, "")
    assert attempts == {"1": 5, "2": 5}


def _make_due(queue: JobQueue) -> None:
    queue.database.change("UPDATE procrastinate_jobs SET scheduled_at = NULL")


@pytest.mark.defect("W7")
def test_a_job_that_meets_a_quota_waits_for_the_reset_and_does_not_fail(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    attempts = 0

    async def execute(_job: Job, _report: Report) -> Outcome:
        nonlocal attempts
        attempts += 1
        if attempts <= 10:
            raise JobPaused(queue.database.clock() + 3600.0)
        return DONE

    for _ in range(10):
        work(queue, execute)
        record = queue.find(number)
        assert (record.state, record.reason) == (JobState.WAITING, WAITING_FOR_QUOTA)
        assert record.again_at is not None
        assert 3500 < (record.again_at - datetime.now(UTC)).total_seconds() <= 3600
        _make_due(queue)
    # More pauses than a job may have failures, and the restarts of the worker, change nothing.
    work(queue, execute)
    assert (queue.find(number).state, queue.find(number).reason) == (JobState.DONE, "")


def test_half_of_the_slots_are_free_of_sweeps(queue: JobQueue) -> None:
    queue.ask(*commits("r", 8), priority=Priority.SWEEP)
    running: set[str] = set()
    most = 0
    asked = asyncio.Event()

    async def execute(job: Job, _report: Report) -> Outcome:
        nonlocal most
        if job.sweep is None:
            asked.set()
            return DONE
        running.add(job.description)
        most = max(most, len(running))
        if len(running) == 2 and not asked.is_set():
            # All slots for sweeps are taken, and none becomes free before the review is done.
            await asyncio.to_thread(queue.ask, pull_request(), priority=Priority.PULL_REQUEST)
        await asked.wait()
        running.discard(job.description)
        return DONE

    work_until(queue, execute, lambda: not queue.has_open_jobs())
    assert most == 2
    assert {record.state for record in queue.list()} == {JobState.DONE}


def test_a_cancelled_job_ends_where_it_runs_and_a_newer_push_replaces_it(queue: JobQueue) -> None:
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

    work_until(queue, execute, lambda: queue.list()[0].state is JobState.DONE)
    assert ended == ["old"]
    assert queue.find(first).reason == "a newer commit was pushed to this pull request"


def test_a_stop_returns_unfinished_jobs_to_the_queue(queue: JobQueue) -> None:
    slow, quick = queue.ask(*commits("r", 2), priority=Priority.SWEEP)
    is_stopping = asyncio.Event()

    async def execute(job: Job, _report: Report) -> Outcome:
        await is_stopping.wait()
        if job.description == "r0":
            await asyncio.Event().wait()
        return DONE

    async def working() -> None:
        task = asyncio.create_task(Worker(queue.database, execute, grace_seconds=0.3).run())
        await _until(lambda: len(queue.list(states=[JobState.RUNNING])) == 2)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
        is_stopping.set()
        await task

    asyncio.run(working())
    assert states(queue, slow, quick) == ["waiting", "done"]
    assert take(queue) == ["r0"]


def test_a_second_signal_stops_a_worker_at_once(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

    async def execute(_job: Job, _report: Report) -> Outcome:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()
        return DONE

    asyncio.run(Worker(queue.database, execute, grace_seconds=1000.0).run())
    assert states(queue, number) == ["waiting"]
    assert take(queue) == ["shop#7"]


def test_a_restart_of_the_server_costs_no_running_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
        assert set(states(queue, *numbers)) == {"done"}
    assert calls == {f"r{n}": 1 for n in range(6)}
    assert "cannot reach the database; retrying" in caplog.text


def test_a_stop_ends_in_time_while_the_server_is_unreachable(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "pg", durable=False)
    with server, PostgresDatabase(server.url) as database:
        queue = JobQueue(database)
        (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

        async def execute(_job: Job, _report: Report) -> Outcome:
            server.stop()
            signal.raise_signal(signal.SIGTERM)
            return DONE

        asyncio.run(asyncio.wait_for(Worker(database, execute, grace_seconds=0.2).run(), 25))
        server.start()
        # Another worker finds it.
        assert queue.find(number).state is JobState.RUNNING


@pytest.mark.defect("W4")
def test_a_missing_function_of_the_queue_ends_a_worker_with_an_error(queue: JobQueue) -> None:
    queue.ask(pull_request(), priority=Priority.PERSON)

    async def execute(_job: Job, _report: Report) -> Outcome:
        queue.database.change("DROP FUNCTION procrastinate_fetch_job_v2")
        return DONE

    with pytest.raises(StoreError, match="procrastinate_fetch_job_v2"):
        asyncio.run(asyncio.wait_for(Worker(queue.database, execute, timing=QUICK).run(), 25))
    with pytest.raises(StoreError, match="is damaged: it lacks procrastinate_fetch_job_v2"):
        asyncio.run(Worker(queue.database, succeed).run())


def test_a_worker_whose_registration_was_removed_continues(queue: JobQueue) -> None:
    first, second = queue.ask(*commits("r", 2), priority=Priority.SWEEP)

    async def execute(job: Job, _report: Report) -> Outcome:
        if job.description == "r0":
            queue.database.change("DELETE FROM procrastinate_workers")
        return DONE

    work_until(queue, execute, lambda: not queue.has_open_jobs(), concurrency=1)
    assert states(queue, first, second) == ["done", "done"]


def test_a_slow_worker_does_not_change_a_job_that_was_delivered_again(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

    async def execute(_job: Job, _report: Report) -> Outcome:
        # As another worker does that takes this one for dead.
        queue.database.change("UPDATE jobs SET delivery = delivery + 1000, owner = 'another worker'")
        return DONE

    work(queue, execute)
    found = queue.find(number)
    assert (found.state, found.outcome) == (JobState.RUNNING, None)


def test_a_delivery_whose_fetch_was_lost_is_made_again(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    fetch = PatientConnector.execute_query_one_async
    lost: list[int] = []

    async def losing(self: PatientConnector, query: LiteralString, **values: Any) -> dict[str, Any]:
        row = await fetch(self, query, **values)
        if row.get("id") is not None and not lost:
            lost.append(row["id"])
            return {"id": None}
        return row

    monkeypatch.setattr(PatientConnector, "execute_query_one_async", losing)
    work_until(queue, succeed, lambda: not queue.has_open_jobs(), timing=Timing(look_seconds=0.1))
    assert states(queue, number) == ["done"]
    assert len(lost) == 1


def test_jobs_of_dead_workers_are_delivered_again(queue: JobQueue) -> None:
    numbers = queue.ask(*commits("r", 4), priority=Priority.SWEEP)
    take(queue, 2)
    take(queue, starts=False)
    calls: Counter[str] = Counter()

    async def execute(job: Job, _report: Report) -> Outcome:
        calls[job.description] += 1
        return DONE

    work_until(queue, execute, lambda: not queue.has_open_jobs(), timing=QUICK)
    assert states(queue, *numbers) == ["done"] * 4
    assert calls == {f"r{n}": 1 for n in range(4)}
    assert queue.database.select("SELECT deaths FROM jobs ORDER BY number") == [(1,), (1,), (0,), (0,)]
    assert queue.database.select("SELECT count(*) FROM procrastinate_jobs") == [(0,)]


def test_the_end_of_a_process_on_this_machine_is_noticed_at_once(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    take(queue)
    queue.database.change("UPDATE jobs SET owner = ?", (GONE,))
    work_until(queue, succeed, lambda: not queue.has_open_jobs(), timing=Timing(look_seconds=0.05))
    assert states(queue, number) == ["done"]


def test_no_worker_counts_as_dead_right_after_an_outage(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    take(queue)
    other = queue.ask(*commits("r", 1), priority=Priority.SWEEP)[0]
    # A new worker cannot know whether the database was unreachable before.
    timing = Timing(look_seconds=0.02, dead_seconds=DEFAULT_TIMING.dead_seconds)
    looks = []

    async def execute(_job: Job, _report: Report) -> Outcome:
        first = _seen_at(queue)
        await _until(lambda: _seen_at(queue) > first)
        looks.append(True)
        return DONE

    work_until(queue, execute, lambda: queue.find(other).state is JobState.DONE, timing=timing)
    assert (states(queue, number), looks) == (["running"], [True])


def _seen_at(queue: JobQueue) -> float:
    return max((worker.seen_at for worker in queue.workers()), default=0.0)


def test_a_job_whose_worker_died_eleven_times_is_dead(queue: JobQueue) -> None:
    (number,) = queue.ask(*commits("r", 1), priority=Priority.SWEEP)
    given_up: list[str] = []

    async def give_up(job: Job, reason: str) -> None:
        given_up.append(f"{job.description}: {reason}")

    queue.database.change("UPDATE jobs SET deaths = 9")
    for expected in ("waiting", "dead"):
        _make_due(queue)
        take(queue)
        queue.database.change("UPDATE jobs SET owner = ?", (GONE,))
        done = lambda wanted=expected: states(queue, number) == [wanted]  # noqa: E731 - a condition
        work_until(queue, succeed, done, give_up=give_up, queues=["reviews"], timing=Timing(look_seconds=0.05))
        assert states(queue, number) == [expected]
    assert queue.find(number).reason == "its worker died 11 times while it was running"
    assert given_up == ["r0: its worker died 11 times while it was running"]


def test_a_cancelled_job_of_a_dead_worker_stays_cancelled(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    take(queue)
    queue.cancel(number)
    other = queue.ask(*commits("r", 1), priority=Priority.SWEEP)[0]
    take(queue)
    work_until(queue, succeed, lambda: queue.find(other).state is JobState.DONE, timing=QUICK)
    assert states(queue, number) == ["cancelled"]


def test_a_job_of_a_dead_worker_makes_way_for_a_newer_one(queue: JobQueue) -> None:
    (first,) = queue.ask(run(), priority=Priority.PERSON)
    take(queue)
    (second,) = queue.ask(run(), priority=Priority.PERSON)
    work_until(queue, succeed, lambda: not queue.has_open_jobs(), timing=QUICK)
    assert states(queue, first, second) == ["cancelled", "done"]
    assert "another job" in queue.find(first).reason


def test_a_failed_job_makes_way_for_a_newer_one(queue: JobQueue) -> None:
    (first,) = queue.ask(run(), priority=Priority.PERSON)

    async def execute(_job: Job, _report: Report) -> Outcome:
        if len(queue.list()) == 1:
            await asyncio.to_thread(queue.ask, run(), priority=Priority.PERSON)
            raise JobFailed("the service is overloaded", retryable=True)
        return DONE

    work_until(queue, execute, lambda: not queue.has_open_jobs())
    assert [record.state.value for record in queue.list()] == ["done", "cancelled"]
    assert queue.find(first).state is JobState.CANCELLED


def _ask_twice(queue: JobQueue) -> tuple[int, int]:
    """Ask for reviews of one pull request with different options; return the numbers of the jobs."""
    (first,) = queue.ask(pull_request(head="h"), priority=Priority.PULL_REQUEST)
    (second,) = queue.ask(replace(pull_request(head="h"), context="other"), priority=Priority.PULL_REQUEST)
    return first, second


def test_a_job_of_a_dead_worker_is_done_beside_one_with_other_options(queue: JobQueue) -> None:
    numbers = _ask_twice(queue)
    take(queue)
    work_until(queue, succeed, lambda: not queue.has_open_jobs(), timing=QUICK)
    assert states(queue, *numbers) == ["done", "done"]


def test_a_stopped_job_is_resumed_although_one_with_other_options_waits(queue: JobQueue) -> None:
    numbers = _ask_twice(queue)
    began: list[str] = []

    async def execute(job: Job, _report: Report) -> Outcome:
        began.append(job.context)
        await asyncio.Event().wait()
        return DONE

    work_until(queue, execute, lambda: began, grace_seconds=0.0)
    assert states(queue, *numbers) == ["waiting", "waiting"]
    work(queue, succeed)
    assert states(queue, *numbers) == ["done", "done"]


def test_a_failed_job_is_retried_although_one_with_other_options_waits(queue: JobQueue) -> None:
    numbers = _ask_twice(queue)
    has_failed = False

    async def execute(_job: Job, _report: Report) -> Outcome:
        nonlocal has_failed
        if has_failed:
            return DONE
        has_failed = True
        raise JobFailed("the service is overloaded", retryable=True)

    work(queue, execute)
    assert states(queue, *numbers) == ["waiting", "waiting"]
    _make_due(queue)
    work(queue, execute)
    assert states(queue, *numbers) == ["done", "done"]


def test_until_idle_does_all_jobs_and_stops_none(queue: JobQueue) -> None:
    numbers = [*queue.ask(*commits("r", 6), priority=Priority.SWEEP)]

    async def execute(job: Job, _report: Report) -> Outcome:
        if job.description == "r0":
            numbers.extend(await asyncio.to_thread(queue.ask, run(), priority=Priority.PERSON))
        await asyncio.sleep(0.1)
        return DONE

    # Each job takes longer than a stop would wait.
    work(queue, execute, concurrency=2, grace_seconds=0.01)
    assert states(queue, *numbers) == ["done"] * 7


def test_a_job_that_cannot_be_read_is_dead_at_once(queue: JobQueue) -> None:
    (number,) = queue.ask(*commits("r", 1), priority=Priority.SWEEP)
    queue.database.change("UPDATE jobs SET request = ?", (b'{"job": 7}',))
    work(queue, succeed)
    assert states(queue, number) == ["dead"]
    assert "cannot be read" in queue.find(number).reason


def test_a_job_whose_result_cannot_be_stored_is_dead_and_says_why(queue: JobQueue) -> None:
    (number,) = queue.ask(*commits("r", 1), priority=Priority.SWEEP)
    given_up: list[str] = []

    async def give_up(job: Job, _reason: str) -> None:
        given_up.append(job.description)

    queue.database.change("ALTER TABLE jobs ADD CONSTRAINT no_results CHECK (outcome IS NULL)")
    work(queue, succeed, give_up=give_up)
    assert states(queue, number) == ["dead"]
    assert "no_results" in queue.find(number).reason
    assert given_up == ["r0"]


def test_a_job_whose_end_can_never_be_stored_is_not_repeated_without_end(queue: JobQueue) -> None:
    (number,) = queue.ask(*commits("r", 1), priority=Priority.SWEEP)
    attempts = 0

    async def execute(_job: Job, _report: Report) -> Outcome:
        nonlocal attempts
        attempts += 1
        return DONE

    queue.database.change("ALTER TABLE jobs ADD CONSTRAINT no_end CHECK (state IN ('waiting', 'running'))")
    for _ in range(MOST_DEATHS + 3):
        work(queue, execute)
        _make_due(queue)
    assert (states(queue, number), attempts) == (["running"], MOST_DEATHS + 1)
    # When the cause is gone, the next delivery ends the job.
    queue.database.change("ALTER TABLE jobs DROP CONSTRAINT no_end")
    work(queue, execute)
    assert states(queue, number) == ["dead"]
    assert "could not be stored" in queue.find(number).reason
    assert queue.database.select("SELECT count(*) FROM procrastinate_jobs") == [(0,)]
    assert attempts == MOST_DEATHS + 1


def test_the_wait_after_deaths_grows_up_to_five_minutes() -> None:
    assert [seconds_after_deaths(deaths) for deaths in (4, 5, 11, 5000)] == [4.0, 8.0, 300.0, 300.0]


def test_a_job_that_fails_while_it_is_cancelled_stays_cancelled(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

    async def execute(_job: Job, _report: Report) -> Outcome:
        await asyncio.to_thread(queue.cancel, number)
        raise JobFailed("the service is overloaded", retryable=True)

    work(queue, execute)
    assert states(queue, number) == ["cancelled"]


@pytest.mark.defect("W8")
def test_a_worker_is_listed_while_it_runs(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    seen: list[WorkerRecord] = []

    async def execute(_job: Job, _report: Report) -> Outcome:
        seen.extend(await asyncio.to_thread(queue.workers))
        assert await asyncio.to_thread(queue.running_counts) == {seen[0].owner: 1}
        return DONE

    assert not queue.is_served("reviews")
    work(queue, execute, queues=["reviews"], concurrency=3)
    assert states(queue, number) == ["done"]
    assert [(worker.queues, worker.slots) for worker in seen] == [(("reviews",), 3)]
    assert str(os.getpid()) in seen[0].host
    assert not queue.is_served("reviews")


def test_the_rows_of_dead_workers_are_removed(queue: JobQueue) -> None:
    Processes(queue.database, owner=Owner.parse(GONE)).register_worker(["reviews"], 1)
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

    def is_removed() -> bool:
        owners = [owner for (owner,) in queue.database.select("SELECT owner FROM processes")]
        return GONE not in owners and queue.find(number).state is JobState.DONE

    work_until(queue, succeed, is_removed, timing=QUICK)
    assert queue.database.select("SELECT count(*) FROM processes") == [(0,)]


def test_old_jobs_are_removed_by_a_worker(queue: JobQueue) -> None:
    (old,) = queue.ask(pull_request(), priority=Priority.PERSON)
    queue.cancel(old)
    queue.database.change("UPDATE jobs SET ended_at = 0")
    work_until(queue, succeed, lambda: not queue.list(), timing=QUICK)
    assert queue.list() == ()


def test_an_unexpected_error_in_the_side_work_is_logged_and_the_work_continues(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    take(queue)
    queue.database.change("UPDATE jobs SET owner = ?", (GONE,))
    find = rescue.abandoned_deliveries
    failures = 0

    def fail_at_first(database: PostgresDatabase) -> list[rescue.Held]:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise RuntimeError("nobody expected this")
        return find(database)

    monkeypatch.setattr(rescue, "abandoned_deliveries", fail_at_first)
    work_until(queue, succeed, lambda: not queue.has_open_jobs(), timing=Timing(look_seconds=0.05))
    assert states(queue, number) == ["done"]
    assert "nobody expected this" in caplog.text


def test_side_work_that_hangs_does_not_stop_the_heartbeat(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.ask(pull_request(), priority=Priority.PERSON)
    hanging = threading.Event()
    released = threading.Event()

    def hang(_database: PostgresDatabase) -> list[rescue.Held]:
        hanging.set()
        released.wait()
        return []

    async def execute(_job: Job, _report: Report) -> Outcome:
        try:
            await _until(hanging.is_set)
            first = _seen_at(queue)
            async with asyncio.timeout(20):
                await _until(lambda: _seen_at(queue) > first)
        finally:
            released.set()
        return DONE

    monkeypatch.setattr(rescue, "abandoned_deliveries", hang)
    work_until(queue, execute, lambda: not queue.has_open_jobs(), timing=Timing(look_seconds=0.05))
    assert [(record.state, record.attempts) for record in queue.list()] == [(JobState.DONE, 1)]


def test_a_heartbeat_comes_often_enough() -> None:
    assert DEFAULT_TIMING.heartbeat_seconds * 3 <= DEFAULT_TIMING.dead_seconds


def test_the_connector_repeats_only_errors_that_may_pass(queue: JobQueue) -> None:
    queue.prepare()

    async def use() -> None:
        connector = PatientConnector(queue.database.url)
        await connector.open_async()
        # procrastinate refuses to end a delivery that has ended.
        await connector.execute_query_async("SELECT procrastinate_finish_job_v1(999, 'succeeded', false)")
        with pytest.raises(exceptions.ConnectorException):
            await connector.execute_query_async("SELECT no_such_function()")
        await connector.close_async()

    asyncio.run(asyncio.wait_for(use(), 25))


def test_agents_cannot_read_the_variables_of_a_worker() -> None:
    # By the number of PR_GET_DUMPABLE: below /proc, a process that is not dumpable belongs to root.
    script = (
        "import ctypes; from codeloupe.system.process import hide_from_others as hide;"
        "asked = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0); before = asked(); hide(); print(before, asked())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]
