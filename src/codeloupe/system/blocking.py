"""A short-lived child, run to its end without an event loop: for a command that asks git two things and is done.

To load an event loop takes longer than such a command may. What can have one uses `run`, which does the same and can
be cancelled.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from types import FrameType

from codeloupe.errors import OutputTooLarge, ProcessTimedOut
from codeloupe.system.command import Command, Completed, start_failure

_STDERR_TAIL_BYTES = 64 * 1024


def run_blocking(command: Command) -> Completed:
    """Run a child to its end and return what it wrote, whatever its exit code; for children that write little.

    Raises as `run` does. The child and its process group are gone in every case, also after a Ctrl-C.
    """
    started = time.monotonic()
    interrupts = _Interrupts()
    try:
        child = subprocess.Popen(  # noqa: S603 - the words come from us, and no shell is involved
            command.argv,
            cwd=command.cwd,
            env=dict(command.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        interrupts.let_go()
        raise start_failure(command, error) from error
    with child:
        try:
            interrupts.let_go()
            stdout, stderr = child.communicate(command.stdin, timeout=command.timeout_seconds)
        except BaseException as error:  # whatever it is, also a Ctrl-C, the child must not outlive it
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise _timed_out(command) from error
            raise
    if len(stdout) > command.max_output_bytes:
        raise OutputTooLarge(
            f"{command.program} wrote more than {command.max_output_bytes:,} bytes",
            program=command.program,
            hint="run it by hand to see what it writes",
        )
    words = stderr[-_STDERR_TAIL_BYTES:].decode("utf-8", "replace")
    return Completed(child.returncode, stdout, words, time.monotonic() - started)


class _Interrupts:
    """Holds a Ctrl-C back from now on until it is let go: during a start it would leave a child that nobody knows."""

    def __init__(self) -> None:
        self._came: list[tuple[int, FrameType | None]] = []
        self._handler = signal.getsignal(signal.SIGINT)
        # Only the main thread gets signals; and where there is no function to call, nothing would be raised.
        self._holds = callable(self._handler) and threading.current_thread() is threading.main_thread()
        if self._holds:
            signal.signal(signal.SIGINT, lambda number, frame: self._came.append((number, frame)))

    def let_go(self) -> None:
        """Do now what the Ctrl-C meant that came meanwhile; mostly that is to raise."""
        if self._holds:
            signal.signal(signal.SIGINT, self._handler)
        if self._came and callable(self._handler):
            self._handler(*self._came[0])


def _timed_out(command: Command) -> ProcessTimedOut:
    return ProcessTimedOut(
        f"{command.program} did not finish within {command.timeout_seconds:g} s and was ended",
        program=command.program,
        hint="raise the time limit, or look why it takes so long",
    )
