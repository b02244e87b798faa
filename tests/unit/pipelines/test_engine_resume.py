"""A run that goes on: after a death at any moment, and after edits of its pipeline, of which no work is lost."""

import asyncio
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import Crashed, InvalidRequest, StoreError, UsageError
from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Decision, PipelineEvent, RunRecord, StageState
from codeloupe.pipelines import execution
from codeloupe.pipelines.artifacts import Snapshot, snapshot
from codeloupe.pipelines.run import Pipeline, open_run_store, resume_run
from codeloupe.store.runs import DatabaseRunStore
from codeloupe.testing import Hang, Text
from codeloupe.testing.agent import AgentStep
from tests.endings import comes_to_pass
from tests.engine_pipelines import (
    Cast,
    Ran,
    critique,
    failing,
    options,
    person,
    resume,
    run,
    run_stages,
    write_pipeline,
    writing,
)
from tests.rows import each

pytestmark = pytest.mark.program
S = StageState
PERSON = {"kind": "approval", "timeout": "1s"}
Stages = Sequence[dict[str, Any]]
EXPECTED = {"a.md": "two", "read-output.md": "read\n"}
CALLS = {"write": 3, "read": 1, "critic of write": 2}
# What only reads is in the ledger as soon as it is answered, so that a call may be spared that no record knows of.
READING = ("read", "critic of write")
SHARES = 4


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine loses its power here, and there are some hundred saves."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


class Killed(BaseException):
    """The process is gone: nothing is written after this."""


@contextmanager
def dying(after_saves: int) -> Iterator[None]:
    """A process whose last deed is a save of that number; what it does then reaches no disk."""
    made = 0
    save = DatabaseRunStore.save

    def counted(store: DatabaseRunStore, record: RunRecord, *events: PipelineEvent, **files: Any) -> None:
        nonlocal made
        if made < after_saves:
            made += 1
            save(store, record, *events, **files)
        if made >= after_saves:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseRunStore, "save", counted)
        try:
            yield
        except* Killed:
            pass


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


@pytest.mark.parametrize("share", range(SHARES))
def test_a_run_that_died_after_any_save_ends_as_one_that_did_not_and_nothing_finished_is_asked_again(
    tmp_path: Path, share: int
) -> None:
    stages = ({"name": "write", "gates": ["critic", "approval"]}, {"name": "read", "needs": "write", "writes": False})
    file, state = write_pipeline(tmp_path / "p", *stages), tmp_path / "state"
    died_in: set[StageState] = set()
    for saves in range(share + 1, 100, SHARES):
        with dying(saves):
            wishes = options(cast_after(None), state, ask_person=person(Decision.APPROVE))
            asyncio.run(Pipeline.load(file).run(options=wishes, run_id=f"run-{saves}"))
        left = open_run_store(state).load(f"run-{saves}")
        if left.state is S.COMPLETED:
            break
        died_in |= {stage.state for stage in left.stages}
        cast = cast_after(left)
        finished = {name: cast.calls.count(name) for name in CALLS}
        ran = resume(Ran(left, state), cast, ask_person=person(Decision.APPROVE))
        assert (saves, ran.record.state, ran.record.reason) == (saves, S.COMPLETED, "")
        assert (saves, ran.result()) == (saves, EXPECTED)
        made = {name: cast.calls.count(name) - finished[name] for name in CALLS}
        for name, wanted in CALLS.items():
            assert made[name] <= wanted - finished[name], (saves, name)
            assert made[name] == wanted - finished[name] or name in READING, (saves, name)
    else:
        pytest.fail("the run never came to its end")
    # In each of these, since an undisturbed run goes through them; which, depends on the share.
    assert died_in & {S.RUNNING, S.GATING, S.REWORKING, S.RECOVERING, S.AWAITING_APPROVAL}


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
    told = [event.kind for event in ran.journal if event.kind.startswith("run_")]
    assert told == ["run_started", *["run_ended", "run_resumed"] * 2, "run_ended"]


