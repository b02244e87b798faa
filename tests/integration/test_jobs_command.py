"""The commands around jobs, without a worker or with jobs that have ended: what a person at a terminal sees."""

import asyncio
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from codeloupe.errors import RevisionError
from codeloupe.model.agent import Priority
from codeloupe.store.owner import Owner
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.processes import Processes
from codeloupe.workers.failures import JobFailed
from codeloupe.workers.jobs import Job, JobKind, Outcome
from codeloupe.workers.queue import JobQueue
from codeloupe.workers.worker import Report, Worker
from tests.endings import comes_to_pass
from tests.repository import GitRepository
from tests.warm_program import codeloupe
from tests.worker_fleet import Fleet

NO_WORKER = "no worker is running (start one with `codeloupe worker`)"


@pytest.fixture
def queue(postgres_url: str) -> Iterator[JobQueue]:
    with PostgresDatabase(postgres_url) as database:
        yield JobQueue(database)


@pytest.fixture
def environment(postgres_url: str) -> dict[str, str]:
    return {"CODELOUPE_DATABASE": postgres_url}


def review(number: int = 1) -> Job:
    return Job(kind=JobKind.REVIEW, repository="shop", description=f"review {number}", commit="c" * 40)


def clone_with_pull_request(folder: Path) -> GitRepository:
    upstream = GitRepository(folder / "upstream")
    upstream.commit_files({"a.py": "x = 1\n"})
    upstream.git("update-ref", "refs/pull/7/head", "HEAD")
    clone = GitRepository(folder / "clone")
    clone.git("remote", "add", "origin", str(upstream.path))
    clone.git("fetch", "--quiet", "origin")
    return clone


@pytest.mark.defect("W8")
def test_open_jobs_without_a_worker_are_explained(tmp_path: Path, queue: JobQueue, environment: dict[str, str]) -> None:
    assert NO_WORKER not in codeloupe("jobs", "list", cwd=tmp_path, environment=environment).stderr
    (number,) = queue.ask(review(), priority=Priority.PERSON)
    assert NO_WORKER in codeloupe("jobs", "list", cwd=tmp_path, environment=environment).stderr
    assert NO_WORKER in codeloupe("workers", cwd=tmp_path, environment=environment).stderr
    # A worker for another queue does not help.
    other = Processes(queue.database, owner=Owner.here())
    other.register_worker(["sweeps"], 2)
    watching = Fleet(tmp_path, environment)
    watcher = watching.start("jobs", "watch", str(number), name="watching")
    log = tmp_path / "watching.log"
    assert comes_to_pass(lambda: f"job {number} waiting; {NO_WORKER}" in log.read_text())
    queue.cancel(number)
    assert watcher.wait(30) == 3
    assert f"the job {number} is cancelled: cancelled by a user" in log.read_text()


@pytest.mark.defect("W8")
def test_workers_are_listed_with_their_slots_and_running_jobs(
    tmp_path: Path, queue: JobQueue, environment: dict[str, str]
) -> None:
    queue.prepare()
    worker = Processes(queue.database, owner=Owner.here())
    worker.register_worker(["reviews", "pipelines"], 4)
    queue.ask(review(), priority=Priority.PERSON)
    queue.database.change("UPDATE jobs SET state = 'running', owner = ?", (str(worker.owner),))
    ended = codeloupe("workers", cwd=tmp_path, environment=environment)
    assert ended.exit_code == 0, ended.stderr
    heading, row = ended.stdout.splitlines()
    assert heading.split() == ["RUNNING", "SLOTS", "HEARTBEAT", "AGE", "QUEUES", "HOST"]
    assert row.split()[:2] == ["1", "4"]
    assert "reviews, pipelines" in row
    assert f"process {os.getpid()}" in row
    (found,) = codeloupe("workers", "--json", cwd=tmp_path, environment=environment).json()["workers"]
    assert (found["queues"], found["slots"], found["running"]) == (["reviews", "pipelines"], 4, 1)


def test_the_reason_of_a_dead_job_is_shown_once(tmp_path: Path, queue: JobQueue, environment: dict[str, str]) -> None:
    (number,) = queue.ask(review(), priority=Priority.PERSON)

    async def execute(_job: Job, _report: Report) -> Outcome:
        raise RevisionError("there is no repository at https://example.com/wrong", hint="check the address")

    asyncio.run(Worker(queue.database, execute).run(wait=False))
    for words in (("jobs", "list"), ("jobs", "show", str(number)), ("jobs", "watch", str(number))):
        ended = codeloupe(*words, cwd=tmp_path, environment=environment)
        assert (ended.stdout + ended.stderr).count("https://example.com/wrong") == 1, words


