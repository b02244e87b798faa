"""Edits of a pipeline whose run has begun: no work is lost, and none is kept that was made of other work."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import UsageError
from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Approval, Decision, StageState
from codeloupe.pipelines.run import open_run_store
from codeloupe.testing import Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, Ran, critique, resume, run, write_pipeline, writing

pytestmark = pytest.mark.program

S = StageState
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


def retry(ran: Ran, stage: str) -> None:
    open_run_store(ran.state).put_approval(ran.record.run_id, Approval(stage=stage, decision=Decision.RETRY))


def approve(ran: Ran, stage: str) -> None:
    open_run_store(ran.state).put_approval(ran.record.run_id, Approval(stage=stage, decision=Decision.APPROVE))


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
    retry(ran, "right")
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
            approve(ran, "z")
        again = resume(ran, cast, accept_changes=True)
        if again.record.state is S.AWAITING_APPROVAL:
            approve(again, "z")
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
    approve(ran, "z")
    again = resume(ran, cast, accept_changes=True)
    assert again.record.state is S.COMPLETED
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
    retry(ran, "a")
    again = resume(ran, cast)
    assert again.record.state is S.COMPLETED, again.record.reason
    assert again.result() == {"a.md": "second", "b.md": "b of second", "c.md": "c"}
    assert cast.calls[-2:] == ["a", "b"]
    assert [attempt.number for attempt in again.record.stage("b").attempts] == [2]
    # What comes out as before leaves the others as they are.
    before = len(cast.calls)
    retry(again, "a")
    third = resume(again, cast)
    assert (third.record.state, cast.calls[before:]) == (S.COMPLETED, ["a"])


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
    approve(ran, "z")
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
    after = ({"name": "a"}, {"name": "b", "needs": ["a"]}, before[2])
    write_pipeline(tmp_path / "p", *after, workspace="checkout")
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
            retry(ran, name)
        again = resume(ran, cast, accept_changes=True)
        assert again.record.state is S.AWAITING_APPROVAL, (number, again.record.reason)
        approve(again, "z")
        again = resume(again, cast)
        fresh = run(file, everyone(), folder / "fresh")
        approve(fresh, "z")
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
        approve(ran, "z")
        again = resume(ran, cast, accept_changes=True)
        notes = [event.message for event in again.events("note", "a")]
        command = f"`codeloupe pipeline resume {ran.record.run_id} --retry a` runs it again"
        told = any(f"its {name}" in note and command in note for note in notes)
        said = "a did before the pipeline's files changed" in again.record.reason
        if not (told and said and again.record.state is S.COMPLETED and not cast.calls):
            wrong[name] = (notes, again.record.reason, cast.calls)
            continue
        retry(again, "a")
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
        approve(ran, "z")
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
    file = write_pipeline(tmp_path / "p", *stages, inputs=inputs)
    ran = run(file, cast, tmp_path / "state", {"topic": "bees"})
    write_pipeline(tmp_path / "p", *stages, inputs={"tone": {"default": "loud"}, "topic": {"default": "ants"}})
    approve(ran, "z")
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