def test_what_a_person_says_about_an_interrupted_stage_reaches_its_next_attempt(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "approval"})
    with dying(3):
        asyncio.run(Pipeline.load(file).run(options=options(Cast({"write": [Hang()]}), tmp_path / "state"), run_id="r"))
    left = Ran(open_run_store(tmp_path / "state").load("r"), tmp_path / "state")
    assert left.record.stages[0].state is S.RUNNING
    left.say("write", Decision.RETRY, "be brief")
    cast = Cast({"write": [Text("brief")]})
    ran = resume(left, cast)
    assert "be brief" in cast.agent.requests[0].prompt
    # The word is not taken for an answer of the gate that comes later.
    assert (ran.record.stage("write").wants_approval, len(ran.events("critique"))) == ("gate", 0)


def test_a_failure_of_the_store_stops_the_run_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "one"}, {"name": "two"})
    cast = Cast({"one": [writing({"a.md": "a"})], "two": [Hang()]})
    save = DatabaseRunStore.save

    def full(store: DatabaseRunStore, record: RunRecord, *events: PipelineEvent, **files: Any) -> None:
        if any(event.kind == "attempt_finished" for event in events):
            raise StoreError("no room is left")
        save(store, record, *events, **files)

    monkeypatch.setattr(DatabaseRunStore, "save", full)
    with pytest.raises(StoreError, match="no room is left"):
        asyncio.run(Pipeline.load(file).run(options=options(cast, tmp_path / "state"), run_id="r"))
    assert cast.agent.running == 0
    monkeypatch.undo()
    record = open_run_store(tmp_path / "state").load("r")
    assert record.state is S.INTERRUPTED
    assert "no room is left" in record.reason


def telling(request: AgentRequest) -> AgentStep:
    """A stage that writes down which files it finds: its file tells of what it was made."""
    name = request.labels["stage"]
    found = sorted(file.name for file in request.working_dir.glob("*.md") if file.name != f"{name}.md")
    (request.working_dir / f"{name}.md").write_text(" ".join(found), encoding="utf-8")
    return Text("done")


class Everyone(dict[str, Sequence[AgentStep]]):
    """Every stage does the same."""

    def __getitem__(self, _name: str) -> Sequence[AgentStep]:
        return [telling]


def everyone() -> Cast:
    return Cast(Everyone())


def stopped(file: Path, cast: Cast, state: Path, *, when: Callable[[], bool]) -> Ran:
    """Start a run, and interrupt it as soon as something is the case, or let it end."""

    async def started() -> None:
        run_it = Pipeline.load(file).run(options=options(cast, state), run_id="r")
        task = asyncio.ensure_future(run_it)
        await asyncio.to_thread(comes_to_pass, lambda: when() or task.done())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(started())
    return Ran(open_run_store(state).load("r"), state)


def edited(ran: Ran, cast: Cast, *stages: dict[str, Any], **more: Any) -> Ran:
    """Go on with a run whose file has other stages now."""
    write_pipeline(ran.record.file.parent, *stages)
    return resume(ran, cast, accept_changes=True, **more)


@pytest.mark.defect("P1")
def test_after_a_conflict_the_advice_of_its_message_loses_nothing(tmp_path: Path) -> None:
    def right(request: AgentRequest) -> AgentStep:
        before = request.working_dir / "shared.md"
        text = before.read_text(encoding="utf-8") if before.exists() else ""
        return writing({"shared.md": f"{text}right\n", "right.md": "right\n"})(request)

    left, join = {"shared.md": "left\n", "left.md": "left\n"}, {"name": "join", "needs": ["left", "right"]}
    cast = Cast({"left": [writing(left)], "right": [right], "join": [writing({"join.md": "join\n"})]})
    ran = run_stages(tmp_path, cast, {"name": "left"}, {"name": "right"}, join)
    stage = ran.record.stage("join")
    assert stage.state is S.AWAITING_APPROVAL
    assert stage.reason.startswith("cannot merge the work of left and right: ")
    command = f"`codeloupe pipeline resume {ran.record.run_id} --accept-changes --retry right`"
    advice = f"let right need left in {ran.record.file}, or have them write different files; then {command}"
    assert stage.failures[-1].hint == advice
    ran.say("right", Decision.RETRY)
    again = edited(ran, cast, {"name": "left"}, {"name": "right", "needs": ["left"]}, join)
    assert again.record.state is S.COMPLETED, again.record.reason
    assert again.result() == {**left, "shared.md": "left\nright\n", "right.md": "right\n", "join.md": "join\n"}
    assert (sorted(cast.calls[:2]), cast.calls[2:]) == (["left", "right"], ["right", "join"])
    assert again.events("note", "join")[0].message == "it runs again: the work of right has changed since it started"
    assert len(again.record.stage("right").earlier) == 1


