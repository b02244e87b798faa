"""Writing a result: whole files put in place at the end, or standard output."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from codeloupe.errors import OutputError


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
