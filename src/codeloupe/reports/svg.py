"""The text report as an SVG picture: the same lines, drawn; nothing in it is fetched from elsewhere."""

from __future__ import annotations

import re
from html import unescape

from rich.cells import cell_len
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from codeloupe.model.review import Review
from codeloupe.reports.page import Page, console_for
from codeloupe.reports.text import report_lines
from codeloupe.system.untrusted import terminal

_UNIQUE_ID = "codeloupe"
_ASPECT = 0.6
_CELL_PIXELS = 20 * _ASPECT
_TEXT_ELEMENT = re.compile(r'(?P<before><text [^<>]*?)textLength="[^"]*"(?P<after>[^<>]*>)(?P<content>[^<]*)</text>')
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_PICTURE = (
    '<svg class="codeloupe-report" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">\n'
    "<style>\n"
    f".{{unique_id}}-matrix {{{{ font-family: {_FONTS};"
    " font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}\n"
    f".{{unique_id}}-title {{{{ font-family: {_FONTS}; font-size: 16px; }}}}\n"
    "{styles}\n"
    "</style>\n"
    "<defs>\n"
    '<clipPath id="{unique_id}-clip-terminal">'
    '<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>\n'
    "{lines}\n"
    "</defs>\n"
    "{chrome}\n"
    '<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">\n'
    "{backgrounds}\n"
    '<g class="{unique_id}-matrix">{matrix}</g>\n'
    "</g>\n"
    "</svg>\n"
)
_DARK = TerminalTheme(
    (22, 27, 34),
    (230, 237, 243),
    [
        (48, 54, 61),
        (218, 54, 51),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (240, 246, 252),
    ],
)


def svg(review: Review, *, title: str, width: int = 100) -> str:
    """The report as a picture of a terminal `width` cells wide; the same review always gives the same bytes."""
    page = Page(width=width, color=True)
    console = console_for(page, record=True)
    # The blank line at the end keeps the last one off the frame.
    for line in [*report_lines(page, review), Text(" ")]:
        console.print(line, soft_wrap=True)
    picture = console.export_svg(
        title=terminal(title), theme=_DARK, code_format=_PICTURE, unique_id=_UNIQUE_ID, font_aspect_ratio=_ASPECT
    )
    return _TEXT_ELEMENT.sub(_with_true_length, picture)


def _with_true_length(element: re.Match[str]) -> str:
    """rich draws line ends too, and states each character to be one cell long, which squeezes wide ones."""
    if element["content"] == "\n":
        return ""
    cells = cell_len(unescape(element["content"]))
    return f'{element["before"]}textLength="{cells * _CELL_PIXELS:g}"{element["after"]}{element["content"]}</text>'