BEFORE: Stages = ({"name": "a"}, {"name": "b", "needs": ["a"]}, {"name": "c", "needs": ["b"]})
ASKED = {"name": "z", "needs": ["c"], "gate": PERSON}
NEW = {"name": "n"}


@pytest.mark.defect("P1")
@each(
    # What the file becomes, the stages that run again or anew, and what the last stage finds.
    ("stages", "expected", "found"),
    [
        ((NEW, {"name": "a", "needs": ["n"]}, *BEFORE[1:], ASKED), "abcnz", "a.md b.md c.md n.md"),
        (
            (BEFORE[0], {**NEW, "needs": ["a"]}, {"name": "b", "needs": ["n"]}, BEFORE[2], ASKED),
            "bcnz",
            "a.md b.md c.md n.md",
        ),
        ((*BEFORE, {**NEW, "needs": ["c"]}, {**ASKED, "needs": ["n"]}), "nz", "a.md b.md c.md n.md"),
        ((*BEFORE, NEW, {**ASKED, "needs": ["c", "n"]}), "nz", "a.md b.md c.md n.md"),
        ((BEFORE[0], {"name": "b"}, BEFORE[2], {**ASKED, "needs": ["a", "c"]}), "bcz", "a.md b.md c.md"),
        # A need that says nothing new, and another order.
        ((*BEFORE[:2], {"name": "c", "needs": ["a", "b"]}, ASKED), "", "a.md b.md c.md"),
        ((ASKED, BEFORE[2], BEFORE[1], BEFORE[0]), "", "a.md b.md c.md"),
    ],
)
def test_a_stage_runs_again_exactly_when_what_it_builds_on_has_changed(
    tmp_path: Path, stages: Stages, expected: str, found: str
) -> None:
    cast = everyone()
    ran = run_stages(tmp_path, cast, *BEFORE, ASKED)
    assert ran.record.state is S.AWAITING_APPROVAL
    cast.calls.clear()
    if not expected:
        ran.say("z", Decision.APPROVE)
    again = edited(ran, cast, *stages)
    if again.record.state is S.AWAITING_APPROVAL:
        again.say("z", Decision.APPROVE)
        again = resume(again, cast)
    assert (again.record.state, "".join(sorted(cast.calls)), again.result()["z.md"]) == (S.COMPLETED, expected, found)


@pytest.mark.defect("P1")
def test_a_stage_that_has_worked_cannot_be_removed_or_renamed_and_one_that_has_not_can(tmp_path: Path) -> None:
    cast = everyone()
    ran = run_stages(tmp_path, cast, *BEFORE, ASKED, {"name": "last", "needs": ["z"]})
    renamed = [{"name": "other"}, {"name": "b", "needs": ["other"]}, BEFORE[2], ASKED]
    for stages in (renamed, [{"name": "b"}, BEFORE[2], ASKED]):
        with pytest.raises(UsageError, match="a had started, but is no longer in the pipeline under that name"):
            edited(ran, cast, *stages)
    ran.say("z", Decision.APPROVE)
    assert edited(ran, cast, *BEFORE, ASKED, {"name": "end", "needs": ["z"]}).record.state is S.COMPLETED
    assert cast.calls == ["a", "b", "c", "z", "end"]


