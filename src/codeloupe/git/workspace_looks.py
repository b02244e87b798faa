"""What is remembered of a workspace between two looks at it: the tree it held, and the stamp of each file.

A file whose stamp did not change need not be read again. What is remembered is only ever a saving: when it is lost or
cannot be read, everything is read anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from codeloupe.git.workspace_objects import Entries, Objects, write_whole
from codeloupe.git.workspace_scan import Stamp

# Two changes within one tick of the system's clock have the same time, so a file that is as young is read again.
_TICK_NANOSECONDS = 100_000_000
_FACTS_IN_A_STAMP = 5


class Remembered(Struct, frozen=True):
    """The tree that a workspace held, and the stamps of its files with the names of their contents."""

    tree: str
    contents: Mapping[str, tuple[Stamp, str]] = field(default_factory=dict)

    def content(self, path: str, stamp: Stamp) -> str | None:
        """The name of a file's content, if the file is still as it was; None when it has to be read."""
        known = self.contents.get(path)
        return known[1] if known is not None and known[0] == stamp else None


def recall(objects: Objects, directory: Path) -> Remembered | None:
    """What is remembered of a workspace, or None."""
    try:
        value: Any = json.loads(_file(objects, directory).read_bytes())
        contents = {path: (tuple(stamp), str(name)) for path, (stamp, name) in value["contents"].items()}
        return Remembered(str(value["tree"]), contents)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # not there, or not as we wrote it
        return None


def remember(objects: Objects, directory: Path, tree: str, entries: Entries, stamps: Mapping[str, Stamp]) -> None:
    """Remember a workspace as it is now. Raises OSError."""
    oldest_trusted = time.time_ns() - _TICK_NANOSECONDS
    contents = {
        path: (stamp, entries[path].name)
        for path, stamp in stamps.items()
        if len(stamp) == _FACTS_IN_A_STAMP and max(stamp[3:]) < oldest_trusted and path in entries
    }
    text = json.dumps({"tree": tree, "contents": contents})
    write_whole(_file(objects, directory), text.encode("ascii"), durable=False)


def forget(objects: Objects, directory: Path) -> None:
    """Remember nothing of a workspace that is about to change."""
    _file(objects, directory).unlink(missing_ok=True)


def workspace_key(directory: Path) -> str:
    """A name for a workspace, for files that belong to it."""
    return hashlib.sha256(os.fsencode(directory.absolute())).hexdigest()[:32]


def _file(objects: Objects, directory: Path) -> Path:
    return objects.directory / "looks" / f"{workspace_key(directory)}.json"
