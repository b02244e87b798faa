"""The next action of a stage, which follows from its record alone.

A run that was killed continues from its record exactly like one that was not: work in the record is never repeated.
A call that failed is retried, its session is resumed in a fork, it is started afresh, or it is given to a person; each
step is taken at most as often as this module allows. `min_score` applies to critics alone: if no attempts are left, the
best attempt may continue although a critic asked for rework. A review, command or approval gate is never overridden.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import AgentExecutionError, WorkspaceError
from codeloupe.model import pipeline as model
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import (
    AttemptRecord,
    CriticVerdict,
    Critique,
    FailedTry,
    GateDefinition,
    GateKind,
    RecoveryStep,
    StageDefinition,
    StageRecord,
    StageState,
)
from codeloupe.system.regex import regex

# Failures that another call cannot fix, so they go to a person at once.
_HOPELESS = frozenset(
    {"not_logged_in", "not_installed", "invalid_request", "budget_exhausted", model.WORKSPACE_ERROR, "unreadable_file"}
)
_WORD_START = regex(r"(?<=[a-z])(?=[A-Z])")


class Action(Struct, frozen=True):
    """The next action of a stage, for one of its attempts; the number is 0 if there is none.

    `execute`: call its agent, as `step` says; `session`, `agent` and `tree` belong to a session that is resumed.
    `keep`: store the files that the attempt left in its workspace. `judge`: let a gate, by its position, decide on it.
    `complete`: its work is used. `fail`: it was refused, and its work is stored anyway. `escalate`: only a person can
    help; the attempt is the one that would be used.
    """

    do: Literal["execute", "keep", "judge", "complete", "fail", "escalate"]
    attempt: int
    reason: str = ""
    gate: int = 0
    step: RecoveryStep = RecoveryStep.FIRST
    session: str = ""
    agent: str = ""
    tree: str = ""


def next_action(stage: StageDefinition, record: StageRecord) -> Action:
    """Return the next action of a stage that has not ended."""
    if record.kept is not None:
        return _judge_kept(stage, record, record.kept)
    recent = record.attempts[record.attempts_before :]
    for attempt in reversed(recent):
        if _has_failed(attempt):
            return _fail(record.attempts, attempt)
    if record.attempts and not record.attempts[-1].tree:
        return _keep(record, record.attempts[-1])
    # Without a recent attempt, the stage has just begun, or a person had it run again.
    if not recent:
        return _attempt(stage, record)
    last = recent[-1]
    refused = refused_at(last)
    if refused is None:
        return _onward(stage, record, last)
    if len(recent) < stage.gates[refused].max_attempts:
        return _attempt(stage, record)
    accepted = acceptable(recent, stage.gates)
    if accepted is None:
        return _escalated(record, (), _nothing_good(record))
    return _onward(stage, record, accepted)


def _judge_kept(stage: StageDefinition, record: StageRecord, number: int) -> Action:
    """Return the action for work that was used before its gates changed: it is used again if the new gates pass it."""
    attempt = next(attempt for attempt in record.attempts if attempt.number == number)
    action = _onward(stage, record, attempt)
    if action.do == "complete":
        return Action("complete", number)
    return action


def _keep(record: StageRecord, last: AttemptRecord) -> Action:
    """Return the action for an answered attempt whose files are not stored yet."""
    failures = [failure for failure in failures_of(record, last.number) if failure.kind == model.WORKSPACE_ERROR]
    if failures:
        return _escalated(record, failures)
    return Action("keep", last.number)


def _attempt(stage: StageDefinition, record: StageRecord) -> Action:
    """Return the action for the next call of the agent."""
    number = len(record.earlier) + len(record.attempts) + 1
    # An answer whose files were lost did not fail, so the attempt is made again as if it had not been made.
    failures = [failure for failure in failures_of(record, number) if failure.kind != model.WORKSPACE_LOST]
    step = next_step(stage, failures)
    if step is None:
        return _escalated(record, failures)
    if step is RecoveryStep.RESUME:
        last = failures[-1]
        return Action("execute", number, step=step, session=last.session_id, agent=last.agent, tree=last.tree)
    return Action("execute", number, step=step)


def _onward(stage: StageDefinition, record: StageRecord, attempt: AttemptRecord) -> Action:
    """Return the action for the next gate that has not judged an attempt, or for its end."""
    gate = len(attempt.critiques)
    number = attempt.number
    if gate < len(stage.gates):
        failures = failures_of(record, number, gate_key=stage.gate_keys[gate])
        # A gate that could not decide is asked once more, if its failure is temporary.
        is_hopeless = any(not failure.retryable for failure in failures)
        if len(failures) > 1 or is_hopeless:
            return _escalated(record, failures)
        return Action("judge", number, gate=gate)
    if refused_at(attempt) is None:
        return Action("complete", number)
    reason = f"attempt {number} was accepted without a PASS: its score, {attempt.score}, is the best"
    return Action("complete", number, reason)


def failures_of(record: StageRecord, attempt: int, *, gate_key: str = "") -> Sequence[FailedTry]:
    """Return the failures of an attempt that count: those of one gate or, without its key, of the stage's own call."""
    recent = record.failures[record.failures_before :]
    return [failure for failure in recent if failure.attempt == attempt and failure.gate_key == gate_key]


