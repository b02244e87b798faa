"""The programs of the analysers: where they are, how they are run, and how one bad file is found among many."""

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
# It works all paths out anew at each call.
_path_of = cache(sysconfig.get_path)


def find(name: str, package: str) -> str:
    """The program that is installed beside codeloupe, or else on the PATH. Raises ProgramNotFound."""
    beside = Path(_path_of("scripts"), name)
    if found := str(beside) if os.access(beside, os.X_OK) else find_program(name):
        return found
    message = f"cannot start {name}: it is neither installed with codeloupe nor on the PATH"
    raise ProgramNotFound(message, program=name, hint=f"pip install {package}")


async def execute(
    *argv: str, seconds: float, cwd: Path = Path(os.sep), home: Path | None = None, stdin: bytes = b""
) -> Completed:
    """Run a program with few variables of our environment. Raises ProcessError."""
    return await run(
        Command(
            argv=argv,
            cwd=cwd,
            environment=inherited_environment(**({} if home is None else {"HOME": str(home)})),
            timeout_seconds=seconds,
            max_output_bytes=MAX_OUTPUT_BYTES,
            stdin=stdin,
        )
    )


async def version_of(name: str, *argv: str, hint: str) -> str:
    """The last word of what a program says of its version. Raises AnalyserFailed or a ProcessError."""
    completed = await execute(*argv, seconds=20.0)
    words = completed.stdout.decode("utf-8", "replace").split()
    if completed.exit_code != 0 or not 0 < len(words) <= 3:
        raise failure(name, "does not report its version", completed.stderr, hint=hint)
    return words[1] if len(words) > 1 else words[0]


def failure(name: str, what: str, stderr: str, *, hint: str) -> AnalyserFailed:
    """The error of a program that failed, with the line of its own words that says most."""
    lines = stderr.strip().splitlines() or [""]
    line = next((line for line in lines if "error" in line.lower()), lines[-1])
    return AnalyserFailed(f"{name} {what}" + (f": {line[:300]}" if line else ""), analyser=name, hint=hint)


async def in_halves(
    name: str, files: Sequence[str], deadline: float, attempt: Callable[[Sequence[str], float], Awaitable[str | None]]
) -> dict[str, str]:
    """Attempt all files at once, or halves of them while one is in the way; such files, with the reason.

    `attempt` gets files and how many seconds are left, and says what is wrong. Raises ProcessTimedOut at the deadline.
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
    if reason is None or len(files) == 1:
        return {} if reason is None else {files[0]: reason}
    middle = len(files) // 2
    halves = [await in_halves(name, half, deadline, attempt) for half in (files[:middle], files[middle:])]
    return halves[0] | halves[1]
