"""From what a look at a workspace found to the entries of a tree: contents are read, where they are not known."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codeloupe.git.repository import blob_sizes
from codeloupe.git.workspace_looks import Remembered
from codeloupe.git.workspace_objects import Entries, Kept, Objects, ObjectWriter
from codeloupe.git.workspace_reading import blob_name, opened, read_file, read_link
from codeloupe.git.workspace_scan import LINK_MODE, Found, Scan, Stamp, reason_of, stamp_of
from codeloupe.git.workspace_trees import Tree
from codeloupe.model.change import SUBMODULE_MODE

_FILES_BETWEEN_BREATHS = 50


class KeptFiles(Struct, frozen=True):
    """A tree that was kept: its name, all that is in it, and the stamps of the files that were looked at."""

    tree: str
    entries: Entries
    stamps: Mapping[str, Stamp]


class Keeping:
    """Keeps one workspace. `tracked` is the tree it held before, of which `remembered` knows the stamps."""

    def __init__(self, objects: Objects, tracked: Tree, remembered: Remembered, *, most_bytes: int) -> None:
        self._objects = objects
        self._writer = ObjectWriter(objects, tracked.names)
        self._tracked = tracked
        self._remembered = remembered
        self._most_bytes = most_bytes

    async def keep(self, directory: Path, scan: Scan) -> KeptFiles:
        """Keep what a scan found. What cannot be read is added to what the scan left out. Raises GitFailed."""
        entries, stamps = await self._entries(directory, scan)
        tree = self._writer.add_tree(entries)
        await self._writer.flush()
        return KeptFiles(tree, entries, stamps)

    async def _entries(self, directory: Path, scan: Scan) -> tuple[Entries, Mapping[str, Stamp]]:
        entries: dict[str, Kept] = {}
        stamps: dict[str, Stamp] = {}
        with opened(directory) as top:
            for number, (path, found) in enumerate(scan.files.items()):
                if number % _FILES_BETWEEN_BREATHS == 0:
                    await asyncio.sleep(0)  # so that other stages go on, and a cancellation is noticed
                try:
                    entries[path], stamps[path] = self._kept(top, path, found)
                except OSError as error:
                    scan.left_out[path] = f"a file that cannot be read: {reason_of(error)}"
                except ValueError as error:
                    scan.left_out[path] = str(error)
                if self._writer.is_full:
                    await self._writer.flush()
            for path, found in scan.oversized.items():
                if await self._is_as_it_was(top, path, found):
                    entries[path], stamps[path] = self._tracked.entries[path], found.stamp
                    del scan.left_out[path]
        return entries | self._untouched(entries, scan), stamps

    def _kept(self, top: int, path: str, found: Found) -> tuple[Kept, Stamp]:
        if found.mode == SUBMODULE_MODE:
            return self._tracked.entries[path], ()
        name = self._remembered.content(path, found.stamp)
        if name is not None:
            return Kept(found.mode, name), found.stamp
        is_link = found.mode == LINK_MODE
        content = read_link(top, path) if is_link else read_file(top, path, most_bytes=self._most_bytes)
        return Kept(found.mode, self._writer.add("blob", content.data)), content.stamp

    async def _is_as_it_was(self, top: int, path: str, found: Found) -> bool:
        """Whether a file that is too large to be kept anew is the one that is kept already."""
        kept = self._tracked.entries[path]
        if kept.mode != found.mode:
            return False
        if self._remembered.content(path, found.stamp) == kept.name:
            return True
        sizes = await blob_sizes(self._objects.place(), [kept.name])
        size_now = found.stamp[2]
        return sizes.get(kept.name) == size_now and blob_name(top, path, self._objects.object_format) == kept.name

    def _untouched(self, entries: Entries, scan: Scan) -> dict[str, Kept]:
        """Files that were kept before and in whose place there is now something that cannot be."""
        return {
            path: kept
            for path, kept in self._tracked.entries.items()
            if path not in entries and (path in scan.left_out or _is_below(path, scan))
        }


def _is_below(path: str, scan: Scan) -> bool:
    """Whether a file stood in a folder that could not be looked into, or that is now something else that cannot be."""
    folder = path.rpartition("/")[0]
    while folder:
        if folder in scan.closed or folder in scan.left_out:
            return True
        folder = folder.rpartition("/")[0]
    return False


async def stamps_of(directory: Path, entries: Entries) -> dict[str, Stamp]:
    """The stamps of the files of a tree with which a directory was just filled. Raises OSError."""
    stamps = {}
    for number, (path, kept) in enumerate(entries.items()):
        if number % _FILES_BETWEEN_BREATHS == 0:
            await asyncio.sleep(0)
        if kept.mode != SUBMODULE_MODE:
            stamps[path] = stamp_of(os.lstat(directory / path))
    return stamps
