"""A pseudo-terminal, and a screen that understands as much as our displays write: what a person would see."""

import fcntl
import os
import re
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tests.endings import PATIENCE_SECONDS

_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Terminal:
    """A terminal of 80 × 24: what a program writes to `stream` can be read back, and it reads what is typed."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.stream: TextIO = os.fdopen(slave, "w", encoding=encoding, errors="strict")
        self._received = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._master, 65536):
                self._received += chunk
        except OSError:
            return  # Linux says EIO when the last writer has left

    @contextmanager
    def as_ours(self) -> Iterator[None]:
        """While it lasts, it is the terminal of this process, as far as Python code can tell."""
        before = sys.stdin, sys.stderr
        with open(self.stream.fileno(), encoding="utf-8", closefd=False) as typed:
            sys.stdin, sys.stderr = typed, self.stream
            try:
                yield
            finally:
                sys.stdin, sys.stderr = before

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def so_far(self) -> str:
        return bytes(self._received).decode("utf-8", "replace")

    def wait_for(self, words: str, *, times: int = 1) -> str:
        """What was written up to the end of the line in which some words came, once they have come so often.

        That line is there whole, since something is behind it; what is behind may be half of a picture.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (end := _end_of_line(self.so_far(), words, times)) < 0:
            assert time.monotonic() < deadline, f"{words!r} did not come: {self.so_far()!r}"
            time.sleep(0.01)
        return self.so_far()[:end]

    def settled(self) -> str:
        """All that was written so far, once nothing more comes for a while."""
        seen, since = len(self._received), time.monotonic()
        while time.monotonic() - since < 0.3:
            time.sleep(0.01)
            if len(self._received) != seen:
                seen, since = len(self._received), time.monotonic()
        return self.so_far()

    def text(self) -> str:
        if not self.stream.closed:
            self.stream.close()
        self._reader.join()
        return self.so_far()

    def close(self) -> None:
        self.text()
        os.close(self._master)


def _end_of_line(text: str, words: str, times: int) -> int:
    """Where the line ends in which some words stand for the so-manieth time; -1 when it does not yet."""
    place = 0
    for _ in range(times):
        found = text.find(words, place)
        if found < 0:
            return -1
        place = found + len(words)
    return text.find("\r", place)


class Screen:
    """What stands on a terminal after some output. `scrolled` counts the lines that left it at the top."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._rows: list[list[str]] = [[] for _ in range(height)]
        self._row = self._column = 0
        self.scrolled = 0

    def lines(self) -> list[str]:
        rows = ["".join(row).rstrip() for row in self._rows]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def feed(self, text: str) -> None:
        position = 0
        while position < len(text):
            sequence = _SEQUENCE.match(text, position)
            if sequence:
                self._obey(sequence[2], sequence[3])
                position = sequence.end()
                continue
            self._put(text[position])
            position += 1

    def _put(self, character: str) -> None:
        if character == "\n":
            self._row += 1
            if self._row == self._height:
                self._rows = [*self._rows[1:], []]
                self._row -= 1
                self.scrolled += 1
        elif character == "\r":
            self._column = 0
        else:
            assert character.isprintable(), repr(character)
            row = self._rows[self._row]
            row.extend(" " * (self._column + 1 - len(row)))
            row[self._column] = character
            self._column += 1

    def _obey(self, numbers: str, command: str) -> None:
        count = int(numbers.split(";", maxsplit=1)[0] or "1")
        if command == "A":
            self._row = max(self._row - count, 0)
        elif command == "K":
            self._rows[self._row] = []
        else:
            assert command in "mhl", f"a command that this screen does not know: {command}"
