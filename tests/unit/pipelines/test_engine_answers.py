"""Answers of people: the question that they are about, and the moment at which they are removed."""

from pathlib import Path

import pytest

from codeloupe.errors import NotLoggedIn
from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RunRecord, StageRecord, StageState
from codeloupe.pipelines import stages
from codeloupe.pipelines.context import Context
from codeloupe.pipelines.run import open_run_store
from codeloupe.store.interface import Content
from codeloupe.store.runs import DatabaseRunStore
from codeloupe.testing import Text
from tests.engine_pipelines import Cast, Ran, critique, failing, resume, run_stages, write_pipeline, writing
from tests.rows import each

pytestmark = pytest.mark.program
S = StageState
PASSES = {"command": "true"}
MISSING = {"command": "no-such-program"}
FIRST = {"kind": "approval", "timeout": "1s", "prompt": "Is it right?"}
SECOND = {"kind": "approval", "timeout": "1s", "prompt": "May it be published?"}
TWICE = {"name": "write", "gates": [FIRST, SECOND]}


class Killed(BaseException):
    """The process is gone."""


def answer_of(ran: Ran, question: int, decision: Decision = Decision.APPROVE) -> None:
    """Store an answer as a person gave it who saw the question with this number."""
    answer = Approval(stage="write", decision=decision, question=question)
    open_run_store(ran.state).put_approval(ran.record.run_id, answer)


def test_an_answer_to_one_question_does_not_answer_the_next(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("a")]})
    ran = run_stages(tmp_path, cast, TWICE)
    answer_of(ran, 1)
    asked_again = resume(ran, cast)
    assert (asked_again.record.state, asked_again.record.stage("write").questions) == (S.AWAITING_APPROVAL, 2)
    answer_of(ran, 1)
    still = resume(ran, cast)
    assert still.record.state is S.AWAITING_APPROVAL
    assert still.events("note")[-1].message == (
        "a person approved it, but the question or the work has changed since, so this does not count"
    )
    answer_of(ran, 2)
    assert resume(ran, cast).record.state is S.COMPLETED


