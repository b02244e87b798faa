"""The page that text reports are laid out on: its width, its signs and the way from untrusted text to its lines.

A line is a `Text` that holds no newline and is already fitted, so that printing never wraps or crops. That of rich
takes longer to load than most reports take to lay out, so it is used for colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import chain, pairwise, repeat
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from codeloupe.reports import Layout
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import in_ascii, terminal, without_log_commands

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text as RichText

NARROWEST = 20
DIM = "dim"
BOLD = "bold"
_SIGNS_IN_ASCII = {"─": "-", "━": "=", "│": "|", "▸": ">", "·": "-", "✖": "x", "✔": "OK", "…": "..."}
_WORD = regex(r"\s*\S+\s*")
_INLINE_CODE = regex(r"`[^`\n]+`")


def cell_len(text: str) -> int:
    """How many columns of a terminal a text takes; the tables for that are needed for other than plain letters."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich import cells  # noqa: PLC0415 - see above

    return cells.cell_len(text)


def _cut(text: str, columns: int) -> str:
    from rich.cells import set_cell_size  # noqa: PLC0415 - see above

    return set_cell_size(text, columns)


class Text:
    """A text, and the styles of its parts by their first and last character."""

    def __init__(self, plain: str = "", style: str = "") -> None:
        self.plain = plain
        self.spans = [(0, len(plain), style)] if style else []

    @classmethod
    def assemble(cls, *parts: str | tuple[str, str] | Text) -> Text:
        """The parts one after the other, each with its style."""
        made = cls()
        for part in parts:
            text = part if isinstance(part, Text) else cls(part) if isinstance(part, str) else cls(*part)
            before = len(made.plain)
            made.plain += text.plain
            made.spans += [(start + before, end + before, style) for start, end, style in text.spans]
        return made

    @property
    def cell_len(self) -> int:
        """How many cells of a terminal it takes."""
        return cell_len(self.plain)

    def join(self, parts: Iterable[Text]) -> Text:
        """The parts with this text between them."""
        return Text.assemble(*[piece for part in parts for piece in (self, part)][1:])

    def wrap(self, width: int) -> Iterator[Text]:
        """Lines of at most so many cells, broken between words where that is possible; a tab is a space."""
        start = 0
        for row in self.plain.replace("\t", " ").split("\n"):
            for first, end in pairwise((0, *_breaks(row, width), len(row))):
                # What is beyond the width can only be white space, or a wide character in a very narrow place.
                line = self._part(start + first, start + end)
                line.plain = line.plain.replace("\t", " ")
                beyond = min(len(line.plain) - len(line.plain.rstrip()), max(len(line.plain) - width, 0))
                line.plain = line.plain[: len(line.plain) - beyond]
                if line.cell_len > width:
                    line.plain = _cut(line.plain, width)
                yield line
            start += len(row) + 1

    def _part(self, start: int, end: int) -> Text:
        made = Text(self.plain[start:end])
        made.spans = [
            (max(first - start, 0), min(last, end) - start, style)
            for first, last, style in self.spans
            if first < end and last > start
        ]
        return made

    def for_rich(self) -> RichText:
        """The same for rich to print."""
        from rich.text import Text as Made  # noqa: PLC0415 - for colour alone

        made = Made(self.plain)
        for start, end, style in self.spans:
            made.stylize(style, start, end)
        return made


def _breaks(row: str, width: int) -> Iterator[int]:
    """Where a row is to be broken: before a word that has no room any more, and in one that has none on any line."""
    used = 0
    for match in _WORD.finditer(row):
        word, place = match[0], match.start()
        cells = cell_len(word.rstrip())
        if cells <= width - used:
            used += cell_len(word)
        elif cells > width:
            from rich.cells import chop_cells  # noqa: PLC0415 - see above

            *pieces, last = chop_cells(word, width)
            for piece in pieces:
                if place:
                    yield place
                place += len(piece)
            if place:
                yield place
            used = cell_len(last)
        elif used and place:
            yield place
            used = cell_len(word)


class Page(Struct, frozen=True, kw_only=True):
    """How to lay out: `width` in terminal cells, at least NARROWEST; with `ascii_only` nothing outside ASCII."""

    width: int
    color: bool = False
    verbose: bool = False
    ascii_only: bool = False

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
        return in_ascii(shown) if self.ascii_only and not shown.isascii() else shown

    def wrap(self, text: Text, *, indent: int = 0, hang: int = 0, first: Text | None = None) -> list[Text]:
        """Lines of at most the page's width, indented; all but the first hang further in.

        `first`, of exactly `indent` cells, takes the place of the first line's indentation.
        """
        room = max(self.measure - indent - hang, NARROWEST // 2)
        start = first or Text(" " * indent)
        if text.cell_len <= room and "\n" not in text.plain and "\t" not in text.plain:
            return [Text.assemble(start, text)]
        prefixes = chain([start], repeat(Text(" " * (indent + hang))))
        return [Text.assemble(prefix, line) for prefix, line in zip(prefixes, text.wrap(room), strict=False)]

    def item(self, sign: str, style: str, text: Text, *, hang: int = 2) -> list[Text]:
        """An item of a list, wrapped beside its sign."""
        return self.wrap(text, indent=4, hang=hang, first=Text.assemble("  ", (sign, style), " "))

    def row(self, label: str, value: Text) -> list[Text]:
        """A value wrapped beside its label."""
        return self.wrap(value, indent=10, first=Text(f"{label:<10}", style=DIM))

    def cut(self, text: str, cells: int) -> str:
        """The text in at most so many cells, its end replaced by an ellipsis when it is longer."""
        # A cell shows a few code points at most; what is longer need not be measured to be cut.
        bounded = text[: cells * 4 + 1]
        if len(bounded) == len(text) and cell_len(text) <= cells:
            return text
        more = self.sign("…")
        return _cut(bounded, max(cells - cell_len(more), 0)).rstrip() + more

    def badge(self, word: str, style: str) -> Text:
        """A word on a coloured ground; without colour, the word."""
        return Text(f" {word} " if self.color else word, style=style)


def page_of(layout: Layout) -> Page:
    """The page that a layout asks for."""
    width = max(layout.width, NARROWEST)
    return Page(width=width, color=layout.color, verbose=layout.verbose, ascii_only=layout.ascii_only)


def prose(text: str) -> Text:
    """Cleaned prose; what is in backticks is set apart when there is colour."""
    shown = Text(text)
    for match in _INLINE_CODE.finditer(text):
        shown.spans.append((match.start(), match.end(), "cyan"))
    return shown


def console_for(page: Page, *, record: bool = False) -> Console:
    """A console that writes to memory, asks the environment nothing, and knows no markup, emoji or highlighting."""
    # Heavy, and needed for colour alone.
    from rich.console import Console  # noqa: PLC0415 - see above

    return Console(
        file=StringIO(),
        width=page.width,
        color_system="standard" if page.color else None,
        force_terminal=page.color,
        force_jupyter=False,
        no_color=not page.color,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
        record=record,
    )


def print_lines(page: Page, lines: list[Text]) -> str:
    """The lines as one string; without colour there is no escape sequence in it."""
    if not page.color:
        return without_log_commands("".join(f"{line.plain.rstrip()}\n" for line in lines))
    console = console_for(page)
    for line in lines:
        shown = line.for_rich()
        shown.rstrip()
        console.print(shown, soft_wrap=True)
    return without_log_commands(cast("StringIO", console.file).getvalue())
