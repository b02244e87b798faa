"""Best-of-several wall times: the least disturbed run says most about the program."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def best_seconds(work: Callable[[], object], *, times: int) -> float:
    """The shortest wall time of several runs."""
    durations = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        durations.append(time.perf_counter() - started)
    return min(durations)


def quiet(
    command: Sequence[str], *, cwd: Path | None = None, expected: Sequence[int] = (0,), stdin: bytes = b""
) -> None:
    """Run a command without showing its output; an unexpected exit code is an error."""
    completed = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, check=False)
    if completed.returncode not in expected:
        raise RuntimeError(
            f"{command[0]} ended with {completed.returncode}: {(completed.stdout + completed.stderr).decode()[-2000:]}"
        )
