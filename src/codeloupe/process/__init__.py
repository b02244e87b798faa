"""The only place that starts a child process.

Every child gets its own session, an allowlisted environment, its input by a pipe that is closed, a deadline and a
cap on what is kept of its output. Whatever happens (timeout, overflow, cancellation, even a second cancellation
during the clean-up), the child is gone when `run` or `stream` returns or raises.

`run` is for git and the analysers: short, well known, many. It ends the child and its process group.

`stream` is for agents: long, read line by line, and free to start whatever they like. They run under a guardian, a
process of its own that lives while such calls are in flight. It ends the program and everything that came of it, also
what moved to a session of its own, and also when we are killed outright. On systems other than Linux it can end the
process group only.
"""

from __future__ import annotations

from codeloupe.process.command import Command, Completed, find_program, inherited_environment
from codeloupe.process.running import run
from codeloupe.process.streaming import StreamTimedOut, stream

__all__ = ["Command", "Completed", "StreamTimedOut", "find_program", "inherited_environment", "run", "stream"]