def _escalated(record: StageRecord, failures: Sequence[FailedTry], reason: str = "") -> Action:
    if failures:
        reason = failures[-1].message
    if len(failures) > 1:
        reason = f"{reason} (after {len(failures)} tries)"
    # Work that a gate has failed is not offered to the person.
    chosen = best(attempt for attempt in record.attempts if attempt.tree and not _has_failed(attempt))
    number = 0 if chosen is None else chosen.number
    return Action("escalate", number, reason)


def _nothing_good(record: StageRecord) -> str:
    """Return why no attempt can be accepted: a gate that is never overridden, or scores that are too low."""
    tries = len(record.attempts)
    words = f"no attempt passed every gate after {tries} attempt{'' if tries == 1 else 's'}"
    chosen = best(record.attempts) or record.attempts[-1]
    for critique in chosen.critiques:
        if critique.verdict is not CriticVerdict.PASS and critique.gate is not GateKind.CRITIC:
            return f"{words}: {critique.summary or critique.gate.value}"
    if chosen.score is None:
        return f"{words}, and no critic gave a score"
    return f"{words}, and the best score, {chosen.score}, is too low to accept"


def _fail(attempts: Sequence[AttemptRecord], failed: AttemptRecord) -> Action:
    """Return the end of a stage after a gate failed an attempt; an earlier attempt with a better score is used."""
    critique = next(word for word in reversed(failed.critiques) if word.verdict is CriticVerdict.FAIL)
    words = f"the {critique.gate.value} gate failed attempt {failed.number}"
    if critique.summary:
        words = f"{words}: {critique.summary}"
    earlier = [attempt for attempt in attempts if attempt.number < failed.number and not _has_failed(attempt)]
    other = best(earlier)
    if other is None or _rank(other) <= _rank(failed):
        return Action("fail", failed.number, words)
    kept = f"attempt {other.number} was kept, because its score, {other.score}, is better"
    return Action("fail", other.number, f"{words}; {kept}")


def refused_at(attempt: AttemptRecord) -> int | None:
    """Return the position of the first gate that did not pass an attempt, or None."""
    for position, critique in enumerate(attempt.critiques):
        if critique.verdict is not CriticVerdict.PASS:
            return position
    return None


def _has_failed(attempt: AttemptRecord) -> bool:
    return any(critique.verdict is CriticVerdict.FAIL for critique in attempt.critiques)


def best(attempts: Iterable[AttemptRecord]) -> AttemptRecord | None:
    """Return the attempt with the highest score, the later of two alike; one without a score ranks lowest."""
    return max(attempts, key=lambda attempt: (_rank(attempt), attempt.number), default=None)


def _rank(attempt: AttemptRecord) -> int:
    return -1 if attempt.score is None else attempt.score


def acceptable(attempts: Iterable[AttemptRecord], gates: Sequence[GateDefinition]) -> AttemptRecord | None:
    """Return the best attempt that only critics refused, each with a score of at least its gate's `min_score`."""
    stored = (attempt for attempt in attempts if attempt.tree)
    return best(attempt for attempt in stored if all(map(_allows, gates, attempt.critiques)))


