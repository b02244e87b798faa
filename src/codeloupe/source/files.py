"""The reviewed files: how they are read, and their lines with numbers and changes."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from codeloupe.model.change import FileChange, Hunk, LineKind
from codeloupe.model.ports import Plan
from codeloupe.source.code import fold, words_and_signs
from codeloupe.system.directories import opened_file, opened_folder

_MAX_BYTES = 32 * 1024 * 1024
_MAX_PATH_CHARACTERS = 4096


def is_inside(path: str) -> bool:
    """Tell whether a relative path can name a file of the tree, outside of the repository's own storage."""
    if len(path) >= _MAX_PATH_CHARACTERS or "\0" in path:
        return False
    parts = path.lower().split("/")
    return not any(part in ("", ".", "..", ".git") for part in parts)


class TextReader:
    """Read the files of a plan as they are after the change, and other files of its tree.

    No path and no link leads out of these directories.
    """

    def __init__(self, plan: Plan) -> None:
        self._snapshot = plan.snapshot
        self._tree = plan.tree
        self._reviewed = {file.new_path for file in plan.files if file.new_path is not None}
        deleted = {file.path for file in plan.files if file.new_path is None}
        self._unknown = plan.without_content | deleted

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None if it is not known, not a regular file or larger than 32 MB."""
        root = self._snapshot if path in self._reviewed else self._tree
        if root is None or path in self._unknown or not is_inside(path):
            return None
        try:
            with opened_folder(root) as top, opened_file(top, path) as file:
                content = file.read(_MAX_BYTES + 1)
        except (OSError, ValueError):  # missing, a link, or a name that the system refuses
            return None
        if len(content) > _MAX_BYTES:
            return None
        return content


class RunLine(NamedTuple):
    """One line of a run: its number, its bytes, and whether the change deleted it."""

    number: int
    text: bytes
    is_deleted: bool = False


class Run:
    """Lines in a row, in which quotes are searched. A line is known by its row, its index in `lines`.

    `text` is the words and signs of all lines, with a space before and after each. Offsets are those of `text`.
    """

    def __init__(self, lines: Iterable[RunLine]) -> None:
        self.lines: list[bytes] = []
        self.numbers: list[int] = []
        self._deleted_rows: list[int] = []
        # The rows that are not blank, and where each of them starts; the last entries are the end of the text.
        self._rows = array("q")
        self._starts = array("q")
        texts = [""]
        offset = 1
        for row, line in enumerate(lines):
            self.lines.append(line.text)
            self.numbers.append(line.number)
            if line.is_deleted:
                self._deleted_rows.append(row)
            text = words_and_signs(fold(line.text.decode("utf-8", "replace")))
            if text:
                texts.append(text)
                self._rows.append(row)
                self._starts.append(offset)
                offset += len(text) + 1
        self._rows.append(len(self.lines))
        self._starts.append(offset)
        texts.append("")
        self.text = " ".join(texts)

    def line(self, number: int) -> bytes | None:
        """Return the line with a number if the run has it."""
        row = bisect_left(self.numbers, number)
        if row < len(self.numbers) and self.numbers[row] == number:
            return self.lines[row]
        return None

    def has_deleted(self, first: int, last: int) -> bool:
        """Tell whether a line between two rows was deleted."""
        index = bisect_left(self._deleted_rows, first)
        return index < len(self._deleted_rows) and self._deleted_rows[index] <= last

    def row(self, offset: int) -> int:
        """Return the row of an offset."""
        return self._rows[bisect_right(self._starts, offset) - 1]

    def is_start(self, offset: int) -> bool:
        """Tell whether a line starts at an offset, or the text has ended before it."""
        return self._starts[bisect_left(self._starts, offset)] == offset

    def start(self, number: int) -> int:
        """Return where the line with a number starts, or the next line that is not blank."""
        row = bisect_left(self.numbers, number)
        return self._starts[bisect_left(self._rows, row)]


class ReviewedFile:
    """A file by its content, its change, or both. Its runs are computed when they are first used."""

    def __init__(self, path: str, change: FileChange | None, content: bytes | None) -> None:
        self.path = path
        self.is_known = content is not None
        self._content = content
        self._hunks: tuple[Hunk, ...] = () if change is None else change.hunks
        self._is_gone = change is not None and change.new_path is None
        hunk_bytes = sum(len(hunk.body) for hunk in self._hunks)
        # About the bytes of memory that the file and its runs take.
        self.weight = 5 * len(content or b"") + 10 * hunk_bytes

    @cached_property
    def new(self) -> list[Run]:
        """The new lines: the whole content if it is known, otherwise those of each hunk."""
        if self._content is None:
            return self._runs_of(self._hunks, without="deleted")
        if not self._content:
            return []
        lines = self._content.removesuffix(b"\n").split(b"\n")
        return [Run(RunLine(number, line) for number, line in enumerate(lines, start=1))]

    @cached_property
    def with_deletions(self) -> list[Run]:
        """The lines of each hunk with deletions: first the old lines, then all lines in the order of the diff."""
        hunks = [hunk for hunk in self._hunks if hunk.deleted]
        return [*self._runs_of(hunks, without="added"), *self._runs_of(hunks)]

    def deleted_lines(self, text: str) -> tuple[int, int] | None:
        """Return the numbers of some lines of a hunk, at least one of which is deleted, or None if no hunk has them."""
        wanted = " ".join(filter(None, (words_and_signs(fold(line)) for line in text.split("\n"))))
        for run in self.with_deletions:
            start = run.text.find(f" {wanted} ")
            if start < 0:
                continue
            first = run.row(start + 1)
            last = run.row(start + len(wanted))
            if run.has_deleted(first, last):
                return run.numbers[first], run.numbers[last]
        return None

    def line(self, number: int) -> bytes | None:
        """Return the new line with a number if it is known."""
        for run in self.new:
            line = run.line(number)
            if line is not None:
                return line
        return None

    @property
    def last_line(self) -> int | None:
        """The number of the last line, or None if the content is not known. Only LF ends a line."""
        if not self.is_known:
            return None
        return sum(len(run.lines) for run in self.new)

    @cached_property
    def shown(self) -> list[tuple[int, int]]:
        """The first and last new line that each hunk shows; around a pure deletion, the lines beside it."""
        ranges: list[tuple[int, int]] = []
        for hunk in self._hunks:
            shown_lines = hunk.new_lines or 2
            ranges.append((max(hunk.new_start, 1), hunk.new_start + shown_lines - 1))
        return ranges

    @cached_property
    def added(self) -> list[tuple[int, int]]:
        """The first and last number of each run of added lines."""
        runs: list[tuple[int, int]] = []
        for hunk in self._hunks:
            for line in hunk.lines():
                number = line.new_number
                if line.kind != "added" or number is None:
                    continue
                if runs and runs[-1][1] == number - 1:
                    runs[-1] = (runs[-1][0], number)
                else:
                    runs.append((number, number))
        return runs

    def _runs_of(self, hunks: Iterable[Hunk], *, without: LineKind | None = None) -> list[Run]:
        return [Run(self._hunk_lines(hunk, without)) for hunk in hunks]

    def _hunk_lines(self, hunk: Hunk, without: LineKind | None) -> Iterator[RunLine]:
        """Yield the lines of a hunk.

        A deleted line has the number of the new line after it, or of the last line; in a deleted file, its old number.
        """
        following = hunk.new_start if hunk.new_lines else hunk.new_start + 1
        last = max(following + hunk.new_lines - 1, hunk.new_start, 1)
        for line in hunk.lines():
            if line.new_number is not None:
                number = line.new_number
                following = number + 1
            elif self._is_gone:
                number = line.old_number or 1
            else:
                number = min(following, last)
            if line.kind != without:
                yield RunLine(number, line.text, is_deleted=line.kind == "deleted")
