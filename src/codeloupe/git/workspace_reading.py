"""The content of files in a workspace, read without following a link anywhere on the way."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from codeloupe.git.workspace_scan import Stamp, stamp_of

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Not blocking: between the look and the opening a file may have become a pipe.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_CHUNK_BYTES = 1024**2


class Content(Struct, frozen=True):
    """What a file held, and its stamp from before it was read."""

    data: bytes
    stamp: Stamp


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """A directory, which may not be a link itself. Raises OSError."""
    top = os.open(directory, _DIRECTORY)
    try:
        yield top
    finally:
        os.close(top)


def read_file(top: int, path: str, *, most_bytes: int) -> Content:
    """A regular file below an open directory. Raises OSError, and ValueError for what is no file or too large."""
    with _folder_of(top, path) as (folder, name), os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as stream:
        facts = os.fstat(stream.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError("not a regular file any more")
        data = stream.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ValueError(f"a file of more than {most_bytes:,} bytes")
    return Content(data, stamp_of(facts))


def read_link(top: int, path: str) -> Content:
    """Where a link below an open directory leads. Raises OSError."""
    with _folder_of(top, path) as (folder, name):
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return Content(os.fsencode(os.readlink(name, dir_fd=folder)), stamp_of(facts))


def blob_name(top: int, path: str, object_format: str) -> str:
    """The name that git has for a file's content, however large it is. Raises OSError."""
    with _folder_of(top, path) as (folder, name), os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as stream:
        digest = hashlib.new(object_format, usedforsecurity=False)
        digest.update(b"blob %d\0" % os.fstat(stream.fileno()).st_size)
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def opened_folder(top: int, path: str) -> Iterator[int]:
    """A folder below an open directory, which itself has the path "". Raises OSError."""
    folder = os.dup(top)
    try:
        for part in path.split("/") if path else ():
            inner = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _folder_of(top: int, path: str) -> Iterator[tuple[int, str]]:
    above, _, name = path.rpartition("/")
    with opened_folder(top, above) as folder:
        yield folder, name
