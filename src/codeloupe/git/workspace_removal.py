"""Emptying a directory in which an agent worked, whatever it left there.

No link is followed, no path is longer than two names, and nothing is done by recursion: a folder's folders are moved
up to the top before it is removed, so that a tree of any depth goes away.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
from collections import deque
from collections.abc import Iterable
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
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
    if not stat.S_ISDIR(facts.st_mode):
        directory.unlink()
        directory.mkdir(mode=0o700)
        return
    directory.chmod(0o700)
    top = os.open(directory, _DIRECTORY)
    try:
        await remove_folders(top, _remove_files(top))
    finally:
        os.close(top)


async def remove_folders(top: int, folders: Iterable[str]) -> None:
    """Remove some folders of an open directory, with all that is in them. Raises OSError."""
    left = deque(folders)
    removed = 0
    while left:
        left.extend(_dissolve(top, left.popleft()))
        removed += 1
        if removed % _FOLDERS_BETWEEN_BREATHS == 0:
            await asyncio.sleep(0)  # so that other stages go on, and a cancellation is noticed


def move_up(folder: int, name: str, top: int) -> str:
    """Move a folder of an open folder to an open directory, where it gets a new name, which is returned."""
    # Only a folder that may be written can be moved elsewhere.
    os.chmod(name, 0o700, dir_fd=folder)
    new_name = f".moved-{secrets.token_hex(16)}"
    os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=top)
    return new_name


def _remove_files(folder: int) -> list[str]:
    """Remove all but the folders of a folder; returns those."""
    with os.scandir(folder) as listed:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed]
    for name, is_folder in entries:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in entries if is_folder]


def _dissolve(top: int, name: str) -> list[str]:
    """Move the folders of a folder to the top, where their new names are returned, and remove it with all else."""
    # An agent may have left a folder that even its owner cannot enter.
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        moved = [move_up(inner, folder, top) for folder in _remove_files(inner)]
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)
    return moved
