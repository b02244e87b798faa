"""What is left in the directory of the runs: how much it is, and what of it a process that died should have removed."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from codeloupe.system.directories import remove_tree

# How the directories are called of runs that are being made, and of those that are being removed.
NEW_PREFIX = ".new-"
REMOVED_PREFIX = ".removed-"
# To make a run takes a moment; what is older was left by a process that died.
_MAKING_SECONDS = 3_600


def size_below(directory: Path) -> int:
    """How many bytes the files below a directory have together; what cannot be looked at counts for nothing."""
    total = 0
    folders = [os.fspath(directory)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total


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
