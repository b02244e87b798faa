"""A run that version 0.1.0 saved: it is read, goes on, and follows the rules of now."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Approval, Decision, StageState
from codeloupe.pipelines.run import open_run_store
from codeloupe.testing import Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, Ran, resume

S = StageState
SAVED = Path(__file__).parents[1] / "captures" / "pipeline-run-0.1.0.tar.gz"
NAME = "saved-by-0.1.0"


def step(request: AgentRequest) -> AgentStep:
    name = request.labels["stage"]
    found = sorted(file.stem for file in request.working_dir.glob("*.md") if file.stem != name)
    (request.working_dir / f"{name}.md").write_text(f"{name} after {' '.join(found)}\n", encoding="utf-8")
    return Text("done")


@pytest.fixture
def cast() -> Cast:
    return Cast({name: [step] for name in ("left", "right", "join")})


@pytest.fixture
def saved(tmp_path: Path) -> Ran:
    """The run, waiting for a person at its last stage, and its pipeline's files."""
    with tarfile.open(SAVED) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    runs = tmp_path / "state" / "pipelines"
    runs.mkdir(parents=True)
    (tmp_path / "unpacked" / "run").rename(runs / NAME)
    state = runs / NAME / "run.json"
    state.write_text(state.read_text(encoding="utf-8").replace("@PIPELINE@", str(tmp_path / "unpacked" / "pipeline")))
    store = open_run_store(tmp_path / "state")
    store.put_approval(NAME, Approval(stage="join", decision=Decision.APPROVE))
    return Ran(store.load(NAME), tmp_path / "state")


def edit(saved: Ran, before: str, after: str) -> None:
    text = saved.record.file.read_text(encoding="utf-8")
    assert before in text
    saved.record.file.write_text(text.replace(before, after), encoding="utf-8")


def test_it_is_listed_and_goes_on_without_another_call(saved: Ran, cast: Cast) -> None:
    (record,), problems = open_run_store(saved.state).list()
    assert (record.state, dict(problems)) == (S.AWAITING_APPROVAL, {})
    again = resume(saved, cast)
    assert (again.record.state, cast.calls) == (S.COMPLETED, [])
    assert again.result() == {"join.md": "join\n", "left.md": "left\n", "right.md": "right\n"}
    assert again.record.usage.requests == 3


@pytest.mark.defect("P1")
def test_a_stage_that_needs_another_now_runs_again(saved: Ran, cast: Cast) -> None:
    edit(saved, "step: right.md,", "step: right.md, needs: [left],")
    again = resume(saved, cast, accept_changes=True)
    # The approval was of what the stage had made before.
    assert again.record.state is S.AWAITING_APPROVAL
    assert any("you will be asked again" in event.message for event in again.events("note", "join"))
    open_run_store(saved.state).put_approval(NAME, Approval(stage="join", decision=Decision.APPROVE))
    again = resume(again, cast)
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["right", "join"])
    assert again.result() == {
        "join.md": "join after left right\n",
        "left.md": "left\n",
        "right.md": "right after left\n",
    }


@pytest.mark.defect("P6")
def test_a_new_gate_judges_it_and_what_is_not_known_is_said(saved: Ran, cast: Cast) -> None:
    edit(saved, "step: left.md}", 'step: left.md, on_failure: fail, gate: {command: "false", max_attempts: 1}}')
    edit(saved, "default: plain", "default: loud")
    again = resume(saved, cast, accept_changes=True)
    assert (again.record.state, again.record.stage("left").state, cast.calls) == (S.FAILED, S.FAILED, [])
    notes = [event.message for event in again.events("note")]
    assert any("the input tone keeps its value" in note for note in notes)
    assert any("an older version did not note what it was asked" in note for note in notes)
