"""Copies of a run's files for people, below the run's directory, written one way.

They are read only to find out whether they are current. A copy that cannot be written is a warning in the log, because
the database has the file.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

_log = logging.getLogger(__name__)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, for this user alone. Raise OSError."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write_copy(file: Path, chunks: Iterable[bytes]) -> None:
    """Replace a file by a rename, which replaces a link too. Log a warning if that is impossible."""
    temporary = file.with_name(f".{file.name[:100]}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        make_folder(file.parent)
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as stream:
            stream.writelines(chunks)
        temporary.replace(file)
    except OSError as error:
        _log.warning("cannot write the copy %s: %s", file, error)
        _remove(temporary)
    except BaseException:
        _remove(temporary)
        raise


def append_copy(file: Path, data: bytes) -> None:
    """Add data to a file. Log a warning if that is impossible."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        make_folder(file.parent)
        with os.fdopen(os.open(file, flags, 0o600), "ab") as stream:
            stream.write(data)
    except OSError as error:
        _log.warning("cannot write the copy %s: %s", file, error)


def has_copy(file: Path, data: bytes) -> bool:
    """Return whether a copy is there with this content."""
    try:
        return file.stat().st_size == len(data) and file.read_bytes() == data
    except OSError:
        return False


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("cannot remove %s: %s", file, error)
