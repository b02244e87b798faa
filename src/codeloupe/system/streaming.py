"""Long-running programs, read while they run: agents.

A program runs under the guardian (see guardian.py), which ends it with everything that came of it: at its own end,
when we say so, and when we are killed.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable

from msgspec import Struct

from codeloupe.errors import ProcessError, ProcessTimedOut
from codeloupe.system.cancellation import settle, uninterrupted
from codeloupe.system.command import EXHAUSTED, Command, Completed, start_failure
from codeloupe.system.guarding import guarded
from codeloupe.system.output import HeadAndTail, Lines
from codeloupe.system.supervised import Call

_MAX_LINE_BYTES = 16 * 1024 * 1024
_STDERR_BYTES = 128 * 1024
# The slowest program that is known takes half of it between its last word and its end.
_END_SECONDS = 10.0


class StreamTimedOut(ProcessTimedOut):
    """The program was ended at its deadline, or after a silence (`silent`).

    `stdout` and `stderr` are what is kept of its output until it was gone, as in `Completed`.
    """

    def __init__(self, message: str, *, program: str, hint: str, stdout: bytes, stderr: str, silent: bool) -> None:
        super().__init__(message, program=program, hint=hint)
        self.stdout = stdout
        self.stderr = stderr
        self.silent = silent


async def stream(
    command: Command,
    *,
    on_line: Callable[[bytes], None] | None = None,
    idle_timeout_seconds: float | None = None,
    is_over: Callable[[], bool] | None = None,
    keep_bytes: int | None = None,
    max_line_bytes: int = _MAX_LINE_BYTES,
) -> Completed:
    """Run a program to its end and hand each line of its stdout to `on_line` as it comes, without its line end.

    Whatever the program started and left behind is ended with it. Of stdout the first and last bytes are kept,
    `keep_bytes` in all (by default the command's `max_output_bytes`); more output is no failure. A line longer than
    `max_line_bytes` is skipped and counted. A last line without a line feed is handed over when the program ended
    by itself. What `on_line` raises ends the program and is raised here. Once `is_over` says, behind a line, that the
    program has told all it had to, it has some seconds left to end.

    Raises ProgramNotFound or another ProcessError when it cannot be started or is lost, StreamTimedOut when it did
    not finish in time or wrote nothing to either output for `idle_timeout_seconds`; it is gone in every case.
    """
    kept = command.max_output_bytes if keep_bytes is None else keep_bytes
    listener = _Listener(on_line, is_over, keep_bytes=kept, max_line_bytes=max_line_bytes)
    async with guarded():
        call = _prepare(command, listener)
        try:
            await _begin(call, command)
            passed = await _watch(call, listener, command.timeout_seconds, idle_timeout_seconds)
        finally:
            await uninterrupted(call.end())
    if listener.error is not None:
        raise listener.error
    if passed is not None:
        raise _timed_out(command, listener, passed)
    return listener.completed(_exit_code(call, command))


class _Listener:
    """Takes what a program writes, keeps part of it, and hands its lines on. `error` is what the taker raised.

    `over` is done, and `ends_by` set, when the program has nothing more to tell.
    """

    def __init__(
        self,
        on_line: Callable[[bytes], None] | None,
        is_over: Callable[[], bool] | None,
        *,
        keep_bytes: int,
        max_line_bytes: int,
    ) -> None:
        self.started = self.heard_at = time.monotonic()
        self.ends_by = math.inf
        self.error: Exception | None = None
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_over = is_over
        self._stdout = HeadAndTail(keep_bytes)
        self._stderr = HeadAndTail(_STDERR_BYTES)
        self._lines = Lines(on_line, max_line_bytes) if on_line else None

    def take_stdout(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        self._stdout.add(data)
        if self._lines is None or self.failed.done():
            return
        try:
            self._lines.add(data)
            if not self.over.done() and self._is_over is not None and self._is_over():
                self.ends_by = self.heard_at + _END_SECONDS
                settle(self.over)
        except Exception as error:  # noqa: BLE001 - whatever the taker raises is its caller's, and is raised there
            self.error = error
            settle(self.failed)

    def take_stderr(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        self._stderr.add(data)

    def kept(self) -> tuple[bytes, str]:
        """What is kept of both outputs."""
        return self._stdout.kept(), self._stderr.kept().decode("utf-8", "replace")

    def completed(self, exit_code: int) -> Completed:
        """The outcome of a program that ended by itself; its last line is handed over before."""
        seconds = time.monotonic() - self.started
        if self._lines is not None:
            self._lines.finish()
        return Completed(
            exit_code,
            *self.kept(),
            seconds,
            omitted_bytes=self._stdout.omitted_bytes,
            skipped_lines=self._lines.skipped if self._lines else 0,
        )


def _prepare(command: Command, listener: _Listener) -> Call:
    try:
        return Call(command, listener.take_stdout, listener.take_stderr)
    except (OSError, ValueError) as error:
        raise start_failure(command, error) from error


async def _begin(call: Call, command: Command) -> None:
    try:
        await call.begin()
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise start_failure(command, error) from error
        raise ProcessError(
            f"cannot start {command.program}: {sys.executable} does not run, which is to watch over it ({error})",
            program=command.program,
            hint="check the installation of Python",
        ) from error


async def _watch(call: Call, listener: _Listener, timeout_seconds: float, idle_seconds: float | None) -> _Passed | None:
    """Wait for the program's end, or for the first limit that passes."""
    idle = math.inf if idle_seconds is None else idle_seconds
    ends = (call.exited, listener.failed)
    while not any(end.done() for end in ends):
        now = time.monotonic()
        ends_by = min(listener.started + timeout_seconds, listener.ends_by)
        left, idle_left = ends_by - now, listener.heard_at + idle - now
        if left <= 0:
            return _Passed(timeout_seconds, silent=False)
        if idle_left <= 0:
            return _Passed(idle, silent=True)
        awaited = ends if listener.over.done() else (*ends, listener.over)
        await asyncio.wait(awaited, timeout=min(left, idle_left), return_when=asyncio.FIRST_COMPLETED)
    return None


class _Passed(Struct, frozen=True):
    """A limit that passed: of the whole run, or of silence."""

    seconds: float
    silent: bool


def _timed_out(command: Command, listener: _Listener, passed: _Passed) -> StreamTimedOut:
    stdout, stderr = listener.kept()
    seconds = round(passed.seconds, 2)
    if passed.silent:
        what, hint = f"wrote nothing for {seconds:g} s", "raise the limit of silence, or see what it waits for"
    else:
        what, hint = f"did not finish within {seconds:g} s", "raise the time limit, or ask for less at once"
    return StreamTimedOut(
        f"{command.program} {what} and was ended",
        program=command.program,
        hint=hint,
        stdout=stdout,
        stderr=stderr,
        silent=passed.silent,
    )


def _exit_code(call: Call, command: Command) -> int:
    if call.start_error is not None:
        raise start_failure(command, call.start_error) from call.start_error
    if call.exit_code is None:
        raise ProcessError(
            f"{command.program} was lost: the process that watched over it did not run, or was ended from outside",
            program=command.program,
            hint=f"check that {sys.executable} runs, and whether a limit of memory or processes ends programs here",
        )
    return call.exit_code