def test_an_answer_about_an_earlier_attempt_does_not_approve_a_later_one(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("a"), Text("b")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": FIRST})
    ran.say("write", Decision.RETRY)
    second = resume(ran, cast)
    assert second.record.stage("write").chosen == 2
    answer_of(ran, 1)
    assert resume(ran, cast).record.state is S.AWAITING_APPROVAL


@each(
    ("before", "after"),
    [
        # The answer to an escalation, to another question, and to a gate that is gone.
        ([MISSING, SECOND], [PASSES, SECOND]),
        ([FIRST], [SECOND]),
        ([FIRST, SECOND], [SECOND]),
    ],
)
def test_an_answer_does_not_answer_the_question_of_another_gate(
    tmp_path: Path, before: list[dict[str, object]], after: list[dict[str, object]]
) -> None:
    cast = Cast({"write": [Text("a")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gates": before})
    ran.say("write", Decision.APPROVE)
    write_pipeline(tmp_path / "p", {"name": "write", "gates": after})
    again = resume(ran, cast, accept_changes=True).record
    assert (again.state, again.stage("write").reason) == (S.AWAITING_APPROVAL, "May it be published?")


def test_an_approval_of_one_attempt_does_not_approve_another(tmp_path: Path) -> None:
    words = [critique("REWORK", 70, "so so"), critique("REWORK", 50, "bad")]
    cast = Cast({"write": [writing({"a.md": "one"}), writing({"a.md": "two"})]}, {"write": words})
    ran = run_stages(tmp_path, cast, {"name": "write", "gates": [{"kind": "critic", "max_attempts": 2}, FIRST]})
    assert ran.record.stage("write").chosen == 1
    ran.say("write", Decision.APPROVE)
    write_pipeline(tmp_path / "p", {"name": "write", "gates": [FIRST]})
    again = resume(ran, cast, accept_changes=True).record.stage("write")
    assert (again.state, again.chosen, again.questions) == (S.AWAITING_APPROVAL, 2, 2)


def test_an_answer_that_is_replaced_before_it_is_applied_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast = Cast({"write": [Text("a")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": FIRST})
    ran.say("write", Decision.APPROVE)
    real = stages.save_handwork

    async def slow(context: Context, record: StageRecord) -> None:
        await real(context, record)
        ran.say("write", Decision.REJECT)

    monkeypatch.setattr(stages, "save_handwork", slow)
    again = resume(ran, cast)
    assert again.record.state is S.FAILED
    assert [event.message for event in again.events("approval_given")] == ["a person rejected it"]


def test_a_newer_retry_replaces_one_that_is_being_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cast = Cast({"write": [Text("a"), Text("b")]})
    ran = run_stages(tmp_path, cast, {"name": "write"})
    ran.say("write", Decision.RETRY, "the first note")
    real = stages.save_handwork

    async def slow(context: Context, record: StageRecord) -> None:
        await real(context, record)
        ran.say("write", Decision.RETRY, "the second note")

    monkeypatch.setattr("codeloupe.pipelines.engine.save_handwork", slow)
    assert resume(ran, cast).record.state is S.COMPLETED
    assert "the second note" in cast.agent.requests[-1].prompt
    assert cast.calls == ["write", "write"]


def test_an_approval_names_the_gates_that_have_not_passed(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("a")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gates": [MISSING, {"command": "false"}, FIRST]})
    ran.say("write", Decision.APPROVE)
    stage = resume(ran, cast).record.stage("write")
    expected = "a person approved it, without a PASS of these gates: command, command, approval"
    assert (stage.state, stage.reason) == (S.COMPLETED, expected)


def test_work_that_a_gate_failed_is_not_offered_to_a_person(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("a"), failing(NotLoggedIn)]}, {"write": [critique("FAIL", 95, "a backdoor")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": "critic"})
    ran.say("write", Decision.RETRY)
    stage = resume(ran, cast).record.stage("write")
    assert (stage.state, stage.chosen) == (S.AWAITING_APPROVAL, None)


@each("note", ["", "do it otherwise"])
def test_a_retry_of_a_completed_stage_is_a_new_call(tmp_path: Path, note: str) -> None:
    cast = Cast({"read": [Text("one"), Text("two")]})
    ran = run_stages(tmp_path, cast, {"name": "read", "writes": False})
    ran.say("read", Decision.RETRY, note)
    again = resume(ran, cast)
    assert (cast.calls, again.result()) == (["read", "read"], {"read-output.md": "two\n"})


def test_a_retry_with_a_note_is_a_new_call_although_a_gate_could_not_decide(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("one"), Text("two")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": MISSING})
    ran.say("write", Decision.RETRY, "leave out the name")
    resume(ran, cast)
    assert cast.calls == ["write", "write"]
    assert "leave out the name" in cast.agent.requests[-1].prompt


def test_a_retry_without_a_note_lets_a_gate_that_could_not_decide_judge_again(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    cast = Cast({"write": [Text("one")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": {"command": [str(tool)]}})
    tool.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    tool.chmod(0o755)
    ran.say("write", Decision.RETRY)
    assert (resume(ran, cast).record.state, cast.calls) == (S.COMPLETED, ["write"])


def test_rejected_work_is_not_used_after_a_retry(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    cast = Cast({"write": [writing({"a.md": "bad"}), writing({"a.md": "good"})]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": {"command": [str(tool)]}})
    ran.say("write", Decision.REJECT)
    assert resume(ran, cast).record.state is S.FAILED
    tool.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    tool.chmod(0o755)
    ran.say("write", Decision.RETRY)
    assert resume(ran, cast).result() == {"a.md": "good"}


def test_a_retry_counts_although_the_gates_changed_too(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("one"), Text("two")]})
    ran = run_stages(tmp_path, cast, {"name": "write"})
    ran.say("write", Decision.RETRY)
    write_pipeline(tmp_path / "p", {"name": "write", "gate": PASSES})
    again = resume(ran, cast, accept_changes=True)
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["write", "write"])
    assert open_run_store(ran.state).approval(ran.record.run_id, "write") is None


def test_a_retry_after_a_verdict_is_a_new_call_although_the_gate_failed_before(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    cast = Cast({"write": [Text("one"), Text("two")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": {"command": [str(tool)], "max_attempts": 1}})
    tool.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    tool.chmod(0o755)
    ran.say("write", Decision.RETRY)
    refused = resume(ran, cast).record.stage("write")
    assert (refused.state, refused.questions, cast.calls) == (S.AWAITING_APPROVAL, 2, ["write"])
    ran.say("write", Decision.RETRY)
    resume(ran, cast)
    assert cast.calls == ["write", "write"]


def test_a_retry_counts_although_the_limits_changed_too(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("one"), Text("two")]})
    gate = {"command": "false", "max_attempts": 1}
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": gate})
    ran.say("write", Decision.RETRY, "shorter")
    write_pipeline(tmp_path / "p", {"name": "write", "gate": {**gate, "max_attempts": 2}})
    resume(ran, cast, accept_changes=True)
    assert "shorter" in cast.agent.requests[1].prompt
    assert open_run_store(ran.state).approval(ran.record.run_id, "write") is None


def test_an_answer_to_a_question_that_is_no_longer_asked_is_named_in_a_note(tmp_path: Path) -> None:
    cast = Cast({"write": [Text("one")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": {"command": "false", "max_attempts": 1}})
    ran.say("write", Decision.REJECT)
    write_pipeline(tmp_path / "p", {"name": "write"})
    again = resume(ran, cast, accept_changes=True)
    assert again.record.state is S.COMPLETED
    assert any("a person rejected it, but the question" in event.message for event in again.events("note", "write"))
    assert open_run_store(ran.state).approval(ran.record.run_id, "write") is None


def test_an_answer_about_work_that_is_made_again_is_named_in_a_note(tmp_path: Path) -> None:
    cast = Cast({"read": [Text("one"), Text("two")], "write": [Text("a")]})
    stages = ({"name": "read"}, {"name": "write", "needs": ["read"], "gate": FIRST})
    ran = run_stages(tmp_path, cast, *stages)
    ran.say("write", Decision.APPROVE)
    ran.say("read", Decision.RETRY)
    again = resume(ran, cast)
    assert again.record.stage("write").state is S.AWAITING_APPROVAL
    assert any("a person approved it, but the question" in event.message for event in again.events("note", "write"))
    assert open_run_store(ran.state).approval(ran.record.run_id, "write") is None


@each(("decision", "state"), [(Decision.APPROVE, S.COMPLETED), (Decision.REJECT, S.FAILED), (Decision.RETRY, None)])
@each("gate", [FIRST, {"command": "false", "max_attempts": 1}])
def test_an_answer_survives_a_kill_until_its_effect_is_saved(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gate: dict[str, object],
    decision: Decision,
    state: StageState | None,
) -> None:
    cast = Cast({"write": [Text("a"), Text("b")]})
    ran = run_stages(tmp_path, cast, {"name": "write", "gate": gate})
    ran.say("write", decision)
    real = DatabaseRunStore.save

    def killed(
        store: DatabaseRunStore,
        run: RunRecord,
        *events: PipelineEvent,
        files: dict[str, Content],
        answered: Approval | None = None,
    ) -> None:
        if answered is not None:
            raise Killed
        real(store, run, *events, files=files)

    monkeypatch.setattr(DatabaseRunStore, "save", killed)
    with pytest.raises(Killed):
        resume(ran, cast)
    monkeypatch.setattr(DatabaseRunStore, "save", real)
    again = resume(ran, cast)
    assert len(again.events("approval_given")) == 1
    if state is None:
        assert cast.calls == ["write", "write"]
    else:
        assert (again.record.state, cast.calls) == (state, ["write"])
