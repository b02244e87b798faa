"""What lies in a workspace that can be kept, and what cannot, with the reason. No link is followed, no git started.

The folders are looked at level by level, so that those which are ignored are never entered.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct, field

from codeloupe.errors import WorkspaceError
from codeloupe.git.repository import object_name
from codeloupe.git.workspace_objects import Entries, Kept
from codeloupe.model.change import SUBMODULE_MODE

LINK_MODE = "120000"
PLAIN_MODE = "100644"
PROGRAM_MODE = "100755"
_DEEPEST_FOLDER = 200
# What a system takes for a path, less what may stand before it.
_LONGEST_PATH_BYTES = 3_500
_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".bzr", ".jj"})
_ENTRIES_BETWEEN_BREATHS = 500
_SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}

Stamp = tuple[int, ...]
# Gets folders and files that are not tracked, by path, and gives those of them that are ignored.
FindIgnored = Callable[[Sequence[str], Sequence[str]], Awaitable[frozenset[str]]]


class ScanLimits(Struct, frozen=True, kw_only=True):
    """How much of a workspace is kept. `new_files` and `new_bytes` count what is not tracked."""

    file_bytes: int
    new_files: int
    new_bytes: int


class Found(Struct, frozen=True):
    """A file or link that can be kept. `stamp` differs when it was changed."""

    mode: str
    stamp: Stamp = ()


class Scan(Struct, frozen=True):
    """What can be kept, what is left out with the reason, and which folders nobody looked into.

    `oversized` are those left out that are tracked: one that is still as it was can be kept.
    """

    files: dict[str, Found] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    oversized: dict[str, Found] = field(default_factory=dict)


def stamp_of(facts: os.stat_result) -> Stamp:
    """Facts that change with a file."""
    return (facts.st_mode, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def mode_of(file_mode: int) -> str:
    """The mode that git has for a regular file or a link, by the system's."""
    if stat.S_ISLNK(file_mode):
        return LINK_MODE
    return PROGRAM_MODE if file_mode & stat.S_IXUSR else PLAIN_MODE


