"""What is done about a call that gave no result: retry, resume its session in a fork, begin afresh, or a person. Pure.

Each step is taken at most as often as here, so that a stage never spends without end. What trying again cannot mend
(a login that is missing, a budget that is spent) goes to a person at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from codeloupe.errors import AgentExecutionError, CodeloupeError
from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import WORKSPACE_ERROR, FailedTry, RecoveryStep
from codeloupe.model.pipeline_definition import StageDefinition
from codeloupe.pipeline.stage_execution import failure_session

# Neither a tree that cannot be had nor a file that cannot be read is mended by asking an agent again.
UNREADABLE_FILE = "unreadable_file"
_HOPELESS = frozenset(
    {"not_logged_in", "not_installed", "invalid_request", "budget_exhausted", WORKSPACE_ERROR, UNREADABLE_FILE}
)
# A session that is not known any more is one; another way round it is not.
_HOPELESS_UNLESS_RESUMED = frozenset({"invalid_request"})
_GATE_TRIES = 2
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
_LONGEST_MESSAGE = 4_000


def failed_try(
    error: Exception,
    *,
    step: RecoveryStep,
    attempt: int,
    gate: int | None = None,
    usage: Usage = Usage(),
    tree: str = "",
) -> FailedTry:
    """A failure as it is kept. `tree` is what the call left, where its session can be resumed; else it is empty."""
    cause = _cause(error)
    message = error.message if isinstance(error, CodeloupeError) else f"{type(error).__name__}: {error}"
    hint = error.hint if isinstance(error, CodeloupeError) else ""
    return FailedTry(
        step=step,
        kind=_kind(cause),
        message=message[:_LONGEST_MESSAGE],
        hint=hint[:_LONGEST_MESSAGE],
        session_id=failure_session(error),
        usage=usage,
        attempt=attempt,
        gate=gate,
        agent=getattr(cause, "agent", ""),
        retryable=bool(getattr(cause, "retryable", False)),
        resumable=bool(tree),
        tree=tree,
    )


def _cause(error: Exception) -> BaseException:
    """What went wrong below an execution that failed; another error speaks for itself."""
    return error.__cause__ or error if isinstance(error, AgentExecutionError) else error


def _kind(cause: BaseException) -> str:
    # Of an agent's failure every cause is one of our own errors, or that its time was over.
    if isinstance(cause, OSError | ValueError) and not isinstance(cause, TimeoutError):
        return UNREADABLE_FILE
    return _WORD_START.sub("_", type(cause).__name__).lower()


def next_step(stage: StageDefinition, failures: Sequence[FailedTry]) -> RecoveryStep | None:
    """How the call of an attempt is tried again after these failures of it; None when only a person can help."""
    if not failures:
        return RecoveryStep.FIRST
    last = failures[-1]
    # Without retries there is exactly one call, whatever it is called.
    if _is_hopeless(last) or not stage.retries:
        return None
    steps = [failure.step for failure in failures]
    tried = steps.count(RecoveryStep.RETRY)
    # What is not known to pass by itself is tried once more all the same, since agents do not fail alike twice.
    retries = stage.retries if last.retryable else min(stage.retries, 1)
    is_later = RecoveryStep.RESUME in steps or RecoveryStep.FRESH in steps
    if tried < retries and not is_later:
        return RecoveryStep.RETRY
    if last.resumable and last.session_id and not is_later:
        return RecoveryStep.RESUME
    return None if RecoveryStep.FRESH in steps else RecoveryStep.FRESH


def may_gate_again(failures: Sequence[FailedTry]) -> bool:
    """Whether a gate that could not decide, these times, is asked once more."""
    return len(failures) < _GATE_TRIES and all(failure.retryable for failure in failures)


def _is_hopeless(failure: FailedTry) -> bool:
    is_mendable = failure.step is RecoveryStep.RESUME and failure.kind in _HOPELESS_UNLESS_RESUMED
    return failure.kind in _HOPELESS and not is_mendable


def in_words(failures: Sequence[FailedTry]) -> str:
    """Why a person is needed after these failures."""
    if not failures:
        return "it produced no result"
    last = failures[-1]
    tries = f" (after {len(failures)} tries)" if len(failures) > 1 else ""
    return f"{last.message}{tries}"
