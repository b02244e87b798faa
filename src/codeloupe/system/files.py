"""Pipe ends on the event loop: read until the end, written until all is out. Each is closed by whoever holds it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_CHUNK_BYTES = 256 * 1024


class Source:
    """Reads a file as data comes, until its end; then, or when closed, it is closed."""

    def __init__(self, file: int, take: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._file: int | None = file
        self._take = take
        self._ended = ended
        os.set_blocking(file, False)
        self._loop.add_reader(file, self._read, file)

    def _read(self, file: int) -> None:
        try:
            data = os.read(file, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:  # a line that was cut is at its end
            data = b""
        if data:
            self._take(data)
        else:
            self.close()

    def close(self) -> None:
        """Read no more."""
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = None
            self._ended()


class Sink:
    """Writes data to a file as fast as it is taken; then, when it is refused, or when closed, it is closed."""

    def __init__(self, file: int, data: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self._file: int | None = file
        self._rest = memoryview(data)
        os.set_blocking(file, False)
        self._write(file)
        if self._file is not None:
            self._loop.add_writer(file, self._write, file)

    def _write(self, file: int) -> None:
        try:
            self._rest = self._rest[os.write(file, self._rest) :]
        except BlockingIOError:
            return
        except OSError:  # a program may rightly end before it has read all of its input
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()

    def close(self) -> None:
        """Write no more."""
        if self._file is not None:
            self._loop.remove_writer(self._file)
            os.close(self._file)
            self._file = None
            self._rest.release()
