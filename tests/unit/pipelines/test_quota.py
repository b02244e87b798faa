"""A quota that is used up: a state of the stage that meets it, and never a failure."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from codeloupe.calls import AgentCalls
from codeloupe.config.schema import Settings
from codeloupe.errors import RateLimited
from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Decision
from codeloupe.model.pipeline import StageState as S
from codeloupe.pipelines.run import Pipeline, RunOptions
from codeloupe.reports.pipeline import exit_code_of, next_steps, stage_text
from codeloupe.testing import Json, ScriptedAgent, Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, Ran, critique, failing, resume, run_stages, write_pipeline, writing
from tests.rows import each

pytestmark = [pytest.mark.program, pytest.mark.defect("W7")]

HOURS = 5
QUOTA = failing(RateLimited, "the quota is used up", retry_after_seconds=HOURS * 3600)
WRITES = writing({"a.md": "one\n"})


def is_about(ran: Ran, stage: str) -> list[str]:
    return [state for state in ran.states(stage) if state in ("waiting_for_quota", "recovering", "awaiting_approval")]


def test_a_stage_waits_for_a_quota_and_the_run_completes_without_a_person(tmp_path: Path) -> None:
    cast = Cast({"write": [QUOTA, WRITES]}, {"write": [critique("PASS", 90)]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": "critic"}, wait_for_approval=True)
    stage = ran.record.stage("write")
    assert (ran.record.state, ran.record.reason, stage.failures, stage.quota_until) == (S.COMPLETED, "", (), None)
    assert cast.calls == ["write", "write", "critic of write"]
    assert is_about(ran, "write") == ["waiting_for_quota"]
    assert cast.agent.timing.now() - datetime.now(UTC) >= timedelta(hours=HOURS)
    assert stage.usage.requests == 3


def test_a_quota_that_resets_at_once_is_waited_for_all_the_same(tmp_path: Path) -> None:
    cast = Cast({"write": [failing(RateLimited, "wait", retry_after_seconds=0.0)]})
    ran = run_stages(tmp_path, cast, {"name": "write"})
    # One call with its three tries.
    assert (ran.record.state, cast.calls) == (S.WAITING_FOR_QUOTA, ["write"] * 3)


def test_a_gate_waits_for_a_quota_and_the_work_is_judged_once(tmp_path: Path) -> None:
    cast = Cast({"write": [WRITES]}, {"write": [QUOTA, critique("PASS", 90)]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": "critic"}, wait_for_approval=True)
    assert (ran.record.state, ran.record.stage("write").failures) == (S.COMPLETED, ())
    assert cast.calls == ["write", "critic of write", "critic of write"]
    assert is_about(ran, "write") == ["waiting_for_quota"]


def test_a_review_gate_that_is_incomplete_because_of_a_quota_waits(tmp_path: Path) -> None:
    answers: list[AgentStep] = [QUOTA, Json({"findings": []})]
    work = writing({"a.py": "x = 1\n"})

    def step(request: AgentRequest) -> AgentStep:
        if "stage" in request.labels:
            return work(request)
        return answers.pop(0)

    agent = ScriptedAgent([step])
    stage = {"name": "write", "gate": "review", "artifacts": {"patterns": ["*.py"]}}
    file = write_pipeline(tmp_path / "p", stage)
    given = RunOptions(settings=Settings(), agent="scripted", state_directory=tmp_path / "state", repo=tmp_path)
    with AgentCalls([agent], state_directory=tmp_path / "state") as calls:
        record = asyncio.run(Pipeline.load(file).run(options=given, calls=calls))
    assert (record.state, record.reason, answers) == (S.COMPLETED, "", [])
    assert is_about(Ran(record, tmp_path / "state"), "write") == ["waiting_for_quota"]
    assert len(agent.requests) == record.usage.requests == 3


def test_without_waiting_the_run_stops_and_tells_when_it_can_continue(tmp_path: Path) -> None:
    cast = Cast({"write": [QUOTA, WRITES], "other": [Text("never")]})
    stages = ({"name": "write"}, {"name": "other", "needs": "write"})
    ran = run_stages(tmp_path, cast, *stages)
    stage = ran.record.stage("write")
    assert (ran.record.state, exit_code_of(ran.record)) == (S.WAITING_FOR_QUOTA, 3)
    assert ran.record.reason == "waiting for a quota: write: " + stage.reason
    assert stage.quota_until is not None
    left = stage.quota_until - datetime.now(UTC)
    assert timedelta(hours=HOURS - 1) < left <= timedelta(hours=HOURS)
    local = stage.quota_until.astimezone()
    assert stage_text(stage).startswith("waiting for quota until ")
    assert stage_text(stage).endswith(f"{local:%H:%M}")
    # Before the reset no call is made, in another process either.
    again = resume(ran, cast)
    assert (again.record.state, cast.calls) == (S.WAITING_FOR_QUOTA, ["write"])


def test_a_person_can_have_a_stage_that_waits_for_a_quota_retried_at_once(tmp_path: Path) -> None:
    cast = Cast({"write": [QUOTA, WRITES]})
    ran = run_stages(tmp_path, cast, {"name": "write"})
    ran.say("write", Decision.RETRY)
    again = resume(ran, cast)
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["write", "write"])


def test_other_stages_of_the_account_wait_and_are_not_sent(tmp_path: Path) -> None:
    cast = Cast({"one": [QUOTA, WRITES], "two": [writing({"b.md": "two\n"})]})
    ran = run_stages(tmp_path, cast, {"name": "one"}, {"name": "two"}, keys={"max_parallel": 1})
    assert ran.record.state is S.WAITING_FOR_QUOTA
    assert [ran.record.stage(name).state for name in ("one", "two")] == [S.WAITING_FOR_QUOTA] * 2
    assert cast.calls == ["one"]
    cast = Cast({"one": [QUOTA, WRITES], "two": [writing({"b.md": "two\n"})]})
    ran = run_stages(
        tmp_path / "waits", cast, {"name": "one"}, {"name": "two"}, keys={"max_parallel": 1}, wait_for_approval=True
    )
    assert (ran.record.state, sorted(cast.calls)) == (S.COMPLETED, ["one", "one", "two"])


@each("seconds", [1e300, float("inf")])
def test_a_service_that_asks_for_a_wait_of_years_is_a_matter_for_a_person(tmp_path: Path, seconds: float) -> None:
    cast = Cast({"write": [failing(RateLimited, "no", retry_after_seconds=seconds)]})
    ran = run_stages(tmp_path / str(seconds), cast, {"name": "write"})
    assert (ran.record.state, ran.record.stage("write").failures != ()) == (S.AWAITING_APPROVAL, True)


@each("seconds", [None, -1.0, float("nan")])
def test_a_reset_at_an_unknown_time_is_tried_again_soon(tmp_path: Path, seconds: float | None) -> None:
    folder = tmp_path / str(seconds)
    cast = Cast({"write": [failing(RateLimited, "no", retry_after_seconds=seconds)] * 3 + [WRITES]})
    ran = run_stages(folder, cast, {"name": "write"}, wait_for_approval=True)
    assert (ran.record.state, ran.record.stage("write").failures) == (S.COMPLETED, ())
    assert cast.agent.timing.now() - datetime.now(UTC) < timedelta(hours=1)


def test_the_next_step_names_the_command_that_waits(tmp_path: Path) -> None:
    ran = run_stages(tmp_path, Cast({"write": [QUOTA]}), {"name": "write"})
    ((command, what),) = next_steps(ran.record, None)  # type: ignore[arg-type]  # no place is named in this state
    assert command == f"codeloupe pipeline resume {ran.record.run_id}"
    assert what == "waits until the quota resets, and continues"
