"""Short-lived children, run to their end: git and the analysers.

Each gets its own session, its input by a pipe that is closed, a deadline and a cap on what it may write.

Two gaps are left here, and `stream` has neither. A grandchild that moved to a session of its own is not followed:
git and the analysers make none. And when this process is killed outright, a child lives on until it next reads or
writes a pipe of ours: a guardian for each git call would cost more than the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

from codeloupe.errors import OutputTooLarge, ProcessTimedOut
from codeloupe.system.cancellation import settle, uninterrupted
from codeloupe.system.command import Command, Completed, start_failure

_TERMINATE_GRACE_SECONDS = 2.0
_LAST_WAIT_SECONDS = 5.0
_STDERR_TAIL_BYTES = 64 * 1024
_STDIN, _STDOUT, _STDERR = 0, 1, 2


async def run(command: Command) -> Completed:
    """Run a child to its end and return what it wrote, whatever its exit code.

    Raises ProgramNotFound or another ProcessError when it cannot be started, ProcessTimedOut or OutputTooLarge
    when it had to be ended; it is gone in every case.
    """
    started = time.monotonic()
    child = await _start(command)
    try:
        child.feed(command.stdin)
        await asyncio.wait((child.finished,), timeout=command.timeout_seconds)
        _refuse_unfinished(child, command)
    finally:
        await uninterrupted(_end(child))
    return Completed(child.exit_code(), child.stdout(), child.stderr(), time.monotonic() - started)


def _refuse_unfinished(child: _Child, command: Command) -> None:
    if child.overflowed:
        raise OutputTooLarge(
            f"{command.program} wrote more than {command.max_output_bytes:,} bytes and was ended",
            program=command.program,
            hint="review a smaller change",
        )
    if not child.finished.done():
        raise ProcessTimedOut(
            f"{command.program} did not finish within {command.timeout_seconds:g} s and was ended",
            program=command.program,
            hint="raise the time limit, or review a smaller change",
        )


class _Child(asyncio.SubprocessProtocol):
    """A running child and what it wrote so far.

    `exited` is done when the child itself is gone, `finished` when also both of its outputs are at their end
    (or one grew over the cap), `closed` when no pipe to it is open any more.
    """

    def __init__(self, max_output_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.overflowed = False
        self._room_bytes = max_output_bytes
        self._chunks: list[bytes] = []
        self._tail = b""
        self._open_outputs = {_STDOUT, _STDERR}
        self._transport: asyncio.SubprocessTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)  # noqa: S101 - for the type checker
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == _STDERR:
            self._tail = (self._tail + data)[-_STDERR_TAIL_BYTES:]
        elif not self.overflowed:
            self._room_bytes -= len(data)
            self._chunks.append(data)
            if self._room_bytes < 0:
                self.overflowed = True
                self._chunks.clear()
                settle(self.finished)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._open_outputs.discard(fd)
        self._finish_if_over()

    def process_exited(self) -> None:
        settle(self.exited)
        self._finish_if_over()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        settle(self.closed)

    def _finish_if_over(self) -> None:
        if self.exited.done() and not self._open_outputs:
            settle(self.finished)

    def feed(self, data: bytes) -> None:
        """Hand over the whole input and close it. A child may rightly end before it has read all of it."""
        pipe = self._transport.get_pipe_transport(_STDIN)
        if isinstance(pipe, asyncio.WriteTransport):
            pipe.write(data)
            pipe.write_eof()

    def close_pipes(self) -> None:
        """Let go of every pipe, also of one that a stray grandchild holds open, and of input not yet read."""
        pipe = self._transport.get_pipe_transport(_STDIN)
        if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
            pipe.abort()
        self._transport.close()

    def signal_group(self, number: signal.Signals) -> None:
        """Signal the child's process group; its number is not given away again while a member lives."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)

    def exit_code(self) -> int:
        code = self._transport.get_returncode()
        assert code is not None  # noqa: S101 - asked only when `finished` is done
        return code

    def stdout(self) -> bytes:
        return b"".join(self._chunks)

    def stderr(self) -> str:
        return self._tail.decode("utf-8", "replace")


async def _start(command: Command) -> _Child:
    """Start the child. A cancellation that comes while it starts waits for it, so that it can be ended."""
    creation = asyncio.ensure_future(_create(command))
    try:
        return await asyncio.shield(creation)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError, ValueError):
            await uninterrupted(_end_when_started(creation))
        raise
    except (OSError, ValueError) as error:
        raise start_failure(command, error) from error


async def _create(command: Command) -> _Child:
    _, child = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Child(command.max_output_bytes),
        *command.argv,
        cwd=command.cwd,
        env=dict(command.environment),
        start_new_session=True,
    )
    return child


async def _end_when_started(creation: asyncio.Future[_Child]) -> None:
    await _end(await creation)


async def _end(child: _Child) -> None:
    """TERM, a grace, KILL on the whole group, and bounded waits until child and pipes are gone.

    Being cancelled itself (a second Ctrl-C does that to every task) costs the waits, never the KILL.
    """
    try:
        if not child.exited.done():
            child.signal_group(signal.SIGTERM)
            await asyncio.wait((child.exited,), timeout=_TERMINATE_GRACE_SECONDS)
    finally:
        # The leader may be gone while another member of its group lives and holds the pipes.
        child.signal_group(signal.SIGKILL)
        try:
            await asyncio.wait((child.exited,), timeout=_LAST_WAIT_SECONDS)
        finally:
            child.close_pipes()
    await asyncio.wait((child.closed,), timeout=_LAST_WAIT_SECONDS)
