"""Failures of jobs: which ones are retried, when, and how their reason reads."""

from __future__ import annotations

import random

from codeloupe.errors import CodeloupeError
from codeloupe.system.redaction import redact
from codeloupe.workers.jobs import WAITING_FOR_QUOTA, Outcome

MOST_RETRIES = 4
_FIRST_WAIT_SECONDS = 10.0
_FACTOR = 3.0
_LONGEST_WAIT_SECONDS = 1800.0


class JobFailed(Exception):
    """A job did not finish. `retryable` says whether another attempt may succeed; `outcome` is the partial result."""

    def __init__(self, reason: str, *, retryable: bool, outcome: Outcome | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        self.outcome = outcome


class JobPaused(Exception):
    """A quota is used up. The job continues at a time of the database, and this does not count as a failure."""

    def __init__(self, until: float) -> None:
        super().__init__(WAITING_FOR_QUOTA)
        self.until = until


def may_pass(error: Exception) -> bool:
    """Return whether another attempt may succeed: always, except after errors that a person must fix."""
    if isinstance(error, JobFailed | CodeloupeError):
        return error.retryable
    return True


def is_expected(error: Exception) -> bool:
    """Return whether the error explains itself, so that no traceback is needed."""
    return isinstance(error, JobFailed | CodeloupeError)


def seconds_until_retry(failures: int) -> float:
    """Return how long to wait after so many failures: ever longer, and not the same for all workers."""
    wait = min(_FIRST_WAIT_SECONDS * _FACTOR ** (failures - 1), _LONGEST_WAIT_SECONDS)
    return wait * random.uniform(0.75, 1.25)  # noqa: S311 - no secret


def outcome_of(error: Exception) -> Outcome | None:
    """Return the partial result of a job that failed, or the exit code of its error."""
    if isinstance(error, JobFailed):
        return error.outcome
    if isinstance(error, CodeloupeError):
        return Outcome(exit_code=error.exit_code)
    return None


def reason_of(error: Exception) -> str:
    """Return why a job failed, without secrets."""
    if isinstance(error, JobFailed):
        words = error.reason
    elif isinstance(error, CodeloupeError) and error.hint:
        words = f"{error.message} ({error.hint})"
    elif isinstance(error, CodeloupeError):
        words = error.message
    else:
        words = f"{type(error).__name__}: {error}"
    return redact(words)
