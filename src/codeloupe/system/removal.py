"""Removing a directory, whatever a program left in it.

No link is followed. What the owner may not enter is opened first. Where an ordinary removal gives up, no path is longer
than two names and nothing is done by recursion: a folder's folders are moved up to the top before it is removed, so
that a tree of any depth goes away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that is in it, if it is there. Raises OSError."""
    # Python gives up a tree of a thousand levels, the system a path of four thousand bytes.
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(directory)
    if directory.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "this is a link", str(directory))
    if directory.exists():
        for _ in emptying(directory):
            pass
        directory.rmdir()


def emptying(directory: Path) -> Iterator[None]:
    """Remove all that is in a directory, folder by folder: whoever asks may do something else between two of them.

    Raises OSError.
    """
    directory.chmod(0o700)
    top = os.open(directory, _DIRECTORY)
    try:
        yield from removing(top, _remove_files(top))
    finally:
        os.close(top)


def removing(top: int, folders: Iterable[str]) -> Iterator[None]:
    """Remove some folders of an open directory with all that is in them, as `emptying` does. Raises OSError."""
    left = deque(folders)
    while left:
        left.extend(_dissolve(top, left.popleft()))
        yield


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
    # A program may have left a folder that even its owner cannot enter.
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        moved = [move_up(inner, folder, top) for folder in _remove_files(inner)]
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)
    return moved
