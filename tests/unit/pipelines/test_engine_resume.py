"""A run that goes on: after a death at any moment, and after edits of its pipeline, of which no work is lost."""

import asyncio
import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import ConfigError, Crashed, StoreError, UsageError
from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RunRecord, StageState
from codeloupe.pipelines.run import Pipeline, open_run_store, resume_run
from codeloupe.store.runs import DirectoryRunStore
from codeloupe.testing import Hang, Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, Ran, critique, failing, options, person, resume, run, write_pipeline, writing
from tests.rows import each

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
    store = open_run_store(tmp_path / "state")
    assert store.load("r").stages[0].state is S.RUNNING
    store.put_approval("r", Approval(stage="write", decision=Decision.RETRY, note="be brief"))
    cast = Cast({"write": [Text("brief")]})
    ran = resume(Ran(store.load("r"), tmp_path / "state"), cast)
    assert "be brief" in cast.agent.requests[0].prompt
    # The word is not taken for an answer of the gate that comes later.
    assert (ran.record.stage("write").wants_approval, len(ran.events("critique"))) == ("gate", 0)


def test_a_pipeline_whose_file_is_gone_is_refused_in_words(tmp_path: Path) -> None:
    agents = cast()
    ran = waiting(tmp_path, agents)
    ran.record.file.unlink()
    with pytest.raises(ConfigError, match="no longer exists"):
        resume(ran, agents)


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


PERSON = {"kind": "approval", "timeout": "1s"}


