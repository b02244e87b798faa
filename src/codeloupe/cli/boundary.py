"""Where errors meet people: one sentence, one hint, an exit code; and a log file for what should not have happened."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from contextlib import suppress

from codeloupe import __version__
from codeloupe.errors import CodeloupeError, OutputError, UsageError
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import terminal, without_log_commands

INTERRUPTED = 130


def exit_code_of(error: BaseException, words: list[str]) -> int:
    """Print what happened and what to do next; returns the exit code. `words` are those of the command."""
    if isinstance(error, CodeloupeError):
        _print(f"codeloupe: {error.message}")
        if error.hint:
            _print(f"  hint: {error.hint}")
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        _print(f"codeloupe: interrupted{f'; {error}' if str(error) else ''}")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        _discard_output()
        return 141
    # A directory that was removed below us and a full disk are no bugs.
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOENT and _is_lost():
        return exit_code_of(UsageError("the directory this runs in was removed", hint="go to one that is there"), words)
    if isinstance(error, OSError) and number in (errno.ENOSPC, errno.EDQUOT):
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            _discard_output()
        where = f" to {error.filename}" if error.filename else ""
        reason = (error.strerror or "").lower()
        full = OutputError(f"cannot write{where}: {reason}", hint="free some space there and try again")
        return exit_code_of(full, words)
    details = redact(f"codeloupe {__version__} {words!r}\n{''.join(traceback.format_exception(error))}")
    first_line = redact(str(error).split("\n", 1)[0])[:300]
    _print(f"codeloupe: internal error: {type(error).__name__}: {first_line}")
    try:
        from codeloupe.store.sqlite import state_directory

        folder = state_directory(os.environ) / "logs"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(prefix="crash-", suffix=".log", dir=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
            log.write(details)
    except (OSError, CodeloupeError) as problem:
        _print(f"  the log could not be written ({problem}); the details are:\n{details}")
    else:
        _print(f"  hint: this is a bug; please report it with the details in {name}")
    return CodeloupeError.exit_code


def unwritten(error: OSError) -> OutputError:
    """The error for a result that standard output does not take; what is left of it goes nowhere."""
    # The interpreter would try it again, complain, and end with a code of its own.
    _discard_output()
    reason = (error.strerror or "unknown error").lower()
    return OutputError(f"cannot write the result: {reason}", hint="free some space there, or write it somewhere else")


def _discard_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    with suppress(OSError):
        sys.stdout.flush()


def _is_lost() -> bool:
    with suppress(OSError):
        return not os.getcwd()  # noqa: PTH109 - the path itself is of no use here
    return True


def _print(text: str) -> None:
    print(without_log_commands(terminal(text, keep_newlines=True)), file=sys.stderr)
