"""The reviewed files: how they are read, and their lines with numbers and changes."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from codeloupe.model.change import FileChange, Hunk, LineKind
from codeloupe.model.ports import Plan
from codeloupe.source.code import fold
from codeloupe.system.directories import opened_file, opened_folder

_MAX_BYTES = 32 * 1024 * 1024
_MAX_PATH_CHARACTERS = 4096
# Stands between two runs of lines. Folded text does not contain it, so no quote extends from one run into the next.
BOUNDARY = "\x1c"


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


class SideLine(NamedTuple):
    """One line of a side: its number, its bytes, and whether the change deleted it."""

    number: int
    text: bytes
    is_deleted: bool = False


class Side:
    """Runs of lines in which quotes are searched. A line is known by its row, its index in `lines`.

    `text` is the folded lines without blank ones, with a newline before and after each. Offsets are those of `text`.
    """

    def __init__(self, runs: Iterable[Iterable[SideLine]]) -> None:
        self.lines: list[bytes] = []
        self.numbers: list[int] = []
        self._deleted_rows: set[int] = set()
        folded_lines: list[str] = []
        self._rows = array("q")
        for run in runs:
            for line in run:
                row = len(self.lines)
                self.lines.append(line.text)
                self.numbers.append(line.number)
                if line.is_deleted:
                    self._deleted_rows.add(row)
                folded = fold(line.text.decode("utf-8", "replace"))
                if folded:
                    folded_lines.append(folded)
                    self._rows.append(row)
            folded_lines.append(BOUNDARY)
            self._rows.append(max(len(self.lines) - 1, 0))
        self._folded_lines = folded_lines
        self.text = "\n" + "".join(f"{line}\n" for line in folded_lines)
        self._starts = _starts(folded_lines, [1] * len(folded_lines))

    def row(self, number: int) -> int:
        """Return the first row with a number, or with the next known number."""
        last_row = max(len(self.numbers) - 1, 0)
        return min(bisect_left(self.numbers, number), last_row)

    def line(self, number: int) -> bytes | None:
        """Return the line with a number if it is known."""
        row = self.row(number)
        if self.numbers and self.numbers[row] == number:
            return self.lines[row]
        return None

    def has_deleted(self, first: int, last: int) -> bool:
        """Tell whether a line between two rows was deleted."""
        return not self._deleted_rows.isdisjoint(range(first, last + 1))

    def rows(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and the last row of the text between two offsets."""
        return self._rows_of(self._starts, start, end)

    def offsets(self, first_row: int, last_row: int) -> tuple[int, int]:
        """Return the offsets of all lines between two rows, with the newlines around them."""
        first = bisect_left(self._rows, first_row)
        last = bisect_right(self._rows, last_row)
        start = self._starts[first] if first < len(self._starts) else len(self.text)
        end = self._starts[last] if last < len(self._starts) else len(self.text)
        return start - 1, end

    def rows_run_together(self, pattern: str, most: int) -> list[tuple[int, int]]:
        """Return the rows of a pattern in the text without line breaks."""
        text, starts = self._joined
        found: list[tuple[int, int]] = []
        start = text.find(pattern)
        while start >= 0 and len(found) < most:
            end = start + len(pattern)
            found.append(self._rows_of(starts, start, end))
            start = text.find(pattern, end)
        return found

    @cached_property
    def _joined(self) -> tuple[str, array[int]]:
        """The text with each newline folded like other white space, and where each line starts in it."""
        joined: list[str] = []
        gaps: list[int] = []
        before = ""
        for line in self._folded_lines:
            is_between_words = _is_word(before[-1:]) and _is_word(line[0])
            if is_between_words:
                joined.append(" ")
            joined.append(line)
            gaps.append(1 if is_between_words else 0)
            before = line
        return "".join(joined), _starts(self._folded_lines, gaps)

    def _rows_of(self, starts: array[int], start: int, end: int) -> tuple[int, int]:
        first = bisect_right(starts, start) - 1
        last = bisect_right(starts, max(start, end - 1)) - 1
        return self._rows[max(first, 0)], self._rows[max(last, 0)]


def _starts(lines: Sequence[str], gaps: Sequence[int]) -> array[int]:
    """Return where each line starts in a text with so many characters before each of them."""
    starts = array("q")
    offset = 0
    for line, gap in zip(lines, gaps, strict=True):
        offset += gap
        starts.append(offset)
        offset += len(line)
    return starts


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


class ReviewedFile:
    """A file by its content, its change, or both. Its sides are computed when they are first used."""

    def __init__(self, path: str, change: FileChange | None, content: bytes | None) -> None:
        self.path = path
        self.is_known = content is not None
        self._content = content
        self._hunks: tuple[Hunk, ...] = () if change is None else change.hunks
        self._is_gone = change is not None and change.new_path is None
        hunk_bytes = sum(len(hunk.body) for hunk in self._hunks)
        # About the bytes of memory that the file and its sides take.
        self.weight = 5 * len(content or b"") + 10 * hunk_bytes

    @cached_property
    def new(self) -> Side:
        """The new side: the whole content if it is known, otherwise the lines that the hunks show."""
        if self._content is None:
            return Side(self._hunk_lines(without="deleted"))
        if not self._content:
            return Side([])
        lines = self._content.removesuffix(b"\n").split(b"\n")
        return Side([(SideLine(number, line) for number, line in enumerate(lines, start=1))])

    @property
    def last_line(self) -> int | None:
        """The number of the last line, or None if the content is not known. Only LF ends a line."""
        return len(self.new.lines) if self.is_known else None

    @cached_property
    def sides_with_deletions(self) -> Sequence[Side]:
        """The sides with deleted lines: the old side of the hunks, then both sides in the order of the diff."""
        if not any(hunk.deleted for hunk in self._hunks):
            return ()
        return Side(self._hunk_lines(without="added")), Side(self._hunk_lines())

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

    def _hunk_lines(self, *, without: LineKind | None = None) -> Iterator[list[SideLine]]:
        """Yield the lines of each hunk in the order of the diff.

        A deleted line has the number of the new line after it, or of the last line; in a deleted file, its old number.
        """
        for hunk in self._hunks:
            lines: list[SideLine] = []
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
                    lines.append(SideLine(number, line.text, is_deleted=line.kind == "deleted"))
            yield lines
