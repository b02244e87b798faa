"""A process that dies at any moment: every save of a run is the last one once, and the run is picked up from there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import ConfigError, Crashed, StoreError
from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RunRecord, StageRecord, StageState
from codeloupe.pipelines.run import Pipeline, open_run_store, resume_run
from codeloupe.store.runs import DirectoryRunStore
from codeloupe.testing import Hang, Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, Ran, critique, failing, options, resume, run, write_pipeline, writing

pytestmark = pytest.mark.program

S = StageState


class Killed(BaseException):
    """The process is gone: nothing is written after this."""


@contextmanager
def dying(after_saves: int) -> Iterator[None]:
    """A process whose last deed is a save of that number; what it does then reaches no disk."""
    made = 0
    save = DirectoryRunStore.save

    def counted(store: DirectoryRunStore, record: RunRecord, *events: PipelineEvent) -> None:
        nonlocal made
        if made < after_saves:
            made += 1
            save(store, record, *events)
        if made >= after_saves:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectoryRunStore, "save", counted)
        try:
            yield
        except* Killed:
            pass


async def approving(stage: StageRecord, _question: str) -> Approval | None:
    return Approval(stage=stage.name, decision=Decision.APPROVE)


def file_of(folder: Path) -> Path:
    return write_pipeline(
        folder,
        {"name": "write", "gates": ["critic", "approval"]},
        {"name": "read", "needs": ["write"], "writes": False},
    )


def cast_after(record: RunRecord | None) -> Cast:
    """The agents, as they go on after what a record holds."""
    cast = Cast(
        {
            "write": [failing(Crashed), writing({"a.md": "one"}), writing({"a.md": "two"})],
            "read": [Text("read")],
        },
        {"write": [critique("REWORK", 50, "more"), critique("PASS", 90)]},
    )
    for stage in record.stages if record else ():
        cast.calls.extend([stage.name] * (len(stage.attempts) + sum(try_.gate is None for try_ in stage.failures)))
        said = [word for attempt in stage.attempts for word in attempt.critiques if word.gate.value == "critic"]
        cast.calls.extend([f"critic of {stage.name}"] * len(said))
    return cast


EXPECTED = {"a.md": "two", "read-output.md": "read\n"}
CALLS = {"write": 3, "read": 1, "critic of write": 2}
# What only reads is in the ledger as soon as it is answered, so that a call may be spared that no record knows of.
READING = ("read", "critic of write")
SHARES = 4


@pytest.mark.parametrize("share", range(SHARES))
def test_a_run_that_died_after_any_save_ends_as_one_that_did_not_and_nothing_finished_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    # No machine loses its power here, and there are some hundred saves.
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    file, state = file_of(tmp_path / "p"), tmp_path / "state"
    died_in: set[StageState] = set()
    for saves in range(share + 1, 100, SHARES):
        with dying(saves):
            wishes = options(cast_after(None), state, ask_person=approving)
            asyncio.run(Pipeline.load(file).run(options=wishes, run_id=f"run-{saves}"))
        left = open_run_store(state).load(f"run-{saves}")
        if left.state is S.COMPLETED:
            break
        died_in |= {stage.state for stage in left.stages}
        cast = cast_after(left)
        finished = {name: cast.calls.count(name) for name in CALLS}
        ran = Ran(asyncio.run(resume_run(left.run_id, options=options(cast, state, ask_person=approving))), state)
        assert (saves, ran.record.state, ran.record.reason) == (saves, S.COMPLETED, "")
        assert (saves, ran.result()) == (saves, EXPECTED)
        made = {name: cast.calls.count(name) - finished[name] for name in CALLS}
        for name, wanted in CALLS.items():
            assert made[name] <= wanted - finished[name], (saves, name)
            assert made[name] == wanted - finished[name] or name in READING, (saves, name)
    else:
        pytest.fail("the run never came to its end")
    assert died_in & {S.RUNNING, S.GATING, S.REWORKING, S.RECOVERING, S.AWAITING_APPROVAL}


def test_every_state_is_one_in_which_the_process_may_die(tmp_path: Path) -> None:
    """The runs above die in each of these, since an undisturbed one goes through them."""
    ran = Ran(
        asyncio.run(
            Pipeline.load(file_of(tmp_path / "p")).run(
                options=options(cast_after(None), tmp_path / "state", ask_person=approving)
            )
        ),
        tmp_path / "state",
    )
    states = {"running", "recovering", "gating", "reworking", "awaiting_approval", "completed"}
    assert set(ran.states("write")) == states


def test_what_an_agent_answered_before_the_process_died_is_kept_from_its_workspace(tmp_path: Path) -> None:
    """The attempt was written down, and its tree was not: nobody is asked again."""
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    store = open_run_store(tmp_path / "state")
    cast = Cast({"write": [writing({"a.md": "paid for"})]})
    for saves in range(1, 20):
        with dying(saves):
            asyncio.run(Pipeline.load(file).run(options=options(cast, tmp_path / "state"), run_id=f"r{saves}"))
        stage = store.load(f"r{saves}").stages[0]
        if stage.attempts:
            assert (stage.state, stage.attempts[0].tree) == (S.RUNNING, "")
            break
    cast.calls.clear()
    ran = resume(Ran(store.load(f"r{saves}"), tmp_path / "state"), cast)
    assert (ran.record.state, cast.calls) == (S.COMPLETED, [])
    assert ran.result() == {"a.md": "paid for"}
    assert ran.record.stage("write").attempts[0].artifacts == ("a.md",)


def test_an_attempt_that_was_cut_short_begins_again_with_a_clean_workspace(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    found: list[list[str]] = []

    def half(request: AgentRequest) -> AgentStep:
        found.append(sorted(entry.name for entry in request.working_dir.iterdir()))
        (request.working_dir / "half.md").write_text("half")
        return Hang()

    cast = Cast({"write": [half, half, writing({"a.md": "a"})]})

    async def interrupted(start: Any) -> None:
        work = asyncio.create_task(start)
        before = len(found)
        while len(found) == before:  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    wishes = options(cast, tmp_path / "state")
    asyncio.run(interrupted(Pipeline.load(file).run(options=wishes, run_id="r")))
    asyncio.run(interrupted(resume_run("r", options=wishes)))
    ran = resume(Ran(open_run_store(tmp_path / "state").load("r"), tmp_path / "state"), cast)
    assert found == [[], []]
    assert ran.record.state is S.COMPLETED
    assert ran.result() == {"a.md": "a"}
    assert [event.kind for event in ran.journal if event.kind.startswith("run_")] == [
        "run_started",
        "run_ended",
        "run_resumed",
        "run_ended",
        "run_resumed",
        "run_ended",
    ]


def test_what_a_person_says_about_an_interrupted_stage_reaches_its_next_attempt(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "approval"})
    with dying(3):
        asyncio.run(Pipeline.load(file).run(options=options(Cast({"write": [Hang()]}), tmp_path / "state"), run_id="r"))
    store = open_run_store(tmp_path / "state")
    assert store.load("r").stages[0].state is S.RUNNING
    store.put_approval("r", Approval(stage="write", decision=Decision.RETRY, note="be brief"))
    cast = Cast({"write": [Text("brief")]})
    ran = resume(Ran(store.load("r"), tmp_path / "state"), cast)
    assert "be brief" in cast.agent.requests[0].prompt
    # The word is not taken for an answer of the gate that comes later.
    assert (ran.record.stage("write").wants_approval, len(ran.events("critique"))) == ("gate", 0)


def waiting_run(tmp_path: Path, cast: Cast) -> Ran:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "approval"}, {"name": "use", "needs": ["write"]})
    return run(file, cast, tmp_path / "state")


def test_a_pipeline_whose_file_is_gone_is_refused_in_words(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("a")]})
    ran = waiting_run(tmp_path, cast)
    (tmp_path / "p" / "pipeline.yaml").unlink()
    with pytest.raises(ConfigError, match="no longer exists"):
        resume(ran, cast)


def test_a_failure_of_the_store_stops_the_run_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "one"}, {"name": "two"})
    cast = Cast({"one": [writing({"a.md": "a"})], "two": [Hang()]})
    save = DirectoryRunStore.save

    def full(store: DirectoryRunStore, record: RunRecord, *events: PipelineEvent) -> None:
        if any(event.kind == "attempt_finished" for event in events):
            raise StoreError("no room is left")
        save(store, record, *events)

    monkeypatch.setattr(DirectoryRunStore, "save", full)
    with pytest.raises(StoreError, match="no room is left"):
        asyncio.run(Pipeline.load(file).run(options=options(cast, tmp_path / "state"), run_id="r"))
    assert cast.agent.running == 0
    monkeypatch.undo()
    record = open_run_store(tmp_path / "state").load("r")
    assert record.state is S.INTERRUPTED
    assert "no room is left" in record.reason
