"""Reading git objects through one `git cat-file --batch`, which answers many questions.

All readers of a sweep share one process. It is started with the first question, and ends with its context or with this
process, whose end closes its input.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from codeloupe.errors import GitFailed, OutputTooLarge
from codeloupe.git.command import MAX_OUTPUT_BYTES, Place, failure, git, git_command
from codeloupe.git.repository import Repository, reading
from codeloupe.system.dialogue import Dialogue


class ObjectReader:
    """Reads objects in one place, one question at a time. `opened_objects` makes and closes it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._turn = asyncio.Lock()
        self._git: Dialogue | None = None
        self._is_closed = False

    async def read(self, names: Sequence[str], *, max_bytes: int = MAX_OUTPUT_BYTES) -> dict[str, bytes]:
        """Return the content of those objects that exist and are blobs. A name is everything that git takes for one.

        Raise GitFailed if git cannot read one of them or the reader is closed, and OutputTooLarge if they are larger
        than `max_bytes` together. An error ends the process, and the next question starts another.
        """
        # Git reads one name from each line, so it would answer twice.
        names = [name for name in names if "\n" not in name]
        if not names:
            return {}
        async with self._turn:
            was_running = self._git is not None
            try:
                return await self._ask(names, max_bytes)
            except GitFailed:
                if not was_running:
                    raise
            # The process may have been killed since the last question, so a new one decides.
            return await self._ask(names, max_bytes)

    async def read_fitting(self, names: Iterable[str], *, max_bytes: int) -> dict[str, bytes]:
        """Return the content of those blobs that exist, in order, as many as fit into the limit. Raise GitFailed."""
        wanted = list(dict.fromkeys(names))
        try:
            return await self.read(wanted, max_bytes=max_bytes)
        except OutputTooLarge:
            return await self.read(await self._fitting(wanted, max_bytes))

    async def close(self) -> None:
        """End the process, if it is running. Readers that still wait get GitFailed."""
        self._is_closed = True
        if self._git is not None:
            await self._end(self._git)

    async def _ask(self, names: Sequence[str], max_bytes: int) -> dict[str, bytes]:
        """Ask the running process, or a new one. After an error it is ended, because answers may still be coming."""
        if self._is_closed:
            raise GitFailed("the reader of git's objects is closed", program="git", hint="please report this")
        if self._git is None:
            self._git = Dialogue(git_command(self._place, "cat-file", "--batch"))
        dialogue = self._git
        try:
            return await _answers(dialogue, names, max_bytes)
        except EOFError:
            self._git = None
            raise failure("cat-file", await dialogue.end()) from None
        except BaseException:
            await self._end(dialogue)
            raise

    async def _end(self, dialogue: Dialogue) -> None:
        self._git = None
        await dialogue.end()

    async def _fitting(self, names: Sequence[str], max_bytes: int) -> list[str]:
        """Return the names of the blobs that fit into the limit, by the sizes that git lists."""
        asked = [name for name in names if "\n" not in name]
        listed = await git(self._place, "cat-file", "--batch-check", stdin=_question(asked))
        fitting: list[str] = []
        left = max_bytes
        for name, line in zip(asked, listed.split(b"\n")[:-1], strict=True):
            facts = _Facts.parse(line)
            if facts is not None and facts.is_blob and facts.size <= left:
                fitting.append(name)
                left -= facts.size
        return fitting


class _Facts(NamedTuple):
    """The facts that git states about one object."""

    is_blob: bool
    size: int

    @classmethod
    def parse(cls, line: bytes) -> _Facts | None:
        """Return the facts in a line `object type size`, or None for a line that says why there is no such object."""
        words = line.rsplit(b" ", 2)
        if not words[-1].isdigit():
            return None
        return cls(is_blob=words[-2] == b"blob", size=int(words[-1]))


def _question(names: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\n" for name in names)


async def _answers(dialogue: Dialogue, names: Sequence[str], max_bytes: int) -> dict[str, bytes]:
    """Ask for objects and return the blobs among them."""
    found: dict[str, bytes] = {}
    left = max_bytes
    dialogue.ask(_question(names))
    for name in names:
        facts = _Facts.parse(await dialogue.read_line())
        if facts is None:
            continue
        left -= facts.size
        if left < 0:
            message = f"git objects are larger than {max_bytes:,} bytes together"
            raise OutputTooLarge(message, program="git", hint="review a smaller change")
        # A line end follows the content.
        content = await dialogue.read_exactly(facts.size + 1)
        if facts.is_blob:
            found[name] = content[:-1]
    return found


@asynccontextmanager
async def opened_objects(place: Place) -> AsyncIterator[ObjectReader]:
    """Yield a reader of the objects in one place, whose process is gone after the context."""
    reader = ObjectReader(place)
    try:
        yield reader
    finally:
        await reader.close()


@asynccontextmanager
async def reading_objects(repository: Repository) -> AsyncIterator[ObjectReader]:
    """Yield a reader of a repository's objects through a fresh engine."""
    async with reading(repository) as place, opened_objects(place) as reader:
        yield reader


async def read_blobs(
    repository: Repository, names: Iterable[str], *, max_bytes: int, objects: ObjectReader | None = None
) -> dict[str, bytes]:
    """Return blobs as `ObjectReader.read_fitting` does, through `objects` or through a reader for this call."""
    if objects is not None:
        return await objects.read_fitting(names, max_bytes=max_bytes)
    async with reading_objects(repository) as reader:
        return await reader.read_fitting(names, max_bytes=max_bytes)
