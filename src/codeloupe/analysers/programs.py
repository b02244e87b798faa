"""The programs of the analysers: find them, run them, and find the one bad file among many."""

from __future__ import annotations

import os
import sysconfig
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path

from codeloupe.errors import AnalyserFailed, OutputTooLarge, ProcessTimedOut, ProgramNotFound
from codeloupe.system.process import Command, Completed, find_program, inherited_environment, run

MAX_OUTPUT_BYTES = 64 * 1024 * 1024
# sysconfig computes all paths again at each call.
_path_of = cache(sysconfig.get_path)


def find(name: str, package: str) -> str:
    """Return the program that is installed beside codeloupe, or else on the PATH. Raises ProgramNotFound."""
    beside = Path(_path_of("scripts"), name)
    if os.access(beside, os.X_OK):
        return str(beside)
    on_path = find_program(name)
    if on_path:
        return on_path
    message = f"cannot start {name}: it is neither installed with codeloupe nor on the PATH"
    raise ProgramNotFound(message, program=name, hint=f"pip install {package}")


def link_or_copy(source: Path, target: Path, content: bytes) -> None:
    """Give a program a file of a snapshot under a name of ours: as a hard link, or as a copy if links are impossible.

    A hard link costs a thirtieth of a copy or of a symbolic link, because it needs no new inode.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        target.write_bytes(content)


async def execute(
    *argv: str, seconds: float, cwd: Path = Path(os.sep), home: Path | None = None, stdin: bytes = b""
) -> Completed:
    """Run a program with few variables of our environment. Raises ProcessError."""
    environment = inherited_environment()
    if home is not None:
        environment = inherited_environment(HOME=str(home))
    command = Command(
        argv=argv,
        cwd=cwd,
        environment=environment,
        timeout_seconds=seconds,
        max_output_bytes=MAX_OUTPUT_BYTES,
        stdin=stdin,
    )
    return await run(command)


async def version_of(name: str, *argv: str, hint: str) -> str:
    """Return the version in the output of a program, such as `ruff 0.9.1`. Raises AnalyserFailed or a ProcessError."""
    completed = await execute(*argv, seconds=20.0)
    words = completed.stdout.decode("utf-8", "replace").split()
    if completed.exit_code != 0 or not 0 < len(words) <= 3:
        raise failure(name, "does not report its version", completed.stderr, hint=hint)
    return words[1] if len(words) > 1 else words[0]


def failure(name: str, what: str, stderr: str, *, hint: str) -> AnalyserFailed:
    """Return the error of a program that failed, with the first line of its output that has the word error."""
    message = f"{name} {what}"
    lines = stderr.strip().splitlines()
    if lines:
        errors = [line for line in lines if "error" in line.lower()]
        line = errors[0] if errors else lines[-1]
        message += f": {line[:300]}"
    return AnalyserFailed(message, analyser=name, hint=hint)


async def in_halves(
    name: str, files: Sequence[str], deadline: float, attempt: Callable[[Sequence[str], float], Awaitable[str | None]]
) -> dict[str, str]:
    """Attempt all files at once, or halves of them while one is in the way. Return such files, with the reason.

    `attempt` gets files and the seconds left, and returns what is wrong. Raises ProcessTimedOut at the deadline.
    """
    if not files:
        return {}
    left = deadline - time.monotonic()
    if left <= 0:
        hint = "raise the time limit, or review a smaller change"
        raise ProcessTimedOut(f"{name} did not finish with all files in time", program=name, hint=hint)
    try:
        reason = await attempt(files, left)
    except OutputTooLarge:
        reason = f"{name}'s output is larger than {MAX_OUTPUT_BYTES:,} bytes"
    except ProcessTimedOut:
        if time.monotonic() >= deadline:
            raise
        reason = f"{name} did not finish in time"
    if reason is None:
        return {}
    if len(files) == 1:
        return {files[0]: reason}
    middle = len(files) // 2
    first = await in_halves(name, files[:middle], deadline, attempt)
    second = await in_halves(name, files[middle:], deadline, attempt)
    return first | second
