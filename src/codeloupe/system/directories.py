"""Directories for the time of one piece of work: for this user alone, and gone at its end.

What a killed run left, the next one removes: a directory of ours holds a file with its own name, locked by its maker.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that is in it, if it is there. Raises OSError."""
    # Python gives up a tree of a thousand levels, the system a path of four thousand bytes.
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(directory)
    if directory.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "this is a link", str(directory))
    if directory.exists():
        directory.chmod(0o700)
        top = os.open(directory, _DIRECTORY)
        try:
            _empty(top)
        finally:
            os.close(top)
        directory.rmdir()


def _empty(top: int) -> None:
    """Remove all that is in an open directory, folder by folder: what is deeper is moved up to it first."""
    left = deque(_remove_files(top))
    while left:
        name = left.popleft()
        # A program may have left a folder that even its owner cannot enter.
        os.chmod(name, 0o700, dir_fd=top)
        folder = os.open(name, _DIRECTORY, dir_fd=top)
        try:
            for inner in _remove_files(folder):
                # Only a folder that may be written can be moved elsewhere.
                os.chmod(inner, 0o700, dir_fd=folder)
                left.append(f".moved-{secrets.token_hex(16)}")
                os.rename(inner, left[-1], src_dir_fd=folder, dst_dir_fd=top)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=top)


def _remove_files(folder: int) -> list[str]:
    with os.scandir(folder) as listed:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listed]
    for name, is_folder in entries:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in entries if is_folder]


@contextmanager
def opened_folder(path: Path | str, *, inside: int | None = None) -> Iterator[int]:
    """A directory, or by its path a folder below an open one, in which no part may be a link. Raises OSError."""
    folder = os.open(path, _DIRECTORY) if inside is None else os.dup(inside)
    try:
        for part in str(path).split("/") if inside is not None and path else ():
            inner = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


@contextmanager
def opened_file(top: int, path: str) -> Iterator[IO[bytes]]:
    """A regular file below an open directory, no part of its path a link. Raises OSError, else ValueError."""
    folder_path, _, name = path.rpartition("/")
    with opened_folder(folder_path, inside=top) as folder:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise ValueError("not a regular file")
        # Not blocking: meanwhile it may have become a pipe.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(file, "rb") as stream:
            yield stream


_PREFIX = "codeloupe-"
_OWNER = "owner"
_WORK = "work"
_WORDS = "A directory of codeloupe for the time of one run. It may go when that is over."
_OPEN_OWNER = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_looked_at: set[str] = set()


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """An empty directory, removed at the end whatever was put into it; the first also removes what killed runs left."""
    place = tempfile.gettempdir()
    if place not in _looked_at:
        _looked_at.add(place)
        remove_abandoned(Path(place))
    directory, maker = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place)), os.getpid()
    owner = None
    try:
        owner = _claim(directory)
        work = directory / _WORK
        work.mkdir(mode=0o700)
        yield work
    finally:
        # A process that was forked off meanwhile comes by here too, when it ends: the maker still works in it.
        if os.getpid() == maker:
            _remove(directory)
        if owner is not None:
            os.close(owner)


def remove_abandoned(place: Path) -> None:
    """Remove the directories of ours in here whose makers are gone."""
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                _remove_if_abandoned(Path(entry.path))


def _claim(directory: Path) -> int:
    """Say whose directory this is. The words come after the lock, so what has them and no lock was locked before."""
    owner = os.open(directory / _OWNER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Some file systems know no locks. Without the words the directory is never taken for abandoned.
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(owner, _words(directory))
    except OSError:
        os.ftruncate(owner, 0)
    return owner


def _remove_if_abandoned(directory: Path) -> None:
    try:
        owner = os.open(directory / _OWNER, _OPEN_OWNER)
    except OSError:  # somebody else's, or not made wholly
        return
    try:
        about, words = os.fstat(owner), _words(directory)
        if stat.S_ISREG(about.st_mode) and about.st_uid == directory.lstat().st_uid == os.geteuid():
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.read(owner, len(words) + 1) == words:
                _remove(directory)
    except OSError:  # its maker still works in it
        return
    finally:
        os.close(owner)


def _words(directory: Path) -> bytes:
    return os.fsencode(f"{_WORDS} Its name is {directory.name}.\n")


def _remove(directory: Path) -> None:
    with contextlib.suppress(OSError):
        # The owner's file goes last: by it, what could not be removed is found again.
        remove_tree(directory / _WORK)
        remove_tree(directory)
