"""Long-running programs, read while they run: agents, each under a guardian (see guardian.py)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from codeloupe.errors import ProcessError, ProcessTimedOut
from codeloupe.system.process import EXHAUSTED, Child, Command, Completed, start_failure, uninterrupted

# Much longer than a guardian takes, which ends by itself after its grace and its last wait: machines are suspended too.
END_SECONDS = 20.0
_GUARDIAN = Path(__file__).with_name("guardian.py")
# As a module and not as a script: that is compiled once, and not at every start.
_START = "import sys; sys.path.append(sys.argv.pop(1)); import guardian; guardian.main()"
# Some builds of Python find their own library by these.
_LOADER_NAMES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# The slowest program that is known takes half of it between its last word and its end.
_END_SECONDS = 10.0


class StreamTimedOut(ProcessTimedOut):
    """The program was ended at its deadline, or after a silence; its outputs are kept as in `Completed`."""

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
    max_line_bytes: int = 16 * 1024**2,
) -> Completed:
    """Run a program to its end and hand each line of its stdout to `on_line` as it comes, without its line end.

    Whatever the program started and left behind is ended with it. Of stdout the first and last bytes are kept,
    `keep_bytes` in all (by default the command's `max_output_bytes`); more output is no failure. A line longer than
    `max_line_bytes` is skipped and counted. A last line without a line feed is handed over when the program ended
    by itself. What `on_line` raises ends the program and is raised here. Once `is_over` says, after a line, that the
    program has told all it had to, it has some seconds left to end.

    Raises ProgramNotFound or another ProcessError when it cannot be started or is lost, StreamTimedOut when it did
    not finish in time or wrote nothing to either output for `idle_timeout_seconds`; it is gone in every case.
    """
    keep_bytes = command.max_output_bytes if keep_bytes is None else keep_bytes
    call = _Call(keep_bytes, Lines(on_line or (lambda _line: None), max_line_bytes), is_over)
    try:
        call.start(command)
    except ValueError as error:
        raise start_failure(command, error) from error
    except OSError as error:
        if error.errno in {*EXHAUSTED, errno.E2BIG}:
            raise start_failure(command, error) from error
        message = f"cannot start {command.program}: {sys.executable} does not run, which is to watch over it ({error})"
        raise ProcessError(message, program=command.program, hint="check the installation of Python") from error
    try:
        idle_seconds = math.inf if idle_timeout_seconds is None else idle_timeout_seconds
        passed = await call.wait(command.timeout_seconds, idle_seconds)
    finally:
        await uninterrupted(call.end())
    if call.error is not None:
        raise call.error
    if passed is not None:
        seconds, silent = round(passed[0], 2), passed[1]
        if silent:
            what, hint = f"wrote nothing for {seconds:g} s", "raise the limit of silence, or see what it waits for"
        else:
            what, hint = f"did not finish within {seconds:g} s", "raise the time limit, or ask for less at once"
        message = f"{command.program} {what} and was ended"
        stdout, stderr = call.kept()
        raise StreamTimedOut(message, program=command.program, hint=hint, stdout=stdout, stderr=stderr, silent=silent)
    if call.start_error is not None:
        raise start_failure(command, call.start_error) from call.start_error
    if call.exit_code is None:
        message = f"{command.program} was lost: the process that watched over it did not run, or was ended from outside"
        hint = f"check that {sys.executable} runs, and whether a limit of memory or processes ends programs here"
        raise ProcessError(message, program=command.program, hint=hint)
    return call.completed(call.exit_code)


class HeadAndTail:
    """Keeps the first and the last bytes of what is added, at most `limit_bytes` of it, in bounded memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_bytes, self._tail_bytes = (limit_bytes + 1) // 2, limit_bytes // 2
        self._head, self._tail = bytearray(), bytearray()
        self.omitted_bytes = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        room = self._head_bytes - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        more = max(0, len(self._tail) - self._tail_bytes)
        # To cut the beginning off moves no byte of the rest.
        del self._tail[:more]
        self.omitted_bytes += more

    def kept(self) -> bytes:
        """All of it, or head and tail with a line between them that says how much is left out."""
        gap = f"\n[... {self.omitted_bytes:,} bytes left out ...]\n".encode() if self.omitted_bytes else b""
        return bytes(self._head + gap + self._tail)


class Lines:
    """Hands over each line without its end; one longer than `limit_bytes` is skipped and counted: memory is bounded."""

    def __init__(self, hand_over: Callable[[bytes], None], limit_bytes: int) -> None:
        self.skipped = 0
        self._hand_over, self._limit_bytes = hand_over, limit_bytes
        self._line = bytearray()

    def add(self, data: bytes) -> None:
        """Take the next bytes and hand over the lines that they complete."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._line += part
            self._end_line()
        self._line += rest
        del self._line[self._limit_bytes + 1 :]

    def finish(self) -> None:
        """Hand over a last line that no line feed has ended."""
        if self._line:
            self._end_line()

    def _end_line(self) -> None:
        line = bytes(self._line)
        self._line.clear()
        if len(line) > self._limit_bytes:
            self.skipped += 1
        else:
            self._hand_over(line.removesuffix(b"\r"))


class _Call:
    """A program under a guardian. Without `exit_code` and `start_error` at the end, the guardian itself was lost."""

    def __init__(self, keep_bytes: int, lines: Lines, is_over: Callable[[], bool] | None) -> None:
        self.exit_code: int | None = None
        self.start_error: OSError | None = None
        self.error: Exception | None = None
        self._started = self._heard_at = time.monotonic()
        self._ends_by = math.inf
        self._stdout, self._stderr = HeadAndTail(keep_bytes), HeadAndTail(128 * 1024)
        self._lines = lines
        self._is_over = is_over
        self._told = b""
        self._news = asyncio.Event()

    def start(self, command: Command) -> None:
        """Have the guardian start the program. Raises OSError or ValueError."""
        loader = {name: os.environ[name] for name in _LOADER_NAMES if name in os.environ}
        hidden = ",".join(loader.keys() - command.environment.keys())
        with contextlib.ExitStack() as stack:
            self._line, theirs = socket.socketpair()
            stack.enter_context(theirs)
            undo = stack.enter_context(contextlib.ExitStack())
            undo.enter_context(self._line)
            files = [theirs.fileno()]
            # It becomes readable when we are gone, also when a process that we forked keeps our sockets open.
            with contextlib.suppress(AttributeError, OSError):  # not on every system
                files.append(os.pidfd_open(os.getpid()))
                stack.callback(os.close, files[1])
            # Isolated, it would not hear of the variable by which a user asked for no bytecode.
            python = (sys.executable, "-I", "-S", *(("-B",) if sys.dont_write_bytecode else ()), "-c", _START)
            words = (str(_GUARDIAN.parent), str(files[0]), str([*files, -1][1]), hidden, str(command.cwd.absolute()))
            self._child = Child(
                (*python, *words, *command.argv),
                cwd=Path("/"),
                environment={**loader, **command.environment},
                stdin=command.stdin,
                takers=(self._take_stdout, self._take_stderr),
                pass_files=files,
            )
            undo.pop_all()
        self._gone = self._child.read(self._line, self._hear)
        self._gone.add_done_callback(lambda _: self._news.set())

    async def wait(self, timeout_seconds: float, idle_seconds: float) -> tuple[float, bool] | None:
        """Wait for the program's end, or for the first limit that passes: its seconds, and whether it is of silence."""
        while not self._gone.done() and self.exit_code is None and self.start_error is None and self.error is None:
            now = time.monotonic()
            left = min(self._started + timeout_seconds, self._ends_by) - now
            idle_left = self._heard_at + idle_seconds - now
            if left <= 0:
                return timeout_seconds, False
            if idle_left <= 0:
                return idle_seconds, True
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left, idle_left))
        return None

    async def end(self) -> None:
        """Have everything ended that is left; the guardian goes on with it when this wait is cut short."""
        try:
            if not self._gone.done():
                # Closing would not do: a process that was forked off us may hold the same socket.
                with contextlib.suppress(OSError):
                    self._line.shutdown(socket.SHUT_WR)
                await asyncio.wait((self._gone,), timeout=END_SECONDS)
            # What was written last is still in the pipes. A stranger may hold them open.
            await asyncio.wait((self._child.drained,), timeout=1.0)
        finally:
            self._child.close()
            if not await self._child.gone(END_SECONDS):
                self._child.process.kill()

    def kept(self) -> tuple[bytes, str]:
        """What is kept of both outputs."""
        return self._stdout.kept(), self._stderr.kept().decode("utf-8", "replace")

    def completed(self, exit_code: int) -> Completed:
        """The outcome of a program that ended by itself; its last line is handed over before."""
        seconds = time.monotonic() - self._started
        self._lines.finish()
        skipped, omitted = self._lines.skipped, self._stdout.omitted_bytes
        return Completed(exit_code, *self.kept(), seconds, omitted_bytes=omitted, skipped_lines=skipped)

    def _take_stdout(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        self._stdout.add(data)
        if self.error is not None:
            return
        try:
            self._lines.add(data)
            if self._ends_by == math.inf and self._is_over is not None and self._is_over():
                self._ends_by = self._heard_at + _END_SECONDS
                self._news.set()
        except Exception as error:  # noqa: BLE001 - whatever the taker raises is its caller's, and is raised there
            self.error = error
            self._news.set()

    def _take_stderr(self, data: bytes) -> None:
        self._heard_at = time.monotonic()
        self._stderr.add(data)

    def _hear(self, data: bytes) -> None:
        *sentences, self._told = (self._told + data).split(b"\n")
        for what, number in (sentence.split() for sentence in sentences):
            if what == b"exited":
                self.exit_code = int(number)
            else:
                self.start_error = OSError(int(number), os.strerror(int(number)))
            self._news.set()
