"""Tables of plain text, for lists that must be there at once: without the library that lays out whole reports."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from codeloupe.system.untrusted import in_ascii, terminal, without_log_commands

_STYLES = {"bold": "1", "dim": "2", "red": "1;31", "yellow": "1;33", "green": "1;32", "blue": "1;94", "cyan": "36"}
_GAP = 2


class Cell(NamedTuple):
    """One cell: text that is clean already, and its style."""

    text: str
    style: str = ""


class Column(NamedTuple):
    """One column.

    Of a table that is too wide, the one that `shrinks` is cut; then those with `drops` go, in their order.
    """

    title: str
    right: bool = False
    shrinks: bool = False
    drops: bool = False


def columns(titles: str, *, right: str = "", shrinks: str = "", drops: str = "") -> list[Column]:
    """Columns by their titles between spaces; the other words name those with a property."""
    marked = (right.split(), shrinks.split(), drops.split())
    return [Column(title, *(title in names for names in marked)) for title in titles.split()]


class Sheet(Struct, frozen=True, kw_only=True):
    """How to lay out: `width` in terminal cells; with `ascii_only` nothing outside ASCII."""

    width: int
    color: bool = False
    ascii_only: bool = False

    def clean(self, text: str) -> str:
        """Untrusted text as one line that is safe and can be shown here."""
        shown = terminal(text[:2_000].replace("\n", " "))
        return in_ascii(shown) if self.ascii_only and not shown.isascii() else shown

    def paint(self, text: str, style: str) -> str:
        """The text in a style, where there is colour."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.color and style and text else text

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[str]:
        """A heading and a line for each row, within the width as far as columns can shrink or be left out."""
        for column in [column for column in columns if column.drops]:
            widths = self._widths(columns, rows)
            if sum(widths) + _GAP * (len(widths) - 1) <= self.width:
                break
            index = columns.index(column)
            columns = [*columns[:index], *columns[index + 1 :]]
            rows = [[*row[:index], *row[index + 1 :]] for row in rows]
        widths = self._widths(columns, rows)
        lines = []
        for row in ([Cell(column.title, "dim") for column in columns], *rows):
            parts = []
            for column, cell, width in zip(columns, row, widths, strict=True):
                text = self.cut(cell.text, width)
                room = " " * (width - cells(text))
                painted = self.paint(text, cell.style)
                parts.append(room + painted if column.right else painted + room)
            lines.append((" " * _GAP).join(parts).rstrip())
        return lines

    def _widths(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[int]:
        widths = [
            max([cells(column.title), *(cells(row[index].text) for row in rows)])
            for index, column in enumerate(columns)
        ]
        excess = sum(widths) + _GAP * (len(widths) - 1) - self.width
        for index, column in enumerate(columns):
            if column.shrinks and excess > 0:
                widths[index] = max(widths[index] - excess, cells(column.title), 8)
        return widths

    def cut(self, text: str, width: int) -> str:
        """The text in at most so many cells, its end replaced by an ellipsis when it is longer."""
        if cells(text) <= width:
            return text
        more = "..." if self.ascii_only else "…"
        room = width - len(more)
        for index, character in enumerate(text):
            room -= _character_cells(character)
            if room < 0:
                return text[:index].rstrip() + more
        return text


def finished(lines: Sequence[str]) -> str:
    """The lines as one text in which nothing is a command to a CI system."""
    return without_log_commands("".join(f"{line.rstrip()}\n" for line in lines))


def cells(text: str) -> int:
    """How many cells a clean text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_character_cells, text))


def _character_cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
