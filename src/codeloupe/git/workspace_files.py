"""The files of a directory in which an agent worked: found, read and removed without following a link or starting git.

Nothing in it is believed. Folders are visited level by level, so that those which are ignored are never entered.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NoReturn

from msgspec import Struct, field

from codeloupe.errors import WorkspaceError
from codeloupe.git.repository import object_name
from codeloupe.model.change import SUBMODULE_MODE
from codeloupe.system.directories import emptying, move_up, removing

LINK_MODE, PLAIN_MODE, PROGRAM_MODE = "120000", "100644", "100755"
_DEEPEST_FOLDER = 200
# What a system takes for a path, less what may precede it.
_LONGEST_PATH_BYTES = 3_500
_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".bzr", ".jj"})
_ENTRIES_BETWEEN_BREATHS = 500
_FOLDERS_BETWEEN_BREATHS = 50
_SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: between the scan and the opening a file may have become a pipe.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CHUNK_BYTES = 1024**2
_OWNER_MAY_ALL = 0o700

Stamp = tuple[int, ...]
# Gets folders and files that are not tracked, by path, and returns those of them that are ignored.
FindIgnored = Callable[[list[str], list[str]], Awaitable[frozenset[str]]]


class Kept(Struct, frozen=True):
    """One file of a tree: its mode as git writes it, and the name of its content."""

    mode: str
    name: str


Entries = Mapping[str, Kept]


class Found(Struct, frozen=True):
    """A file or link that can be kept. `stamp` differs when it was changed."""

    mode: str
    stamp: Stamp = ()


class ScanLimits(Struct, frozen=True, kw_only=True):
    """How much of a workspace is kept. `new_files` and `new_bytes` count what is not tracked."""

    file_bytes: int
    new_files: int
    new_bytes: int


class Scan(Struct):
    """What can be kept, what is left out with the reason, and which folders were not entered.

    `oversized` are those left out that are tracked: one that is still as it was can be kept.
    """

    files: dict[str, Found] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    oversized: dict[str, Found] = field(default_factory=dict)

    def is_blocked(self, path: str) -> bool:
        """Whether a file, or a folder above it, was left out or not entered."""
        parts = path.split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        return any(each in self.left_out or each in self.closed for each in above)


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
    """The system's message in small letters."""
    return (error.strerror or str(error)).lower()


