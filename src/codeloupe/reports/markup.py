"""HTML that cannot be broken out of: the parts in `assets/parts.html`, filled with text that is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from itertools import groupby
from textwrap import dedent

from msgspec import Struct

from codeloupe.reports import asset
from codeloupe.reports.replacement import blocks_of
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import terminal

_OPTIONAL = regex(r"\{\{\?(\w+)\}\}(.*?)\{\{/\1\}\}")
_PLACE = regex(r'(=")?\{\{(\w+)\}\}')
_LONGEST = 20_000
_MOST_ROWS = 1_000
_INLINE = regex(r"``(?P<double>[^\n]{1,2000}?)``|`(?P<code>[^`\n]{1,2000})`|\*\*(?P<strong>[^*\n]{1,500})\*\*")
_ITEM = regex(r"[ ]{0,8}(?:[-*+]|[0-9]{1,3}[.)])[ ]{1,4}(?=\S)")


class Html(Struct, frozen=True):
    """Markup that may be put on a page as it is."""

    text: str


Child = Html | str | int | None


def joined(children: Iterable[Child], between: str = "") -> Html:
    """Several pieces as one; None is left out. In text, what acts or hides is shown escaped, and nothing is markup."""
    return Html(escape(between).join(_shown(child) for child in children if child is not None))


def _shown(child: Child, *, in_attribute: bool = False) -> str:
    if isinstance(child, Html):
        return child.text
    return "" if child is None else escape(terminal(str(child), keep_newlines=not in_attribute))


@cache
def _parts() -> dict[str, str]:
    named = (part.split("\n") for part in f"{asset('parts.html')}== page\n{asset('report.html')}".split("== ")[1:])
    return {name: "".join(map(str.strip, lines)) for name, *lines in named}


def fill(name: str, /, **children: Child) -> Html:
    """A part with its places `{{x}}` filled, as far as given; `{{?x}}…{{/x}}` is left out without an x."""
    part = _OPTIONAL.sub(lambda match: match[2] if _shown(children.get(match[1])) else "", _parts()[name])

    def filled(place: re.Match[str]) -> str:
        return (place[1] or "") + _shown(children.get(place[2]), in_attribute=bool(place[1]))

    # In one pass, so that nothing in a child can name another.
    return Html(_PLACE.sub(filled, part))


def prose(words: str) -> Html | None:
    """The text as blocks; None for a blank one. Of an endless text only the beginning, and the cut is said."""
    rows = words[:_LONGEST].replace("\r\n", "\n").expandtabs(4).strip("\n").rstrip().split("\n")
    if not any(row.strip() for row in rows):
        return None
    blocks: list[Html] = []
    for part, is_code in blocks_of(rows[:_MOST_ROWS]):
        if is_code:
            blocks.append(fill("pre", text=dedent("\n".join(part))))
        else:
            groups = groupby(part, key=lambda row: bool(row.strip()))
            blocks += [block for is_text, group in groups if is_text for block in _paragraphs(list(group))]
    if len(words) > _LONGEST or len(rows) > _MOST_ROWS:
        blocks.append(fill("cut"))
    return joined(blocks)


def inline(words: str) -> Html:
    """One run of text, with its code and emphasis."""
    pieces: list[Child] = []
    at = 0
    for match in _INLINE.finditer(words):
        strong = match["strong"]
        code = (match["code"] or match["double"] or "").strip()
        pieces += [words[at : match.start()], fill("strong", text=strong) if strong else fill("inline", text=code)]
        at = match.end()
    return joined([*pieces, words[at:]])


def _paragraphs(rows: list[str]) -> Iterator[Html]:
    """Rows without a blank one among them: items become a list, with the rows that continue them."""
    first = next((at for at, row in enumerate(rows) if _ITEM.match(row)), len(rows))
    if first:
        yield fill("p", text=inline("\n".join(rows[:first])))
    items: list[str] = []
    for row in rows[first:]:
        if item := _ITEM.match(row):
            items.append(row[item.end() :])
        else:
            items[-1] += f"\n{row.strip()}"
    if items:
        yield fill("ul", items=joined(fill("li", text=inline(item)) for item in items))
