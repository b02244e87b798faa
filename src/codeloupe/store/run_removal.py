"""Removes the directory of a run, whatever the agents that worked below it left there."""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

# How the directories are called of runs that are being made, and of those that are being removed.
NEW_PREFIX = ".new-"
REMOVED_PREFIX = ".removed-"
# To make a run takes a moment; what is older was left by a process that died.
_MAKING_SECONDS = 3_600


def size_below(directory: Path) -> int:
    """How many bytes the files below a directory have together; what cannot be looked at counts for nothing."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - millions of them, and no Path is needed
            except OSError:
                continue
    return total


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that is in it; links are removed, not followed. Raises OSError."""
    try:
        shutil.rmtree(directory)
    except OSError:
        # Programs make directories that not even their owner may change, such as those of package caches.
        _open_up(directory)
        shutil.rmtree(directory)


def clear_leftovers(root: Path) -> None:
    """Remove what processes that died left of runs that they made or removed. Raises nothing: it is tried again.

    Of what is being removed anybody may remove the rest, also while another process does.
    """
    with suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            with suppress(OSError):
                if _is_left_over(entry):
                    remove_tree(Path(entry.path))


def _is_left_over(entry: os.DirEntry[str]) -> bool:
    if not entry.is_dir(follow_symlinks=False):
        return False
    if entry.name.startswith(REMOVED_PREFIX):
        return True
    is_old = entry.stat(follow_symlinks=False).st_mtime < time.time() - _MAKING_SECONDS
    return entry.name.startswith(NEW_PREFIX) and is_old


def _open_up(directory: Path) -> None:
    for folder, folders, _ in os.walk(directory):
        for path in (Path(folder), *(Path(folder, name) for name in folders)):
            if stat.S_ISDIR(path.lstat().st_mode):
                path.chmod(stat.S_IRWXU)