class Scanner:
    """Scans one workspace. `tracked` is what it held when it was last put or kept.

    `find_ignored` is None where nothing is ignored; there a repository at the top is left out like any other.
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
        self._seen = self._new_entries = self._new_bytes = 0

    async def scan(self) -> Scan:
        """Scan it. Raises WorkspaceError for too much, and OSError when the directory itself cannot be read."""
        level, seen_at_breath = [""], 0
        while level:
            folders: list[str] = []
            files: dict[str, os.stat_result] = {}
            for folder in level:
                for path, facts in self._listed(folder):
                    if stat.S_ISDIR(facts.st_mode):
                        folders.append(path)
                    else:
                        files[path] = facts
                if self._seen - seen_at_breath > _ENTRIES_BETWEEN_BREATHS:
                    seen_at_breath = self._seen
                    await asyncio.sleep(0)  # so that other stages go on, and a cancellation is noticed
            ignored: frozenset[str] = frozenset()
            if self._find_ignored is not None:
                unknown = [path for path in folders if path not in self._tracked_folders]
                ignored = await self._find_ignored(
                    *(
                        [path for path in paths if path not in self._tracked and not _is_too_long(path)]
                        for paths in (unknown, files)
                    )
                )
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

    def _is_entered(self, path: str) -> bool:
        kept = self._tracked.get(path)
        if kept is not None and kept.mode == SUBMODULE_MODE:
            self._scan.files[path] = Found(SUBMODULE_MODE)
            self._scan.left_out[path] = "a submodule, whose files are not kept"
            with suppress(OSError):
                if not any((self._directory / path).iterdir()):
                    del self._scan.left_out[path]
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
        found = Found(mode_of(facts.st_mode), stamp_of(facts))
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
                self._scan.oversized[path] = found
        if not is_tracked:
            self._count_new(0 if reason else facts.st_size)
        if reason:
            self._scan.left_out[path] = reason
        else:
            self._scan.files[path] = found

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

    def _refuse(self, most: str) -> NoReturn:
        raise WorkspaceError(
            f"the workspace {self._directory} holds more than {most}",
            hint="have the agent remove what it does not need, such as installed packages and build results",
        )


def _stats(folder: Path | int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as listed:
        for entry in listed:
            # In a checkout a person may remove a file between the listing and the look.
            with suppress(FileNotFoundError):
                yield entry.name, entry.stat(follow_symlinks=False)


def _is_too_long(path: str) -> bool:
    return len(os.fsencode(path)) > _LONGEST_PATH_BYTES


@contextmanager
def opened(directory: Path | str, *, inside: int | None = None) -> Iterator[int]:
    """A directory, or by its path a folder below an open one, in which no part may be a link. Raises OSError."""
    folder = os.open(directory, _DIRECTORY) if inside is None else os.dup(inside)
    try:
        for part in str(directory).split("/") if inside is not None and directory else ():
            inner = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def read_file(top: int, path: str, *, most_bytes: int) -> tuple[bytes, Stamp]:
    """A regular file below an open directory, and its stamp from before it was read.

    Raises OSError, and ValueError for what is no file or too large.
    """
    above, _, name = path.rpartition("/")
    with opened(above, inside=top) as folder, os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError("not a regular file any more")
        data = stream.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"a file of more than {most_bytes:,} bytes")
    return data, stamp_of(facts)


def read_link(top: int, path: str) -> tuple[bytes, Stamp]:
    """Where a link below an open directory leads, and its stamp. Raises OSError."""
    above, _, name = path.rpartition("/")
    with opened(above, inside=top) as folder:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return os.fsencode(os.readlink(name, dir_fd=folder)), stamp_of(facts)


def blob_name(top: int, path: str, object_format: str) -> str:
    """The name that git has for a file's content, however large it is. Raises OSError."""
    above, _, name = path.rpartition("/")
    with opened(above, inside=top) as folder, os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as stream:
        digest = hashlib.new(object_format, usedforsecurity=False)
        digest.update(b"blob %d\0" % os.fstat(stream.fileno()).st_size)
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def make_private(directory: Path) -> None:
    """Make a directory and those above it, as far as they are missing, for this user alone. Raises OSError."""
    for folder in (*reversed(directory.absolute().parents), directory):
        if not folder.is_dir():
            folder.mkdir(mode=0o700, exist_ok=True)


async def make_empty(directory: Path) -> None:
    """Make a directory that is empty: what was in it, or a file or link in its place, is gone. Raises OSError."""
    make_private(directory.parent)
    if directory.is_dir() and not directory.is_symlink():
        await _in_steps(emptying(directory))
        return
    directory.unlink(missing_ok=True)
    directory.mkdir(mode=0o700)


async def remove_all_but(directory: Path, stamps: Mapping[str, Stamp]) -> frozenset[str]:
    """Make a directory hold nothing but files that have these stamps; returns those. No link is followed.

    Most of a large tree is still as it was, and need not be written again. Raises OSError.
    """
    if stamps and directory.is_dir() and not directory.is_symlink():
        try:
            return await _remove_all_but(directory, stamps)
        except OSError:  # a folder that cannot be entered, or is no folder any more
            pass
    await make_empty(directory)
    return frozenset()


async def _remove_all_but(directory: Path, stamps: Mapping[str, Stamp]) -> frozenset[str]:
    wanted, there, unwanted = folders_of(stamps), set[str](), list[str]()
    left = deque([""])
    with opened(directory) as top:
        while left:
            path = left.popleft()
            with opened(path, inside=top) as folder:
                for name, facts in list(_stats(folder)):
                    place = f"{path}/{name}" if path else name
                    if not stat.S_ISDIR(facts.st_mode):
                        if stamps.get(place) == stamp_of(facts):
                            there.add(place)
                        else:
                            os.unlink(name, dir_fd=folder)
                    elif place in wanted and facts.st_mode & _OWNER_MAY_ALL == _OWNER_MAY_ALL:
                        left.append(place)
                    else:
                        unwanted.append(move_up(folder, name, top))
            await asyncio.sleep(0)
        await _in_steps(removing(top, unwanted))
    return frozenset(there)


async def _in_steps(steps: Iterator[None]) -> None:
    for number, _ in enumerate(steps, start=1):
        if number % _FOLDERS_BETWEEN_BREATHS == 0:
            await asyncio.sleep(0)
