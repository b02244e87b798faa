"""One process at a time works on a run: a lock that the system frees when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from msgspec import Struct

from codeloupe.errors import RunBusy, RunNotFound
from codeloupe.store.run_files import open_file, write_all

LOCK_FILE = "lock"
_LONGEST_WORDS_BYTES = 1_000
# Who works on a run says so in the file at once. Somebody who only looks whether it is free says nothing, and has the
# lock for an instant, which is longer where the machine stands still.
_TRIES = 10
_TRIES_WHEN_NOBODY_SAYS_SO = 150
_PAUSE_SECONDS = 0.03


class Holder(Struct, frozen=True):
    """The process that works on a run. Both are None when it did not say, or not yet."""

    process_id: int | None = None
    since: datetime | None = None

    def __str__(self) -> str:
        process = "another process" if self.process_id is None else f"process {self.process_id}"
        return process if self.since is None else f"{process} (since {self.since.isoformat(' ', 'seconds')})"


@contextmanager
def locked(run_id: str, *, directory: int) -> Iterator[None]:
    """Hold the lock of the run whose directory this is. Raises RunBusy, RunNotFound, UnfitFile or OSError."""
    descriptor = open_file(LOCK_FILE, os.O_RDWR | os.O_CREAT, inside=directory)
    try:
        if not _taken(descriptor):
            raise _busy(run_id, _told(descriptor))
        if _is_gone(descriptor, directory):
            raise RunNotFound(
                f"the run {run_id} was removed just now", hint="`codeloupe pipeline list` shows what is left"
            )
        _tell(descriptor, Holder(os.getpid(), datetime.now(UTC)))
        try:
            yield
        finally:
            # While the lock is held: whoever gets it next writes its own name.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder_of(directory: int) -> Holder | None:
    """Who holds the lock of a run just now, or None. Raises UnfitFile or OSError."""
    try:
        descriptor = open_file(LOCK_FILE, os.O_RDONLY, inside=directory)
    except FileNotFoundError:
        return None
    try:
        return None if _try(descriptor, fcntl.LOCK_SH) else _told(descriptor)
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    for number in range(_TRIES_WHEN_NOBODY_SAYS_SO):
        if _try(descriptor, fcntl.LOCK_EX):
            return True
        if number >= _TRIES and os.fstat(descriptor).st_size > 0:
            return False
        time.sleep(_PAUSE_SECONDS)
    return False


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _is_gone(descriptor: int, directory: int) -> bool:
    """Whether the file was removed, with the run or alone, before its lock was ours."""
    try:
        return (
            not os.path.samestat(os.fstat(descriptor), os.stat(LOCK_FILE, dir_fd=directory, follow_symlinks=False))
            or not os.fstat(directory).st_nlink
        )
    except FileNotFoundError:
        return True


def _tell(descriptor: int, holder: Holder) -> None:
    since = None if holder.since is None else holder.since.isoformat()
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    write_all(descriptor, json.dumps({"pid": holder.process_id, "since": since}).encode() + b"\n")


def _told(descriptor: int) -> Holder:
    try:
        words = json.loads(os.pread(descriptor, _LONGEST_WORDS_BYTES, 0))
        process, since = words["pid"], datetime.fromisoformat(words["since"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return Holder()
    return Holder(process if type(process) is int else None, since if since.tzinfo else None)


def _busy(run_id: str, holder: Holder) -> RunBusy:
    if holder.process_id == os.getpid():
        return RunBusy(f"this process works on the run {run_id} already", hint="wait for its end")
    return RunBusy(
        f"the run {run_id} is busy: {holder} is working on it",
        hint=f"`codeloupe pipeline status {run_id} --follow` shows how far it is; wait for it, or end that process",
    )
