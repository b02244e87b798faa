"""Which new files of a workspace its repository ignores.

git is asked about names only, in a directory of our own that holds copies of the ignore files: in the workspace itself
it would read what an agent left there, and could be made to wait for ever by a pipe.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from codeloupe.git.command import git
from codeloupe.git.repository import private_directory
from codeloupe.git.workspace_objects import Objects
from codeloupe.git.workspace_reading import opened, read_file

_IGNORE_FILE = ".gitignore"
_MOST_BYTES = 1024**2


class Ignores:
    """Answers for one scan of a workspace, whose levels are asked about from the top down."""

    def __init__(self, top: int, mirror: Path, objects: Objects, settings: Sequence[str]) -> None:
        self._top = top
        self._mirror = mirror
        self._place = objects.place(work_tree=mirror, settings=settings)
        self._copied: set[str] = set()

    async def find(self, folders: Sequence[str], files: Sequence[str]) -> frozenset[str]:
        """Those of some folders and files that are ignored. Raises GitFailed."""
        for path in (*folders, *files):
            self._copy_rules_above(path)
        for folder in folders:
            (self._mirror / folder).mkdir(parents=True, exist_ok=True)
        ignored_folders = await self._listed("--directory") if folders else set()
        for file in files:
            (self._mirror / file).parent.mkdir(parents=True, exist_ok=True)
            (self._mirror / file).touch()
        ignored_files = await self._listed() if files else set()
        for file in files:
            if file.rpartition("/")[2] != _IGNORE_FILE:
                (self._mirror / file).unlink()
        found = {path for path in folders if f"{path}/" in ignored_folders}
        return frozenset(found.union(path for path in files if path in ignored_files))

    async def _listed(self, *flags: str) -> set[str]:
        words = ("ls-files", "--others", "--ignored", "--exclude-standard", "-z", *flags)
        return {os.fsdecode(path) for path in (await git(self._place, *words)).split(b"\0")}

    def _copy_rules_above(self, path: str) -> None:
        """Copy the ignore files of the folders above, those that are regular files."""
        folder = path.rpartition("/")[0]
        while folder not in self._copied:
            self._copied.add(folder)
            name = f"{folder}/{_IGNORE_FILE}" if folder else _IGNORE_FILE
            try:
                content = read_file(self._top, name, most_bytes=_MOST_BYTES)
            except (OSError, ValueError):  # not there, or not what git would read
                pass
            else:
                target = self._mirror / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.data)
            if not folder:
                break
            folder = folder.rpartition("/")[0]


@contextmanager
def ignores(directory: Path, objects: Objects, settings: Sequence[str]) -> Iterator[Ignores]:
    """What answers for one scan of a directory."""
    with private_directory() as private, opened(directory) as top:
        mirror = private / "names"
        mirror.mkdir()
        yield Ignores(top, mirror, objects, settings)
