"""What lies in a workspace, by name and facts, so that two looks at it tell what was made, changed and removed.

Nothing is read and no link is followed. Folders of version control are left alone: an agent that asks for the status
of a repository changes them, and nothing in them is ever an artifact.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path

from msgspec import Struct

from codeloupe.errors import ArtifactError

MOST_ENTRIES = 500_000
DEEPEST_FOLDER = 200
_VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".bzr", ".jj"})
_ENTRIES_BETWEEN_BREATHS = 500
# Two changes within one tick of the system's clock have the same time; no system has a tick this long.
_TICK_SECONDS = 0.02


class Kind(StrEnum):
    """What an entry of a folder is, in words for a message."""

    FILE = "a file"
    LINK = "a link"
    FOLDER = "a folder"
    PIPE = "a pipe"
    SOCKET = "a socket"
    DEVICE = "a device"
    CLOSED = "a folder that cannot be read"


_KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFLNK: Kind.LINK,
    stat.S_IFDIR: Kind.FOLDER,
    stat.S_IFIFO: Kind.PIPE,
    stat.S_IFSOCK: Kind.SOCKET,
}


class Entry(Struct, frozen=True):
    """One thing in a workspace. `stamp` differs when it was changed; a folder has none, its entries tell."""

    kind: Kind
    size_bytes: int = 0
    stamp: tuple[int, ...] = ()


Look = Mapping[str, Entry]


def identity_of(workspace: Path, *, stage: str) -> tuple[int, int, int]:
    """What tells a directory from whatever else is in its place, a link to it too. Raises ArtifactError."""
    try:
        facts = workspace.lstat()
    except OSError as error:
        raise _unreadable(workspace, stage, error) from error
    # What is made right after a removal may get the same number.
    return facts.st_dev, facts.st_ino, stat.S_IFMT(facts.st_mode)


async def look_at(workspace: Path, *, stage: str) -> Look:
    """Everything below a directory, by its path there. Raises ArtifactError when it cannot be read, or is too much."""
    found: dict[str, Entry] = {}
    left = deque([""])
    while left:
        folder = left.popleft()
        try:
            entries = list(islice(_entries(workspace, folder), MOST_ENTRIES + 1))
        except OSError as error:
            if not folder:
                raise _unreadable(workspace, stage, error) from error
            found[folder] = Entry(Kind.CLOSED)
            continue
        for path, entry in entries:
            found[path] = entry
            if entry.kind is Kind.FOLDER:
                left.append(path)
            if len(found) % _ENTRIES_BETWEEN_BREATHS == 0:
                await asyncio.sleep(0)  # so that other stages go on, and a cancellation is noticed
        if len(found) > MOST_ENTRIES:
            raise ArtifactError(
                f"the workspace of the stage {stage} holds more than {MOST_ENTRIES:,} files",
                stage=stage,
                hint="have the agent remove what it does not need, such as installed packages",
            )
    return found


def _entries(workspace: Path, folder: str) -> Iterator[tuple[str, Entry]]:
    if folder.count("/") >= DEEPEST_FOLDER:
        raise OSError("too deep")
    with os.scandir(workspace / folder) as listed:
        for entry in listed:
            # In a checkout a person may remove a file between the listing and the look.
            with suppress(FileNotFoundError):
                if entry.name not in _VERSION_CONTROL:
                    facts = entry.stat(follow_symlinks=False)
                    yield (f"{folder}/{entry.name}" if folder else entry.name), _entry(facts)


def _entry(facts: os.stat_result) -> Entry:
    kind = _KINDS.get(stat.S_IFMT(facts.st_mode), Kind.DEVICE)
    if kind is Kind.FOLDER:
        return Entry(kind)
    stamp = (facts.st_mode, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    return Entry(kind, facts.st_size, stamp)


def _unreadable(workspace: Path, stage: str, error: OSError) -> ArtifactError:
    reason = (error.strerror or str(error)).lower()
    return ArtifactError(
        f"the workspace {workspace} of the stage {stage} cannot be read: {reason}",
        stage=stage,
        hint="check that it is a directory that this user may read",
    )


async def let_time_pass(look: Look) -> None:
    """Wait until whatever is changed from now on has another time than anything in a look."""
    newest = max((entry.stamp[-1] for entry in look.values() if entry.stamp), default=0)
    await asyncio.sleep(min(max(newest / 1e9 + _TICK_SECONDS - time.time(), 0.0), _TICK_SECONDS))


def differing(before: Look, after: Look) -> tuple[str, ...]:
    """What was made, changed or removed between two looks, sorted."""
    return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))
