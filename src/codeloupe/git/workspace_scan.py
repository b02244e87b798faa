"""Which files of a workspace are kept, found without following a link, and why others are left out."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from codeloupe.errors import WorkspaceError
from codeloupe.git.repository import Entry, object_name
from codeloupe.model.change import SUBMODULE_MODE, SYMLINK_MODE

_DEEPEST_FOLDER = 200
# What a system takes for a path, less what may precede it.
_LONGEST_PATH_BYTES = 3_500
# A system follows no more links than this.
_MOST_LINKS = 40


class Limits(NamedTuple):
    """How much of a workspace is kept. `new_files` and `new_bytes` count what is not tracked."""

    file_bytes: int
    new_files: int
    new_bytes: int

    def too_large(self, size: int) -> str:
        """Return why a file of that size is skipped."""
        return f"a file of {size:,} bytes, more than the limit of {self.file_bytes:,}"


class Scan:
    """Finds the files of a workspace that can be kept; `tracked` is what it held when it was last put or kept."""

    def __init__(
        self,
        directory: Path,
        tracked: Mapping[str, Entry],
        limits: Limits,
        object_format: str,
        *,
        has_repository: bool,
    ) -> None:
        self.files: dict[str, os.stat_result] = {}
        self.left_out: dict[str, str] = {}
        self._submodules: set[str] = set()
        self._directory, self._root = directory, Path(os.path.realpath(directory))
        self._tracked, self._folders = tracked, folders_of(tracked)
        self.known = self._folders.union(tracked)
        self._limits, self._format, self._has_repository = limits, object_format, has_repository
        # Ignored files beside others are seen too, before it is known that they are ignored.
        self._most_entries = len(self.known) + 5 * limits.new_files
        self._seen = self._new_entries = self._new_bytes = 0

    def leaves_old(self, path: str) -> bool:
        """Whether a tracked file stays as it was: it, or a folder above it, was left out or is a submodule."""
        return any(each in self.left_out or each in self._submodules for each in (*folders_of([path]), path))

    def listed(self, folder: str) -> dict[str, os.stat_result]:
        """What is in a folder. Raises WorkspaceError for too much, and OSError for the workspace itself."""
        found: dict[str, os.stat_result] = {}
        try:
            with os.scandir(self._directory / folder) as listed:
                entries = list(islice(listed, self._most_entries + 1))
        except OSError as error:
            if not folder:
                raise
            self.left_out[folder] = f"a folder that cannot be read: {why_of(error)}"
            return found
        self._seen += len(entries)
        if self._seen > self._most_entries:
            self._refuse(f"{self._limits.new_files:,} new files and folders")
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.lower() != ".git":
                # In a checkout a person may remove a file between the listing and the look.
                with suppress(FileNotFoundError):
                    found[path] = entry.stat(follow_symlinks=False)
            elif path != ".git" or not self._has_repository:
                self.left_out[path] = "git's own directory, which is never stored"
        return found

    def take(self, path: str, facts: os.stat_result) -> bool:
        """Take a file, or leave it out with a reason; whether it is a folder to enter. Raises WorkspaceError."""
        kept, is_folder = self._tracked.get(path), stat.S_ISDIR(facts.st_mode)
        if is_folder and kept is not None and kept.mode == SUBMODULE_MODE:
            self._submodules.add(path)
            with suppress(OSError):
                if any((self._directory / path).iterdir()):
                    self.left_out[path] = "a submodule, whose files are not stored"
            return False
        reason = self._why_not(path, facts)
        if path not in (self._folders if is_folder else self._tracked):
            self._new_entries += not (is_folder and reason)
            self._new_bytes += 0 if is_folder or reason else facts.st_size
            if self._new_entries > self._limits.new_files:
                self._refuse(f"{self._limits.new_files:,} new files and folders")
            if self._new_bytes > self._limits.new_bytes:
                self._refuse(f"{self._limits.new_bytes:,} bytes in new files")
        if reason:
            self.left_out[path] = reason
        elif not is_folder:
            self.files[path] = facts
        return is_folder and not reason

    def _why_not(self, path: str, facts: os.stat_result) -> str | None:
        kind, name = stat.S_IFMT(facts.st_mode), path.rpartition("/")[2]
        if is_too_long(path):
            return f"a path that is too long, or more than {_DEEPEST_FOLDER} folders deep"
        if kind == stat.S_IFDIR:
            return "a folder of version control" if name in (".hg", ".svn", ".bzr", ".jj") else None
        if kind == stat.S_IFREG:
            is_too_large = facts.st_size > self._limits.file_bytes and path not in self._tracked
            return self._limits.too_large(facts.st_size) if is_too_large else None
        if kind != stat.S_IFLNK:
            return {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}.get(kind, "a device")
        try:
            target = os.readlink(self._directory / path)  # noqa: PTH115 - a Path would not be what is in the link
        except OSError as error:
            return f"a link that cannot be read: {why_of(error)}"
        if self._tracked.get(path) == (SYMLINK_MODE, object_name("blob", os.fsencode(target), self._format), path):
            return None
        if name.lower() == ".gitmodules":
            return "a link named .gitmodules, which git rejects"
        leaves = target.startswith("/") or not Path(os.path.realpath(self._root / path)).is_relative_to(self._root)
        return "a link that points outside the workspace" if leaves else None

    def _refuse(self, most: str) -> NoReturn:
        hint = "have the agent remove files that it does not need, such as installed packages and build output"
        raise WorkspaceError(f"the workspace {self._directory} contains more than {most}", hint=hint)


def folders_of(paths: Iterable[str]) -> set[str]:
    """Every folder above some paths."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def parts_of(directory: Path, path: str) -> set[str]:
    """Return a path and, if it is a link, all links below a directory that lead to its file, and that file."""
    found = {path}
    left = deque(path.split("/"))
    reached: list[str] = []
    links = 0
    while left and links <= _MOST_LINKS:
        part = left.popleft()
        if part == "..":
            reached = reached[:-1]
            continue
        if part in ("", "."):
            continue
        reached.append(part)
        place = "/".join(reached)
        try:
            target = os.readlink(directory / place)  # noqa: PTH115 - a Path would not be what is in the link
        except OSError:  # no link
            continue
        links += 1
        found.add(place)
        reached.pop()
        left.extendleft(reversed(target.split("/")))
    found.add("/".join(reached))
    return found


def mode_of(facts: os.stat_result) -> str:
    """The mode that git gives a file."""
    if stat.S_ISLNK(facts.st_mode):
        return SYMLINK_MODE
    return "100755" if facts.st_mode & stat.S_IXUSR else "100644"


def is_too_long(path: str) -> bool:
    """Whether a path may be more than a system takes."""
    return path.count("/") >= _DEEPEST_FOLDER or len(os.fsencode(path)) > _LONGEST_PATH_BYTES


def why_of(error: Exception) -> str:
    """The reason of an error, as short as it is known."""
    return (getattr(error, "strerror", None) or str(error)).lower()
