"""Runs that were handed to workers: answers and retries queue a job, and nothing runs on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from codeloupe.cli.pipeline_runs import open_store
from codeloupe.model.pipeline import Decision, RunRecord
from codeloupe.model.pipeline import StageState as S
from tests.unit.cli.conftest import Call
from tests.unit.store.run_samples import attempt, run, stage

pytestmark = [pytest.mark.program, pytest.mark.defect("W11")]
NAME = "00000001"
JOB = 12


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the ids of runs that were queued; `followed` is added for a job that the command follows."""
    calls: list[str] = []

    @contextmanager
    def opened_queue() -> Iterator[object]:
        yield object()

    def queue_run(_queue: object, record: RunRecord, *, accept_changes: bool = False) -> int:
        calls.append(record.run_id)
        assert not accept_changes
        return JOB

    def watched_review(_queue: object, number: int, *, quiet: bool) -> None:
        assert (number, quiet) == (JOB, False)
        calls.append("followed")

    monkeypatch.setattr("codeloupe.cli.jobs.opened_queue", opened_queue)
    monkeypatch.setattr("codeloupe.cli.jobs.watched_review", watched_review)
    monkeypatch.setattr("codeloupe.workers.requests.queue_run", queue_run)
    return calls


def waiting(*, on_workers: bool) -> RunRecord:
    waits = stage("write", S.AWAITING_APPROVAL, attempt(1), wants_approval="gate", reason="good?")
    return run(1, waits, state=S.AWAITING_APPROVAL, on_workers=on_workers)


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_an_answer_on_such_a_run_is_stored_and_queues_a_job(call: Call, queued: list[str], verb: str) -> None:
    open_store().create(waiting(on_workers=True))
    ended = call(verb, NAME, "write")
    assert (ended.exit_code, queued) == (0, [NAME])
    assert f"job {JOB} continues it on a worker: `codeloupe jobs watch {JOB}` follows it" in ended.out
    answer = open_store().approval(NAME, "write")
    assert answer is not None
    assert answer.decision is Decision(verb)


@pytest.mark.parametrize(
    "words",
    [
        ("approve", NAME, "write", "--resume"),
        ("resume", NAME, "--retry", "write"),
        ("resume", NAME),
    ],
    ids=["approve", "retry", "resume"],
)
def test_a_command_that_continues_such_a_run_follows_its_job(
    call: Call, queued: list[str], words: tuple[str, ...]
) -> None:
    open_store().create(waiting(on_workers=True))
    assert call(*words).exit_code == 3  # nothing works on it in this test, so it keeps waiting
    assert queued == [NAME, "followed"]


def test_a_run_that_is_handed_over_later_continues_on_workers_from_then_on(call: Call, queued: list[str]) -> None:
    open_store().create(waiting(on_workers=False))
    assert call("approve", NAME, "write").exit_code == 0
    assert queued == []
    call("resume", NAME, "--retry", "write", "--on-workers")
    assert queued == [NAME, "followed"]
    assert open_store().load(NAME).on_workers
    call("approve", NAME, "write")
    assert queued == [NAME, "followed", NAME]
