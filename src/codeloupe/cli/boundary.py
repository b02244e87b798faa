"""Where errors meet people: one sentence, one hint, an exit code; and a log file for what should not have happened.

It loads when there is trouble.
"""

from __future__ import annotations

import difflib
import errno
import os
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path

from codeloupe import __version__
from codeloupe.errors import CodeloupeError, OutputError, UsageError
from codeloupe.store.database import state_directory
from codeloupe.system.redaction import redact
from codeloupe.system.untrusted import terminal, without_log_commands

INTERNAL_ERROR = 4
READER_GONE = 141
INTERRUPTED = 130


def unsettled_output(error: Exception) -> int:
    """The exit code for output that could not be written out, after saying so.

    Whatever is left of it goes nowhere: the interpreter would try it again, complain, and end with a code of its own.
    """
    if isinstance(error, BrokenPipeError):
        return reader_is_gone()
    return report(unwritten(error)) if isinstance(error, OSError) else 0


def unwritten(error: OSError) -> OutputError:
    """The error for a result that standard output does not take; what is left of it goes nowhere."""
    _discard_output()
    reason = (error.strerror or "unknown error").lower()
    return OutputError(f"cannot write the result: {reason}", hint="free some space there, or write it somewhere else")


def _discard_unless_written() -> None:
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        _discard_output()


def _discard_output() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    with suppress(OSError):
        sys.stdout.flush()


def report(error: CodeloupeError) -> int:
    """Print what happened and what to do next; returns the exit code."""
    print(f"codeloupe: {_clean(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {_clean(error.hint)}", file=sys.stderr)
    return error.exit_code


def report_interruption(stopped: KeyboardInterrupt) -> int:
    """Print that it was interrupted, and what the verb says about what is kept; returns the exit code."""
    said = f"; {_clean(str(stopped))}" if str(stopped) else ""
    print(f"codeloupe: interrupted{said}", file=sys.stderr)
    return INTERRUPTED


def report_crash(error: Exception, words: list[str]) -> int:
    """Print one line, put the details into a log file without secrets, return exit code 4.

    A directory that was removed below us and a full disk are no bugs: whatever fails of it first is told as what it is.
    """
    if isinstance(error, OSError) and (mishap := _mishap(error)):
        if error.filename is None:
            _discard_unless_written()
        return report(mishap)
    details = "".join(traceback.format_exception(error))
    text = redact(f"codeloupe {__version__} {words!r}\n{details}")
    print(f"codeloupe: internal error: {_clean(type(error).__name__)}: {_clean(_first_line(error))}", file=sys.stderr)
    try:
        path = _write_log(text)
    except (OSError, CodeloupeError) as problem:
        print(
            f"  the log could not be written ({_clean(str(problem))}); the details are:\n{_clean(text)}",
            file=sys.stderr,
        )
    else:
        print(f"  hint: this is a bug; please report it with the details in {_clean(str(path))}", file=sys.stderr)
    return INTERNAL_ERROR


def _mishap(error: OSError) -> CodeloupeError | None:
    if error.errno == errno.ENOENT and _is_lost():
        return UsageError("the directory this runs in was removed", hint="go to one that is there")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" to {error.filename}" if error.filename else ""
        return OutputError(
            f"cannot write{where}: {(error.strerror or '').lower()}", hint="free some space there and try again"
        )
    return None


def _is_lost() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - the path itself is of no use here
    except OSError:
        return True
    return False


def reader_is_gone() -> int:
    """Whoever read our output has left (`| head`); keep the interpreter from complaining at exit."""
    _discard_output()
    return READER_GONE


def unknown_command(word: str, known: list[str]) -> UsageError:
    """The error for a verb that does not exist, with the one that was probably meant."""
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the commands are: {', '.join(known)}"
    return UsageError(f"{word!r} is not a command", hint=hint)


def _write_log(text: str) -> Path:
    folder = state_directory(os.environ) / "logs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(prefix="crash-", suffix=".log", dir=folder)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
        log.write(text)
    return Path(name)


def _first_line(error: Exception) -> str:
    return redact(str(error).split("\n", 1)[0])[:300]


def _clean(text: str) -> str:
    return without_log_commands(terminal(text, keep_newlines=True))
