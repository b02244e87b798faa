"""The files of one run's directory, read and written so that no link leads out of it and no crash leaves half a file.

Everything goes through the descriptor of the directory: a link, a pipe or a device in the place of a file is refused.
Functions raise OSError, and UnfitFile in words.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PRIVATE_DIRECTORY = 0o700
_PRIVATE_FILE = 0o600
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# On macOS a plain flush stops at the disk's own cache.
_FULL_FLUSH: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class UnfitFile(ValueError):
    """What lies where a file or directory of a run should be is none, or is too large; the message says what."""


@contextmanager
def opened_directory(path: Path | str, *, inside: int | None = None) -> Iterator[int]:
    """A directory's descriptor. One that is named `inside` another may not be a link. Raises UnfitFile."""
    nofollow = 0 if inside is None else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, _DIRECTORY_FLAGS | nofollow, dir_fd=inside)
    except OSError as error:
        # Which of the two is said of a link depends on the system.
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise UnfitFile("it is not a directory") from error
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_or_made(name: str, *, inside: int) -> Iterator[int]:
    """As `opened_directory`, made for this user alone if it is not there."""
    with suppress(FileExistsError):
        os.mkdir(name, _PRIVATE_DIRECTORY, dir_fd=inside)
    with opened_directory(name, inside=inside) as descriptor:
        yield descriptor


def make_private(directory: Path) -> None:
    """Make a directory and those above it, as far as they are missing; it and the next are for this user alone."""
    directory.parent.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    directory.mkdir(mode=_PRIVATE_DIRECTORY, exist_ok=True)


def open_file(name: str, flags: int, *, inside: int) -> int:
    """The descriptor of a regular file, made for this user alone when the flags say so. Raises UnfitFile."""
    try:
        # Without O_NONBLOCK a pipe would be waited for.
        descriptor = os.open(
            name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode=_PRIVATE_FILE, dir_fd=inside
        )
    except OSError as error:
        if _is_there_but_no_file(name, inside=inside):
            raise UnfitFile(f"{name} is not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnfitFile(f"{name} is not a regular file")
    return descriptor


def read_file(name: str, *, inside: int, limit_bytes: int) -> bytes:
    """All of a regular file. Raises UnfitFile when it has more than the limit, of which nothing is read."""
    descriptor = open_file(name, os.O_RDONLY, inside=inside)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > limit_bytes:
            raise UnfitFile(f"{name} has {size:,} bytes, more than the {limit_bytes:,} that are read")
        return file.read(limit_bytes)


def replace_file(name: str, data: bytes, *, inside: int) -> None:
    """Put a whole file in place, durably: whoever reads sees the old one or the new one, also after a crash."""
    temporary = f"{temporary_prefix(name)}{secrets.token_hex(8)}"
    descriptor = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        mode=_PRIVATE_FILE,
        dir_fd=inside,
    )
    try:
        try:
            write_all(descriptor, data)
            flush(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, name, src_dir_fd=inside, dst_dir_fd=inside)
    except BaseException:  # also when it is interrupted, no half of a file is left
        with suppress(OSError):
            os.unlink(temporary, dir_fd=inside)
        raise
    flush(inside)


def temporary_prefix(name: str) -> str:
    """How the names of files begin that are on the way to a name; a crash may leave one behind."""
    return f".{name}."


def remove_leftovers(name: str, *, inside: int) -> None:
    """Remove what a crash left on the way to a name; to be called when nobody writes it."""
    prefix = temporary_prefix(name)
    for entry in os.listdir(inside):
        if entry.startswith(prefix):
            with suppress(OSError):
                os.unlink(entry, dir_fd=inside)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, in as few calls as the system allows."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def flush(descriptor: int) -> None:
    """Make sure that it is on the disk."""
    if _FULL_FLUSH is not None:
        with suppress(OSError):  # not every file system has it
            fcntl.fcntl(descriptor, _FULL_FLUSH)
            return
    os.fsync(descriptor)


def _is_there_but_no_file(name: str, *, inside: int) -> bool:
    try:
        return not stat.S_ISREG(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode)
    except OSError:
        return False
