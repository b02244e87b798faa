"""Temporary directories: only this user can read them, and they are removed at the end of their context."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from io import BufferedReader
from itertools import count
from pathlib import Path

from codeloupe.errors import UsageError
from codeloupe.system.process import uninterrupted

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The names of our directories begin with the first until they are locked, and then with the second.
_NEW = "codeloupe-new-"
_LOCKED = "codeloupe-temporary-"
# The places in which this process has already removed abandoned directories.
_looked_at: set[str] = set()
_numbers = count()


def remove_tree(directory: Path) -> None:
    """Remove a directory and its contents, if it exists. Raise OSError."""
    with suppress(OSError, RecursionError):
        shutil.rmtree(directory)
    if directory.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "this is a link", str(directory))
    if not directory.exists():
        return
    # Python fails at a tree of a thousand levels, and at folders that their owner cannot enter.
    place = str(directory.absolute())
    open_folders = ("find", place, "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";")
    for words in (open_folders, ("rm", "-rf", place)):
        subprocess.run(words, env={"PATH": os.defpath}, capture_output=True, check=False)  # noqa: S603 - no shell
    if directory.exists():
        raise OSError(errno.ENOTEMPTY, "it cannot be removed", str(directory))


@contextmanager
def opened_folder(path: Path | str, *, inside: int | None = None) -> Iterator[int]:
    """Yield an open directory, or a folder below an open one; no part of its path may be a link. Raise OSError."""
    parts: list[str] = []
    if inside is None:
        folder = os.open(path, _DIRECTORY)
    else:
        folder = os.dup(inside)
        if path:
            parts = str(path).split("/")
    try:
        for part in parts:
            inner = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


@contextmanager
def opened_file(top: int, path: str) -> Iterator[BufferedReader]:
    """Yield a regular file below an open directory; no part of its path may be a link. Raise OSError, ValueError."""
    folder_path, _, name = path.rpartition("/")
    with opened_folder(folder_path, inside=top) as folder:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise ValueError("not a regular file")
        # Without blocking, because it may have become a pipe in the meantime.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(file, "rb") as stream:
            yield stream


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file or directory until it is closed. Return False if another process has locked it."""
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked_folder(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Yield whether a directory could be locked for the block; a removed directory cannot be locked."""
    with ExitStack() as stack:
        is_locked = False
        with suppress(FileNotFoundError):
            folder = stack.enter_context(opened_folder(path))
            is_locked = try_lock(folder, shared=shared) and os.path.samestat(os.fstat(folder), path.stat())
        yield is_locked


@contextmanager
def temporary_directory(parent: Path | None = None) -> Iterator[Path]:
    """Yield a directory that only this user can read, and remove it at the end. Raise UsageError."""
    try:
        place = tempfile.gettempdir() if parent is None else str(parent)
        if place not in _looked_at:
            _looked_at.add(place)
            remove_abandoned(Path(place))
        directory = Path(tempfile.mkdtemp(prefix=_NEW, dir=place))
    except OSError as error:
        where = "" if parent is None else f" in {parent}"
        message = f"cannot create a temporary directory{where}: {error.strerror or error}"
        hint = "set TMPDIR to a writable directory" if parent is None else "check its permissions and free disk space"
        raise UsageError(message, hint=hint) from error
    maker = os.getpid()
    with opened_folder(directory) as lock:
        try:
            with suppress(OSError):  # Some file systems have no locks; there, it never counts as abandoned.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                directory = directory.rename(directory.with_name(directory.name.replace(_NEW, _LOCKED)))
            yield directory
        finally:
            # A forked process comes here too when it ends, while the maker still uses the directory.
            if os.getpid() == maker:
                with suppress(OSError):
                    remove_tree(directory)


@asynccontextmanager
async def temporary_folder(parent: Path | None = None) -> AsyncIterator[Path]:
    """Yield a `temporary_directory` that a thread removes, so that the removal of a large tree does not block."""
    stack = ExitStack()
    directory = stack.enter_context(temporary_directory(parent))
    try:
        yield directory
    finally:
        await uninterrupted(asyncio.to_thread(stack.close))


@asynccontextmanager
async def numbered_folder(parent: Path) -> AsyncIterator[Path]:
    """Yield a new folder in a directory of ours. Its name is a number, and it is removed in a thread."""
    folder = parent / str(next(_numbers))
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        # If it cannot be removed now, it is removed with its parent.
        with suppress(OSError):
            await uninterrupted(asyncio.to_thread(remove_tree, folder))


def remove_abandoned(place: Path) -> None:
    """Remove our directories in a place that no process has locked, because their makers are gone."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(_NEW):
                with suppress(OSError):
                    # A living maker locks it at once. If the maker was killed before, the directory is empty.
                    if entry.stat(follow_symlinks=False).st_mtime < time.time() - 3_600:
                        os.rmdir(entry.path)  # noqa: PTH106 - of an entry, not of a Path
            if entry.name.startswith(_LOCKED):
                with suppress(OSError), opened_folder(entry.path) as lock:
                    if os.fstat(lock).st_uid == os.geteuid():
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        remove_tree(Path(entry.path))
