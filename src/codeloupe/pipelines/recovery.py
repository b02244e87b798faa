"""What is to be done next with a stage: a function of its definition and of its record, and of nothing else.

So a run that was killed goes on from its record exactly as one that was not: what the record holds is never done
again, and what it does not hold was not done. A call that failed is retried, its session resumed in a fork, begun
afresh, or given to a person; each step is taken at most as often as here. A gate with a score (a critic, a review) may
be outvoted by the best of several attempts; what one without a score (a command, a person) refused is not. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from codeloupe.errors import AgentError, AgentExecutionError, CodeloupeError, WorkspaceError
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import (
    WORKSPACE_ERROR,
    AttemptRecord,
    CriticVerdict,
    Critique,
    FailedTry,
    GateDefinition,
    RecoveryStep,
    StageDefinition,
    StageRecord,
)

UNREADABLE_FILE = "unreadable_file"
# What trying again cannot mend: it goes to a person at once.
_HOPELESS = frozenset(
    {"not_logged_in", "not_installed", "invalid_request", "budget_exhausted", WORKSPACE_ERROR, UNREADABLE_FILE}
)
_GATE_TRIES = 2
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LONGEST_MESSAGE = 4_000


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
    """Let a gate, by its position among the stage's, decide on an attempt."""

    attempt: int
    gate: int


class Complete(Struct, frozen=True):
    """The work of an attempt goes on. `reason` says what is to be known about that, or is empty."""

    attempt: int
    reason: str = ""


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
        return Fail(kept.number if kept else None, _failure_reason(recent, kept))
    if not record.attempts:
        return _attempt(stage, record)
    last = record.attempts[-1]
    if not last.tree:
        # Those of its calls are other ones: after one of this kind there would be no attempt.
        failures = [failure for failure in _failures(record, last.number) if failure.kind == WORKSPACE_ERROR]
        return _escalated(record, why_a_person(failures)) if failures else Keep(last.number)
    refused = refused_at(last)
    if refused is None:
        return _onward(stage, record, last)
    most = stage.gates[refused].max_attempts if refused < len(stage.gates) else 0
    # Without a recent one a person had it tried again.
    if not recent or len(recent) < most:
        return _attempt(stage, record)
    taken = takeable(recent, stage.gates)
    return _escalated(record, _nothing_good(stage, record)) if taken is None else _onward(stage, record, taken)


def _attempt(stage: StageDefinition, record: StageRecord) -> Action:
    number = len(record.earlier) + len(record.attempts) + 1
    failures = _failures(record, number)
    step = next_step(stage, failures)
    if step is None:
        return _escalated(record, why_a_person(failures))
    if step is RecoveryStep.RESUME:
        last = failures[-1]
        return Execute(number, step, session=last.session_id, agent=last.agent, tree=last.tree)
    return Execute(number, step)


def _onward(stage: StageDefinition, record: StageRecord, attempt: AttemptRecord) -> Action:
    """The next gate that an attempt has not faced, or its end."""
    gate = len(attempt.critiques)
    if gate < len(stage.gates):
        failures = _failures(record, attempt.number, gate=gate)
        # A gate that could not decide is asked once more, if its failure is temporary.
        is_over = len(failures) >= _GATE_TRIES or not all(failure.retryable for failure in failures)
        return _escalated(record, why_a_person(failures)) if failures and is_over else Judge(attempt.number, gate)
    if refused_at(attempt) is None:
        return Complete(attempt.number)
    return Complete(
        attempt.number, f"attempt {attempt.number} was taken without a PASS: its score, {attempt.score}, is the best"
    )


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
    judged = zip(chosen.critiques, stage.gates, strict=False)
    refused = next((word for word, gate in judged if _is_final(word, gate)), chosen.critiques[-1])
    if refused.score is None:
        return f"{words}: {refused.summary or refused.gate.value}"
    return f"{words}, and the best score, {chosen.score}, is too low to be taken"


def _failure_reason(recent: Sequence[AttemptRecord], kept: AttemptRecord | None) -> str:
    failed = next(attempt for attempt in reversed(recent) if has_failed(attempt))
    critique = next(word for word in reversed(failed.critiques) if word.verdict is CriticVerdict.FAIL)
    words = f"the {critique.gate.value} gate failed attempt {failed.number}"
    words = f"{words}: {critique.summary}" if critique.summary else words
    if kept is not None and kept.number != failed.number:
        return f"{words}; the work of attempt {kept.number} is kept, since its score, {kept.score}, is better"
    return words


def refused_at(attempt: AttemptRecord) -> int | None:
    """The position of the first gate that did not let an attempt pass, or None."""
    verdicts = (critique.verdict for critique in attempt.critiques)
    return next((place for place, verdict in enumerate(verdicts) if verdict is not CriticVerdict.PASS), None)


