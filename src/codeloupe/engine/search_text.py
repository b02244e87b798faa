"""Lines made ready for quotes to be found in them: folded, blank ones left out, joined into one string."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice

from codeloupe.engine.folding import fold

# Folded text holds no white space but single spaces, so no quote reaches over this sign from one run into the next.
BOUNDARY = "\x1c"
_LOOSE_NEWLINE = re.compile(r"\n(?!\w)|(?<!\w)\n")


class SearchText:
    """Runs of lines, each known by its row; rows only grow. A place is a pair of offsets into `text`, start and end.

    In `text` a newline stands before and behind each line. Building it is linear, and its memory about that of the
    lines.
    """

    __slots__ = ("_joined", "_rows", "_starts", "text")

    def __init__(self, runs: Iterable[Iterable[tuple[int, str]]]) -> None:
        self._starts = array("q")
        self._rows = array("q")
        self.text = "\n" + "".join(self._pieces(runs))
        self._joined: str | None = None

    def _pieces(self, runs: Iterable[Iterable[tuple[int, str]]]) -> Iterator[str]:
        offset, row = 1, 0
        for run in runs:
            for row, line in run:
                folded = fold(line)
                if folded:
                    self._starts.append(offset)
                    self._rows.append(row)
                    offset += len(folded) + 1
                    yield folded + "\n"
            # The last row stands for the boundary as well, so that rows only grow.
            self._starts.append(offset)
            self._rows.append(row)
            offset += 2
            yield BOUNDARY + "\n"

    def rows(self, start: int, end: int) -> tuple[int, int]:
        """The first and the last row of a place."""
        return self._row_at(start), self._row_at(max(start, end - 1))

    def _row_at(self, offset: int) -> int:
        return self._rows[bisect_right(self._starts, offset) - 1]

    def stretch(self, first_row: int, last_row: int) -> tuple[int, int]:
        """The place that holds all lines between two rows, with the newlines around them."""
        first = bisect_left(self._rows, first_row)
        last = bisect_right(self._rows, last_row)
        return self._start(first) - 1, self._start(last)

    def around(self, offset: int, *, lines_before: int = 0, lines_after: int = 0) -> tuple[int, int]:
        """The place of the line at an offset, or of so many more before and behind it, without newlines around."""
        index = bisect_right(self._starts, offset) - 1
        return self._start(max(0, index - lines_before)), self._start(index + lines_after + 1) - 1

    def _start(self, index: int) -> int:
        return self._starts[index] if index < len(self._starts) else len(self.text)

    def places_run_together(self, pattern: str, most: int) -> list[tuple[int, int]]:
        """The places of a pattern in the text with its lines run together: a line that was broken is found so."""
        if self._joined is None:
            self._joined = _LOOSE_NEWLINE.sub("", self.text).replace("\n", " ")
        found = list(islice(_all(pattern, self._joined), most))
        if not found:
            return []
        starts = array("q")
        lost = 0
        for start in self._starts:
            lost += _LOOSE_NEWLINE.match(self.text, start - 1) is not None
            starts.append(start - lost)

        def restored(offset: int) -> int:
            index = bisect_right(starts, offset) - 1
            return offset + self._starts[index] - starts[index]

        return [(restored(start), restored(start + len(pattern) - 1) + 1) for start in found]


def _all(pattern: str, text: str) -> Iterator[int]:
    start = text.find(pattern)
    while start >= 0:
        yield start
        start = text.find(pattern, start + 1)
