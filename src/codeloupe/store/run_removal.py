"""Removes the directory of a run, whatever the agents that worked below it left there."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


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


def _open_up(directory: Path) -> None:
    for folder, folders, _ in os.walk(directory):
        for path in (Path(folder), *(Path(folder, name) for name in folders)):
            if stat.S_ISDIR(path.lstat().st_mode):
                path.chmod(stat.S_IRWXU)
