"""The programs of the analysers: where they are, how they are run, and how one bad file is found among many."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path

from codeloupe.errors import AnalyserFailed, ProgramNotFound
from codeloupe.system.process import Command, Completed, find_program, inherited_environment, run

MAX_OUTPUT_BYTES = 64 * 1024 * 1024
# It works all paths out anew at each call.
_path_of = cache(sysconfig.get_path)


def find(name: str, package: str) -> str:
    """The program that is installed beside codeloupe, or else on the PATH. Raises ProgramNotFound."""
    for folder in (Path(_path_of("scripts")), Path(sys.executable).parent):
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    if found := find_program(name):
        return found
    message = f"cannot start {name}: it is neither installed beside codeloupe nor on the PATH"
    raise ProgramNotFound(message, program=name, hint=f"pip install {package}")


def python() -> str:
    """The interpreter that runs this program. Raises ProgramNotFound."""
    if sys.executable:
        return sys.executable
    message = "the Python interpreter that runs this program is not known"
    raise ProgramNotFound(message, program="python", hint="start it by its path")


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
        raise failure(name, "does not say its version", completed.stderr, hint=hint)
    return words[1] if len(words) > 1 else words[0]


def failure(name: str, what: str, stderr: str, *, hint: str) -> AnalyserFailed:
    """The error of a program that failed, with the line of its own words that says most."""
    lines = stderr.strip().splitlines() or [""]
    line = next((line for line in lines if "error" in line.lower()), lines[-1])
    return AnalyserFailed(f"{name} {what}" + (f": {line[:300]}" if line else ""), analyser=name, hint=hint)


async def in_halves(files: Sequence[str], attempt: Callable[[Sequence[str]], Awaitable[str | None]]) -> dict[str, str]:
    """Attempt files at once, or in halves while one is in the way; such files with the reason that `attempt` gives."""
    reason = await attempt(files) if files else None
    if reason is None or len(files) == 1:
        return {} if reason is None else {files[0]: reason}
    middle = len(files) // 2
    return {**await in_halves(files[:middle], attempt), **await in_halves(files[middle:], attempt)}
