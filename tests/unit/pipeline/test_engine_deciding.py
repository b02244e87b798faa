from __future__ import annotations

from pathlib import Path
from typing import Any

from codeloupe.model.pipeline import AttemptRecord, CriticVerdict, Critique, FailedTry, RecoveryStep, StageRecord
from codeloupe.model.pipeline_definition import GateDefinition, GateKind, StageDefinition
from codeloupe.pipeline.deciding import Complete, Escalate, Execute, Fail, Judge, Keep, next_action

PASS, REWORK, FAIL = CriticVerdict.PASS, CriticVerdict.REWORK, CriticVerdict.FAIL
CRITIC = GateDefinition(kind=GateKind.CRITIC, max_attempts=3, min_score=40)
COMMAND = GateDefinition(kind=GateKind.COMMAND, max_attempts=3)
FIRST, RETRY, RESUME, FRESH = RecoveryStep.FIRST, RecoveryStep.RETRY, RecoveryStep.RESUME, RecoveryStep.FRESH
Word = tuple[CriticVerdict, int | None]


def stage(*gates: GateDefinition) -> StageDefinition:
    return StageDefinition(name="s", step=Path("s.md"), gates=gates)


def record(*attempts: tuple[Word, ...] | None, failures: tuple[FailedTry, ...] = (), **more: Any) -> StageRecord:
    """A record with attempts; None is one that was not kept yet."""
    made = tuple(
        AttemptRecord(
            number=number,
            step=FIRST,
            tree="" if words is None else f"tree{number}",
            critiques=tuple(
                Critique(verdict=verdict, gate=GateKind.CRITIC, score=score) for verdict, score in words or ()
            ),
        )
        for number, words in enumerate(attempts, start=1)
    )
    return StageRecord(name="s", attempts=made, failures=failures, **more)


def failed(kind: str = "crashed", **more: Any) -> FailedTry:
    return FailedTry(**{"step": FIRST, "kind": kind, "message": kind, "attempt": 1, **more})


def test_a_stage_begins_with_its_first_attempt() -> None:
    assert next_action(stage(), record()) == Execute(1, FIRST)


def test_what_an_attempt_left_is_kept_then_judged_by_each_gate_then_it_is_complete() -> None:
    asked = stage(CRITIC, COMMAND)
    assert next_action(asked, record(None)) == Keep(1)
    assert next_action(asked, record(())) == Judge(1, 0)
    assert next_action(asked, record(((PASS, 90),))) == Judge(1, 1)
    assert next_action(asked, record(((PASS, 90), (PASS, None)))) == Complete(1)
    assert next_action(stage(), record(())) == Complete(1)


def test_rework_is_followed_by_the_next_attempt_until_the_gate_allows_no_more() -> None:
    asked = stage(CRITIC)
    assert next_action(asked, record(((REWORK, 50),))) == Execute(2, FIRST)
    assert next_action(asked, record(((REWORK, 50),), ((REWORK, 70),))) == Execute(3, FIRST)
    third = next_action(asked, record(((REWORK, 50),), ((REWORK, 70),), ((REWORK, 60),)))
    assert isinstance(third, Complete)
    assert third.attempt == 2
    assert "without a PASS" in third.note


def test_scores_below_the_least_go_to_a_person_with_the_best_attempt_at_hand() -> None:
    action = next_action(stage(CRITIC), record(((REWORK, 20),), ((REWORK, 30),), ((REWORK, 25),)))
    assert isinstance(action, Escalate)
    assert action.attempt == 2
    told = "no attempt passed every gate after 3 attempts, and the best score, 30, is too low to be taken"
    assert action.reason == told


def test_a_fail_ends_it_at_once_and_keeps_the_better_attempt() -> None:
    action = next_action(stage(CRITIC), record(((REWORK, 60),), ((FAIL, 10),)))
    assert isinstance(action, Fail)
    assert action.attempt == 1
    assert "gate failed attempt 2" in action.reason
    assert "attempt 1 is kept, since its score, 60, is better" in action.reason
    assert next_action(stage(CRITIC), record(((FAIL, 10),))) == Fail(1, "the critic gate failed attempt 1")


