from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.errors import (
    AgentExecutionError,
    ArtifactError,
    BudgetExhausted,
    Crashed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    Overloaded,
    TimedOut,
    WorkspaceError,
)
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import FailedTry, RecoveryStep
from codeloupe.model.pipeline_definition import StageDefinition
from codeloupe.pipeline.recovery import failed_try, in_words, may_gate_again, next_step

FIRST, RETRY, RESUME, FRESH = RecoveryStep.FIRST, RecoveryStep.RETRY, RecoveryStep.RESUME, RecoveryStep.FRESH


def stage(retries: int = 1) -> StageDefinition:
    return StageDefinition(name="s", step=Path("s.md"), retries=retries)


def executed(cause: Exception) -> AgentExecutionError:
    error = AgentExecutionError("no answer", stage="s", hint="do this")
    error.__cause__ = cause
    return error


def failures(error: Exception, *, tree: str = "t", retries: int = 1) -> list[RecoveryStep]:
    """The steps that a call takes that fails alike each time."""
    made: list[FailedTry] = []
    while (step := next_step(stage(retries), made)) is not None:
        made.append(failed_try(error, step=step, attempt=1, tree=tree))
    return [failure.step for failure in made]


def test_the_chain_is_retry_then_resume_then_fresh_then_a_person() -> None:
    error = executed(Overloaded("busy", agent="a", session_id="s-1"))
    assert failures(error) == [FIRST, RETRY, RESUME, FRESH]
    assert failures(error, retries=3) == [FIRST, RETRY, RETRY, RETRY, RESUME, FRESH]
    assert failures(error, retries=0) == [FIRST]


def test_without_a_session_that_can_be_resumed_that_step_is_left_out() -> None:
    assert failures(executed(Overloaded("busy", agent="a"))) == [FIRST, RETRY, FRESH]
    assert failures(executed(Overloaded("busy", agent="a", session_id="s-1")), tree="") == [FIRST, RETRY, FRESH]


def test_what_is_not_known_to_pass_is_tried_once_more_and_no_more() -> None:
    assert failures(executed(Crashed("oh", agent="a", session_id="s")), retries=3) == [FIRST, RETRY, RESUME, FRESH]
    assert failures(ArtifactError("no a.md"), retries=3) == [FIRST, RETRY, FRESH]


@pytest.mark.parametrize(
    "error",
    [
        executed(NotLoggedIn("no", agent="a", session_id="s")),
        executed(NotInstalled("no", agent="a")),
        executed(InvalidRequest("no", agent="a")),
        executed(BudgetExhausted("spent", agent="a")),
        BudgetExhausted("spent", agent="a"),
        WorkspaceError("two stages changed a.md"),
        executed(FileNotFoundError("step.md")),
        executed(UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")),
    ],
)
def test_what_trying_again_cannot_mend_goes_to_a_person_at_once(error: Exception) -> None:
    assert failures(error, retries=3) == [FIRST]


def test_a_session_that_is_not_known_any_more_is_followed_by_a_fresh_call() -> None:
    first = failed_try(executed(Crashed("oh", agent="a", session_id="s")), step=RETRY, attempt=1, tree="t")
    resumed = failed_try(executed(InvalidRequest("no such session", agent="a")), step=RESUME, attempt=1)
    assert next_step(stage(), [first, resumed]) is FRESH


def test_a_failure_is_kept_with_its_kind_its_words_and_its_session() -> None:
    cause = TimedOut("late", agent="codex", session_id="s-1")
    kept = failed_try(executed(cause), step=FIRST, attempt=2, usage=Usage(requests=1), tree="t")
    assert kept == FailedTry(
        step=FIRST,
        kind="timed_out",
        message="no answer",
        hint="do this",
        session_id="s-1",
        usage=Usage(requests=1),
        attempt=2,
        agent="codex",
        resumable=True,
        tree="t",
    )
    assert failed_try(executed(TimeoutError()), step=FIRST, attempt=1).kind == "timeout_error"
    assert failed_try(RuntimeError("odd"), step=FIRST, attempt=1).message == "RuntimeError: odd"


def test_a_gate_is_asked_once_more_if_that_makes_sense() -> None:
    passing = failed_try(Overloaded("busy", agent="a"), step=FIRST, attempt=1, gate=0)
    lasting = failed_try(Crashed("oh", agent="a"), step=FIRST, attempt=1, gate=0)
    assert may_gate_again([passing])
    assert not may_gate_again([passing, passing])
    assert not may_gate_again([lasting])


def test_the_words_for_a_person_tell_how_often_it_was_tried() -> None:
    one = failed_try(Crashed("oh", agent="a"), step=FIRST, attempt=1)
    assert in_words([one]) == "oh"
    assert in_words([one, one]) == "oh (after 2 tries)"
