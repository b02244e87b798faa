"""The reviewed files: read without following any link out of the tree, and each with its lines, numbers and changes."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate

from codeloupe.engine.code_text import fold
from codeloupe.model.change import FileChange, LineKind
from codeloupe.model.ports import ReviewTask
from codeloupe.system.directories import opened_file, opened_folder
from codeloupe.system.regex import regex

_MAX_BYTES = 32 * 1024 * 1024
# Folded text holds no white space but single spaces, so no quote reaches over this sign from one run into the next.
BOUNDARY = "\x1c"
_LOOSE_NEWLINE = regex(r"\n(?!\w)|(?<!\w)\n")


def is_inside(path: str) -> bool:
    """Whether a relative path stays in the tree, is not the repository's own storage, and can name a file at all."""
    is_ordinary = not any(part in ("", ".", "..") or part.lower() == ".git" for part in path.split("/"))
    return is_ordinary and len(path) < 4096 and "\0" not in path


class TextReader:
    """Reads the files of a task as they are after the change, and others of its tree. No path leads out of that."""

    def __init__(self, task: ReviewTask) -> None:
        self._snapshot, self._tree = task.snapshot, task.tree
        self._reviewed = frozenset(file.new_path for file in task.files if file.new_path is not None)
        self._unknown = task.without_content | {file.path for file in task.files if file.new_path is None}

    def read(self, path: str) -> bytes | None:
        """The content of a file, or None when it is not known, no regular file or beyond 32 MB."""
        root = self._snapshot if path in self._reviewed else self._tree
        if root is None or path in self._unknown or not is_inside(path):
            return None
        try:
            with opened_folder(root) as top, opened_file(top, path) as file:
                content = file.read(_MAX_BYTES + 1)
        except (OSError, ValueError):  # not there, a link in its place, or a name that no file can have
            return None
        return content if len(content) <= _MAX_BYTES else None


class Side:
    """Runs of lines, each with its number and whether it was deleted; known by its row, its index in `lines`.

    To find quotes in, they are folded and joined into `text` without blank ones, with a newline around each. A place is
    a pair of offsets into that, start and end.
    """

    def __init__(self, runs: Iterable[Iterable[tuple[int, bytes, bool]]]) -> None:
        self.lines: list[bytes] = []
        self.numbers: list[int] = []
        self._deleted: set[int] = set()
        shown: list[tuple[int, str]] = []
        for run in runs:
            for number, line, is_deleted in run:
                if folded := fold(line.decode("utf-8", "replace")):
                    shown.append((len(self.lines), folded))
                if is_deleted:
                    self._deleted.add(len(self.lines))
                self.lines.append(line)
                self.numbers.append(number)
            shown.append((shown[-1][0] if shown else 0, BOUNDARY))
        self.text = "\n" + "".join(f"{line}\n" for _, line in shown)
        self._rows = array("q", (row for row, _ in shown))
        # One more than there are lines: the last is the end of the text.
        self._starts = array("q", accumulate((len(line) + 1 for _, line in shown), initial=1))

    def row(self, number: int) -> int:
        """The first row with a number, or with the next one that is known."""
        return min(bisect_left(self.numbers, number), max(len(self.numbers) - 1, 0))

    def line(self, number: int) -> bytes | None:
        """The line with a number, where it is known."""
        row = self.row(number)
        return self.lines[row] if self.numbers and self.numbers[row] == number else None

    def has_deleted(self, first: int, last: int) -> bool:
        """Whether a line between two rows was deleted."""
        return bool(self._deleted) and not self._deleted.isdisjoint(range(first, last + 1))

    @cached_property
    def _joined(self) -> str:
        return _LOOSE_NEWLINE.sub("", self.text).replace("\n", " ")

    def rows(self, start: int, end: int) -> tuple[int, int]:
        """The first and the last row of a place."""
        first, last = (bisect_right(self._starts, offset) - 1 for offset in (start, max(start, end - 1)))
        return self._rows[first], self._rows[last]

    def stretch(self, first_row: int, last_row: int) -> tuple[int, int]:
        """The place that holds all lines between two rows, with the newlines around them."""
        first, last = bisect_left(self._rows, first_row), bisect_right(self._rows, last_row)
        return self._starts[first] - 1, self._starts[last]

    def around(self, offset: int, *, lines_before: int = 0, lines_after: int = 0) -> tuple[int, int]:
        """The place of the line at an offset, or of so many more before and after it, without newlines around."""
        index = bisect_right(self._starts, offset) - 1
        last = min(index + lines_after + 1, len(self._rows))
        return self._starts[max(0, index - lines_before)], self._starts[last] - 1

    def places_run_together(self, pattern: str, most: int) -> list[tuple[int, int]]:
        """The places of a pattern in the text with its lines run together: a line that was broken is found so."""
        found: list[int] = []
        start = self._joined.find(pattern)
        while start >= 0 and len(found) < most:
            found.append(start)
            start = self._joined.find(pattern, start + 1)
        if not found:
            return []
        lost = accumulate(_LOOSE_NEWLINE.match(self.text, start - 1) is not None for start in self._starts)
        starts = array("q", (start - gone for start, gone in zip(self._starts, lost, strict=True)))

        def restored(offset: int) -> int:
            index = bisect_right(starts, offset) - 1
            return offset + self._starts[index] - starts[index]

        return [(restored(start), restored(start + len(pattern) - 1) + 1) for start in found]


