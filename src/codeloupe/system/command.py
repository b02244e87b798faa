"""What is run, what comes back, and why a start failed: shared by `run` and `stream`."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from codeloupe.errors import ProcessError, ProgramNotFound
from codeloupe.model import Confidential
from codeloupe.system.environment import search_path

_NOT_FOUND = {errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
EXHAUSTED = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class Command(Confidential, frozen=True, kw_only=True):
    """What to run. `argv[0]` is a path or a name looked up on the PATH of `environment`.

    `max_output_bytes` is where `run` ends a child, and how much `stream` keeps of what it wrote.
    """

    argv: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str]
    timeout_seconds: float
    max_output_bytes: int
    stdin: bytes = b""

    @property
    def program(self) -> str:
        """The short name of the program, for messages."""
        return Path(self.argv[0]).name


class Completed(Confidential, frozen=True):
    """How a child ended; a negative exit code is the signal that ended it.

    After `run`, `stdout` is whole and `stderr` holds at most its last 64 KiB. After `stream`, either may lack its
    middle, with a line in its place that says so; `omitted_bytes` is what stdout lacks. `skipped_lines` counts the
    lines that were too long to be handed over.
    """

    exit_code: int
    stdout: bytes
    stderr: str
    seconds: float
    omitted_bytes: int = 0
    skipped_lines: int = 0

    @property
    def stdout_truncated(self) -> bool:
        """Whether `stdout` lacks its middle, so that it must not be parsed as a whole."""
        return self.omitted_bytes > 0


def find_program(name: str) -> str | None:
    """Where a program is on the PATH, or None."""
    return shutil.which(name, path=search_path())


def start_failure(command: Command, error: OSError | ValueError) -> ProcessError:
    """The error that says in words why a program could not be started."""
    program, kind = command.program, ProcessError
    if not isinstance(error, OSError) or error.errno is None:
        reason, hint = f"an argument or a variable cannot be handed over ({error})", "look for a name with a NUL byte"
    elif error.errno == errno.E2BIG:
        reason, hint = "its arguments are longer than the system allows", "review a smaller change"
    elif error.errno in EXHAUSTED:
        reason, hint = f"the system has no room for it ({error.strerror})", "try again with fewer programs running"
    elif not _can_enter(command.cwd):
        reason, hint = f"its working directory {command.cwd} does not exist or cannot be entered", "check that path"
    elif error.errno == errno.ENOEXEC:
        kind = ProgramNotFound
        reason, hint = "it is not a program that this machine can run", f"install {program} again"
    elif error.errno in _NOT_FOUND:
        kind = ProgramNotFound
        reason, hint = "it is not installed or not executable", f"install {program} and try again"
    else:
        reason, hint = f"{error.strerror}", f"check the installation of {program}"
    return kind(f"cannot start {program}: {reason}", program=program, hint=hint)


def _can_enter(directory: Path) -> bool:
    return directory.is_dir() and os.access(directory, os.X_OK)