@pytest.mark.defect("P1")
def test_a_finished_stage_that_is_tried_again_takes_those_with_it_that_build_on_it(tmp_path: Path) -> None:
    cast = Cast(
        {
            "a": [writing({"a.md": "first"}), writing({"a.md": "second"})],
            "b": [lambda request: writing({"b.md": f"b of {(request.working_dir / 'a.md').read_text()}"})(request)],
            "c": [writing({"c.md": "c"})],
        }
    )
    ran = run_stages(tmp_path, cast, {"name": "a"}, {"name": "b", "needs": ["a"]}, {"name": "c"})
    assert ran.record.state is S.COMPLETED
    ran.say("a", Decision.RETRY)
    again = resume(ran, cast)
    assert again.record.state is S.COMPLETED, again.record.reason
    assert again.result() == {"a.md": "second", "b.md": "b of second", "c.md": "c"}
    assert cast.calls[-2:] == ["a", "b"]
    assert [attempt.number for attempt in again.record.stage("b").attempts] == [2]
    # What comes out as before leaves the others as they are.
    before = len(cast.calls)
    again.say("a", Decision.RETRY)
    assert (resume(again, cast).record.state, cast.calls[before:]) == (S.COMPLETED, ["a"])


@pytest.mark.defect("P1")
def test_work_whose_basis_fails_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    cast, last = everyone(), {"name": "z", "gate": PERSON}
    ran = run_stages(tmp_path, cast, {"name": "a"}, last)
    ran.say("z", Decision.APPROVE)
    refused = {**NEW, "gate": {"command": ["sh", "-c", "exit 1"], "max_attempts": 1}, "on_failure": "continue"}
    again = edited(ran, cast, refused, {"name": "a", "needs": ["n"]}, last)
    assert again.record.state is S.COMPLETED
    assert again.record.stage("a").state is S.CANCELLED
    assert again.record.stage("a").reason == "its earlier work is not used, because it needs n, which failed"
    assert again.record.reason == "without n, which failed; a not run"


@pytest.mark.defect("P1")
@each("seed", range(5))
def test_whatever_is_edited_the_result_is_that_of_a_new_run_or_the_run_stops_in_words(
    tmp_path: Path, seed: int
) -> None:
    """Generated edits: stages added, needs changed, the order changed, finished stages tried again."""
    chance, cast = random.Random(seed), everyone()
    names = [f"s{index}" for index in range(chance.randint(2, 3))]
    ran = run_stages(tmp_path, cast, *_graph(chance, names), {**ASKED, "needs": names})
    names += [f"n{index}" for index in range(chance.randint(0, 1))]
    chance.shuffle(names)
    done = [stage.name for stage in ran.record.stages if stage.state is S.COMPLETED]
    for name in chance.sample(done, chance.randint(0, len(done))):
        ran.say(name, Decision.RETRY)
    again = edited(ran, cast, *_graph(chance, names), {**ASKED, "needs": names})
    assert again.record.state is S.AWAITING_APPROVAL, again.record.reason
    again.say("z", Decision.APPROVE)
    again = resume(again, cast)
    fresh = run(ran.record.file, everyone(), tmp_path / "fresh")
    fresh.say("z", Decision.APPROVE)
    assert again.record.state is S.COMPLETED, again.record.reason
    assert again.result() == resume(fresh, everyone()).result()


def _graph(chance: random.Random, names: Sequence[str]) -> list[dict[str, Any]]:
    """Stages of which each needs some of those before it, in any order of the file."""
    stages = [
        {"name": name, "needs": chance.sample(names[:index], chance.randint(0, min(index, 2)))}
        for index, name in enumerate(names)
    ]
    chance.shuffle(stages)
    return stages


@pytest.mark.defect("P6")
@each(
    ("part", "edit"),
    [
        ("model", {"model": "two"}),
        ("agent", {"agent": "scripted"}),
        ("artifacts", {"artifacts": {"patterns": ["*.txt"]}}),
        ("writes", {"writes": False, "artifacts": {}}),
        ("tools", {"tools": ["Read"]}),
        ("output schema", {"output_schema": {"type": "object"}}),
        ("step", {"step": "other.md"}),
    ],
)
def test_each_finished_stage_whose_definition_changed_is_named_with_the_command_that_runs_it_again(
    tmp_path: Path, part: str, edit: dict[str, Any]
) -> None:
    cast, last = everyone(), {**ASKED, "needs": ["a"]}
    stage: dict[str, Any] = {"name": "a", "artifacts": {"patterns": ["*.md"]}, "model": "one"}
    ran = run_stages(tmp_path, cast, stage, last)
    (tmp_path / "p" / "other.md").write_text("Do something else.\n", encoding="utf-8")
    cast.calls.clear()
    ran.say("z", Decision.APPROVE)
    again = edited(ran, cast, {**stage, **edit}, last)
    command = f"`codeloupe pipeline resume {ran.record.run_id} --retry a` runs it again"
    assert any(f"its {part}" in event.message and command in event.message for event in again.events("note", "a"))
    assert "a did before the pipeline's files changed" in again.record.reason
    assert (again.record.state, cast.calls) == (S.COMPLETED, [])
    again.say("a", Decision.RETRY)
    third = resume(again, cast)
    assert (third.record.stage("a").outdated, cast.calls[:1]) == ((), ["a"])