Stages = Sequence[dict[str, Any]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine loses its power here, and there are some hundred saves."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


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


@pytest.mark.defect("P1")
def test_after_a_conflict_the_advice_of_its_message_loses_nothing(tmp_path: Path) -> None:
    folder, conflict = tmp_path / "p", {"shared.md": "left\n", "left.md": "left\n"}
    file = write_pipeline(folder, {"name": "left"}, {"name": "right"}, {"name": "join", "needs": ["left", "right"]})

    def right(request: AgentRequest) -> AgentStep:
        before = request.working_dir / "shared.md"
        text = before.read_text(encoding="utf-8") if before.exists() else ""
        return writing({"shared.md": f"{text}right\n", "right.md": "right\n"})(request)

    cast = Cast({"left": [writing(conflict)], "right": [right], "join": [writing({"join.md": "join\n"})]})
    ran = run(file, cast, tmp_path / "state")
    stage = ran.record.stage("join")
    assert stage.state is S.AWAITING_APPROVAL
    assert stage.reason.startswith("the work of left and of right cannot be joined: ")
    command = f"`codeloupe pipeline resume {ran.record.run_id} --accept-changes --retry right`"
    advice = f"let right need left in {file}, or have them write different files; then {command}"
    assert stage.failures[-1].hint == advice
    write_pipeline(
        folder,
        {"name": "left"},
        {"name": "right", "needs": ["left"]},
        {"name": "join", "needs": ["left", "right"]},
    )
    ran.say("right", Decision.RETRY)
    again = resume(ran, cast, accept_changes=True)
    assert again.record.state is S.COMPLETED, again.record.reason
    assert again.result() == {
        "join.md": "join\n",
        "left.md": "left\n",
        "right.md": "right\n",
        "shared.md": "left\nright\n",
    }
    assert (sorted(cast.calls[:2]), cast.calls[2:]) == (["left", "right"], ["right", "join"])
    assert again.events("note", "join")[0].message == "it runs again: the work of right has changed since it began"
    assert len(again.record.stage("right").earlier) == 1


BEFORE: Stages = ({"name": "a"}, {"name": "b", "needs": ["a"]}, {"name": "c", "needs": ["b"]})


ASKED = {"name": "z", "needs": ["c"], "gate": PERSON}


# What the file becomes, the stages that run again or anew, and what the last stage finds.
EDITS: dict[str, tuple[Stages, set[str], str]] = {
    "before": (
        ({"name": "n"}, {"name": "a", "needs": ["n"]}, *BEFORE[1:], ASKED),
        {"n", "a", "b", "c", "z"},
        "a.md b.md c.md n.md",
    ),
    "between": (
        (BEFORE[0], {"name": "n", "needs": ["a"]}, {"name": "b", "needs": ["n"]}, BEFORE[2], ASKED),
        {"n", "b", "c", "z"},
        "a.md b.md c.md n.md",
    ),
    "after": ((*BEFORE, {"name": "n", "needs": ["c"]}, {**ASKED, "needs": ["n"]}), {"n", "z"}, "a.md b.md c.md n.md"),
    "beside": ((*BEFORE, {"name": "n"}, {**ASKED, "needs": ["c", "n"]}), {"n", "z"}, "a.md b.md c.md n.md"),
    "need removed": (
        (BEFORE[0], {"name": "b"}, BEFORE[2], {**ASKED, "needs": ["a", "c"]}),
        {"b", "c", "z"},
        "a.md b.md c.md",
    ),
    "need that says nothing new": ((*BEFORE[:2], {"name": "c", "needs": ["a", "b"]}, ASKED), set(), "a.md b.md c.md"),
    "another order": ((ASKED, BEFORE[2], BEFORE[1], BEFORE[0]), set(), "a.md b.md c.md"),
}


@pytest.mark.defect("P1")
def test_a_stage_runs_again_exactly_when_what_it_builds_on_has_changed(tmp_path: Path) -> None:
    wrong: dict[Any, Any] = {}
    for number, (name, (stages, expected, found)) in enumerate(EDITS.items()):
        folder, cast = tmp_path / str(number), everyone()
        ran = run(write_pipeline(folder / "p", *BEFORE, ASKED), cast, folder / "state")
        assert ran.record.state is S.AWAITING_APPROVAL
        cast.calls.clear()
        write_pipeline(folder / "p", *stages)
        if not expected:
            ran.say("z", Decision.APPROVE)
        again = resume(ran, cast, accept_changes=True)
        if again.record.state is S.AWAITING_APPROVAL:
            again.say("z", Decision.APPROVE)
            again = resume(again, cast)
        got = (again.record.state, sorted(cast.calls), again.result().get("z.md"))
        if got != (S.COMPLETED, sorted(expected), found):
            wrong[name] = got
    assert wrong == {}


@pytest.mark.defect("P1")
def test_a_stage_that_has_worked_cannot_be_removed_or_renamed_and_one_that_has_not_can(tmp_path: Path) -> None:
    folder, cast = tmp_path / "p", everyone()
    ran = run(write_pipeline(folder, *BEFORE, ASKED, {"name": "last", "needs": ["z"]}), cast, tmp_path / "state")
    renamed = [{"name": "other"}, {"name": "b", "needs": ["other"]}, BEFORE[2], ASKED]
    for stages in (renamed, [{"name": "b"}, BEFORE[2], ASKED]):
        write_pipeline(folder, *stages)
        with pytest.raises(UsageError, match="a had begun and is no longer in it under that name"):
            resume(ran, cast, accept_changes=True)
    write_pipeline(folder, *BEFORE, ASKED, {"name": "end", "needs": ["z"]})
    ran.say("z", Decision.APPROVE)
    assert resume(ran, cast, accept_changes=True).record.state is S.COMPLETED
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
    file = write_pipeline(tmp_path / "p", {"name": "a"}, {"name": "b", "needs": ["a"]}, {"name": "c"})
    ran = run(file, cast, tmp_path / "state")
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
    refuse = {"command": ["sh", "-c", "exit 1"], "max_attempts": 1}
    cast = everyone()
    ran = run(write_pipeline(tmp_path / "p", {"name": "a"}, {"name": "z", "gate": PERSON}), cast, tmp_path / "state")
    write_pipeline(
        tmp_path / "p",
        {"name": "n", "gate": refuse, "on_failure": "continue"},
        {"name": "a", "needs": ["n"]},
        {"name": "z", "gate": PERSON},
    )
    ran.say("z", Decision.APPROVE)
    again = resume(ran, cast, accept_changes=True)
    assert again.record.state is S.COMPLETED
    assert again.record.stage("a").state is S.CANCELLED
    assert again.record.stage("a").reason == "its earlier work is left out, since it needs n, which failed"
    assert again.record.reason == "without n, which failed; a not run"


@pytest.mark.defect("P1")
def test_in_a_checkout_stages_whose_needs_changed_run_again_in_the_tree_as_it_is(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    cast = everyone()
    before = ({"name": "a"}, {"name": "b"}, {"name": "z", "needs": ["b"], "gate": PERSON})
    ran = run(write_pipeline(tmp_path / "p", *before, workspace="checkout"), cast, tmp_path / "state", repo=project)
    write_pipeline(tmp_path / "p", *({"name": "a"}, {"name": "b", "needs": ["a"]}, before[2]), workspace="checkout")
    cast.calls.clear()
    resume(ran, cast, accept_changes=True, repo=project)
    assert cast.calls == ["b", "z"]
    assert sorted(file.name for file in project.glob("*.md")) == ["a.md", "b.md", "z.md"]


@pytest.mark.defect("P1")
def test_whatever_is_edited_the_result_is_that_of_a_new_run_or_the_run_stops_in_words(tmp_path: Path) -> None:
    """Generated edits: stages added, needs changed, the order changed, finished stages tried again."""
    chance = random.Random(20)
    for number in range(5):
        folder = tmp_path / str(number)
        names = [f"s{index}" for index in range(chance.randint(2, 3))]
        cast = everyone()
        file = write_pipeline(folder / "p", *_graph(chance, names), {**ASKED, "needs": names})
        ran = run(file, cast, folder / "state")
        names += [f"n{index}" for index in range(chance.randint(0, 1))]
        chance.shuffle(names)
        write_pipeline(folder / "p", *_graph(chance, names), {**ASKED, "needs": names})
        done = [stage.name for stage in ran.record.stages if stage.state is S.COMPLETED]
        for name in chance.sample(done, chance.randint(0, len(done))):
            ran.say(name, Decision.RETRY)
        again = resume(ran, cast, accept_changes=True)
        assert again.record.state is S.AWAITING_APPROVAL, (number, again.record.reason)
        again.say("z", Decision.APPROVE)
        again = resume(again, cast)
        fresh = run(file, everyone(), folder / "fresh")
        fresh.say("z", Decision.APPROVE)
        assert again.record.state is S.COMPLETED, (number, again.record.reason)
        assert again.result() == resume(fresh, everyone()).result(), number


def _graph(chance: random.Random, names: Sequence[str]) -> list[dict[str, Any]]:
    """Stages of which each needs some of those before it, in any order of the file."""
    stages = [
        {"name": name, "needs": chance.sample(names[:index], chance.randint(0, min(index, 2)))}
        for index, name in enumerate(names)
    ]
    chance.shuffle(stages)
    return stages


@pytest.mark.defect("P6")
def test_each_finished_stage_whose_definition_changed_is_named_with_the_command_that_runs_it_again(
    tmp_path: Path,
) -> None:
    stage: dict[str, Any] = {"name": "a", "artifacts": {"patterns": ["*.md"]}, "model": "one"}
    edits: dict[str, dict[str, Any]] = {
        "model": {"model": "two"},
        "agent": {"agent": "scripted"},
        "artifacts": {"artifacts": {"patterns": ["*.txt"]}},
        "writes": {"writes": False, "artifacts": {}},
        "tools": {"tools": ["Read"]},
        "output schema": {"output_schema": {"type": "object"}},
        "step": {},
    }
    wrong: dict[Any, Any] = {}
    for name, edit in edits.items():
        folder, cast = tmp_path / name.replace(" ", "-"), everyone()
        ran = run(write_pipeline(folder / "p", stage, ASKED | {"needs": ["a"]}), cast, folder / "state")
        write_pipeline(folder / "p", {**stage, **edit}, ASKED | {"needs": ["a"]})
        if not edit:
            (folder / "p" / "a.md").write_text("Do something else.\n", encoding="utf-8")
        cast.calls.clear()
        ran.say("z", Decision.APPROVE)
        again = resume(ran, cast, accept_changes=True)
        notes = [event.message for event in again.events("note", "a")]
        command = f"`codeloupe pipeline resume {ran.record.run_id} --retry a` runs it again"
        told = any(f"its {name}" in note and command in note for note in notes)
        said = "a did before the pipeline's files changed" in again.record.reason
        if not (told and said and again.record.state is S.COMPLETED and not cast.calls):
            wrong[name] = (notes, again.record.reason, cast.calls)
            continue
        again.say("a", Decision.RETRY)
        third = resume(again, cast)
        if third.record.stage("a").outdated or cast.calls[:1] != ["a"]:
            wrong[name] = (third.record.stage("a"), cast.calls)
    assert wrong == {}


@pytest.mark.defect("P6")
def test_a_new_gate_judges_the_work_of_a_finished_stage(tmp_path: Path) -> None:
    ok: dict[str, Any] = {"command": ["sh", "-c", "exit 0"]}
    no: dict[str, Any] = {"command": ["sh", "-c", "exit 1"]}
    critic: dict[str, Any] = {"kind": "critic"}
    wrong: dict[Any, Any] = {}
    cases: list[tuple[Stages, Stages, StageState, list[str]]] = [
        ([], [ok], S.COMPLETED, ["PASS"]),
        ([], [no], S.FAILED, ["REWORK"]),
        ([ok], [ok, no], S.FAILED, ["PASS", "REWORK"]),
        ([ok], [no, ok], S.FAILED, ["REWORK"]),
        ([ok], [], S.COMPLETED, []),
        ([critic], [critic, ok], S.COMPLETED, ["PASS", "PASS"]),
        ([critic], [{**critic, "min_score": 95}], S.FAILED, ["REWORK"]),
    ]
    for number, (before, after, state, words) in enumerate(cases):
        folder = tmp_path / str(number)
        cast = Cast({"a": [Text("a")], "z": [Text("z")]}, {"a": [critique("PASS", 90)]})
        asked = {"name": "z", "needs": ["a"], "gate": PERSON}
        ran = run(write_pipeline(folder / "p", {"name": "a", "gates": before}, asked), cast, folder / "state")
        gates = [{**gate, "max_attempts": 1} for gate in after]
        write_pipeline(folder / "p", {"name": "a", "gates": gates, "on_failure": "fail"}, asked)
        ran.say("z", Decision.APPROVE)
        again = resume(ran, cast, accept_changes=True)
        (attempt,) = again.record.stage("a").attempts
        got = again.record.stage("a").state, [word.verdict.value for word in attempt.critiques]
        if got != (state, words) or cast.calls.count("a") != 1:
            wrong[number] = (got, cast.calls, again.record.reason)
        if state is S.COMPLETED:
            assert (cast.calls.count("z"), again.record.state) == (1, S.COMPLETED)
    assert wrong == {}


@pytest.mark.defect("P6")
def test_a_new_default_of_an_input_holds_for_what_is_still_to_run(tmp_path: Path) -> None:
    stages = ({"name": "a"}, {"name": "z", "needs": ["a"], "gate": PERSON}, {"name": "end", "needs": ["z"]})
    cast = everyone()
    inputs = {"tone": {"default": "plain"}, "topic": {"default": "otters"}}
    ran = run(write_pipeline(tmp_path / "p", *stages, inputs=inputs), cast, tmp_path / "state", {"topic": "bees"})
    write_pipeline(tmp_path / "p", *stages, inputs={"tone": {"default": "loud"}, "topic": {"default": "ants"}})
    ran.say("z", Decision.APPROVE)
    again = resume(ran, cast, accept_changes=True)
    assert again.record.state is S.COMPLETED
    prompt = cast.agent.requests[-1].prompt
    assert "tone: loud" in prompt
    assert "topic: bees" in prompt
    notes = [event.message for event in again.events("note")]
    assert "the input tone has another default, which applies to what is still to run" in notes
    assert any("before its inputs changed" in note for note in notes)


@pytest.mark.defect("P6")
def test_a_completed_run_goes_on_with_a_stage_that_was_added(tmp_path: Path) -> None:
    cast = everyone()
    ran = run(write_pipeline(tmp_path / "p", {"name": "a"}), cast, tmp_path / "state")
    write_pipeline(tmp_path / "p", {"name": "a"}, {"name": "b", "needs": ["a"]})
    again = resume(ran, cast, accept_changes=True)
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["a", "b"])
    assert again.result() == {"a.md": "", "b.md": "a.md"}


def cast() -> Cast:
    return Cast({"write": [Text("a")]}, {"write": [critique("PASS", 80)]}, cost_usd=0.25)


def waiting(folder: Path, agents: Cast, *gates: Any, **keys: Any) -> Ran:
    """A run whose only stage waits for a person, behind these gates."""
    ran = run(write_pipeline(folder / "p", {"name": "write", "gates": [*gates, PERSON]}, **keys), agents, folder / "s")
    assert ran.record.state is S.AWAITING_APPROVAL
    return ran


def test_a_gate_that_was_put_before_those_that_have_passed_is_faced(tmp_path: Path) -> None:
    agents = cast()
    ran = waiting(tmp_path, agents, {"kind": "critic"})
    gates = [{"command": ["sh", "-c", "echo no; exit 1"], "max_attempts": 1}, {"kind": "critic"}, PERSON]
    write_pipeline(tmp_path / "p", {"name": "write", "gates": gates, "on_failure": "fail"})
    again = resume(ran, agents, accept_changes=True).record
    assert again.state is S.FAILED
    assert [word.gate.value for word in again.stage("write").attempts[0].critiques] == ["command"]
    assert "judge it again" in again.stage("write").attempts[0].notes[-1]


def test_what_the_gates_cost_before_stays_counted_and_is_not_bought_again(tmp_path: Path) -> None:
    agents = cast()
    ran = waiting(tmp_path, agents, {"kind": "critic"})
    cost = ran.record.usage.cost_usd
    write_pipeline(tmp_path / "p", {"name": "write", "gates": [{"kind": "critic"}, PERSON]}, description="Changed.")
    again = resume(ran, agents, accept_changes=True).record
    assert again.state is S.AWAITING_APPROVAL
    assert [word.gate.value for word in again.stage("write").attempts[0].critiques] == ["critic"]
    assert agents.calls == ["write", "critic of write"]
    assert again.usage.cost_usd == pytest.approx(cost)


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
    agents = cast()
    ran = waiting(tmp_path, agents)
    write_pipeline(tmp_path / "p", {"name": "write", "gates": [PERSON]}, **keys)
    with pytest.raises(UsageError, match=words) as refused:
        resume(ran, agents, accept_changes=True)
    assert refused.value.hint == "put the files back as they were, or start a new run"
