"""Running the app's coroutines from a verb: signals, logging, and where output goes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import stat
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from codeloupe.errors import OutputError
from codeloupe.redaction import redact
from codeloupe.report.sanitise import log_line, terminal, without_log_commands

_Result = TypeVar("_Result")


def run_to_end(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine. Ctrl-C and SIGTERM cancel it, so that its children are gone, and raise KeyboardInterrupt."""
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGTERM, before)


def set_up_logging(*, verbose: bool, debug: bool = False) -> None:
    """Log to stderr when asked, with `debug` also what is sent to agents and what they answer.

    Without either the library's records go nowhere, since events tell the same.
    """
    logger = logging.getLogger("codeloupe")
    if not verbose and not debug:
        logger.addHandler(logging.NullHandler())
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_SafeFormatter("%(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.INFO)


class _SafeFormatter(logging.Formatter):
    """Log lines without secrets and without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text that is safe on a terminal and in a CI log.

        It is one line, but for a debug record: there each line behind the first is set in, so that none looks like
        a record of its own.
        """
        text = redact(super().format(record))
        if record.levelno > logging.DEBUG:
            return log_line(text)
        return without_log_commands(terminal(text, keep_newlines=True).replace("\n", "\n    "))


@contextlib.contextmanager
def output_file(path: Path) -> Iterator[list[str]]:
    """Collect text and put it in place as one whole file at the end; a half-written file is never left.

    The target is tried before anything runs, so that no work is lost. Raises OutputError in words.
    """
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        yield from _device(path)
        return
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    pieces: list[str] = []
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", newline="") as sink:
            yield pieces
            sink.writelines(pieces)
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def _device(path: Path) -> Iterator[list[str]]:
    """A directory is refused; a pipe or device such as /dev/stdout is written to as it is."""
    if path.is_dir():
        raise OutputError(f"cannot write the result to {path}: it is a directory", hint="give -o a file name")
    pieces: list[str] = []
    yield pieces
    try:
        with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as sink:
            sink.writelines(pieces)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> OutputError:
    reason = (error.strerror or "unknown error").lower()
    return OutputError(
        f"cannot write the result to {path}: {reason}", hint="give -o a path in a folder you can write to"
    )


def write_result(text: str) -> None:
    """Write a finished result to stdout as UTF-8, whatever the locale."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
