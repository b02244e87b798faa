"""The only place that starts a child process, and that makes the directories which are there for a run alone.

Every child gets its own session, an allowlisted environment, its input by a pipe that is closed, a deadline and a
cap on what is kept of its output. Whatever happens (timeout, overflow, cancellation, even a second cancellation
during the clean-up), the child is gone when `run` or `stream` returns or raises.

`run` is for git and the analysers: short, well known, many. It ends the child and its process group.

`run_blocking` does the same for a command that has no event loop; it cannot be cancelled but by a signal.

`stream` is for agents: long, read line by line, and free to start whatever they like. They run under a guardian, a
process of its own that lives while such calls are in flight. It ends the program and everything that came of it, also
what moved to a session of its own, and also when we are killed outright. On systems other than Linux it can end the
process group only.

`temporary_directory` is gone after its use, and when we are killed outright, with the next run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from codeloupe.process.blocking import run_blocking
from codeloupe.process.command import Command, Completed, find_program
from codeloupe.process.environment import NETWORK_NAMES, inherited_environment, program_environment

if TYPE_CHECKING:
    from codeloupe.process.running import run
    from codeloupe.process.streaming import StreamTimedOut, stream
    from codeloupe.process.temporary import temporary_directory

__all__ = [
    "NETWORK_NAMES",
    "Command",
    "Completed",
    "StreamTimedOut",
    "find_program",
    "inherited_environment",
    "program_environment",
    "run",
    "run_blocking",
    "stream",
    "temporary_directory",
]

# These load with their first use: they need an event loop, or much of the standard library, and not every command does.
_HOMES = {
    "StreamTimedOut": "streaming",
    "run": "running",
    "stream": "streaming",
    "temporary_directory": "temporary",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
