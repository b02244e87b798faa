"""The queue of jobs, on a real server: who goes first, what is asked for twice, and what becomes of the dead."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.model.agent import Priority
from codeloupe.model.sweep import SweepPart
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.workers.jobs import Job, JobKind, JobState
from codeloupe.workers.queue import JobQueue, priority_of, top_of

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


def take(queue: JobQueue, count: int = 1, worker: int | None = None) -> list[str]:
    """What workers get next."""
    found = []
    for _ in range(count):
        with queue.database.writing() as connection:
            row = connection.execute(
                "SELECT id, args #>> '{job,description}' FROM procrastinate_fetch_job_v2(NULL, CAST(? AS bigint))",
                (worker,),
            ).fetchone()
        found.append(row[1])
    return found


def running(queue: JobQueue, pulse_seconds_ago: float = 0.0) -> int:
    """A worker in the books of the queue."""
    with queue.database.writing() as connection:
        (number,) = connection.execute(
            "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - make_interval(secs => ?)) RETURNING id",
            (pulse_seconds_ago,),
        ).fetchone()
    return int(number)


def test_a_job_comes_back_as_it_was_asked_for(queue: JobQueue) -> None:
    job = Job(kind=JobKind.REVIEW, repository="r", description="é\ud800\0", flags={"include": ["a b"]}, commit="c" * 40)
    (number,) = queue.ask(job, priority=Priority.PERSON)
    found = queue.find(number)
    assert (found.state, found.priority, found.job.flags) == (JobState.WAITING, Priority.PERSON, job.flags)
    assert found.asked_at is not None
    assert [one.job_id for one in queue.list()] == [number]
    assert queue.list(states=[JobState.RUNNING]) == []
    with pytest.raises(UsageError, match="there is no job 999"):
        queue.find(999)


def test_a_person_goes_before_a_pull_request_and_that_before_a_sweep(queue: JobQueue) -> None:
    queue.ask(*commits("sweep", 2), priority=Priority.SWEEP)
    queue.ask(pull_request(1), priority=Priority.PULL_REQUEST)
    queue.ask(pull_request(2), priority=Priority.PERSON)
    assert take(queue, 4) == ["shop#2", "shop#1", "sweep0", "sweep1"]
    assert [priority_of(top_of(each) - rank) for each in Priority for rank in (0, 499_999_999)] == [
        each for each in Priority for _ in range(2)
    ]


def test_who_asks_late_for_little_does_not_wait_for_all_that_others_asked_for(queue: JobQueue) -> None:
    queue.ask(*commits("large", 40), priority=Priority.SWEEP)
    assert take(queue, 10) == [f"large{n}" for n in range(10)]
    queue.ask(*commits("small", 3), priority=Priority.SWEEP)
    assert take(queue, 6) == ["large10", "small0", "large11", "small1", "large12", "small2"]
    assert take(queue, 2) == ["large13", "large14"]


def test_a_team_with_many_repositories_gets_no_more_than_one_with_one(queue: JobQueue) -> None:
    for repository in ("a1", "a2", "a3"):
        queue.ask(*commits(repository, 30, tenant="a"), priority=Priority.SWEEP)
    queue.ask(*commits("b1", 30, tenant="b"), priority=Priority.SWEEP)
    assert take(queue, 8) == ["a10", "b10", "a20", "b11", "a30", "b12", "a11", "b13"]


def test_ten_pushes_are_one_review_of_the_newest_head_and_the_older_one_is_cancelled(queue: JobQueue) -> None:
    (first,) = queue.ask(pull_request(head="h0"), priority=Priority.PULL_REQUEST)
    take(queue)
    later = {queue.ask(pull_request(head=f"h{n}"), priority=Priority.PULL_REQUEST) for n in range(1, 10)}
    assert len(later) == 1
    ((second,),) = later
    assert queue.find(second).job.head == "h9"
    (aborted,) = queue.database.select("SELECT abort_requested FROM procrastinate_jobs WHERE id = ?", (first,))[0]
    assert aborted
    assert "a newer commit was pushed" in queue.find(first).reason
    # Of the same head there is a review already, and another pull request is another matter.
    queue.database.change(
        "UPDATE procrastinate_jobs SET status = 'aborted', abort_requested = false WHERE id = ?", (first,)
    )
    assert take(queue) == ["shop#7"]
    assert queue.ask(pull_request(head="h9"), priority=Priority.PULL_REQUEST) == (second,)
    assert queue.ask(pull_request(8, head="h9"), priority=Priority.PULL_REQUEST) != (second,)


def test_a_person_who_waits_for_a_pull_request_that_waits_takes_it_along(queue: JobQueue) -> None:
    (slow,) = queue.ask(pull_request(1), priority=Priority.PULL_REQUEST)
    queue.ask(pull_request(2), priority=Priority.PULL_REQUEST)
    assert queue.ask(pull_request(2), priority=Priority.PERSON) != (slow,)
    assert take(queue, 2) == ["shop#2", "shop#1"]


def test_a_job_is_cancelled_and_tried_again_and_what_cannot_be_is_said(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    assert queue.cancel(number).state is JobState.CANCELLED
    assert queue.find(number).reason == "cancelled by a user"
    with pytest.raises(UsageError, match="is already cancelled"):
        queue.cancel(number)
    assert queue.retry(number).state is JobState.WAITING
    with pytest.raises(UsageError, match="is waiting"):
        queue.retry(number)
    sweep = queue.ask(*commits("r", 5), priority=Priority.SWEEP)
    assert queue.cancel_sweep("a" * 32) == 5
    assert queue.counts("a" * 32)[JobState.CANCELLED] == 5
    assert len(sweep) == 5


def test_jobs_of_workers_that_died_wait_again_and_one_that_kills_them_is_dead_in_the_end(queue: JobQueue) -> None:
    queue.ask(*commits("r", 3), priority=Priority.SWEEP)
    alive, silent, gone = running(queue), running(queue, 100), running(queue)
    for worker in (alive, silent, gone):
        take(queue, worker=worker)
    assert queue.rescue(dead_seconds=30.0, gone=[gone]) == 2
    assert queue.rescue(dead_seconds=30.0) == 0
    states = [record.state for record in queue.list()]
    assert sorted(states) == ["running", "waiting", "waiting"]
    for _ in range(11):
        queue.database.change("UPDATE procrastinate_jobs SET scheduled_at = NULL")
        queue.database.change("UPDATE procrastinate_jobs SET status = 'succeeded' WHERE worker_id = ?", (alive,))
        take(queue, worker=running(queue, 100))
        queue.rescue(dead_seconds=30.0)
        queue.database.change(
            "UPDATE procrastinate_jobs SET scheduled_at = now() + '1 day' WHERE args #>> '{job,sweep,commit}' = 'r2'"
        )
    (dead,) = queue.list(states=[JobState.DEAD])
    assert "its worker died" in dead.reason


def test_a_cancelled_job_of_a_worker_that_died_is_not_tried_again(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    take(queue, worker=running(queue, 100))
    queue.cancel(number)
    queue.rescue(dead_seconds=30.0)
    assert queue.find(number).state is JobState.CANCELLED


def test_a_job_about_which_another_waits_ends_and_holds_up_nobody(queue: JobQueue) -> None:
    first = queue.ask(run(), priority=Priority.PERSON)[0]
    gone = running(queue)
    take(queue, worker=gone)
    second = queue.ask(run(), priority=Priority.PERSON)[0]
    other = queue.ask(*commits("r", 1), priority=Priority.SWEEP)[0]
    with queue.database.writing() as connection:
        connection.execute("SELECT procrastinate_fetch_job_v2(ARRAY['sweeps'], ?)", (gone,))
    assert queue.rescue(dead_seconds=30, gone=[gone]) == 2
    assert [queue.find(one).state.value for one in (first, second, other)] == ["cancelled", "waiting", "waiting"]
    with pytest.raises(UsageError, match=f"the job {second}, which does the same, is already waiting"):
        queue.retry(first)
    take(queue)
    third = queue.ask(run(), priority=Priority.PERSON)[0]
    queue.hand_back(second)
    assert [queue.find(one).state.value for one in (second, third)] == ["cancelled", "waiting"]


def test_who_wants_something_else_of_a_pull_request_does_not_get_what_runs_for_another(queue: JobQueue) -> None:
    first = queue.ask(pull_request(head="h"), priority=Priority.PERSON)[0]
    take(queue)
    assert queue.ask(replace(pull_request(head="h"), tenant="b"), priority=Priority.PULL_REQUEST) == (first,)
    other = queue.ask(replace(pull_request(head="h"), base="release"), priority=Priority.PERSON)[0]
    assert other != first
    # The first looks at the newest commit too, and goes on.
    assert queue.database.select("SELECT abort_requested FROM procrastinate_jobs WHERE id = ?", (first,)) == [(False,)]
    # Whoever asks for what was just cancelled gets a job of their own.
    queue.cancel(other)
    queue.cancel(first)
    assert queue.ask(pull_request(head="h"), priority=Priority.PERSON) not in ((first,), (other,))


def test_a_job_that_cannot_be_read_hides_no_other_and_can_be_cancelled(queue: JobQueue) -> None:
    (good,) = queue.ask(pull_request(), priority=Priority.PERSON)
    (bad,) = queue.ask(*commits("r", 1), priority=Priority.SWEEP)
    queue.database.change('UPDATE procrastinate_jobs SET args = \'{"job": {"kind": "odd"}}\' WHERE id = ?', (bad,))
    queue.database.change(
        "INSERT INTO job_states (job_id, outcome, progress) VALUES (?, '[]', '{\"done\": \"x\"}')", (bad,)
    )
    assert [record.job_id for record in queue.list()] == [bad, good]
    assert "cannot be read" in queue.find(bad).job.description
    assert queue.cancel(bad).state is JobState.CANCELLED


def test_what_is_left_of_a_sweep_is_tried_again_as_one(queue: JobQueue) -> None:
    numbers = queue.ask(*commits("r", 3), priority=Priority.SWEEP)
    take(queue)
    assert queue.cancel_sweep("a" * 32) == 3
    assert queue.retry_sweep("a" * 32) == 2
    assert [queue.find(one).state.value for one in numbers] == ["running", "waiting", "waiting"]


def test_jobs_that_ended_long_ago_are_forgotten(queue: JobQueue) -> None:
    old, young, waiting = queue.ask(*commits("r", 3), priority=Priority.SWEEP)
    queue.cancel(old)
    queue.cancel(young)
    change = "UPDATE procrastinate_events SET at = at - interval '31 days' WHERE job_id = ANY (?)"
    queue.database.change(change, ([old, waiting],))
    assert (queue.forget(), queue.forget()) == (1, 0)
    assert [record.job_id for record in queue.list()] == [waiting, young]
    assert queue.database.select("SELECT job_id FROM job_states") == [(young,)]


def test_who_watches_hears_of_changes(queue: JobQueue) -> None:
    (number,) = queue.ask(pull_request(), priority=Priority.PERSON)
    changes = queue.changes(seconds=10.0)
    assert next(changes) == set()
    queue.cancel(number)
    assert next(changes) == {number}
