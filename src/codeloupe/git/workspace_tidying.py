"""Removing from a workspace whatever is not in a tree, and leaving what is: most of a large tree is still as it was."""

from __future__ import annotations

import asyncio
import os
import stat
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from codeloupe.git.workspace_looks import Remembered
from codeloupe.git.workspace_objects import Entries
from codeloupe.git.workspace_reading import opened, opened_folder
from codeloupe.git.workspace_removal import make_empty, remove_folders
from codeloupe.git.workspace_scan import Stamp, folders_of, mode_of, stamp_of
from codeloupe.system.directories import move_up

_OWNER_MAY_ALL = 0o700


async def tidy(directory: Path, entries: Entries, remembered: Remembered | None) -> frozenset[str]:
    """Make a directory hold nothing but files of a tree; returns those that are there. Raises OSError.

    A file stays when its stamp is the one with which its content is remembered. All else goes, no link is followed.
    """
    known = {} if remembered is None else remembered.contents
    stamps = {
        path: known[path][0]
        for path, kept in entries.items()
        if path in known and known[path][1] == kept.name and mode_of(known[path][0][0]) == kept.mode
    }
    if stamps and directory.is_dir() and not directory.is_symlink():
        try:
            return await _Tidying(stamps).remove_all_else(directory)
        except OSError:  # a folder that cannot be entered, or is no folder any more
            pass
    await make_empty(directory)
    return frozenset()


class _Tidying:
    """Goes through one workspace. `stamps` are those of the files that may stay."""

    def __init__(self, stamps: Mapping[str, Stamp]) -> None:
        self._stamps = stamps
        self._folders = folders_of(stamps)
        self._there: set[str] = set()
        self._unwanted: list[str] = []

    async def remove_all_else(self, directory: Path) -> frozenset[str]:
        """Remove what may not stay; returns what stayed."""
        with opened(directory) as top:
            left = deque([""])
            while left:
                left.extend(self._tidy_folder(top, left.popleft()))
                await asyncio.sleep(0)  # so that other stages go on, and a cancellation is noticed
            await remove_folders(top, self._unwanted)
        return frozenset(self._there)

    def _tidy_folder(self, top: int, path: str) -> list[str]:
        """Remove files, and take folders out of the way; returns the folders in which something may stay."""
        wanted = []
        with opened_folder(top, path) as folder:
            for name, facts in _listed(folder):
                place = f"{path}/{name}" if path else name
                if stat.S_ISDIR(facts.st_mode):
                    if place in self._folders and facts.st_mode & _OWNER_MAY_ALL == _OWNER_MAY_ALL:
                        wanted.append(place)
                    else:
                        self._unwanted.append(move_up(folder, name, top))
                elif self._stamps.get(place) == stamp_of(facts):
                    self._there.add(place)
                else:
                    os.unlink(name, dir_fd=folder)
        return wanted


def _listed(folder: int) -> list[tuple[str, os.stat_result]]:
    with os.scandir(folder) as listed:
        return [(entry.name, entry.stat(follow_symlinks=False)) for entry in listed]
