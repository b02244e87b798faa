"""Moves a database out of the way, whole, so that a new one can be made and the old one can still be looked at."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codeloupe.errors import StoreError
from codeloupe.store.failures import file_failure

# Where SQLite's file format puts its locks; whoever has the file open with a write-ahead log holds one of these.
_LOCK_START = 0x40000002
_LOCK_LENGTH = 510
# The log goes first: a new database under the old name would take an old log for its own and remove it.
_COMPANIONS = ("-journal", "-wal", "-shm", "")


def set_aside(path: Path) -> Path:
    """Rename the database and the files that belong to it; returns the new name. Nothing is deleted.

    To be called when nothing else in this process has it open. Raises StoreError when another process has, or when
    it cannot be renamed.
    """
    target = _free_name(path)
    try:
        with _nobody_else_at(path):
            for companion in _COMPANIONS:
                _rename_if_there(Path(f"{path}{companion}"), Path(f"{target}{companion}"))
    except BlockingIOError as error:
        raise StoreError(
            f"the database {path} is in use by another process, so it was not set aside",
            hint="end that codeloupe and try again",
        ) from error
    except OSError as error:
        raise file_failure(error, path, doing="set aside") from error
    return target


def _free_name(path: Path) -> Path:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    target, count = Path(f"{path}.set-aside-{moment}"), 1
    while os.path.lexists(target):
        count += 1
        target = Path(f"{path}.set-aside-{moment}-{count}")
    return target


def _rename_if_there(source: Path, target: Path) -> None:
    if source.name.endswith(("-journal", "-wal", "-shm")) and not source.exists():
        return
    source.rename(target)


@contextmanager
def _nobody_else_at(path: Path) -> Iterator[None]:
    if not stat.S_ISREG(path.stat().st_mode):
        yield
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_LENGTH, _LOCK_START)
        yield
    finally:
        os.close(descriptor)