OK: dict[str, Any] = {"command": ["sh", "-c", "exit 0"]}
NO: dict[str, Any] = {"command": ["sh", "-c", "exit 1"]}
CRITIC: dict[str, Any] = {"kind": "critic"}


@pytest.mark.defect("P6")
@each(
    ("before", "after", "state", "words"),
    [
        ([], [OK], S.COMPLETED, ["PASS"]),
        ([], [NO], S.FAILED, ["REWORK"]),
        ([OK], [OK, NO], S.FAILED, ["PASS", "REWORK"]),
        ([OK], [NO, OK], S.FAILED, ["REWORK"]),
        ([OK], [], S.COMPLETED, []),
        ([CRITIC], [CRITIC, OK], S.COMPLETED, ["PASS", "PASS"]),
        ([CRITIC], [{**CRITIC, "min_score": 95}], S.FAILED, ["REWORK"]),
    ],
)
def test_a_new_gate_judges_the_work_of_a_finished_stage(
    tmp_path: Path, before: Stages, after: Stages, state: StageState, words: list[str]
) -> None:
    cast = Cast({"a": [Text("a")], "z": [Text("z")]}, {"a": [critique("PASS", 90)]})
    last = {"name": "z", "needs": ["a"], "gate": PERSON}
    ran = run_stages(tmp_path, cast, {"name": "a", "gates": before}, last)
    ran.say("z", Decision.APPROVE)
    gates = [{**gate, "max_attempts": 1} for gate in after]
    again = edited(ran, cast, {"name": "a", "gates": gates, "on_failure": "fail"}, last).record
    (attempt,) = again.stage("a").attempts
    assert (again.stage("a").state, [word.verdict.value for word in attempt.critiques]) == (state, words)
    assert (cast.calls.count("a"), again.state) == (1, state)
    assert state is S.FAILED or cast.calls.count("z") == 1


@pytest.mark.defect("P6")
def test_a_new_default_of_an_input_holds_for_what_is_still_to_run(tmp_path: Path) -> None:
    stages = ({"name": "a"}, {"name": "z", "needs": ["a"], "gate": PERSON}, {"name": "end", "needs": ["z"]})
    cast = everyone()
    inputs = {"tone": {"default": "plain"}, "topic": {"default": "otters"}}
    ran = run_stages(tmp_path, cast, *stages, keys={"inputs": inputs}, inputs={"topic": "bees"})
    write_pipeline(tmp_path / "p", *stages, inputs={"tone": {"default": "loud"}, "topic": {"default": "ants"}})
    ran.say("z", Decision.APPROVE)
    again = resume(ran, cast, accept_changes=True)
    assert again.record.state is S.COMPLETED
    prompt = cast.agent.requests[-1].prompt
    assert "tone: loud" in prompt
    assert "topic: bees" in prompt
    notes = [event.message for event in again.events("note")]
    assert "the input tone has a new default, which applies to the remaining stages" in notes
    assert any("before its inputs changed" in note for note in notes)


@pytest.mark.defect("P6")
def test_a_completed_run_goes_on_with_a_stage_that_was_added(tmp_path: Path) -> None:
    cast = everyone()
    again = edited(run_stages(tmp_path, cast, {"name": "a"}), cast, {"name": "a"}, {"name": "b", "needs": ["a"]})
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["a", "b"])
    assert again.result() == {"a.md": "", "b.md": "a.md"}


