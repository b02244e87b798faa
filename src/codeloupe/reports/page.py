"""The page that text reports are laid out on: its width, its signs and the way from untrusted text to its lines.

A line is a rich `Text` that holds no newline and is already fitted, so that printing never wraps or crops.
"""

from __future__ import annotations

from io import StringIO
from itertools import chain, repeat
from typing import TYPE_CHECKING, cast

from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from codeloupe.system.regex import regex
from codeloupe.system.untrusted import in_ascii, terminal, without_log_commands

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 20
DIM = "dim"
BOLD = "bold"
_SIGNS_IN_ASCII = {"─": "-", "━": "=", "│": "|", "▸": ">", "·": "-", "✖": "x", "✔": "OK", "…": "..."}
# rich wants a console to wrap with, and looks at it only to justify, which is not done here. To load what makes one
# takes longer than to lay out a report.
_NO_CONSOLE = cast("Console", None)
_INLINE_CODE = regex(r"`[^`\n]+`")


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
        lines = text.wrap(_NO_CONSOLE, room, tab_size=1)
        return [Text.assemble(prefix, line) for prefix, line in zip(prefixes, lines, strict=False)]

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
        return set_cell_size(bounded, max(cells - cell_len(more), 0)).rstrip() + more

    def badge(self, word: str, style: str) -> Text:
        """A word on a coloured ground; without colour, the word."""
        return Text(f" {word} " if self.color else word, style=style)


def prose(text: str) -> Text:
    """Cleaned prose; what is in backticks is set apart when there is colour."""
    shown = Text(text)
    for match in _INLINE_CODE.finditer(text):
        shown.stylize("cyan", match.start(), match.end())
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
    for line in lines:
        line.rstrip()
    if not page.color:
        return without_log_commands("".join(f"{line.plain}\n" for line in lines))
    console = console_for(page)
    for line in lines:
        console.print(line, soft_wrap=True)
    return without_log_commands(cast("StringIO", console.file).getvalue())
