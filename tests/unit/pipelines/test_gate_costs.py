"""What a gate spent counts in its run, whether or not it reached a verdict."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from codeloupe.calls import AgentCalls
from codeloupe.config.schema import Settings
from codeloupe.model.agent import AgentRequest, Usage
from codeloupe.model.pipeline import RunRecord
from codeloupe.model.pipeline import StageState as S
from codeloupe.pipelines.run import Pipeline, RunOptions, open_run_store
from codeloupe.testing import Hang, Json, ScriptedAgent, Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import write_pipeline, writing

pytestmark = pytest.mark.program

PRICE = 0.5
INEXACT = Text("I am not sure about this change.")


class Reviewed:
    """A run of one stage with a review gate, whose reviewer gives these answers."""

    def __init__(self, folder: Path, *answers: AgentStep, **gate: Any) -> None:
        self.state = folder / "state"
        self.left = list(answers)
        self.unanswered: list[int] = []
        self.has_hung = asyncio.Event()
        self.agent = ScriptedAgent([self._step], cost_usd=PRICE)
        stage = {"name": "write", "gate": {"kind": "review", **gate}, "artifacts": {"patterns": ["*.py"]}}
        self.pipeline = Pipeline.load(write_pipeline(folder / "p", stage))
        self.options = RunOptions(
            settings=Settings(verify=False),
            agent="scripted",
            state_directory=self.state,
            repo=folder,
            wait_for_approval=False,
        )

    def _step(self, request: AgentRequest) -> AgentStep:
        if "stage" in request.labels:
            return writing({"a.py": "x = 1\n"})(request)
        self.unanswered.append(self.record().stage("write").unanswered)
        answer = self.left.pop(0)
        if isinstance(answer, Hang):
            self.has_hung.set()
        return answer

    def record(self) -> RunRecord:
        return open_run_store(self.state).load("r")

    async def run(self) -> RunRecord:
        with AgentCalls([self.agent], state_directory=self.state) as calls:
            return await self.pipeline.run(options=self.options, run_id="r", calls=calls)

    def assert_counted(self, *, unknown: int) -> None:
        """Every request counts once: with its price, or with an unknown cost."""
        usage = self.record().usage
        known = len(self.agent.requests) - unknown
        assert (usage.requests, usage.cost_usd, usage.unknown_costs) == (known + unknown, known * PRICE, unknown)


def test_the_cost_of_an_incomplete_review_counts(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path, INEXACT, INEXACT)
    stage = asyncio.run(reviewed.run()).stage("write")
    assert (stage.state, stage.attempts[0].critiques) == (S.AWAITING_APPROVAL, ())
    assert "is incomplete, so the gate did not pass" in stage.reason
    assert len(reviewed.agent.requests) == 3
    reviewed.assert_counted(unknown=0)


def test_the_cost_of_a_review_that_reaches_its_time_limit_counts(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path, INEXACT, Hang(), timeout=5)
    stage = asyncio.run(reviewed.run()).stage("write")
    assert "did not finish within 5 s" in stage.reason
    assert len(reviewed.agent.requests) == 3
    reviewed.assert_counted(unknown=1)


def test_the_cost_of_an_interrupted_review_counts(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path, INEXACT, Hang())

    async def interrupted() -> None:
        running = asyncio.create_task(reviewed.run())
        await reviewed.has_hung.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupted())
    assert reviewed.record().state is S.INTERRUPTED
    reviewed.assert_counted(unknown=1)
    # A process that is killed leaves the requests that it has sent in the record.
    assert reviewed.unanswered == [1, 2]


def test_the_cost_of_a_review_with_a_verdict_counts_once(tmp_path: Path) -> None:
    reviewed = Reviewed(tmp_path, Json({"findings": []}))
    record = asyncio.run(reviewed.run())
    assert (record.state, record.stage("write").lost) == (S.COMPLETED, Usage())
    reviewed.assert_counted(unknown=0)
