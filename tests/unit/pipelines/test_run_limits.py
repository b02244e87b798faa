"""Limits of a run hold over its whole life, and `retries: 0` is one call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from codeloupe.config.schema import Settings
from codeloupe.errors import Crashed, OutputInvalid, Overloaded, TimedOut
from codeloupe.model.agent import AgentLimits
from codeloupe.model.pipeline import Approval, Decision, RecoveryStep, StageState
from codeloupe.pipelines.run import Pipeline, open_run_store, resume_run
from codeloupe.testing import AgentStep, Hang, Json, Text
from tests.engine_pipelines import Cast, Ran, critique, failing, options, resume, run, write_pipeline

pytestmark = pytest.mark.program

S = StageState


def tried_again(ran: Ran, cast: Cast, **more: Any) -> Ran:
    word = Approval(stage="write", decision=Decision.RETRY)
    open_run_store(ran.state).put_approval(ran.record.run_id, word)
    return resume(ran, cast, **more)


@pytest.mark.defect("P2")
def test_each_limit_holds_however_often_a_run_is_resumed(tmp_path: Path) -> None:
    limits: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
        "max_requests": ({"max_requests": 1}, {}, 1),
        "max_tokens": ({"max_tokens": 200}, {}, 2),
        "max_budget_usd": ({"max_budget_usd": 0.3}, {}, 2),
        "pipeline": ({}, {"max_budget_usd": 0.3}, 2),
        "stage": ({}, {"defaults": {"budget": 0.3}}, 2),
    }
    wrong: dict[str, Any] = {}
    for name, (wished, keys, most) in limits.items():
        folder = tmp_path / name
        file = write_pipeline(folder / "p", {"name": "write", "retries": 0, "gate": "critic"}, **keys)
        cast = Cast({"write": [Text("a")]}, {"write": [critique("FAIL", 5)]}, cost_usd=0.2)
        settings = Settings(**wished)
        ran = run(file, cast, folder / "state", settings=settings)
        for _ in range(3):
            ran = tried_again(ran, cast, settings=settings)
        stage = ran.record.stage("write")
        hint = stage.failures[-1].hint if stage.failures else ""
        key = {"stage": "budget", "pipeline": "max_budget_usd"}.get(name, name)
        command = f"codeloupe pipeline resume {ran.record.run_id}"
        if len(cast.calls) != most or f"`{key}`" not in hint or command not in hint:
            wrong[name] = (cast.calls, stage.reason, hint)
    assert wrong == {}


@pytest.mark.defect("P2")
def test_a_request_that_was_out_when_the_process_was_stopped_counts(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    cast = Cast({"write": [Hang()]})
    wishes = options(cast, tmp_path / "state", settings=Settings(max_requests=1))

    async def stopped(start: Any) -> None:
        work = asyncio.create_task(start)
        while not cast.calls:  # noqa: ASYNC110 - nobody tells when
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(stopped(Pipeline.load(file).run(options=wishes, run_id="r")))
    record = asyncio.run(resume_run("r", options=wishes))
    assert cast.calls == ["write"]
    assert (record.usage.requests, record.usage.unknown_costs) == (1, 1)
    assert "the run has made 1 of its 1 requests" in record.stage("write").reason


@pytest.mark.defect("P2")
def test_a_review_gate_has_only_what_is_left_of_the_runs_limits(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "review"})
    cast = Cast({"write": [Text("a")]})
    ran = run(
        file, cast, tmp_path / "state", settings=Settings(max_requests=1, reviewer_type="api", api_model="openai/m")
    )
    stage = ran.record.stage("write")
    assert (stage.state, ran.record.usage.requests) == (S.AWAITING_APPROVAL, 1)
    assert "the run has made 1 of its 1 requests" in stage.reason


@pytest.mark.defect("P3")
def test_without_retries_there_is_exactly_one_call(tmp_path: Path) -> None:
    errors: list[AgentStep] = [
        failing(Overloaded),
        failing(Crashed, session_id="s-1"),
        failing(TimedOut, session_id="s-1"),
        failing(OutputInvalid, session_id="s-1"),
        Text(" "),
        Json({}),
    ]
    wrong: dict[str, Any] = {}
    for number, error in enumerate(errors):
        folder = tmp_path / str(number)
        stage = {"name": "write", "retries": 0, "artifacts": {"required": ["a.md"]}}
        cast = Cast({"write": [error]})
        ran = run(write_pipeline(folder / "p", stage), cast, folder / "state")
        if (len(cast.calls), ran.record.state) != (1, S.AWAITING_APPROVAL):
            wrong[type(error).__name__] = (cast.calls, ran.record.reason)
        again = tried_again(ran, cast)
        if len(cast.calls) != 2 or again.record.stage("write").state is not S.AWAITING_APPROVAL:
            wrong[f"{type(error).__name__} again"] = cast.calls
    assert wrong == {}


@pytest.mark.defect("P2")
def test_a_budget_holds_for_an_agent_that_cannot_stop_at_a_cost_or_fork_a_session(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"}, {"name": "use", "needs": ["write"]})
    plain = AgentLimits(schema=True, resume=True, tools=True, writes=True)
    steps: list[AgentStep] = [failing(Crashed, session_id="s-1"), failing(Crashed, session_id="s-1"), Text("a")]
    cast = Cast({"write": steps, "use": [Text("b")]}, {"write": [critique("PASS", 90)]}, cost_usd=0.2, limits=plain)
    ran = run(file, cast, tmp_path / "state", settings=Settings(max_budget_usd=0.4))
    assert ran.record.stage("write").attempts[0].step is RecoveryStep.RESUME
    assert ran.record.stage("use").state is S.AWAITING_APPROVAL
    assert cast.calls == ["write", "write", "write", "critic of write"]


@pytest.mark.defect("P5")
def test_an_agent_that_stops_at_the_money_left_names_the_limit_to_raise_and_the_next_command(tmp_path: Path) -> None:
    rows: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
        ({"max_budget_usd": 0.3}, {}, "`max_budget_usd` in FILE", " --accept-changes"),
        ({"max_budget_usd": 9}, {"budget": 0.1}, "its `budget` in FILE", " --accept-changes"),
        ({}, {}, "`max_budget_usd` in your settings, or CODELOUPE_MAX_BUDGET_USD", ""),
    ]
    for number, (keys, of_stage, where, option) in enumerate(rows):
        folder, cast = tmp_path / str(number), Cast({"one": [Text("a")], "two": [Text("b")]}, cost_usd=0.2)
        file = write_pipeline(folder / "p", {"name": "one"}, {"name": "two", "needs": ["one"], **of_stage}, **keys)
        settings = Settings() if keys else Settings(max_budget_usd=0.3)
        ran = run(file, cast, folder / "state", settings=settings)
        again = f"`codeloupe pipeline resume {ran.record.run_id}{option} --retry two`"
        hint = ran.record.stage("two").failures[-1].hint
        assert hint == f"raise {where.replace('FILE', str(file))}, then {again}", number
