"""The CPU time of codeloupe itself: of its process and of all that it starts, but for the agent programs.

The kernel adds up the time of a process and of every child that was waited for: codeloupe, git, the guardian and its
supervisors, and the agents. A small program stands in front of each agent, waits for it, and writes down what the
agent and the small program itself took; that is taken off. What the small program needs to end is not seen by it and
so counts as ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# The first two lines start this Python from a path that may hold a space.
_WATCHED = """#!/bin/sh
''''exec "{python}" -IS "$0" "$@" #'''
import os, resource, sys
process = os.posix_spawn({program!r}, [{program!r}, *sys.argv[1:]], os.environ)
_, status, theirs = os.wait4(process, 0)
own = resource.getrusage(resource.RUSAGE_SELF)
spent = theirs.ru_utime + theirs.ru_stime + own.ru_utime + own.ru_stime
with open({record!r}, "a") as record:
    record.write(f"{{spent}}\\n")
os._exit(os.waitstatus_to_exitcode(status) & 255)
"""


class Spent(NamedTuple):
    """CPU seconds of a run: ours, and those of so many agent calls."""

    own_seconds: float
    agent_seconds: float
    agent_calls: int


class WatchedAgent:
    """An agent program that tells what it takes; `path` is to be started in its place."""

    def __init__(self, program: str, folder: Path) -> None:
        self.path = folder / "watched-agent"
        self._record = folder / "watched-agent.seconds"
        text = _WATCHED.format(python=sys.executable, program=program, record=str(self._record))
        self.path.write_text(text, encoding="utf-8")
        self.path.chmod(0o755)

    def run(self, command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], must_ask: bool = True) -> Spent:
        """Run a program that asks the agent, and tell what was spent. RuntimeError when it does not end with 0."""
        self._record.write_text("", encoding="ascii")
        with subprocess.Popen(
            command, cwd=cwd, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        calls = [float(line) for line in self._record.read_text(encoding="ascii").split()]
        own_seconds = usage.ru_utime + usage.ru_stime - sum(calls)
        if process.returncode or (must_ask and not calls) or own_seconds < 0:
            raise RuntimeError(f"{command[0]} ended with {process.returncode} after {len(calls)} agent calls")
        return Spent(own_seconds, sum(calls), len(calls))
