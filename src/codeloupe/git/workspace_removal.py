"""Emptying a directory in which an agent worked, whatever it left there, while other stages go on."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from codeloupe.system.directories import emptying, removing

_FOLDERS_BETWEEN_BREATHS = 50


def make_private(directory: Path) -> None:
    """Make a directory and those above it, as far as they are missing, for this user alone. Raises OSError."""
    for folder in (*reversed(directory.absolute().parents), directory):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)


async def make_empty(directory: Path) -> None:
    """Make a directory that is empty: what was in it, or a file or link in its place, is gone. Raises OSError."""
    make_private(directory.parent)
    try:
        facts = directory.lstat()
    except FileNotFoundError:
        directory.mkdir(mode=0o700)
        return
    if stat.S_ISDIR(facts.st_mode):
        await _to_the_end(emptying(directory))
        return
    directory.unlink()
    directory.mkdir(mode=0o700)


async def remove_folders(top: int, folders: Iterable[str]) -> None:
    """Remove some folders of an open directory, with all that is in them. Raises OSError."""
    await _to_the_end(removing(top, folders))


async def _to_the_end(steps: Iterator[None]) -> None:
    for number, _ in enumerate(steps, start=1):
        if number % _FOLDERS_BETWEEN_BREATHS == 0:
            await asyncio.sleep(0)  # so that other stages go on, and a cancellation is noticed
