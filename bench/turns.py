"""Programs measured by turns: each turn runs every contender once, and the least of all turns counts for each.

Other work on the machine disturbs neighbouring runs alike, and a disturbed run is never the least. So the ratio of two
least times says more about the programs than the ratio of two averages.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LONGEST_MESSAGE = 2_000
# Without compiled modules, each start of a Python program takes longer. The first turn writes them.
_NO_COMPILED_MODULES = "PYTHONDONTWRITEBYTECODE"


@dataclass(frozen=True, slots=True)
class Contender:
    """Commands that run one after the other in a folder, with the exit codes that are no failure."""

    commands: Sequence[Sequence[str]]
    folder: Path
    expected: Sequence[int] = (0, 1)
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall seconds, and CPU seconds of the processes and of the children that they waited for."""

    wall_seconds: float
    cpu_seconds: float


def least_costs(contenders: Sequence[Contender], *, turns: int) -> list[Cost]:
    """Run the contenders by turns and return the least wall time and the least CPU time of each."""
    measured: list[list[Cost]] = [[] for _ in contenders]
    for _ in range(turns):
        for costs, contender in zip(measured, contenders, strict=True):
            costs.append(_run(contender))
    least: list[Cost] = []
    for costs in measured:
        wall_seconds = min(cost.wall_seconds for cost in costs)
        cpu_seconds = min(cost.cpu_seconds for cost in costs)
        least.append(Cost(wall_seconds, cpu_seconds))
    return least


def _run(contender: Contender) -> Cost:
    started = time.perf_counter()
    cpu_seconds = 0.0
    for command in contender.commands:
        cpu_seconds += _cpu_of(command, contender)
    return Cost(time.perf_counter() - started, cpu_seconds)


def _cpu_of(command: Sequence[str], contender: Contender) -> float:
    """Run one command without showing its output and return its CPU seconds. Raise RuntimeError if it fails."""
    environment = {**os.environ, **(contender.environment or {})}
    environment.pop(_NO_COMPILED_MODULES, None)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=contender.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in contender.expected:
            output.seek(0)
            message = output.read().decode("utf-8", "replace")[-_LONGEST_MESSAGE:]
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {message}")
    return usage.ru_utime + usage.ru_stime


def compared(ours: Cost, theirs: Cost) -> str:
    """Return both wall times and both CPU times in words."""
    wall = f"{ours.wall_seconds * 1000:.0f} ms / {theirs.wall_seconds * 1000:.0f} ms"
    cpu = f"CPU {ours.cpu_seconds * 1000:.0f} ms / {theirs.cpu_seconds * 1000:.0f} ms"
    return f"{wall}, {cpu}"


def shared(cost: Cost, parts: int) -> Cost:
    """Return the part of a cost that falls to each of several equal parts."""
    return Cost(cost.wall_seconds / parts, cost.cpu_seconds / parts)
