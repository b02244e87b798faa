from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from codeloupe.errors import Crashed, NotLoggedIn, OutputInvalid
from codeloupe.model.agent import AgentRequest, TokenUsage
from codeloupe.model.pipeline import Approval, Decision, RecoveryStep, StageState
from codeloupe.pipelines.run import open_run_store
from codeloupe.testing import Json, Text
from codeloupe.testing.agent import AgentStep
from tests.engine_pipelines import Cast, Ran, critique, failing, files_in, resume, run, write_pipeline, writing

pytestmark = pytest.mark.program

S = StageState


def say(ran: Ran, stage: str, decision: Decision, note: str = "") -> None:
    open_run_store(ran.state).put_approval(ran.record.run_id, Approval(stage=stage, decision=decision, note=note))


def crashing(files: dict[str, str], **more: Any) -> AgentStep:
    """A step that writes files and then fails."""

    def step(request: AgentRequest) -> AgentStep:
        writing(files)(request)
        return failing(Crashed, **more)

    return step


def test_each_step_of_recovery_is_visible_in_order(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    cast = Cast({"write": [failing(Crashed, "it fell over", session_id="s-1")]})
    ran = run(file, cast, tmp_path / "state")
    assert [event.facts["step"] for event in ran.events("recovery")] == ["retry", "resume", "fresh", "escalate"]
    assert [event.facts["step"] for event in ran.events("try_failed")] == ["first", "retry", "resume", "fresh"]
    assert ran.states("write") == ["running", *["recovering", "running"] * 3, "recovering", "awaiting_approval"]
    stage = ran.record.stage("write")
    assert [failure.step.value for failure in stage.failures] == ["first", "retry", "resume", "fresh"]
    assert stage.failures[0].kind == "crashed"
    assert "it fell over" in stage.reason
    assert "(after 4 tries)" in stage.reason
    order = [event.kind for event in ran.journal if event.kind in ("try_failed", "recovery", "approval_wanted")]
    assert order == ["try_failed", "recovery"] * 4 + ["approval_wanted"]


def test_retry_and_fresh_begin_anew_and_a_resumed_session_finds_what_it_left(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"})
    seen: list[tuple[str | None, dict[str, str], bool]] = []

    def looking(step: AgentStep) -> AgentStep:
        def look(request: AgentRequest) -> AgentStep:
            told = "Attempt History" in request.prompt
            assert request.fork_session is (request.resume_session is not None)
            seen.append((request.resume_session, files_in(request.working_dir), told))
            return step

        return look

    steps = [
        writing({"a.md": "one"}),
        looking(crashing({"half.md": "first"}, session_id="s-1")),
        looking(crashing({"half.md": "second"}, session_id="s-2")),
        looking(crashing({"more.md": "third"}, session_id="s-3")),
        looking(writing({"a.md": "fresh"})),
    ]
    cast = Cast({"write": steps}, {"write": [critique("REWORK", 50, "more"), critique("PASS", 90)]})
    ran = run(file, cast, tmp_path / "state")
    assert seen == [
        (None, {"a.md": "one"}, True),
        (None, {"a.md": "one"}, True),
        ("s-2", {"a.md": "one", "half.md": "second"}, True),
        (None, {}, False),
    ]
    assert ran.record.state is S.COMPLETED
    assert ran.record.stage("write").attempts[1].step is RecoveryStep.FRESH
    assert ran.result() == {"a.md": "fresh"}


def test_what_trying_again_cannot_mend_stops_for_a_person_who_then_has_it_tried_again(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"}, {"name": "use", "needs": ["write"]})
    cast = Cast({"write": [failing(NotLoggedIn, "log in first"), writing({"a.md": "a"})], "use": [Text("used")]})
    ran = run(file, cast, tmp_path / "state")
    assert cast.calls == ["write"]
    assert ran.record.state is S.AWAITING_APPROVAL
    again = resume(ran, cast)
    assert (again.record.state, cast.calls) == (S.AWAITING_APPROVAL, ["write"])
    say(ran, "write", Decision.RETRY, "you are logged in now")
    again = resume(ran, cast)
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["write", "write", "use"])
    assert "you are logged in now" in cast.agent.requests[1].prompt
    assert again.events("approval_given")[0].facts["decision"] == "retry"


def test_what_failed_calls_cost_is_counted(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    error = OutputInvalid(
        "half an answer", agent="scripted", cost_usd=0.5, usage=TokenUsage(input_tokens=10, output_tokens=5)
    )
    ran = run(file, Cast({"write": [error, writing({"a.md": "a"})]}, cost_usd=0.25), tmp_path / "state")
    stage = ran.record.stage("write")
    assert stage.state is S.COMPLETED
    assert stage.usage.cost_usd == pytest.approx(0.75)
    assert stage.failures[0].usage.input_tokens == 10


def test_a_critic_that_cannot_be_understood_is_never_a_pass_and_costs_the_stage_no_other_call(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write", "gate": "critic"})
    odd = Json({"verdict": "fine", "score": 99})
    cast = Cast({"write": [writing({"a.md": "a"})]}, {"write": [odd, odd, critique("PASS", 90)]})
    ran = run(file, cast, tmp_path / "state")
    stage = ran.record.stage("write")
    assert stage.state is S.AWAITING_APPROVAL
    assert "cannot be understood" in stage.reason
    assert cast.calls == ["write", "critic of write", "critic of write"]
    assert stage.failures[0].gate == 0
    say(ran, "write", Decision.RETRY)
    again = resume(ran, cast)
    assert again.record.state is S.COMPLETED
    assert cast.calls == ["write", *["critic of write"] * 3]


def test_secrets_in_failures_are_not_written_down(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    ran = run(
        file, Cast({"write": [failing(NotLoggedIn, f"refused {token}", hint=f"not {token}")]}), tmp_path / "state"
    )
    assert "refused [redacted]" in ran.record.stage("write").reason
    for name in ("run.json", "journal.jsonl"):
        assert token not in (ran.directory / name).read_text()


def test_what_the_first_call_of_a_session_made_is_an_artifact_of_the_one_that_resumed_it(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    half = crashing({"a.md": "half\n", "b.bin": "no\n"}, session_id="s-1")
    steps = [half, half, writing({"c.md": "rest\n"})]
    ran = run(file, Cast({"write": steps}), tmp_path / "state")
    attempt = ran.record.stage("write").attempts[0]
    assert attempt.step is RecoveryStep.RESUME
    assert attempt.artifacts == ("a.md", "c.md")
