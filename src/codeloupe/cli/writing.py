"""Writing a result: whole files put in place at the end, or standard output."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from codeloupe.cli.boundary import unwritten
from codeloupe.errors import OutputError
from codeloupe.system.untrusted import for_ci_log

_LONGEST_HINT = 40
# GitHub, GitLab and most others set the first; Azure Pipelines and TeamCity only their own.
_SIGNS_OF_CI = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")


@contextlib.contextmanager
def output_file(path: Path) -> Iterator[list[str]]:
    """Collect text and put it in place as one whole file at the end; a half-written file is never left.

    The target is tried before anything runs, so that no work is lost. Raises OutputError in words. What fails while
    the text is made is not about the file, and is left as it is.
    """
    if _is_special(path):
        yield from _device(path)
        return
    pieces: list[str] = []
    temporary = _beside(path)
    try:
        yield pieces
        try:
            _put_in_place(temporary, path, pieces)
        except OSError as error:
            raise _unwritable(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:  # not there yet, or a place of which `_beside` tells why it cannot be used
        return False


def _beside(path: Path) -> Path:
    """An empty file in the folder of the target, under a name of its own."""
    try:
        if path.name and path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        # The name of the target is tried too: it may be longer than that of the file beside it.
        with contextlib.suppress(FileNotFoundError):
            path.lstat()
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:_LONGEST_HINT]}.", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    os.close(descriptor)
    return Path(name)


def _put_in_place(temporary: Path, path: Path, pieces: list[str]) -> None:
    with temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as sink:
        sink.writelines(pieces)
    umask = os.umask(0)
    os.umask(umask)
    temporary.chmod(0o666 & ~umask)
    temporary.replace(path)


def _device(path: Path) -> Iterator[list[str]]:
    """A directory is refused; a pipe or device such as /dev/stdout is written to as it is."""
    if path.is_dir():
        raise OutputError(f"cannot write the result to {path}: it is a directory", hint="give the name of a file")
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
        f"cannot write the result to {path}: {reason}", hint="give a path in a folder that you can write to"
    )


def write_result(text: str, *, holds_commands: bool = False) -> None:
    """Write a finished result to stdout as UTF-8, whatever the locale. Raises OutputError, or that nobody reads.

    In CI nothing in it is a command to the CI system, unless it `holds_commands` that are ours.
    """
    if not holds_commands and any(os.environ.get(name) for name in _SIGNS_OF_CI):
        text = for_ci_log(text)
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unwritten(error) from error
