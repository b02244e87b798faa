"""How failures are logged: each once, its stack trace where someone looks for it."""

from __future__ import annotations

import logging
import traceback

from codeloupe.errors import AgentError, CodeloupeError, Crashed, TimedOut
from codeloupe.system.redaction import redact


def log_failure(log: logging.Logger, error: BaseException, message: str, *values: object) -> None:
    """Log a failure once, without secrets.

    A crash, an unexpected error, and a failed call in which a library raised are logged at ERROR with the stack trace.
    Any other failure is one line at WARNING, and its stack trace is at DEBUG.
    """
    text = redact(message % values)
    if _needs_trace(error):
        _log_with_trace(log, logging.ERROR, text, error)
        return
    log.warning("%s", text, stacklevel=2)
    if log.isEnabledFor(logging.DEBUG):
        _log_with_trace(log, logging.DEBUG, f"stack trace of: {text}", error)


def _needs_trace(error: BaseException) -> bool:
    if not isinstance(error, CodeloupeError) or isinstance(error, Crashed):
        return True
    if not isinstance(error, AgentError) or isinstance(error, TimedOut):
        return False
    return error.__cause__ is not None and not isinstance(error.__cause__, CodeloupeError)


def _log_with_trace(log: logging.Logger, level: int, text: str, error: BaseException) -> None:
    trace = "".join(traceback.format_exception(error))
    redacted = redact(trace)
    if redacted == trace:
        log.log(level, "%s", text, exc_info=error, stacklevel=3)
    else:
        # A handler would format the error itself, with the secret.
        log.log(level, "%s\n%s", text, redacted, stacklevel=3)