def waiting(folder: Path, *gates: Any) -> tuple[Ran, Cast]:
    """A run whose only stage waits for a person, behind these gates."""
    cast = Cast({"write": [Text("a")]}, {"write": [critique("PASS", 80)]}, cost_usd=0.25)
    ran = run_stages(folder, cast, {"name": "write", "gates": [*gates, PERSON]})
    assert ran.record.state is S.AWAITING_APPROVAL
    return ran, cast


def test_a_gate_that_was_put_before_those_that_have_passed_is_faced(tmp_path: Path) -> None:
    gates = [{**NO, "max_attempts": 1}, CRITIC, PERSON]
    again = edited(*waiting(tmp_path, CRITIC), {"name": "write", "gates": gates, "on_failure": "fail"}).record
    assert again.state is S.FAILED
    assert [word.gate.value for word in again.stage("write").attempts[0].critiques] == ["command"]
    assert [word.gate.value for word in again.stage("write").attempts[0].superseded] == ["critic"]
    assert "earlier verdicts on this attempt do not count" in again.stage("write").attempts[0].notes[-1]


def test_work_of_an_old_definition_that_is_used_is_named(tmp_path: Path) -> None:
    words = [critique("REWORK", 80, "bad"), critique("REWORK", 45, "worse")]
    cast = Cast({"write": [writing({"a.md": "one"}), Hang(), writing({"a.md": "two"})]}, {"write": words})
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": {**CRITIC, "max_attempts": 2}})
    ran = stopped(file, cast, tmp_path / "state", when=lambda: cast.calls.count("write") == 2)
    (tmp_path / "p" / "write.md").write_text("Write something else.\n", encoding="utf-8")
    again = resume(ran, cast, accept_changes=True).record
    assert (again.state, again.stage("write").chosen) == (S.COMPLETED, 1)
    assert again.reason == "with the work that write did before the pipeline's files changed"


@each("gate", [None, PERSON])
def test_a_run_does_not_complete_or_wait_with_a_stage_that_needs_a_lost_one(tmp_path: Path, gate: Any) -> None:
    build = {"name": "build", "needs": ["plan"]}
    work: list[AgentStep] = [Hang()]
    if gate is not None:
        build["gate"] = gate
        work = [Text("b")]
    cast = Cast({"plan": [writing({"p.md": "1"}), failing(InvalidRequest)], "build": work})
    file = write_pipeline(tmp_path / "p", {"name": "plan", "on_failure": "continue"}, build)
    ran = stopped(file, cast, tmp_path / "state", when=lambda: "build" in cast.calls)
    ran.say("plan", Decision.RETRY)
    again = resume(ran, cast).record
    assert (again.state, again.stage("build").state) == (S.COMPLETED, S.CANCELLED)
    assert again.reason == "without plan, which failed; build not run"


@each("gates", [[], [{"command": "true"}], [{"kind": "critic", "prompt": "Be strict.", "max_attempts": 2}]])
def test_a_finished_stage_keeps_its_work_if_its_changed_gates_pass_it(tmp_path: Path, gates: list[Any]) -> None:
    words = [critique("REWORK", 80, "bad"), critique("REWORK", 10, "worse"), critique("PASS", 90)]
    cast = Cast({"write": [writing({"a.md": "good"}), writing({"a.md": "bad"})]}, {"write": words})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": {**CRITIC, "max_attempts": 2}})
    assert ran.result() == {"a.md": "good"}
    again = edited(ran, cast, {"name": "write", "gates": gates})
    assert (again.record.state, again.result()) == (S.COMPLETED, {"a.md": "good"})
    assert cast.calls.count("write") == 2


def test_accepted_changes_of_a_run_that_has_ended_are_saved(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("one")]})
    ran = run_stages(tmp_path, cast, {"name": "write"})
    edited(ran, cast, {"name": "write", "timeout": "9m"})
    assert resume(ran, cast).record.state is S.COMPLETED


def test_a_changed_gate_judges_work_that_a_later_gate_sent_back(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("a")]}, {"write": [critique("REWORK", 60)]})
    critic = {**CRITIC, "min_score": 70, "max_attempts": 1}
    ran = run_stages(tmp_path, cast, {"name": "write", "gates": [{"command": "true"}, critic]})
    assert ran.record.state is S.AWAITING_APPROVAL
    gates = [{"command": "false", "max_attempts": 1}, {**critic, "min_score": 50}]
    again = edited(ran, cast, {"name": "write", "gates": gates, "on_failure": "fail"}).record
    (attempt,) = again.stage("write").attempts
    assert [word.verdict.value for word in attempt.critiques] == ["REWORK"]
    assert [word.gate.value for word in attempt.superseded] == ["command", "critic"]
    assert again.state is S.FAILED


