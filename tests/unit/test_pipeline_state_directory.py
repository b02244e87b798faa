"""A run in a state directory of its own keeps everything there, what was bought too."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import StageState
from codeloupe.pipelines.run import Pipeline, RunOptions
from codeloupe.store.database import DATABASE_NAME
from codeloupe.testing import AgentStep, ScriptedAgent, Text

FILE = "name: p\nstages: [{name: one, step: one.md, writes: false, gate: {kind: critic, max_attempts: 1}}]\n"


def judged(folder: Path, state: Path, verdict: str) -> StageState:
    """Run a pipeline whose critic says so."""

    def answer(request: AgentRequest) -> AgentStep:
        is_critic = "gate" in request.labels
        return Text(f'{{"verdict": "{verdict}", "score": 80, "summary": "so"}}' if is_critic else "The work.")

    agents = {"scripted": ScriptedAgent([answer])}
    options = RunOptions(repo=folder, agents=agents, agent="scripted", state_directory=state)
    return asyncio.run(Pipeline.load(folder / "p.yaml").run(options=options)).state


@pytest.mark.program
def test_what_one_critic_said_there_is_not_heard_by_a_run_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(FILE)
    (tmp_path / "one.md").write_text("Do the work of one.")
    first, second = tmp_path / "first", tmp_path / "second"
    assert judged(tmp_path, first, "FAIL") is StageState.FAILED
    assert judged(tmp_path, second, "PASS") is StageState.COMPLETED
    assert [(state / DATABASE_NAME).is_file() for state in (first, second)] == [True, True]