def folders_of(paths: Iterable[str]) -> frozenset[str]:
    """All folders above some files."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return frozenset(found)


def reason_of(error: OSError) -> str:
    """What the system says, in small letters."""
    return (error.strerror or str(error)).lower()


class Scanner:
    """Looks through one workspace. `tracked` is what it held when it was last put or kept.

    `find_ignored` is None where nothing is ignored; there a repository at the top is none of ours, and is told as left
    out like any other.
    """

    def __init__(
        self,
        directory: Path,
        tracked: Entries,
        *,
        object_format: str,
        limits: ScanLimits,
        find_ignored: FindIgnored | None = None,
    ) -> None:
        self._directory = directory
        self._root = Path(os.path.realpath(directory))
        self._tracked = tracked
        self._tracked_folders = folders_of(tracked)
        self._object_format = object_format
        self._limits = limits
        self._find_ignored = find_ignored
        self._scan = Scan()
        # Ignored files beside others are seen too, before it is known that they are ignored.
        self._most_entries = len(tracked) + len(self._tracked_folders) + 5 * limits.new_files
        self._seen = self._seen_at_breath = self._new_entries = self._new_bytes = 0

    async def scan(self) -> Scan:
        """Look. Raises WorkspaceError for too much, and OSError when the directory itself cannot be read."""
        level = [""]
        while level:
            folders: list[str] = []
            files: dict[str, os.stat_result] = {}
            for folder in level:
                for path, facts in self._listed(folder):
                    if stat.S_ISDIR(facts.st_mode):
                        folders.append(path)
                    else:
                        files[path] = facts
                await self._breathe()
            ignored = await self._ignored(folders, files)
            for path, facts in files.items():
                if path not in ignored:
                    self._judge(path, facts)
            level = [path for path in folders if path not in ignored and self._is_entered(path)]
        return self._scan

    def _listed(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        try:
            entries = list(islice(_stats(self._directory / folder), self._most_entries + 1))
        except OSError as error:
            if not folder:
                raise
            self._close(folder, f"a folder that cannot be read: {reason_of(error)}")
            return
        self._seen += len(entries)
        if self._seen > self._most_entries:
            self._refuse(f"{self._limits.new_files:,} new files and folders")
        for name, facts in entries:
            path = f"{folder}/{name}" if folder else name
            if name.lower() != ".git":
                yield path, facts
            elif path != ".git" or self._find_ignored is None:
                self._scan.left_out[path] = "git's own, which is never kept"

    async def _breathe(self) -> None:
        if self._seen - self._seen_at_breath > _ENTRIES_BETWEEN_BREATHS:
            self._seen_at_breath = self._seen
            await asyncio.sleep(0)  # so that other stages go on, and a cancellation is noticed

    async def _ignored(self, folders: Sequence[str], files: Mapping[str, object]) -> frozenset[str]:
        if self._find_ignored is None:
            return frozenset()
        new_folders = [path for path in folders if path not in self._tracked_folders and self._is_asked_about(path)]
        return await self._find_ignored(new_folders, [path for path in files if self._is_asked_about(path)])

    def _is_asked_about(self, path: str) -> bool:
        return path not in self._tracked and not _is_too_long(path)

    def _is_entered(self, path: str) -> bool:
        kept = self._tracked.get(path)
        if kept is not None and kept.mode == SUBMODULE_MODE:
            self._scan.files[path] = Found(SUBMODULE_MODE)
            if not _is_empty(self._directory / path):
                self._scan.left_out[path] = "a submodule, whose files are not kept"
            return False
        if path.rpartition("/")[2] in _VERSION_CONTROL:
            self._close(path, "a folder of version control")
        elif path.count("/") >= _DEEPEST_FOLDER or _is_too_long(path):
            self._close(path, f"a folder that is more than {_DEEPEST_FOLDER} folders deep, or has too long a path")
        elif path not in self._tracked_folders:
            self._count_new(0)
        return path not in self._scan.closed

    def _close(self, folder: str, reason: str) -> None:
        self._scan.left_out[folder] = reason
        self._scan.closed.add(folder)

    def _judge(self, path: str, facts: os.stat_result) -> None:
        kind, is_tracked = stat.S_IFMT(facts.st_mode), path in self._tracked
        mode = mode_of(facts.st_mode)
        reason = None
        if _is_too_long(path):
            reason = "a file with too long a path"
        elif kind == stat.S_IFLNK:
            reason = self._why_not_link(path)
        elif kind != stat.S_IFREG:
            reason = _SPECIAL.get(kind, "a device")
        elif facts.st_size > self._limits.file_bytes:
            reason = f"a file of {facts.st_size:,} bytes, where {self._limits.file_bytes:,} is the most"
            if is_tracked:
                self._scan.oversized[path] = Found(mode, stamp_of(facts))
        if not is_tracked:
            self._count_new(0 if reason else facts.st_size)
        if reason:
            self._scan.left_out[path] = reason
        else:
            self._scan.files[path] = Found(mode, stamp_of(facts))

    def _why_not_link(self, path: str) -> str | None:
        try:
            target = os.readlink(self._directory / path)  # noqa: PTH115 - a Path would not be what stands in the link
        except OSError as error:
            return f"a link that cannot be read: {reason_of(error)}"
        content = object_name("blob", os.fsencode(target), self._object_format)
        if self._tracked.get(path) == Kept(LINK_MODE, content):
            return None
        if path.rpartition("/")[2].lower() == ".gitmodules":
            return "a link in the place of .gitmodules, which git refuses"
        leaves = target.startswith("/") or not Path(os.path.realpath(self._root / path)).is_relative_to(self._root)
        return "a link that leaves the workspace" if leaves else None

    def _count_new(self, size_bytes: int) -> None:
        self._new_entries += 1
        self._new_bytes += size_bytes
        if self._new_entries > self._limits.new_files:
            self._refuse(f"{self._limits.new_files:,} new files and folders")
        if self._new_bytes > self._limits.new_bytes:
            self._refuse(f"{self._limits.new_bytes:,} bytes in new files")

    def _refuse(self, most: str) -> None:
        raise WorkspaceError(
            f"the workspace {self._directory} holds more than {most}",
            hint="have the agent remove what it does not need, such as installed packages and build results",
        )


def _stats(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as listed:
        for entry in listed:
            # In a checkout a person may remove a file between the listing and the look.
            with suppress(FileNotFoundError):
                yield entry.name, entry.stat(follow_symlinks=False)


def _is_empty(folder: Path) -> bool:
    try:
        with os.scandir(folder) as listed:
            return next(listed, None) is None
    except OSError:  # whether it holds anything is not known, so it may
        return False


def _is_too_long(path: str) -> bool:
    return len(os.fsencode(path)) > _LONGEST_PATH_BYTES