def test_verdicts_of_the_gates_before_a_changed_one_still_count(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("a")]}, {"write": [critique("PASS", 90)]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gates": [CRITIC, {"command": "true"}]})
    assert ran.record.state is S.COMPLETED
    again = edited(ran, cast, {"name": "write", "gates": [CRITIC, {"command": "test 1"}]}).record
    (attempt,) = again.stage("write").attempts
    assert [word.gate.value for word in attempt.critiques] == ["critic", "command"]
    assert (again.state, cast.calls) == (S.COMPLETED, ["write", "critic of write"])


def test_a_stage_accepted_for_its_score_is_not_made_again_for_a_later_gate(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("a"), Text("b")]}, {"write": [critique("REWORK", 60)]})
    critic = {**CRITIC, "max_attempts": 2}
    ran = run_stages(tmp_path, cast, {"name": "write", "gates": [critic]})
    assert ran.record.state is S.COMPLETED
    again = edited(ran, cast, {"name": "write", "gates": [critic, {"command": "true"}]}).record
    assert [len(attempt.critiques) for attempt in again.stage("write").attempts] == [1, 2]
    assert (again.state, cast.calls.count("write")) == (S.COMPLETED, 2)


def test_what_the_gates_cost_before_stays_counted_and_is_not_bought_again(tmp_path: Path) -> None:
    ran, cast = waiting(tmp_path, CRITIC)
    again = edited(ran, cast, {"name": "write", "gates": [CRITIC, PERSON], "timeout": "9m"}).record
    assert again.state is S.AWAITING_APPROVAL
    assert [word.gate.value for word in again.stage("write").attempts[0].critiques] == ["critic"]
    assert cast.calls == ["write", "critic of write"]
    assert again.usage.cost_usd == pytest.approx(ran.record.usage.cost_usd)


@each(
    ("keys", "words"),
    [
        ({"workspace": "worktree"}, "its workspace was a directory and is a worktree"),
        ({"inputs": {"topic": {}}}, "its input topic is new and has no default"),
    ],
)
def test_what_cannot_be_accepted_is_named_with_a_way_that_is_open(
    tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    ran, cast = waiting(tmp_path)
    write_pipeline(tmp_path / "p", {"name": "write", "gates": [PERSON]}, **keys)
    with pytest.raises(UsageError, match=words) as refused:
        resume(ran, cast, accept_changes=True)
    assert refused.value.hint == "restore the files, or start a new run"
    # Without its file, the run continues with the definition that it stored.
    ran.record.file.unlink()
    assert resume(ran, cast).record.state is S.AWAITING_APPROVAL


def test_an_answer_that_has_arrived_is_saved_although_the_run_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast = Cast({"write": [writing({"a.md": "a"})]})
    pipeline = Pipeline.load(write_pipeline(tmp_path / "p", {"name": "write"}))

    async def interrupted() -> None:
        looks = 0
        is_looking = asyncio.Event()
        may_look = asyncio.Event()

        async def slow_snapshot(workspace: Path, *, stage: str) -> Snapshot:
            nonlocal looks
            looks += 1
            if looks == 2:
                is_looking.set()
                await may_look.wait()
            return await snapshot(workspace, stage=stage)

        monkeypatch.setattr(execution, "snapshot", slow_snapshot)
        running = asyncio.create_task(pipeline.run(options=options(cast, tmp_path / "state"), run_id="r"))
        # The agent has answered, and its files are looked at.
        await is_looking.wait()
        running.cancel()
        asyncio.get_running_loop().call_later(0.1, may_look.set)
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupted())
    record = open_run_store(tmp_path / "state").load("r")
    assert (record.state, len(record.stage("write").attempts)) == (S.INTERRUPTED, 1)
    again = resume(Ran(record, tmp_path / "state"), cast)
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["write"])
