"""The queue of jobs, on a real server: the order of jobs, requests that repeat others, cancelling and retrying."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, LiteralString

import pytest
from msgspec.structs import replace
from procrastinate.jobs import Job as Delivery
from procrastinate.manager import JobManager

from codeloupe.errors import StoreError, UsageError
from codeloupe.model.agent import Priority
from codeloupe.model.sweep import SweepPart
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.postgres_connection import Session
from codeloupe.workers import queue as queue_module
from codeloupe.workers.connector import PatientConnector
from codeloupe.workers.deliveries import delivery_priority
from codeloupe.workers.jobs import Job, JobKind, JobRecord, JobState, Outcome, Progress, as_json
from codeloupe.workers.queue import JobQueue
from codeloupe.workers.requests import queue_run
from codeloupe.workers.running import RunningJobs, Started
from tests.unit.store import run_samples

pytestmark = pytest.mark.program


@pytest.fixture
def queue(postgres_url: str) -> Iterator[JobQueue]:
    with PostgresDatabase(postgres_url) as database:
        yield JobQueue(database)


def commits(repository: str, count: int, *, tenant: str = "", sweep_id: str = "a" * 32) -> list[Job]:
    def part(number: int) -> SweepPart:
        known: dict[str, Any] = {"sweep_id": sweep_id, "description": "all", "newest": "n", "revision": "n"}
        return SweepPart(commit=f"{repository}{number}", total=count, position=number, **known)

    return [
        Job(kind=JobKind.COMMIT, repository=repository, description=f"{repository}{n}", tenant=tenant, sweep=part(n))
        for n in range(count)
    ]


def pull_request(number: int = 7, head: str = "", repository: str = "shop") -> Job:
    what = f"{repository}#{number}"
    return Job(kind=JobKind.REVIEW, repository=repository, description=what, pull_request=str(number), head=head)


def run() -> Job:
    return Job(kind=JobKind.PIPELINE, repository="shop", description="run", run_id="r")


def take(queue: JobQueue, count: int = 1, *, queues: list[str] | None = None, starts: bool = True) -> list[str]:
    """Fetch deliveries as a worker that then dies, without ending them; return what their jobs are about."""
    return asyncio.run(_take(queue, count, queues, starts))


async def _take(queue: JobQueue, count: int, queues: list[str] | None, starts: bool) -> list[str]:
    connector = PatientConnector(queue.database.url)
    await connector.open_async()
    manager = JobManager(connector)
    worker = await manager.register_worker()
    found = []
    for _ in range(count):
        delivery = await manager.fetch_job(queues, worker)
        assert delivery is not None
        assert delivery.id is not None
        number = _number(delivery)
        if starts:
            assert await RunningJobs(connector, queue.database).start(number, delivery.id) is not None
        found.append(queue.find(number).job.description)
    await manager.unregister_worker(worker)
    await connector.close_async()
    return found


def _number(delivery: Delivery) -> int:
    number = delivery.task_kwargs["number"]
    assert isinstance(number, int)
    return number


def test_a_job_comes_back_as_it_was_asked_for(queue: JobQueue) -> None:
    job = Job(kind=JobKind.REVIEW, repository="r", description="é\ud800\0", flags={"include": ["a b"]}, commit="c" * 40)
    (number,) = queue.ask(job, priority=Priority.PERSON)
    found = queue.find(number)
    assert (found.state, found.priority, found.job.flags) == (JobState.WAITING, Priority.PERSON, job.flags)
    assert found.asked_at is not None
    assert [one.job_id for one in queue.list()] == [number]
    assert queue.list(states=[JobState.RUNNING]) == ()
    with pytest.raises(UsageError, match="there is no job 999"):
        queue.find(999)


def test_people_come_before_pull_requests_and_those_before_sweeps(queue: JobQueue) -> None:
    queue.ask(*commits("sweep", 2), priority=Priority.SWEEP)
    queue.ask(pull_request(1), priority=Priority.PULL_REQUEST)
    queue.ask(pull_request(2), priority=Priority.PERSON)
    assert take(queue, 4) == ["shop#2", "shop#1", "sweep0", "sweep1"]


def test_the_last_job_of_a_priority_comes_before_the_next_priority() -> None:
    last = 10**12
    assert delivery_priority(Priority.PERSON, last) > delivery_priority(Priority.PULL_REQUEST, 0)
    assert delivery_priority(Priority.PULL_REQUEST, last) > delivery_priority(Priority.SWEEP, 0)
    assert 0 < delivery_priority(Priority.SWEEP, last) < delivery_priority(Priority.PERSON, 0) < 2**31


def test_a_late_small_sweep_takes_turns_with_an_earlier_large_one(queue: JobQueue) -> None:
    queue.ask(*commits("large", 40), priority=Priority.SWEEP)
    assert take(queue, 10) == [f"large{n}" for n in range(10)]
    queue.ask(*commits("small", 3, tenant="another team"), priority=Priority.SWEEP)
    assert take(queue, 7) == ["large10", "small0", "large11", "small1", "large12", "small2", "large13"]


def test_repositories_of_a_team_take_turns(queue: JobQueue) -> None:
    for repository in ("a-", "b-", "c-"):
        queue.ask(*commits(repository, 30), priority=Priority.SWEEP)
    turns = Counter(name.partition("-")[0] for name in take(queue, 30))
    assert len(turns) == 3
    assert max(turns.values()) - min(turns.values()) <= 2


def test_a_team_with_many_repositories_does_not_delay_another_team(queue: JobQueue) -> None:
    for repository in ("a1", "a2", "a3"):
        queue.ask(*commits(repository, 30, tenant="a"), priority=Priority.SWEEP)
    queue.ask(*commits("b1", 30, tenant="b"), priority=Priority.SWEEP)
    taken = take(queue, 20)
    assert 9 <= sum(name.startswith("b1") for name in taken) <= 11
    # The jobs that changed places are all still there, once each.
    rest = take(queue, 100)
    assert len({*taken, *rest}) == 120


def test_a_job_that_waits_for_a_retry_does_not_let_new_jobs_overtake(queue: JobQueue) -> None:
    (retried,) = queue.ask(*commits("a", 1), priority=Priority.SWEEP)
    queue.ask(*commits("b", 20), priority=Priority.SWEEP)
    queue.database.change("UPDATE jobs SET again_at = 1e12 WHERE number = ?", (retried,))
    assert len(take(queue, 11)) == 11
    queue.ask(*commits("c", 1), priority=Priority.SWEEP)
    assert take(queue, 3)[0] == "b10"


def _reviews(team: str, count: int, *, first: int = 1) -> list[Job]:
    numbers = range(first, first + count)
    return [replace(pull_request(number, head="h", repository=team), tenant=team) for number in numbers]


def _ask_each(queue: JobQueue, jobs: list[Job]) -> None:
    for job in jobs:
        queue.ask(job, priority=Priority.PERSON)


def _is_in_turns(taken: list[str]) -> bool:
    """Return whether two teams, whose names are the first letters, take turns."""
    return all(before[0] != after[0] for before, after in pairwise(taken))


def test_teams_take_turns_while_a_job_waits_that_no_worker_serves(queue: JobQueue) -> None:
    _ask_each(queue, [run(), *_reviews("A", 30)])
    take(queue, 20, queues=["reviews"])
    _ask_each(queue, _reviews("B", 6))
    assert _is_in_turns(take(queue, 12, queues=["reviews"]))


def test_teams_take_turns_while_a_job_waits_for_one_of_its_pull_request(queue: JobQueue) -> None:
    (running,) = _reviews("C", 1)
    _ask_each(queue, [running])
    take(queue)
    _ask_each(queue, [replace(running, context="other"), *_reviews("A", 30)])
    take(queue, 20)
    _ask_each(queue, _reviews("B", 6))
    assert _is_in_turns(take(queue, 12))


def test_a_retried_job_has_the_place_of_a_new_one(queue: JobQueue) -> None:
    numbers = queue.ask(*commits("A", 30, tenant="A"), priority=Priority.SWEEP)
    queue.cancel(numbers[0])
    take(queue, 20)
    queue.retry(numbers[0])
    queue.ask(*commits("B", 6, tenant="B"), priority=Priority.SWEEP)
    taken = take(queue, 16)
    assert _is_in_turns(taken[:12])
    assert taken[-1] == "A0"


def test_teams_take_turns_after_a_sweep_is_retried(queue: JobQueue) -> None:
    queue.ask(*commits("A", 10, tenant="A", sweep_id="a" * 32), priority=Priority.SWEEP)
    queue.cancel_sweep("a" * 32)
    queue.ask(*commits("B", 20, tenant="B", sweep_id="b" * 32), priority=Priority.SWEEP)
    take(queue, 10)
    queue.retry_sweep("a" * 32)
    assert _is_in_turns(take(queue, 20))


def test_a_job_that_waits_for_a_quota_starts_before_a_later_sweep(queue: JobQueue) -> None:
    *_, last = queue.ask(*commits("A", 10, tenant="A"), priority=Priority.SWEEP)
    take(queue, 9)
    # It returns to the queue with its rank, as after a pause.
    queue.database.change("UPDATE jobs SET attempts = 1 WHERE number = ?", (last,))
    queue.ask(*commits("B", 20, tenant="B"), priority=Priority.SWEEP)
    assert take(queue) == ["A9"]


def test_ten_pushes_are_one_review_of_the_newest_commit(queue: JobQueue) -> None:
    (first,) = queue.ask(pull_request(head="h0"), priority=Priority.PULL_REQUEST)
    take(queue)
    later = {queue.ask(pull_request(head=f"h{n}"), priority=Priority.PULL_REQUEST) for n in range(1, 10)}
    assert len(later) == 1
    ((second,),) = later
    assert queue.find(second).job.head == "h9"
    cancelled = queue.find(first)
    assert (cancelled.state, cancelled.reason) == (
        JobState.CANCELLED,
        "a newer commit was pushed to this pull request",
    )


def test_clients_on_different_machines_share_a_job_of_a_pull_request(queue: JobQueue) -> None:
    asked: set[int] = set()
    for client in range(10):
        request = replace(pull_request(head=f"h{client}"), work_tree=f"machine {client}")
        asked.update(queue.ask(request, priority=Priority.PULL_REQUEST))
    assert len(asked) == 1
    (waiting,) = queue.list(states=[JobState.WAITING])
    assert (waiting.job.head, waiting.job.work_tree) == ("h9", "machine 9")


def test_a_request_for_the_commit_under_review_gets_the_running_job(queue: JobQueue) -> None:
    (first,) = queue.ask(pull_request(head="h"), priority=Priority.PERSON)
    take(queue)
    assert queue.ask(replace(pull_request(head="h"), tenant="b"), priority=Priority.PULL_REQUEST) == (first,)
    assert queue.ask(pull_request(8, head="h"), priority=Priority.PULL_REQUEST) != (first,)
    (other,) = queue.ask(replace(pull_request(head="h"), base="release"), priority=Priority.PERSON)
    assert other != first
    # The first job reviews the newest commit too, so it continues.
    assert queue.find(first).state is JobState.RUNNING
    queue.cancel(other)
    queue.cancel(first)
    assert queue.ask(pull_request(head="h"), priority=Priority.PERSON) not in ((first,), (other,))


def test_an_urgent_request_moves_the_waiting_job_of_its_pull_request_forward(queue: JobQueue) -> None:
    queue.ask(pull_request(1), priority=Priority.PULL_REQUEST)
    (moved,) = queue.ask(pull_request(2), priority=Priority.PULL_REQUEST)
    assert queue.ask(pull_request(2), priority=Priority.PERSON) == (moved,)
    assert queue.ask(pull_request(2), priority=Priority.SWEEP) == (moved,)
    assert queue.find(moved).priority is Priority.PERSON
    assert take(queue, 2) == ["shop#2", "shop#1"]


def test_a_job_is_cancelled_and_retried_and_refusals_explain_themselves(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    assert queue.cancel(number).state is JobState.CANCELLED
    assert queue.find(number).reason == "cancelled by a user"
    with pytest.raises(UsageError, match="is already cancelled"):
        queue.cancel(number)
    retried = queue.retry(number)
    assert (retried.state, retried.reason, retried.ended_at) == (JobState.WAITING, "", None)
    with pytest.raises(UsageError, match="is waiting"):
        queue.retry(number)
    assert take(queue) == ["shop#7"]


def test_a_sweep_is_cancelled_and_retried_as_one(queue: JobQueue) -> None:
    numbers = queue.ask(*commits("r", 3), priority=Priority.SWEEP)
    take(queue)
    assert queue.counts("a" * 32)[JobState.RUNNING] == 1
    assert queue.cancel_sweep("a" * 32) == 3
    assert queue.counts("a" * 32)[JobState.CANCELLED] == 3
    assert queue.retry_sweep("a" * 32) == 3
    assert [queue.find(one).state.value for one in numbers] == ["waiting"] * 3
    assert take(queue, 3) == ["r0", "r1", "r2"]


def test_a_job_is_not_retried_while_another_one_does_the_same(queue: JobQueue) -> None:
    (first,) = queue.ask(run(), priority=Priority.PERSON)
    queue.cancel(first)
    (second,) = queue.ask(run(), priority=Priority.PERSON)
    with pytest.raises(UsageError, match=f"the job {second}, which does the same, is already waiting"):
        queue.retry(first)


def test_a_job_is_retried_while_one_with_other_options_waits(queue: JobQueue) -> None:
    (first,) = queue.ask(pull_request(), priority=Priority.PERSON)
    queue.cancel(first)
    queue.ask(replace(pull_request(), context="other"), priority=Priority.PERSON)
    assert queue.retry(first).state is JobState.WAITING


def test_an_old_delivery_of_a_job_does_nothing(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PULL_REQUEST)
    take(queue, starts=False)
    ((old,),) = queue.database.select("SELECT delivery FROM jobs WHERE number = ?", (number,))
    queue.cancel(number)
    queue.retry(number)

    async def use_old_delivery() -> object:
        connector = PatientConnector(queue.database.url)
        await connector.open_async()
        try:
            return await RunningJobs(connector, queue.database).start(number, old)
        finally:
            await connector.close_async()

    assert asyncio.run(use_old_delivery()) is None
    assert queue.find(number).state is JobState.WAITING


def test_a_job_that_cannot_be_read_is_listed_and_can_be_cancelled(queue: JobQueue) -> None:
    (good,) = queue.ask(pull_request(), priority=Priority.PERSON)
    (bad,) = queue.ask(*commits("r", 1), priority=Priority.SWEEP)
    queue.database.change(
        "UPDATE jobs SET request = ?, progress = ?, outcome = ? WHERE number = ?",
        (b'{"kind": "odd"}', b'{"done": "x"}', b"[]", bad),
    )
    assert [record.job_id for record in queue.list()] == [bad, good]
    found = queue.find(bad)
    assert "cannot be read" in found.job.description
    assert (found.progress, found.outcome) == (Progress(), None)
    assert queue.cancel(bad).state is JobState.CANCELLED


def test_jobs_that_ended_long_ago_are_removed(queue: JobQueue) -> None:
    old, young, waiting = queue.ask(*commits("r", 3), priority=Priority.SWEEP)
    queue.cancel(old)
    queue.cancel(young)
    queue.database.change("UPDATE jobs SET ended_at = ended_at - 31 * 86400.0 WHERE number = ?", (old,))
    assert (queue.forget(), queue.forget()) == (1, 0)
    assert [record.job_id for record in queue.list()] == [waiting, young]


@pytest.mark.defect("W9")
def test_a_job_that_succeeds_after_a_failure_shows_no_reason(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)

    async def fail_and_succeed() -> None:
        connector = PatientConnector(queue.database.url)
        await connector.open_async()
        rows = RunningJobs(connector, queue.database)
        ((delivery,),) = queue.database.select("SELECT delivery FROM jobs")
        for _ in range(2):
            started = await rows.start(number, delivery)
            assert started is not None
            await rows.wait(started, again_at=5.0, failures=1, reason="no such host")
        assert queue.find(number).reason == "no such host"
        started = await rows.start(number, delivery)
        assert started is not None
        assert (queue.find(number).reason, queue.find(number).again_at) == ("", None)
        await rows.end(started, JobState.DONE, outcome=Outcome(exit_code=0, summary="fine"))
        await connector.close_async()

    asyncio.run(fail_and_succeed())
    found = queue.find(number)
    assert (found.state, found.reason, found.attempts) == (JobState.DONE, "", 3)


@pytest.mark.defect("W11")
def test_a_run_is_queued_once_for_a_worker_to_continue(queue: JobQueue) -> None:
    record = run_samples.run(run_id="r1", origin="https://example.com/shop.git")
    number = queue_run(queue, record)
    assert queue_run(queue, record, accept_changes=True) == number
    found = queue.find(number)
    assert (found.job.kind, found.job.run_id, found.job.accept_changes) == (JobKind.PIPELINE, "r1", True)
    assert (found.job.repository, found.priority) == ("https://example.com/shop.git", Priority.PERSON)


def test_a_waiting_job_is_shared_only_by_requests_with_the_same_options(queue: JobQueue) -> None:
    strict = replace(pull_request(), flags={"fail_on": "low"})
    lenient = replace(pull_request(), flags={"fail_on": "critical"})
    (first,) = queue.ask(strict, priority=Priority.PULL_REQUEST)
    (second,) = queue.ask(lenient, priority=Priority.PULL_REQUEST)
    assert first != second
    assert [queue.find(number).job.flags["fail_on"] for number in (first, second)] == ["low", "critical"]
    newer = replace(strict, head="b" * 40)
    assert queue.ask(newer, priority=Priority.PULL_REQUEST) == (first,)
    assert queue.find(first).job.head == newer.head


def test_a_shared_job_remains_a_job_of_the_team_that_asked_first(queue: JobQueue) -> None:
    (number,) = queue.ask(replace(pull_request(), tenant="a"), priority=Priority.PULL_REQUEST)
    assert queue.ask(replace(pull_request(), tenant="b"), priority=Priority.PERSON) == (number,)
    found = queue.find(number)
    assert (found.job.tenant, found.priority) == ("a", Priority.PERSON)
    assert queue.database.select("SELECT tenant FROM jobs") == [("a",)]


def test_a_job_returned_while_its_request_is_repeated_is_shared(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = queue.ask(pull_request(head="a"), priority=Priority.PULL_REQUEST)
    take(queue)
    find = queue_module._open_jobs

    def find_and_return(session: Session, job: Job, state: JobState) -> list[JobRecord]:
        found = find(session, job, state)
        if state is JobState.RUNNING and found:
            # As its worker does for a retry, right after the request has found no waiting job.
            queue.database.change("UPDATE jobs SET state = 'waiting', again_at = 5.0 WHERE number = ?", (first,))
            return []
        return found

    monkeypatch.setattr(queue_module, "_open_jobs", find_and_return)
    assert queue.ask(pull_request(head="b"), priority=Priority.PULL_REQUEST) == (first,)
    assert [(record.job_id, record.job.head) for record in queue.list(states=[JobState.WAITING])] == [(first, "b")]


@pytest.mark.parametrize(
    ("constraint", "most_attempts"),
    [("CHECK (number < 2)", 1), ("UNIQUE (tenant)", 10)],
    ids=["an error that is no conflict", "a lasting conflict"],
)
def test_a_request_that_cannot_be_stored_ends_with_the_error(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch, constraint: LiteralString, most_attempts: int
) -> None:
    queue.ask(pull_request(1), priority=Priority.PERSON)
    queue.database.change(f"ALTER TABLE jobs ADD CONSTRAINT odd {constraint}")
    attempts: list[Job] = []
    find = queue_module._open_jobs

    def counted(session: Session, job: Job, state: JobState) -> list[JobRecord]:
        if state is JobState.WAITING:
            attempts.append(job)
            assert len(attempts) <= most_attempts
        return find(session, job, state)

    monkeypatch.setattr(queue_module, "_open_jobs", counted)
    with pytest.raises(StoreError, match="odd"):
        queue.ask(pull_request(2), priority=Priority.PERSON)
    assert len(attempts) == most_attempts


def test_a_job_makes_way_for_a_request_that_comes_while_it_returns(queue: JobQueue) -> None:
    (first,) = queue.ask(run(), priority=Priority.PERSON)
    ((delivery,),) = queue.database.select("SELECT delivery FROM jobs")
    take(queue)
    later: list[int] = []

    class SlowConnector(PatientConnector):
        async def execute_query_all_async(self, query: LiteralString, **values: Any) -> list[dict[str, Any]]:
            if not later:
                later.extend(await asyncio.to_thread(queue.ask, run(), priority=Priority.PERSON))
            return await super().execute_query_all_async(query, **values)

    async def wait() -> bool:
        connector = SlowConnector(queue.database.url)
        await connector.open_async()
        try:
            rows = RunningJobs(connector, queue.database)
            return await rows.wait(Started(first, delivery, b"", 0), again_at=5.0, failures=1, reason="overloaded")
        finally:
            await connector.close_async()

    assert asyncio.run(wait()) is False
    assert [queue.find(number).state.value for number in (first, *later)] == ["cancelled", "waiting"]


def test_a_newer_commit_does_not_wait_for_the_retry_of_the_older_one(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PULL_REQUEST)
    later = queue.database.clock() + 3600.0
    queue.database.change("UPDATE jobs SET again_at = ?, failures = 4, deaths = 9, reason = 'failed'", (later,))
    before = queue.database.select("SELECT delivery FROM jobs")
    assert queue.ask(pull_request(head="b" * 40), priority=Priority.PULL_REQUEST) == (number,)
    assert queue.database.select("SELECT again_at, failures, deaths, reason FROM jobs") == [(None, 0, 0, "")]
    assert queue.database.select("SELECT delivery FROM jobs") != before
    assert take(queue) == [pull_request().description]


def test_a_retried_job_does_not_let_a_later_batch_overtake(queue: JobQueue) -> None:
    queue.ask(*commits("a", 3), priority=Priority.SWEEP)
    queue.database.change("UPDATE jobs SET rank = rank + 2000 WHERE number > 1")
    queue.database.change("UPDATE jobs SET attempts = 1 WHERE number = 1")
    queue.ask(*commits("b", 2), priority=Priority.SWEEP)
    ((lowest,),) = queue.database.select("SELECT min(rank) FROM jobs WHERE repository = 'b'")
    assert lowest > 2000


def test_a_result_with_half_a_character_can_be_stored() -> None:
    assert as_json(Outcome(exit_code=0, summary="a\udcffb")) == b'{"exit_code": 0, "summary": "a?b"}'
