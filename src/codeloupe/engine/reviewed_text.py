"""The text of the reviewed files, read without following any link out of the reviewed tree."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from codeloupe.model.ports import ReviewTask

_MAX_BYTES = 32 * 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TextReader:
    """Reads the files of a task as they are after the change; others come from the reviewed tree, where there is one.

    Paths may come from a model: nothing outside of the tree is read, nothing of git's own, no link is followed.
    """

    def __init__(self, task: ReviewTask) -> None:
        self._snapshot = task.snapshot
        self._tree = task.tree
        self._reviewed = frozenset(file.new_path for file in task.files if file.new_path is not None)
        self._unknown = task.without_content | {file.path for file in task.files if file.new_path is None}

    def read(self, path: str) -> bytes | None:
        """The content of a file, or None when it is not known, no regular file or beyond 32 MB."""
        if path in self._unknown:
            return None
        root = self._snapshot if path in self._reviewed else self._tree
        return None if root is None else _read_below(root, path)


def _read_below(root: Path, path: str) -> bytes | None:
    *folders, name = path.split("/")
    if any(part in ("", ".", "..") or part.lower() == ".git" for part in (*folders, name)):
        return None
    opened: list[int] = []
    try:
        opened.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for folder in folders:
            opened.append(os.open(folder, _FOLDER, dir_fd=opened[-1]))
            os.close(opened.pop(-2))
        opened.append(os.open(name, _FILE, dir_fd=opened[-1]))
        return _regular_content(opened[-1])
    except (OSError, ValueError):  # not there, a link in its place, or a name that no file can have
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _regular_content(descriptor: int) -> bytes | None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
        return None
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(_MAX_BYTES + 1)
    return content if len(content) <= _MAX_BYTES else None
