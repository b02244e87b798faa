"""Answers of people: the question that they are about, and the moment at which they are removed."""

from pathlib import Path

import pytest

from codeloupe.model.pipeline import Approval, Decision, PipelineEvent, RunRecord, StageState
from codeloupe.pipelines.run import open_run_store
from codeloupe.store.interface import Content
from codeloupe.store.runs import DatabaseRunStore
from codeloupe.testing import Text
from tests.engine_pipelines import Cast, Ran, resume, run_stages
from tests.rows import each

pytestmark = pytest.mark.program
S = StageState
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
