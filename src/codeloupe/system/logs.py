"""How failures are logged: each once, its stack trace where someone looks for it."""

from __future__ import annotations

import logging

from codeloupe.errors import AgentError, CodeloupeError, Crashed, TimedOut


def log_failure(log: logging.Logger, error: BaseException, message: str, *values: object) -> None:
    """Log a failure once.

    A crash, an unexpected error, and a failed call in which a library raised are logged at ERROR with the stack trace.
    Any other failure is one line at WARNING, and its stack trace is at DEBUG.
    """
    if _needs_trace(error):
        log.error(message, *values, exc_info=error, stacklevel=2)
        return
    log.warning(message, *values, stacklevel=2)
    log.debug("where this failed: %s", type(error).__name__, exc_info=error, stacklevel=2)


def _needs_trace(error: BaseException) -> bool:
    if not isinstance(error, CodeloupeError) or isinstance(error, Crashed):
        return True
    if not isinstance(error, AgentError) or isinstance(error, TimedOut):
        return False
    return error.__cause__ is not None and not isinstance(error.__cause__, CodeloupeError)
