"""What is to be done next with a stage: a function of its definition and of what is known of it, and of nothing else.

So a run that was killed goes on from its record exactly as one that was not: what the record holds is never done
again, and what it does not hold was not done. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from codeloupe.model.pipeline import WORKSPACE_ERROR, AttemptRecord, FailedTry, RecoveryStep, StageRecord
from codeloupe.model.pipeline_definition import StageDefinition
from codeloupe.pipeline.choosing import best, final_refusal, has_failed, kept_after_failure, refused_at, takeable
from codeloupe.pipeline.recovery import in_words, may_gate_again, next_step


class Execute(Struct, frozen=True):
    """Ask the stage's agent, for an attempt of that number, in that way.

    `session`, the `agent` whose it is and the `tree` that it left are for one that is resumed.
    """

    attempt: int
    step: RecoveryStep
    session: str = ""
    agent: str = ""
    tree: str = ""


class Keep(Struct, frozen=True):
    """Keep what an attempt left in its workspace: its agent has answered, and no more is known."""

    attempt: int


class Judge(Struct, frozen=True):
    """Let a gate, by its place among the stage's, decide on an attempt."""

    attempt: int
    gate: int


class Complete(Struct, frozen=True):
    """The work of an attempt goes on. `note` says what is to be known about that, or is empty."""

    attempt: int
    note: str = ""


class Fail(Struct, frozen=True):
    """A gate or a person refused it for good; the work of an attempt is kept all the same."""

    attempt: int | None
    reason: str


class Escalate(Struct, frozen=True):
    """Only a person can help. `attempt` is the one that would be taken."""

    attempt: int | None
    reason: str


Action = Execute | Keep | Judge | Complete | Fail | Escalate


def next_action(stage: StageDefinition, record: StageRecord) -> Action:
    """What is to be done next with a stage that is not at its end."""
    recent = record.attempts[record.attempts_before :]
    if any(has_failed(attempt) for attempt in recent):
        kept = kept_after_failure(record.attempts)
        return Fail(kept.number if kept else None, _failure_words(recent, kept))
    last = record.attempts[-1] if record.attempts else None
    if last is None:
        return _attempt(stage, record)
    if not last.tree:
        # Those of its calls are other ones: after one of this kind there would be no attempt.
        failures = [failure for failure in _failures(record, last.number) if failure.kind == WORKSPACE_ERROR]
        return _escalated(record, in_words(failures)) if failures else Keep(last.number)
    if refused_at(last) is None:
        return _onward(stage, record, last)
    if _may_rework(stage, record, last):
        return _attempt(stage, record)
    taken = takeable(recent, stage.gates)
    return _escalated(record, _nothing_good(stage, record)) if taken is None else _onward(stage, record, taken)


def _attempt(stage: StageDefinition, record: StageRecord) -> Action:
    number = len(record.earlier) + len(record.attempts) + 1
    failures = _failures(record, number)
    step = next_step(stage, failures)
    if step is None:
        return _escalated(record, in_words(failures))
    if step is RecoveryStep.RESUME:
        last = failures[-1]
        return Execute(number, step, session=last.session_id, agent=last.agent, tree=last.tree)
    return Execute(number, step)


def _onward(stage: StageDefinition, record: StageRecord, attempt: AttemptRecord) -> Action:
    """The next gate that an attempt has not faced, or its end."""
    place = len(attempt.critiques)
    if place < len(stage.gates):
        failures = _failures(record, attempt.number, gate=place)
        if failures and not may_gate_again(failures):
            return _escalated(record, in_words(failures))
        return Judge(attempt.number, place)
    if refused_at(attempt) is None:
        return Complete(attempt.number)
    return Complete(
        attempt.number, f"attempt {attempt.number} was taken without a PASS: its score, {attempt.score}, is the best"
    )


def _may_rework(stage: StageDefinition, record: StageRecord, last: AttemptRecord) -> bool:
    if len(record.attempts) <= record.attempts_before:
        return True  # a person had it tried again
    place = refused_at(last)
    gates = stage.gates
    most = gates[place].max_attempts if place is not None and place < len(gates) else 0
    return len(record.attempts) - record.attempts_before < most


def _failures(record: StageRecord, attempt: int, *, gate: int | None = None) -> Sequence[FailedTry]:
    recent = record.failures[record.failures_before :]
    return [failure for failure in recent if failure.attempt == attempt and failure.gate == gate]


def _escalated(record: StageRecord, reason: str) -> Escalate:
    chosen = best(attempt for attempt in record.attempts if attempt.tree)
    return Escalate(chosen.number if chosen else None, reason)


def _nothing_good(stage: StageDefinition, record: StageRecord) -> str:
    tries = len(record.attempts)
    words = f"no attempt passed every gate after {tries} attempt{'' if tries == 1 else 's'}"
    chosen = best(record.attempts) or record.attempts[-1]
    # What a command or a person refused may have a good score from another gate.
    refused = final_refusal(chosen, stage.gates)
    if refused.score is None:
        return f"{words}: {refused.summary or refused.gate.value}"
    return f"{words}, and the best score, {chosen.score}, is too low to be taken"


def _failure_words(recent: Sequence[AttemptRecord], kept: AttemptRecord | None) -> str:
    failed = next(attempt for attempt in reversed(recent) if has_failed(attempt))
    critique = next(word for word in reversed(failed.critiques) if word.verdict.value == "FAIL")
    words = f"the {critique.gate.value} gate failed attempt {failed.number}"
    words = f"{words}: {critique.summary}" if critique.summary else words
    if kept is not None and kept.number != failed.number:
        return f"{words}; the work of attempt {kept.number} is kept, since its score, {kept.score}, is better"
    return words