class ReviewedFile:
    """A file by its content, its change, or both. Everything is made when it is first asked for, and then kept."""

    def __init__(self, path: str, change: FileChange | None, content: bytes | None) -> None:
        self.path, self.is_known = path, content is not None
        self._change, self._content = change, content
        self._hunks = change.hunks if change is not None else ()
        # About how many bytes it takes to keep it ready.
        self.weight = 5 * len(content or b"") + sum(10 * len(hunk.body) for hunk in self._hunks)
        # The new lines that each hunk shows, by the first and last number; the place of a deletion is among them.
        self.shown = [
            (max(one.new_start, 1), one.new_start + (one.new_lines - 1 if one.new_lines else 1)) for one in self._hunks
        ]

    @cached_property
    def new(self) -> Side:
        """The new side: the whole content when it is known, else what the hunks show of it."""
        if self._content is None:
            return Side(self._rows(without="deleted"))
        lines = self._content.removesuffix(b"\n").split(b"\n") if self._content else []
        return Side([((number, line, False) for number, line in enumerate(lines, start=1))])

    @property
    def last_line(self) -> int | None:
        """The number of the last line, where the whole content is known. Only LF ends a line."""
        return None if self._content is None else len(self.new.lines)

    @cached_property
    def sides_with_deletions(self) -> Sequence[Side]:
        """Where deleted lines are: the old side as far as hunks show it, then both sides in the order of the diff."""
        has_some = any(hunk.deleted for hunk in self._hunks)
        return (Side(self._rows(without="added")), Side(self._rows())) if has_some else ()

    @cached_property
    def added(self) -> list[tuple[int, int]]:
        """Runs of added lines by their first and last number, in order."""
        runs: list[tuple[int, int]] = []
        for number in (line.new_number for hunk in self._hunks for line in hunk.lines() if line.kind == "added"):
            if number is not None:
                first = runs.pop()[0] if runs and runs[-1][1] == number - 1 else number
                runs.append((first, number))
        return runs

    def _rows(self, *, without: LineKind | None = None) -> Iterator[list[tuple[int, bytes, bool]]]:
        """The lines of each hunk in the order of the diff; those of a file that is gone have their old numbers."""
        is_gone = self._change is not None and self._change.new_path is None
        for hunk in self._hunks:
            rows: list[tuple[int, bytes, bool]] = []
            following = hunk.new_start if hunk.new_lines else hunk.new_start + 1
            last = max(following + hunk.new_lines - 1, hunk.new_start, 1)
            for line in hunk.lines():
                number = line.old_number or 1 if is_gone else min(following, last)
                if line.new_number is not None:
                    number, following = line.new_number, line.new_number + 1
                if line.kind != without:
                    rows.append((number, line.text, line.kind == "deleted"))
            yield rows
