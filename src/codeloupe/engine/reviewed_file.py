"""The reviewed files: read without following any link out of the tree, and each with its lines, numbers and changes."""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from codeloupe.engine.quotes import SearchText
from codeloupe.model.change import FileChange, Hunk, LineKind
from codeloupe.model.ports import ReviewTask

_MAX_BYTES = 32 * 1024 * 1024


class TextReader:
    """Reads the files of a task as they are after the change, and others of its tree. No path leads out of that."""

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
    inside = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened: list[int] = []
    try:
        opened.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for folder in folders:
            opened.append(os.open(folder, inside | os.O_DIRECTORY, dir_fd=opened[-1]))
            os.close(opened.pop(-2))
        opened.append(os.open(name, inside | os.O_NONBLOCK, dir_fd=opened[-1]))
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            return None
        with os.fdopen(opened[-1], "rb", closefd=False) as file:
            content = file.read(_MAX_BYTES + 1)
        return content if len(content) <= _MAX_BYTES else None
    except (OSError, ValueError):  # not there, a link in its place, or a name that no file can have
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)


class WholeLines:
    """All lines of a content, by their row, which is one less than their number. Only LF ends a line."""

    def __init__(self, content: bytes) -> None:
        self._lines = content.split(b"\n")
        self.count = len(self._lines) - (not self._lines[-1])

    def number(self, row: int) -> int:
        """The number of a row."""
        return row + 1

    def text(self, row: int) -> bytes:
        """The line of a row, without LF."""
        return self._lines[row]

    def row(self, number: int) -> int:
        """The row with a number; one outside of the file is moved into it."""
        return min(max(number, 1), max(self.count, 1)) - 1


class DiffRows(Struct, frozen=True):
    """Lines of hunks, in order, each with its number, text and kind."""

    rows: Sequence[tuple[int, bytes, LineKind]]

    def number(self, row: int) -> int:
        """The number of a row."""
        return self.rows[row][0]

    def text(self, row: int) -> bytes:
        """The line of a row."""
        return self.rows[row][1]

    def row(self, number: int) -> int:
        """The first row with a number, or with the next one that is known."""
        return min(bisect_left(self.rows, number, key=lambda row: row[0]), max(len(self.rows) - 1, 0))

    def has_deleted(self, first: int, last: int) -> bool:
        """Whether a line between two rows was deleted."""
        return any(kind == "deleted" for _, _, kind in self.rows[first : last + 1])


class Side(Struct, frozen=True):
    """Lines, and the text of them to search in."""

    lines: WholeLines | DiffRows
    text: SearchText


class ReviewedFile:
    """A file by its content, its change, or both. Everything is made when it is first asked for, and then kept."""

    def __init__(self, path: str, change: FileChange | None, content: bytes | None) -> None:
        self.path = path
        self.change = change
        self._content = content
        self._hunks = change.hunks if change is not None else ()

    @property
    def weight(self) -> int:
        """About how many bytes it takes to keep it ready."""
        return 5 * len(self._content or b"") + sum(10 * len(hunk.body) for hunk in self._hunks)

    @cached_property
    def new(self) -> Side:
        """The new side: the whole content when it is known, else what the hunks show of it."""
        if self._content is None:
            return self._side(without="deleted")
        texts = self._content.decode("utf-8", "replace").split("\n")
        return Side(WholeLines(self._content), SearchText([enumerate(texts)]))

    def sides_with_deletions(self) -> Iterator[Side]:
        """Where deleted lines are: the old side as far as hunks show it, then both sides in the order of the diff."""
        if any(hunk.deleted for hunk in self._hunks):
            yield self._old
            yield self._both

    @cached_property
    def _old(self) -> Side:
        return self._side(without="added")

    @cached_property
    def _both(self) -> Side:
        return self._side()

    def _side(self, *, without: LineKind | None = None) -> Side:
        is_gone = self.change is not None and self.change.new_path is None
        rows: list[tuple[int, bytes, LineKind]] = []
        numbered: list[list[tuple[int, str]]] = []
        for hunk in self._hunks:
            run = [row for row in _rows(hunk, is_gone=is_gone) if row[2] != without]
            texts = (text.decode("utf-8", "replace") for _, text, _ in run)
            numbered.append(list(enumerate(texts, start=len(rows))))
            rows += run
        return Side(DiffRows(rows), SearchText(numbered))

    @cached_property
    def added(self) -> list[tuple[int, int]]:
        """Runs of added lines by their first and last number, in order."""
        runs: list[tuple[int, int]] = []
        for number in (line.new_number for hunk in self._hunks for line in hunk.lines() if line.kind == "added"):
            if number is not None:
                first = runs.pop()[0] if runs and runs[-1][1] == number - 1 else number
                runs.append((first, number))
        return runs

    @cached_property
    def shown(self) -> list[tuple[int, int]]:
        """The new lines that each hunk shows, by the first and last number; the place of a deletion is among them."""
        return [
            (max(one.new_start, 1), one.new_start + (one.new_lines - 1 if one.new_lines else 1)) for one in self._hunks
        ]

    @property
    def last_line(self) -> int | None:
        """The number of the last line, where the whole content is known."""
        return self.new.lines.count if isinstance(self.new.lines, WholeLines) else None


def _rows(hunk: Hunk, *, is_gone: bool) -> Iterator[tuple[int, bytes, LineKind]]:
    """The lines of a hunk in the order of the diff; those of a file that is gone have their old numbers."""
    following = hunk.new_start if hunk.new_lines else hunk.new_start + 1
    last = max(following + hunk.new_lines - 1, hunk.new_start, 1)
    for line in hunk.lines():
        if line.new_number is not None:
            following = line.new_number + 1
            yield line.new_number, line.text, line.kind
        else:
            yield (line.old_number or 1 if is_gone else min(following, last)), line.text, line.kind
