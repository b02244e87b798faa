"""One review by the review-gate at a time: reviews that share its state must not overlap."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from codeloupe.errors import ProcessError, ProcessTimedOut

_PROGRAM = "review-gate"
_POLL_SECONDS = 0.05
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@asynccontextmanager
async def gate_lock(state_directory: Path, repository: Path, *, deadline: float) -> AsyncIterator[None]:
    """Hold the lock of a repository, against other processes and against other reviews in this one.

    The system lets it go when this process ends, however that happens. Raises ProcessTimedOut when another review
    holds it until the deadline (of the monotonic clock), and ProcessError when there can be no lock.
    """
    descriptor = _open(state_directory, repository)
    try:
        while not _taken(descriptor):
            if time.monotonic() >= deadline:
                raise ProcessTimedOut(
                    f"another review of {repository} by the {_PROGRAM} did not end in time",
                    program=_PROGRAM,
                    hint="wait for it, or raise the time limit",
                )
            await asyncio.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _open(state_directory: Path, repository: Path) -> int:
    # The gate keeps its state by the path of the repository.
    name = hashlib.sha256(os.fsencode(repository.resolve())).hexdigest()[:16]
    try:
        state_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(state_directory / f"{_PROGRAM}-{name}.lock", _FLAGS, 0o600)
    except OSError as error:
        raise ProcessError(
            f"no lock can be made in {state_directory}, so another review may be running ({error.strerror})",
            program=_PROGRAM,
            hint="set CODELOUPE_HOME to a directory that may be written",
        ) from error


def _taken(descriptor: int) -> bool:
    """Whether the lock is ours now. It belongs to this opening of the file, so we exclude ourselves as well."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
