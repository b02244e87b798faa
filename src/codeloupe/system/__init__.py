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