@pytest.mark.defect("W9")
def test_a_watcher_sees_the_reason_once_and_not_at_every_retry(
    tmp_path: Path, queue: JobQueue, environment: dict[str, str]
) -> None:
    (number,) = queue.ask(review(), priority=Priority.PERSON)
    # Another worker, so that the line does not change when the worker of this test ends.
    Processes(queue.database, owner=Owner("elsewhere", 1, "t")).register_worker(["reviews"], 1)
    watcher = Fleet(tmp_path, environment).start("jobs", "watch", str(number), name="watching")
    log = tmp_path / "watching.log"

    async def execute(_job: Job, _report: Report) -> Outcome:
        # The watcher sees that the attempt runs, as it does if an attempt takes seconds.
        attempts = queue.find(number).attempts
        assert await asyncio.to_thread(comes_to_pass, partial(_is_shown, f"job {number} running", log, times=attempts))
        raise JobFailed("https://example.com/wrong could not be reached", retryable=True)

    for _ in range(3):
        asyncio.run(Worker(queue.database, execute).run(wait=False))
        again_at = queue.find(number).again_at
        assert again_at is not None
        shown = f"retry at {again_at.astimezone():%H:%M:%S}"
        assert comes_to_pass(partial(_is_shown, shown, log)), log.read_text()
        queue.database.change("UPDATE procrastinate_jobs SET scheduled_at = NULL")
    queue.cancel(number)
    assert watcher.wait(30) == 3
    assert log.read_text().count("https://example.com/wrong") == 1


def _is_shown(text: str, log: Path, *, times: int = 1) -> bool:
    return log.read_text().count(text) >= times


@pytest.mark.defect("W9")
def test_a_finished_job_does_not_show_an_earlier_failure(
    tmp_path: Path, queue: JobQueue, environment: dict[str, str]
) -> None:
    (number,) = queue.ask(review(), priority=Priority.PERSON)
    attempts = []

    async def execute(_job: Job, _report: Report) -> Outcome:
        attempts.append(True)
        if len(attempts) == 1:
            raise JobFailed("the service is overloaded", retryable=True)
        return Outcome(exit_code=0, summary="no findings")

    for _ in range(2):
        asyncio.run(Worker(queue.database, execute).run(wait=False))
        queue.database.change("UPDATE procrastinate_jobs SET scheduled_at = NULL")
    for words in (("jobs", "list"), ("jobs", "show", str(number))):
        shown = codeloupe(*words, cwd=tmp_path, environment=environment).stdout
        assert "no findings" in shown
        assert "overloaded" not in shown


@pytest.mark.defect("W3")
def test_a_review_of_a_pull_request_has_its_own_priority(
    tmp_path: Path, queue: JobQueue, environment: dict[str, str]
) -> None:
    clone = clone_with_pull_request(tmp_path)
    client = Fleet(tmp_path, environment)
    for name, words in (("pr", ("--pr", "7")), ("commit", ("--commit", "origin/main"))):
        asking = client.start("review", *words, "--on-workers", "--repo", str(clone.path), name=name)
        queued_by_client = partial(_has_queued, queue, 1 if name == "pr" else 2)
        assert comes_to_pass(queued_by_client), client.logs()
        asking.kill()
        asking.wait()
    assert [record.priority for record in queue.list()] == [Priority.PERSON, Priority.PULL_REQUEST]


def _has_queued(queue: JobQueue, count: int) -> bool:
    return len(queue.list()) == count


@pytest.mark.defect("W4")
def test_doctor_reports_the_queue(tmp_path: Path, queue: JobQueue, environment: dict[str, str]) -> None:
    def check() -> dict[str, object]:
        found = codeloupe("doctor", "--json", cwd=tmp_path, environment=environment).json()["checks"]
        (of_queue,) = [one for one in found if one["name"] == "queue"]
        return dict(of_queue)

    assert "not created yet" in str(check()["detail"])
    queue.prepare()
    assert check()["ok"] is True
    queue.database.change("DROP FUNCTION procrastinate_fetch_job_v2")
    broken = check()
    assert broken["ok"] is False
    assert "procrastinate_fetch_job_v2" in str(broken["detail"])
    ended = codeloupe("worker", "--until-idle", cwd=tmp_path, environment=environment)
    assert ended.exit_code == 3
    assert "it lacks procrastinate_fetch_job_v2" in ended.stderr
