"""One program under a supervisor of the guardian: its streams, and the line on which its end is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable

from codeloupe.system.cancellation import settle
from codeloupe.system.command import Command
from codeloupe.system.files import Sink, Source
from codeloupe.system.guarding import hand_over

# Much longer than a supervisor takes, which ends by itself after its grace and its last wait: machines stand still too.
END_SECONDS = 20.0
_DRAIN_SECONDS = 1.0


class Call:
    """A program to be started, running, or ended.

    `exited` is done when the program itself is gone or could not be started; then `exit_code` or `start_error` is set,
    or neither when its supervisor was lost. Making one opens files: OSError when there is no room, ValueError when an
    argument or a variable cannot be handed over. `end` closes them in any state.
    """

    def __init__(
        self, command: Command, take_stdout: Callable[[bytes], None], take_stderr: Callable[[bytes], None]
    ) -> None:
        request = _request(command)
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = loop.create_future()
        self.exit_code: int | None = None
        self.start_error: OSError | None = None
        self._gone: asyncio.Future[None] = loop.create_future()
        self._drained: asyncio.Future[None] = loop.create_future()
        self._told = b""
        self._open_outputs = 2
        with contextlib.ExitStack() as undo:
            stdin, feed = _pair(undo, os.pipe)
            stdout, wrote = _pair(undo, os.pipe)
            stderr, warned = _pair(undo, os.pipe)
            self._line, theirs = _pair(undo, _line)
            copy = os.dup(self._line)
            undo.pop_all()
        self._theirs = (stdin, wrote, warned, theirs)
        self._sinks = (Sink(copy, request), Sink(feed, command.stdin))
        self._outputs = (
            Source(stdout, take_stdout, self._output_ended),
            Source(stderr, take_stderr, self._output_ended),
        )
        self._ending = Source(self._line, self._hear, self._line_ended)

    async def begin(self) -> None:
        """Have the program started. OSError when there is no guardian to do it."""
        try:
            await hand_over(self._theirs)
        finally:
            # Ours must not keep the streams open when the program's are closed.
            for file in self._theirs:
                os.close(file)

    async def end(self) -> None:
        """Have everything ended that is left, and wait until it is, but not for ever.

        The supervisor needs nothing of us for that: when this wait is cut short, the ending goes on.
        """
        try:
            if not self._gone.done():
                _hang_up(self._line)
                await asyncio.wait((self._gone,), timeout=END_SECONDS)
            # What was written last is still in the pipes. A stranger may hold them open.
            await asyncio.wait((self._drained,), timeout=_DRAIN_SECONDS)
        finally:
            for file in (*self._sinks, *self._outputs, self._ending):
                file.close()

    def _hear(self, data: bytes) -> None:
        self._told += data
        *sentences, rest = self._told.split(b"\n")
        self._told = rest
        for what, number in (sentence.split() for sentence in sentences):
            if what == b"exited":
                self.exit_code = int(number)
            else:
                self.start_error = OSError(int(number), os.strerror(int(number)))
            settle(self.exited)

    def _line_ended(self) -> None:
        settle(self.exited)
        settle(self._gone)

    def _output_ended(self) -> None:
        self._open_outputs -= 1
        if not self._open_outputs:
            settle(self._drained)


def _pair(undo: contextlib.ExitStack, make: Callable[[], tuple[int, int]]) -> tuple[int, int]:
    pair = make()
    for file in pair:
        undo.callback(os.close, file)
    return pair


def _line() -> tuple[int, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()


def _hang_up(line: int) -> None:
    # Closing would not do: a process that was forked off us may hold the same line.
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, line)
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_WR)
    end.detach()


def _request(command: Command) -> bytes:
    """What the supervisor is told to start; see guardian.py."""
    if any(not name or "=" in name for name in command.environment):
        raise ValueError("illegal environment variable name")
    variables = (f"{name}={value}" for name, value in command.environment.items())
    fields = (str(len(command.argv)), str(command.cwd.absolute()), *command.argv, *variables)
    encoded = [os.fsencode(text) for text in fields]
    if any(b"\0" in field for field in encoded):
        raise ValueError("embedded null byte")
    text = b"\0".join(encoded)
    return len(text).to_bytes(4, "big") + text