def has_failed(attempt: AttemptRecord) -> bool:
    """Whether a gate said FAIL."""
    return any(critique.verdict is CriticVerdict.FAIL for critique in attempt.critiques)


def best(attempts: Iterable[AttemptRecord]) -> AttemptRecord | None:
    """The attempt with the highest score, the later of two alike; one without a score ranks below all others."""
    return max(attempts, key=lambda each: (-1 if each.score is None else each.score, each.number), default=None)


def takeable(attempts: Iterable[AttemptRecord], gates: Sequence[GateDefinition]) -> AttemptRecord | None:
    """The best attempt that may be taken though not every gate let it pass, as far as its gates have decided."""

    def is_good_enough(attempt: AttemptRecord) -> bool:
        judged = zip(attempt.critiques, gates, strict=False)
        # A critique beyond the gates is a person's, who did not take it.
        return len(attempt.critiques) <= len(gates) and not any(_is_final(word, gate) for word, gate in judged)

    return best(attempt for attempt in attempts if attempt.tree and is_good_enough(attempt))


def _is_final(critique: Critique, gate: GateDefinition) -> bool:
    if critique.verdict is CriticVerdict.REWORK:
        return critique.score is None or critique.score < gate.min_score
    return critique.verdict is CriticVerdict.FAIL


def kept_after_failure(attempts: Sequence[AttemptRecord]) -> AttemptRecord | None:
    """The attempt whose work is kept when a gate said FAIL of one: an earlier, better one, or else that one."""
    failed = next((attempt for attempt in reversed(attempts) if has_failed(attempt)), None)
    if failed is None:
        return best(attempts)
    others = best(attempt for attempt in attempts if attempt.number < failed.number and not has_failed(attempt))
    if others is None or others.score is None:
        return failed
    return others if failed.score is None or others.score > failed.score else failed


def failed_try(
    error: Exception,
    *,
    step: RecoveryStep,
    attempt: int,
    gate: int | None = None,
    usage: Usage = Usage(),
) -> FailedTry:
    """A failure as it is recorded."""
    # What went wrong below an execution that failed; another error speaks for itself.
    cause = error.__cause__ or error if isinstance(error, AgentExecutionError) else error
    kind = _WORD_START.sub("_", type(cause).__name__).lower()
    # Of an agent's failure every cause is one of our own errors, or that its time was over.
    if isinstance(cause, OSError | ValueError) and not isinstance(cause, TimeoutError):
        kind = UNREADABLE_FILE
    elif isinstance(cause, WorkspaceError):
        kind = WORKSPACE_ERROR
    agent_error = error if isinstance(error, AgentError) else error.__cause__
    message = error.message if isinstance(error, CodeloupeError) else f"{type(error).__name__}: {error}"
    return FailedTry(
        step=step,
        kind=kind,
        message=message[:_LONGEST_MESSAGE],
        hint=(error.hint if isinstance(error, CodeloupeError) else "")[:_LONGEST_MESSAGE],
        session_id=agent_error.session_id if isinstance(agent_error, AgentError) else "",
        usage=usage,
        attempt=attempt,
        gate=gate,
        agent=getattr(cause, "agent", ""),
        retryable=bool(getattr(cause, "retryable", False)),
    )


def next_step(stage: StageDefinition, failures: Sequence[FailedTry]) -> RecoveryStep | None:
    """How the call of an attempt is tried again after these failures of it; None when only a person can help."""
    if not failures:
        return RecoveryStep.FIRST
    last = failures[-1]
    # A session that is not known any more is an invalid request; another way round it is not.
    is_mendable = last.step is RecoveryStep.RESUME and last.kind == "invalid_request"
    # Without retries there is exactly one call.
    if (last.kind in _HOPELESS and not is_mendable) or not stage.retries:
        return None
    steps = [failure.step for failure in failures]
    # What is not known to pass by itself is tried once more all the same, since agents do not fail alike twice.
    retries = stage.retries if last.retryable else min(stage.retries, 1)
    is_later = RecoveryStep.RESUME in steps or RecoveryStep.FRESH in steps
    if steps.count(RecoveryStep.RETRY) < retries and not is_later:
        return RecoveryStep.RETRY
    if last.resumable and last.session_id and not is_later:
        return RecoveryStep.RESUME
    return None if RecoveryStep.FRESH in steps else RecoveryStep.FRESH


def why_a_person(failures: Sequence[FailedTry]) -> str:
    """Why a person is needed after these failures."""
    if not failures:
        return "it produced no result"
    return f"{failures[-1].message}{f' (after {len(failures)} tries)' if len(failures) > 1 else ''}"
