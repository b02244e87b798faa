"""What may reach a Markdown page or a comment: text that formats itself, and does nothing else.

Paragraphs, lists, emphasis and code stay. Images, links, HTML, references, footnotes and headings are shown as the
text that they are; `@names` and `#numbers` that would call or link somebody are set as code, as are all addresses.
The forge's own commands (`/close` at the start of a line) are broken. Code is set anew with fences of ours. Each
line is treated by itself and a code span ends within it, so no construct can reach over what stands around it.
Everything here is linear in the length of the text.
"""

from __future__ import annotations

import re
from functools import cache

from codeloupe.system.sanitise import terminal

_CUT = "…"
_SHORTEST_FENCE = 3
_MOST_ROWS = 400
_DEEPEST_INDENT = 3
_BACKTICKS = r"`+"
# What becomes code: addresses, then names and numbers that forges turn into links and notices.
_ACTIVE = (
    r"[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s`<>]{1,2000}"
    r"|(?:www\.|mailto:|xmpp:)[^\s`<>]{1,2000}"
    r"|[A-Za-z0-9._%+-]{0,100}@[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}"
    r"|[#!][0-9]{1,12}"
    r"|(?<![A-Za-z0-9])GH-[0-9]{1,12}"
)
_REFERENCES = r"(?:GH-[0-9]{1,12})+"
_SPECIAL = r"[\\`\[\]$|~#_]"
# An underline that makes a heading or a table of the row above, a rule, a command of the forge.
_LINE_START = r"([ 0-9.)]*+)[-*=:](?=[-*=: ]*\Z)|([ ]*+)(?:/(?=[A-Za-z])|:)"


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def markdown_line(text: str, *, longest: int) -> str:
    """One line of Markdown that shows the text, code spans kept; of a long text, the beginning."""
    shown = terminal(" ".join(_capped(text, longest).split()))
    return _line(shown)


def markdown_cell(text: str, *, longest: int) -> str:
    """As `markdown_line`, for a cell of a table: there, even inside code, a bar would end it."""
    return markdown_line(text, longest=longest).replace("\\|", "|").replace("|", "\\|")


def markdown_prose(text: str, *, longest: int) -> str:
    """Paragraphs of Markdown that show the text, code blocks kept; of a long text, the beginning."""
    rows = terminal(_capped(text, longest).strip("\n").rstrip(), keep_newlines=True).split("\n")
    pieces: list[str] = []
    index = 0
    while index < len(rows) and len(pieces) < _MOST_ROWS:
        fence = _opening_fence(rows[index])
        if fence:
            end = _closing(rows, index + 1, fence)
            pieces.append(markdown_code("\n".join(rows[index + 1 : end])))
            index = end + 1
        else:
            pieces.append(_line(rows[index]))
            index += 1
    return "\n".join([*pieces, *([_CUT] if index < len(rows) else [])])


def markdown_code(code: str, *, language: str = "") -> str:
    """A block of code, with a fence that is longer than any inside. `language` must come from us."""
    shown = "\n".join(terminal(row.expandtabs(4)) for row in code.split("\n"))
    runs = _pattern(_BACKTICKS).findall(shown)
    fence = "`" * max(_SHORTEST_FENCE, max(map(len, runs), default=0) + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def code_span(text: str) -> str:
    """Inline code that shows the text as it is; nothing for an empty one."""
    shown = terminal(text)
    if not shown.strip():
        return ""
    runs = {len(run) for run in _pattern(_BACKTICKS).findall(shown)}
    fence = "`" * next(length for length in range(1, len(runs) + 2) if length not in runs)
    # A backtick at an edge would lengthen the fence; one space on both sides is not shown.
    padding = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{padding}{shown}{padding}{fence}"


def _capped(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + _CUT


def _opening_fence(row: str) -> str:
    mark = row.strip()
    for character in "`~":
        length = len(mark) - len(mark.lstrip(character))
        if length >= _SHORTEST_FENCE and not (character == "`" and "`" in mark[length:]):
            return mark[:length]
    return ""


def _closing(rows: list[str], start: int, fence: str) -> int:
    """The row that closes a fence, or the end of all rows: an open block runs to the end."""
    for index in range(start, len(rows)):
        mark = rows[index].strip()
        if len(mark) >= len(fence) and not mark.strip(fence[0]):
            return index
    return len(rows)


def _line(row: str) -> str:
    """One row: its code spans as code, all else as text that cannot act."""
    text = row.lstrip(" ")
    # Deeper rows would be code to Markdown, and show what is escaped here.
    indent = min(len(row) - len(text), _DEEPEST_INDENT)
    shown = " " * indent + _joined(_spans(text.rstrip()))
    start = _pattern(_LINE_START).match(shown)
    return f"{shown[: start.end() - 1]}\\{shown[start.end() - 1 :]}" if start else shown


def _spans(row: str) -> list[str]:
    runs = [(match.start(), match.end()) for match in _pattern(_BACKTICKS).finditer(row)]
    following: dict[int, list[int]] = {}
    for position in range(len(runs) - 1, -1, -1):
        following.setdefault(runs[position][1] - runs[position][0], []).append(position)
    shown: list[str] = []
    at = position = 0
    while position < len(runs):
        start, end = runs[position]
        later = following[end - start]
        while later and later[-1] <= position:
            later.pop()
        if later:
            close = later.pop()
            shown += [_text(row[at:start]), code_span(row[end : runs[close][0]].strip() or " ")]
            at, position = runs[close][1], close + 1
        else:
            shown += [_text(row[at:start]), "\\`" * (end - start)]
            at, position = end, position + 1
    return [*shown, _text(row[at:])]


def _text(text: str) -> str:
    shown: list[str] = []
    at = 0
    for match in _pattern(_ACTIVE).finditer(text):
        active = match[0].rstrip(".,;:!?)'\"")
        shown += [*_between(text[at : match.start()]), code_span(active)]
        at = match.start() + len(active)
    return _joined([*shown, *_between(text[at:])])


def _between(text: str) -> tuple[str, str]:
    """The text between what became code. A `GH-3` that was the end of a word is one by itself behind code."""
    start = _pattern(_REFERENCES).match(text)
    return (code_span(start[0]), _escaped(text[start.end() :])) if start else ("", _escaped(text))


def _joined(pieces: list[str]) -> str:
    """The pieces one after the other. Two code spans that touch would be read as one, or as none."""
    shown: list[str] = []
    for piece in filter(None, pieces):
        touching = shown and shown[-1][-1] == "`" and piece[0] == "`"
        shown += [" ", piece] if touching else [piece]
    return "".join(shown)


def _escaped(text: str) -> str:
    text = _pattern(_SPECIAL).sub(r"\\\g<0>", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
