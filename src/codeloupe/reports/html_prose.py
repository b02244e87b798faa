"""A reviewer's prose as HTML: paragraphs, lists, code. Nothing else of its Markdown is followed, links least of all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

from codeloupe.reports.html_markup import Child, Html, element, joined

_LONGEST = 20_000
_MOST_ROWS = 1_000
_INLINE = re.compile(r"``(?P<double>[^\n]{1,2000}?)``|`(?P<code>[^`\n]{1,2000})`|\*\*(?P<strong>[^*\n]{1,500})\*\*")
_ITEM = re.compile(r"[ ]{0,8}(?:[-*+]|[0-9]{1,3}[.)])[ ]{1,4}(?=\S)")


def prose(words: str) -> Html | None:
    """The text as blocks; None for a blank one. Of an endless text only the beginning, and the cut is said."""
    cut = len(words) > _LONGEST
    rows = words[:_LONGEST].replace("\r\n", "\n").expandtabs(4).strip("\n").rstrip().split("\n")
    if not any(row.strip() for row in rows):
        return None
    blocks = list(_blocks(rows[:_MOST_ROWS]))
    if cut or len(rows) > _MOST_ROWS:
        blocks.append(element("p", "… cut here; the JSON report has it whole", class_="note"))
    return joined(blocks)


def inline(words: str) -> Html:
    """One run of text, with its code and emphasis."""
    pieces: list[Child] = []
    at = 0
    for match in _INLINE.finditer(words):
        strong = match["strong"]
        code = (match["code"] or match["double"] or "").strip()
        pieces += [words[at : match.start()], element("strong", strong) if strong else element("code", code)]
        at = match.end()
    return joined([*pieces, words[at:]])


def _blocks(rows: list[str]) -> Iterator[Html]:
    index = 0
    while index < len(rows):
        fence = _fence(rows[index])
        if fence:
            end = next((at for at in range(index + 1, len(rows)) if rows[at].strip() == fence), len(rows))
            yield element("pre", dedent("\n".join(rows[index + 1 : end])))
            index = end + 1
            continue
        end = next((at for at in range(index, len(rows)) if not rows[at].strip() or _fence(rows[at])), len(rows))
        if end > index:
            yield from _paragraphs(rows[index:end])
        index = end + (end < len(rows) and not _fence(rows[end]))


def _paragraphs(rows: list[str]) -> Iterator[Html]:
    """Rows without a blank one among them: items become a list, with the rows that continue them."""
    plain: list[str] = []
    items: list[str] = []
    for row in rows:
        item = _ITEM.match(row)
        if item:
            if plain:
                yield _paragraph(plain)
                plain = []
            items.append(row[item.end() :])
        elif items:
            items[-1] += f"\n{row.strip()}"
        else:
            plain.append(row)
    if plain:
        yield _paragraph(plain)
    if items:
        yield element("ul", joined(element("li", inline(item)) for item in items))


def _paragraph(rows: list[str]) -> Html:
    return element("p", inline("\n".join(rows)))


def _fence(row: str) -> str:
    mark = row.strip()
    for character in "`~":
        length = len(mark) - len(mark.lstrip(character))
        if length >= 3 and character not in mark[length:]:
            return mark[:length]
    return ""
