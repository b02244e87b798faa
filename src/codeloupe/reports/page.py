"""The page that text is laid out on: its width, its signs, its tables, and the way from untrusted text to its lines.

A line is a `Text` that holds no newline and is already fitted, so that printing never wraps or crops.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import Union

from msgspec.structs import asdict

from codeloupe.reports import Layout
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import encodable, terminal, without_log_commands

# A text, and its style: some words of `_CODES`.
Piece = tuple[str, str]
Part = Union[str, Piece, "Text"]

NARROWEST = 20
DIM = "dim"
BOLD = "bold"
_CODES = {"bold": "1", "dim": "2", "reverse": "7", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_CODES["bright_blue"] = "94"
_SIGNS_IN_ASCII = dict(zip("─━│▸·✖✔…→", ("-", "=", "|", ">", "-", "x", "OK", "...", "->"), strict=True))
_WORD = regex(r"\s*\S+\s*")
_INLINE_CODE = regex(r"(`[^`\n]+`)")


def cells(text: str) -> int:
    """How many cells of a terminal a clean text takes."""
    return len(text) if text.isascii() else sum(map(_character_cells, text))


def _character_cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _fitting(text: str, room: int) -> int:
    """How many characters at the beginning of a text have room in so many cells."""
    for index, character in enumerate(text):
        room -= _character_cells(character)
        if room < 0:
            return index
    return len(text)


class Text:
    """A text in pieces, each with its style."""

    def __init__(self, *parts: Part) -> None:
        self.pieces: list[Piece] = []
        for part in parts:
            self.pieces += part.pieces if isinstance(part, Text) else [(part, "") if isinstance(part, str) else part]

    @cached_property
    def plain(self) -> str:
        """The text without its styles."""
        return "".join(text for text, _ in self.pieces)

    def join(self, parts: Iterable[Text]) -> Text:
        """The parts with this text between them."""
        return Text(*[piece for part in parts for piece in (self, part)][1:])

    def part(self, start: int, end: int) -> Text:
        """The characters from one place to another."""
        pieces, at = list[Piece](), 0
        for text, style in self.pieces:
            pieces.append((text[max(start - at, 0) : max(end - at, 0)], style))
            at += len(text)
        return Text(*pieces)

    def wrap(self, width: int) -> Iterator[Text]:
        """Lines of at most so many cells, broken between words where that is possible."""
        start = 0
        for row in self.plain.split("\n"):
            for first, end in pairwise((0, *_breaks(row, width), len(row))):
                # What is beyond the width is white space.
                shown = max(len(row[first:end].rstrip()), min(end - first, width))
                yield self.part(start + first, start + first + shown)
            start += len(row) + 1


def _breaks(row: str, width: int) -> Iterator[int]:
    """Where a row is to be broken: before a word that has no room any more, and in one that has none on any line."""
    used = 0
    for match in _WORD.finditer(row):
        word, place = match[0], match.start()
        if cells(word.rstrip()) > width - used:
            if place:
                yield place
            used = 0
        while cells(word.rstrip()) > width:
            length = _fitting(word, width) or 1
            word, place = word[length:], place + length
            yield place
        used += cells(word)


class Page(Layout, frozen=True, kw_only=True):
    """A layout that text is put on: `width` in terminal cells; with `ascii_only` nothing outside ASCII."""

    @property
    def measure(self) -> int:
        """How wide prose and rules run: lines that are longer are hard to read; only code uses the whole width."""
        return min(self.width, 100)

    def sign(self, sign: str) -> str:
        """The sign as this page can show it."""
        return _SIGNS_IN_ASCII[sign] if self.ascii_only else sign

    def clean(self, text: str, *, keep_newlines: bool = False, longest: int = 5_000) -> str:
        """Untrusted text, made safe and showable on this page; of an endless one, the beginning and an ellipsis."""
        cut = self.sign("…") if len(text) > longest else ""
        shown = terminal(text[:longest], keep_newlines=keep_newlines) + cut
        return encodable(shown) if self.ascii_only and not shown.isascii() else shown

    def line(self, text: str) -> str:
        """The beginning of an untrusted text as one line; a newline is a space."""
        return self.clean(text[:2_000].replace("\n", " "))

    def wrap(self, part: Part, *, indent: int = 0, hang: int = 0, first: Text | None = None) -> list[Text]:
        """Lines of at most the page's width, indented; all but the first hang further in.

        `first`, of exactly `indent` cells, takes the place of the first line's indentation.
        """
        room = max(self.measure - indent - hang, NARROWEST // 2)
        text, start = Text(part), first or Text(" " * indent)
        if cells(text.plain) <= room and "\n" not in text.plain:
            return [Text(start, text)]
        prefixes = chain([start], repeat(Text(" " * (indent + hang))))
        return [Text(prefix, line) for prefix, line in zip(prefixes, text.wrap(room), strict=False)]

    def item(self, sign: str, style: str, text: Part, *, hang: int = 2) -> list[Text]:
        """An item of a list, wrapped beside its sign."""
        return self.wrap(text, indent=4, hang=hang, first=Text("  ", (sign, style), " "))

    def rows(self, values: Mapping[str, Part]) -> Iterator[Text]:
        """Values wrapped beside their labels; those that are empty are left out."""
        for label, value in values.items():
            if (text := Text(value)).plain:
                yield from self.wrap(text, indent=10, first=Text((f"{label:<10}", DIM)))

    def cut(self, text: str, room: int) -> str:
        """The text in at most so many cells, its end replaced by an ellipsis when it is longer."""
        # A cell shows a few code points at most; what is longer need not be measured to be cut.
        bounded = text[: max(room, 0) * 4 + 1]
        if len(bounded) == len(text) and cells(text) <= room:
            return text
        more = self.sign("…")
        return bounded[: _fitting(bounded, max(room - len(more), 0))].rstrip() + more

    def cut_line(self, line: Text, room: int) -> Text:
        """As `cut`, with its styles."""
        if cells(line.plain) <= room:
            return line
        more = self.sign("…")
        return Text(line.part(0, _fitting(line.plain, max(room - len(more), 0))), more)

    def badge(self, word: str, style: str) -> Text:
        """A word on a coloured ground; without colour, the word."""
        return Text((f" {word} " if self.color else word, style))

    def table(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[str | Piece]],
        *,
        right: str = "",
        shrinks: str = "",
        drops: str = "",
    ) -> list[Text]:
        """A heading and a line for each row; `right` names the columns of numbers.

        Of a table that is too wide, the column that `shrinks` is cut; then those that `drops` names go, in its order.
        """
        heading = [(title, DIM) for title in titles]
        cleaned = ([each if isinstance(each, tuple) else (each, "") for each in row] for row in rows)
        shown = dict(zip(titles, zip(heading, *cleaned, strict=True), strict=True))
        widths: dict[str, int] = {}
        for gone in ("", *drops.split()):
            shown.pop(gone, None)
            widths = {title: max(cells(text) for text, _ in column) for title, column in shown.items()}
            excess = sum(widths.values()) + 2 * (len(widths) - 1) - self.width
            if shrinks and excess > 0:
                before, widths[shrinks] = widths[shrinks], max(widths[shrinks] - excess, cells(shrinks), 8)
                excess += widths[shrinks] - before
            if excess <= 0:
                break
        lines = []
        for row in zip(*shown.values(), strict=True):
            parts = []
            for (text, style), (title, width) in zip(row, widths.items(), strict=True):
                fitted = self.cut(text, width)
                room = " " * (width - cells(fitted))
                parts.append(Text(room, (fitted, style)) if title in right.split() else Text((fitted, style), room))
            lines.append(Text("  ").join(parts))
        return lines

    def printed(self, lines: Iterable[Text | str]) -> str:
        """The lines as one string in which nothing is a command to a CI system; without colour no escape sequence."""
        whole = []
        for line in map(Text, lines):
            for text, style in line.part(0, len(line.plain.rstrip())).pieces:
                codes = ";".join(_CODES[word] for word in style.split())
                whole.append(f"\x1b[{codes}m{text}\x1b[0m" if self.color and codes and text else text)
            whole.append("\n")
        return without_log_commands("".join(whole))


def page_of(layout: Layout) -> Page:
    """The page that a layout asks for, no narrower than NARROWEST."""
    return Page(**{**asdict(layout), "width": max(layout.width, NARROWEST)})


def prose(text: str) -> Text:
    """Cleaned prose; what is in backticks is set apart when there is colour."""
    return Text(*((part, "cyan" if at % 2 else "") for at, part in enumerate(_INLINE_CODE.split(text))))
