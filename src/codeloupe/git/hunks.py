"""The rows of a hunk: cutting some of them out as hunks of their own, with the right line numbers.

A row is one line of a hunk's body, with its sign. The first line of a hunk is the line after `old_start` or `new_start`
if the hunk has no lines on that side: git then gives the line before the hunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from codeloupe.model.change import Hunk
from codeloupe.system.regex import regex

# The longest section name that git prints after the numbers of a hunk.
LONGEST_SECTION = 80
# How many rows above a part of a hunk are searched for the name of its section.
_SECTION_ROWS = 2_000
_ROW = regex(rb"[^\n]*\n|[^\n]+")
_DEFINITION = regex(rb"[-+ ][A-Za-z_$]")
_NOT_OLD = (b"+", b"\\")
_NOT_NEW = (b"-", b"\\")


def first_old_line(hunk: Hunk) -> int:
    """Return the number of the old line that the hunk begins at."""
    if hunk.old_lines:
        return hunk.old_start
    return hunk.old_start + 1


def first_new_line(hunk: Hunk) -> int:
    """Return the number of the new line that the hunk begins at."""
    if hunk.new_lines:
        return hunk.new_start
    return hunk.new_start + 1


def stretches_of(hunk: Hunk, stretches: Iterable[tuple[int, int]]) -> Iterator[Hunk]:
    """Yield stretches of a hunk's rows as hunks. The stretches are in order and do not overlap."""
    rows = HunkRows(hunk)
    passed = 0
    for start, end in stretches:
        if (start, end) == (0, len(rows.signs)):
            yield hunk
            return
        # The marker of a missing newline belongs to its row.
        first = start
        if start > passed and rows.signs[start] == b"\\":
            first = start - 1
        passed = end
        if end < len(rows.signs) and rows.signs[end] == b"\\":
            passed = end + 1
        section = rows.section_in(max(0, first - _SECTION_ROWS), first)
        yield rows.part(first, passed, section or hunk.section)


def without_repeated(hunk: Hunk, before: Hunk) -> Hunk | None:
    """Return a hunk without the lines that it shares with the hunk before it, or None if the two contradict each other.

    Two hunks may show the same line only if it is unchanged: at the end of one, at the start of the next, with the same
    text and the same distance between its old and its new number. `git diff --function-context` prints such hunks.
    """
    old_shared = first_old_line(before) + before.old_lines - first_old_line(hunk)
    new_shared = first_new_line(before) + before.new_lines - first_new_line(hunk)
    if old_shared <= 0 and new_shared <= 0:
        return hunk
    if old_shared != new_shared:
        return None
    rows = HunkRows(hunk)
    repeated = _unchanged(rows.rows[:new_shared])
    shown = _unchanged(HunkRows(before).rows[-new_shared:])
    if repeated is None or repeated != shown or len(rows.rows) == new_shared:
        return None
    return rows.part(new_shared, len(rows.rows), hunk.section)


def _unchanged(rows: Sequence[bytes]) -> list[bytes] | None:
    """Return the texts of some rows, or None if one of them is not an unchanged line."""
    texts: list[bytes] = []
    for row in rows:
        if row == b"\n":
            # An empty line that lost its space.
            texts.append(row)
        elif row.startswith(b" "):
            texts.append(row[1:])
        else:
            return None
    return texts


class HunkRows:
    """The rows of a hunk and the signs that they begin with."""

    def __init__(self, hunk: Hunk) -> None:
        self.rows: list[bytes] = _ROW.findall(hunk.body)
        self.signs = [row[:1] for row in self.rows]
        self._old = _numbers(self.signs, first_old_line(hunk), _NOT_OLD)
        self._new = _numbers(self.signs, first_new_line(hunk), _NOT_NEW)

    def section_in(self, start: int, end: int) -> str:
        """Return the last of some rows at the left margin, as git prints it in a hunk's header; empty if none is."""
        for row in reversed(self.rows[start:end]):
            if _DEFINITION.match(row):
                return row[1 : LONGEST_SECTION + 1].decode("utf-8", "replace").rstrip()
        return ""

    def part(self, start: int, end: int, section: str) -> Hunk:
        """Return some rows as a hunk."""
        old_start, old_lines = _extent(self._old, start, end)
        new_start, new_lines = _extent(self._new, start, end)
        signs = self.signs[start:end]
        return Hunk(
            old_start=old_start,
            old_lines=old_lines,
            new_start=new_start,
            new_lines=new_lines,
            body=b"".join(self.rows[start:end]),
            section=section,
            added=signs.count(b"+"),
            deleted=signs.count(b"-"),
        )


def _numbers(signs: Sequence[bytes], first: int, absent: tuple[bytes, ...]) -> list[int]:
    """Return for each row the number of the next line of one side, and that number after the last row."""
    numbers = [first]
    number = first
    for sign in signs:
        if sign not in absent:
            number += 1
        numbers.append(number)
    return numbers


def _extent(numbers: Sequence[int], start: int, end: int) -> tuple[int, int]:
    """Return the start and the number of lines of some rows on one side, as git writes them in a hunk's header."""
    lines = numbers[end] - numbers[start]
    if lines:
        return numbers[start], lines
    return numbers[start] - 1, 0