def _allows(gate: GateDefinition, critique: Critique) -> bool:
    """Return whether an attempt with this verdict may continue when no attempts are left."""
    match critique.verdict:
        case CriticVerdict.PASS:
            return True
        case CriticVerdict.FAIL:
            return False
        case CriticVerdict.REWORK:
            if gate.kind is not GateKind.CRITIC:
                return False
            return critique.score is not None and critique.score >= gate.min_score
        case _:
            assert_never(critique.verdict)


def failed_try(error: Exception, *, step: RecoveryStep, attempt: int, usage: Usage = Usage()) -> FailedTry:
    """Return a failure as it is recorded."""
    cause: BaseException = error
    if isinstance(error, AgentExecutionError) and error.__cause__ is not None:
        cause = error.__cause__
    return FailedTry(
        step=step,
        kind=_kind_of(cause),
        message=getattr(error, "message", f"{type(error).__name__}: {error}")[:4_000],
        hint=getattr(error, "hint", "")[:4_000],
        session_id=getattr(cause, "session_id", ""),
        usage=usage,
        attempt=attempt,
        agent=getattr(cause, "agent", ""),
        retryable=bool(getattr(cause, "retryable", False)),
    )


def _kind_of(cause: BaseException) -> str:
    if isinstance(cause, WorkspaceError):
        return model.WORKSPACE_ERROR
    # An agent's failure is caused by one of our own errors, or by a timeout.
    if isinstance(cause, OSError | ValueError) and not isinstance(cause, TimeoutError):
        return "unreadable_file"
    return _WORD_START.sub("_", type(cause).__name__).lower()


def next_step(stage: StageDefinition, failures: Sequence[FailedTry]) -> RecoveryStep | None:
    """Return how the call of an attempt is made after these failures of it, or None if only a person can help."""
    if not failures:
        return RecoveryStep.FIRST
    last = failures[-1]
    # A session that is no longer known is an invalid request, and a call without it may succeed.
    is_lost_session = last.step is RecoveryStep.RESUME and last.kind == "invalid_request"
    if last.kind in _HOPELESS and not is_lost_session:
        return None
    # Without retries there is exactly one call.
    if not stage.retries:
        return None
    steps = [failure.step for failure in failures]
    # A failure that may be permanent is retried once, because agents seldom fail twice in the same way.
    retries = stage.retries if last.retryable else min(stage.retries, 1)
    has_gone_further = RecoveryStep.RESUME in steps or RecoveryStep.FRESH in steps
    if steps.count(RecoveryStep.RETRY) < retries and not has_gone_further:
        return RecoveryStep.RETRY
    if last.resumable and last.session_id and not has_gone_further:
        return RecoveryStep.RESUME
    return None if RecoveryStep.FRESH in steps else RecoveryStep.FRESH


def tried_again(stage: StageRecord, note: str) -> StageRecord:
    """Return a stage that a person has run again: what happened before no longer counts towards its limits.

    Its agent is called again, with the note. Only if the stage waits because its finished work could not be stored or
    judged, and there is no note, that step is repeated for the same work.
    """
    again = replace(_unended(stage), failures_before=len(stage.failures), person_note=note.strip())
    is_waiting = stage.state is StageState.AWAITING_APPROVAL
    if is_waiting and not note.strip() and _failed_after_answer(stage):
        return again
    return replace(again, attempts_before=len(stage.attempts), retries=stage.retries + 1)


def _failed_after_answer(stage: StageRecord) -> bool:
    """Return whether the stage waits because its last attempt could not be stored, or its next gate not decide."""
    if not stage.attempts or not stage.failures:
        return False
    attempt = stage.attempts[-1]
    failure = stage.failures[-1]
    if failure.attempt != attempt.number:
        return False
    return not attempt.tree or failure.gate == len(attempt.critiques)


def reopened(stage: StageRecord, reason: str) -> StageRecord:
    """Return a stage that begins again; its attempts become earlier ones, whose cost still counts."""
    return replace(
        _unended(stage),
        earlier=(*stage.earlier, *stage.attempts),
        attempts=(),
        attempts_before=0,
        failures_before=len(stage.failures),
        start_tree="",
        built_on={},
        outdated=(),
        reason=reason,
    )


def _unended(stage: StageRecord) -> StageRecord:
    return replace(stage, chosen=None, kept=None, wants_approval="", reason="", ended_at=None)
