"""A program that answers questions while it runs, such as `git cat-file --batch`."""

from __future__ import annotations

import asyncio

from codeloupe.errors import ProcessTimedOut
from codeloupe.system.process import Child, Command, Completed, start_failure, uninterrupted

_STDERR_TAIL_BYTES = 64 * 1024


class Dialogue:
    """A started program whose input stays open. Creating one raises ProgramNotFound or another ProcessError.

    It ends when its input does, so it does not outlive this process. `command.timeout_seconds` limits each answer, not
    the whole dialogue, and `command.stdin` is not used.
    """

    def __init__(self, command: Command) -> None:
        self._command = command
        self._received = bytearray()
        self._stderr = bytearray()
        self._news = asyncio.Event()
        try:
            self._child = Child(
                command.argv,
                cwd=command.cwd,
                environment=command.environment,
                stdin=None,
                takers=(self._receive_stdout, self._receive_stderr),
            )
        except (OSError, ValueError) as error:
            raise start_failure(command, error) from error
        self._child.drained.add_done_callback(lambda _: self._news.set())

    def ask(self, question: bytes) -> None:
        """Write a question. The answers to earlier ones must have been read."""
        self._child.write(question)

    async def read_line(self) -> bytes:
        """Return the next line without its end. Raise EOFError if the program ended, ProcessTimedOut if it is late."""
        end = self._received.find(b"\n")
        while end < 0:
            await self._more()
            end = self._received.find(b"\n")
        return self._take(end + 1)[:-1]

    async def read_exactly(self, count: int) -> bytes:
        """Return the next `count` bytes. Raise as `read_line` does."""
        while len(self._received) < count:
            await self._more()
        return self._take(count)

    async def end(self) -> Completed:
        """End the program, also if this is cancelled, and return how it ended, with the last part of its stderr."""
        await uninterrupted(self._child.end())
        exit_code = self._child.process.returncode
        stderr = self._stderr.decode("utf-8", "replace")
        return Completed(exit_code, b"", stderr, 0.0)

    async def _more(self) -> None:
        """Wait until more output has come."""
        if self._child.drained.done():
            raise EOFError
        self._news.clear()
        try:
            async with asyncio.timeout(self._command.timeout_seconds):
                await self._news.wait()
        except TimeoutError as error:
            program = self._command.program
            message = f"{program} did not answer within {self._command.timeout_seconds:g} s"
            raise ProcessTimedOut(message, program=program, hint="review a smaller change") from error

    def _take(self, count: int) -> bytes:
        """Remove the next bytes from those that were received, and return them."""
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken

    def _receive_stdout(self, data: bytes) -> None:
        self._received += data
        self._news.set()

    def _receive_stderr(self, data: bytes) -> None:
        self._stderr += data
        del self._stderr[:-_STDERR_TAIL_BYTES]
