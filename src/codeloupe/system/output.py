"""What is kept of a child's output, and its lines as they come."""

from __future__ import annotations

from collections.abc import Callable


class HeadAndTail:
    """Keeps the first and the last bytes of what is added, at most `limit_bytes` of it, in bounded memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_bytes = (limit_bytes + 1) // 2
        self._tail_bytes = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total_bytes = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        self._total_bytes += len(data)
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cut rarely, so that each byte is moved a bounded number of times however small the pieces are.
        if len(self._tail) > 2 * self._tail_bytes + 65536:
            self._cut()

    @property
    def omitted_bytes(self) -> int:
        """How much of the middle is not kept."""
        return max(0, self._total_bytes - self._head_bytes - self._tail_bytes)

    def kept(self) -> bytes:
        """All of it, or head and tail with a line between them that tells how much is left out."""
        self._cut()
        if not self.omitted_bytes:
            return bytes(self._head + self._tail)
        gap = f"\n[... {self.omitted_bytes:,} bytes left out ...]\n".encode()
        return bytes(self._head + gap + self._tail)

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_bytes)]


class Lines:
    """Hands over each line without its line feed and the carriage return before it.

    A line longer than `limit_bytes` is skipped and counted, so that memory stays bounded.
    """

    def __init__(self, hand_over: Callable[[bytes], None], limit_bytes: int) -> None:
        self.skipped = 0
        self._hand_over = hand_over
        self._limit_bytes = limit_bytes
        self._line = bytearray()
        self._length = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes and hand over the lines that they complete."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._extend(part)
            self._end_line()
        if rest:
            self._extend(rest)

    def finish(self) -> None:
        """Hand over a last line that no line feed has ended."""
        if self._length:
            self._end_line()

    def _end_line(self) -> None:
        line, length = bytes(self._line), self._length
        self._line.clear()
        self._length = 0
        if length > self._limit_bytes:
            self.skipped += 1
        else:
            self._hand_over(line.removesuffix(b"\r"))

    def _extend(self, part: bytes) -> None:
        self._length += len(part)
        if self._length > self._limit_bytes:
            self._line.clear()
        else:
            self._line += part