def test_the_best_of_several_faces_the_gates_that_it_has_not_faced() -> None:
    asked = stage(CRITIC, COMMAND)
    scores = (((REWORK, 50),), ((REWORK, 70),), ((REWORK, 60),))
    assert next_action(asked, record(*scores)) == Judge(2, 1)
    passed = record(scores[0], (*scores[1], (PASS, None)), scores[2])
    assert isinstance(next_action(asked, passed), Complete)


def test_when_the_best_does_not_pass_the_other_gates_the_next_best_is_tried() -> None:
    asked = stage(CRITIC, COMMAND)
    refused = (REWORK, None)
    tried = record(((REWORK, 50),), ((REWORK, 70), refused), ((REWORK, 60),))
    assert next_action(asked, tried) == Judge(3, 1)
    none_left = record(((REWORK, 50), refused), ((REWORK, 70), refused), ((REWORK, 60), refused))
    assert isinstance(next_action(asked, none_left), Escalate)


def test_what_a_command_refused_is_not_told_as_a_score_that_is_too_low() -> None:
    told = "no attempt passed every gate after 3 attempts: critic"
    for word in ((PASS, 90), (REWORK, 70)):
        action = next_action(stage(CRITIC, COMMAND), record(*[(word, (REWORK, None))] * 3))
        assert action == Escalate(3, told)


def test_failing_tests_are_never_taken_however_often_it_was_tried() -> None:
    action = next_action(stage(COMMAND), record(*[((REWORK, None),)] * 3))
    assert isinstance(action, Escalate)
    assert action.attempt == 3


def test_a_failed_call_is_recovered_from_for_its_own_attempt() -> None:
    again = (failed(), failed(step=RETRY, session_id="s-1", agent="codex", resumable=True, tree="t"))
    assert next_action(stage(), record(failures=again[:1])) == Execute(1, RETRY)
    assert next_action(stage(), record(failures=again)) == Execute(1, RESUME, session="s-1", agent="codex", tree="t")
    assert next_action(stage(CRITIC), record(((REWORK, 50),), failures=again)) == Execute(2, FIRST)


def test_a_call_that_failed_before_an_attempt_came_of_it_does_not_keep_that_from_being_kept() -> None:
    assert next_action(stage(), record(None, failures=(failed(),))) == Keep(1)
    assert isinstance(next_action(stage(), record(None, failures=(failed("workspace_error"),))), Escalate)


def test_a_gate_that_could_not_decide_is_asked_again_once_and_then_a_person() -> None:
    busy = failed("overloaded", gate=0, retryable=True)
    assert next_action(stage(CRITIC), record((), failures=(busy,))) == Judge(1, 0)
    assert next_action(stage(CRITIC), record((), failures=(busy, busy))) == Escalate(1, "overloaded (after 2 tries)")
    assert next_action(stage(CRITIC), record((), failures=(failed("output_invalid", gate=0),))) == Escalate(
        1, "output_invalid"
    )


def test_after_a_persons_word_what_was_before_no_longer_counts() -> None:
    low = (((REWORK, 20),),) * 3
    again = record(*low, attempts_before=3)
    assert next_action(stage(CRITIC), again) == Execute(4, FIRST)
    refused = record(*low, ((REWORK, 10),), attempts_before=3)
    assert next_action(stage(CRITIC), refused) == Execute(5, FIRST)
    hopeless = record(failures=(failed("not_logged_in"),), failures_before=1)
    assert next_action(stage(), hopeless) == Execute(1, FIRST)
    ended = record(((FAIL, 5),), attempts_before=1)
    assert next_action(stage(CRITIC), ended) == Execute(2, FIRST)


def test_after_a_persons_word_a_gate_that_could_not_decide_is_asked_and_not_the_stage() -> None:
    broken = record((), failures=(failed("not_logged_in", gate=0),), attempts_before=1, failures_before=1)
    assert next_action(stage(CRITIC), broken) == Judge(1, 0)
    unkept = record(None, failures=(failed("workspace_error"),), attempts_before=1, failures_before=1)
    assert next_action(stage(CRITIC), unkept) == Keep(1)
