"""The quoted code of a finding, with line numbers in a gutter."""

from __future__ import annotations

from rich.text import Text

from codeloupe.reports.page import DIM, Page

_TAB_CELLS = 4
_LINES_SHOWN = 6
_LINES_SHOWN_VERBOSE = 40
_LONGEST_LINE = 4_000


def source_lines(page: Page, evidence: str, *, first_line: int | None, style: str, indent: int) -> list[Text]:
    """The quote line by line: common indentation removed, cut to the page, a marker at the first line.

    `style` colours the marker and the gutter. `first_line` is None for a quote that has no place in the file.

    An empty quote gives no lines; what is left out is counted in a last line.
    """
    rows = evidence.rstrip("\n").split("\n") if evidence.strip() else []
    shown = rows[: _LINES_SHOWN_VERBOSE if page.verbose else _LINES_SHOWN]
    numbers = ["?" if first_line is None else str(first_line + offset) for offset in range(len(shown))]
    digits = max(map(len, numbers), default=1)
    room = max(page.width - indent - digits - 5, 8)
    lines: list[Text] = []
    for number, row in zip(numbers, _dedented([_expanded(row) for row in shown]), strict=True):
        sign = " " if lines else page.signs.marker
        line = Text(" " * indent)
        line.append(f"{sign} ", style=style)
        line.append(f"{number:>{digits}} ", style=DIM)
        line.append(f"{page.signs.gutter} ", style=style)
        line.append(page.cut(page.clean(row), room))
        lines.append(line)
    if len(rows) > len(shown):
        rest = len(rows) - len(shown)
        what = f"{page.signs.more} {rest:,} more {'line' if rest == 1 else 'lines'}"
        lines.append(Text(" " * (indent + digits + 3) + what, style=DIM))
    return lines


def code_lines(page: Page, code: str, *, sign: str, style: str, indent: int) -> list[Text]:
    """Code line by line behind a sign, its indentation kept but for what all lines share; cut to the page."""
    rows = code.strip("\n").rstrip().split("\n")
    shown = rows[:_LINES_SHOWN_VERBOSE]
    room = max(page.width - indent - len(sign) - 1, 8)
    lines = [
        Text.assemble(" " * indent, (f"{sign} {page.cut(page.clean(row), room)}".rstrip(), style))
        for row in _dedented([_expanded(row) for row in shown])
    ]
    if len(rows) > len(shown):
        lines.append(Text(f"{' ' * indent}{page.signs.more} {len(rows) - len(shown):,} more lines", style=DIM))
    return lines


def _expanded(row: str) -> str:
    """The row without its line end, tabs as spaces; of an endless row, only what a page could ever show."""
    return row[:_LONGEST_LINE].rstrip("\r").expandtabs(_TAB_CELLS)


def _dedented(rows: list[str]) -> list[str]:
    indents = [len(row) - len(row.lstrip(" ")) for row in rows if row.strip(" ")]
    common = min(indents, default=0)
    return [row[common:] for row in rows]
