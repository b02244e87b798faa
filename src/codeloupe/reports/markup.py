"""Documents of markup that cannot be broken out of: templates in `assets`, filled with text that is escaped here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from html import escape
from itertools import groupby
from textwrap import dedent
from typing import Any

from codeloupe.reports import asset
from codeloupe.reports.replacement import ITEM, blocks_of
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import terminal

_PLACE = regex(r'\{\{\?(\w+)\}\}(.*?)\{\{/\1\}\}|(=")?\{\{(\w+)\}\}', re.DOTALL)
_LONGEST = 20_000
_MOST_ROWS = 1_000
_INLINE = regex(r"``(?P<double>[^\n]{1,2000}?)``|`(?P<code>[^`\n]{1,2000})`|\*\*(?P<strong>[^*\n]{1,500})\*\*")


class Markup(str):
    """Markup that may be put into a document as it is."""

    __slots__ = ()


def filled(template: str, values: Mapping[str, Any], clean: Callable[[str], str]) -> str:
    """A template with its places `{{x}}` filled, as far as given.

    `{{?x}}…{{/x}}` is left out without an x; for a list of mappings, it is there for each, with its values alone.
    """

    def shown(place: re.Match[str]) -> str:
        if place[4]:
            value, attribute = values.get(place[4], ""), place[3] or ""
            if isinstance(value, Markup) or value is None:
                return f"{attribute}{value or ''}"
            text = escape(clean(str(value).lower() if isinstance(value, bool) else str(value)))
            # A line end in an attribute would be read as a space.
            return attribute + text.replace("\n", "\\x0a") if attribute else text
        value = values.get(place[1], "")
        if isinstance(value, list):
            return "".join(filled(place[2], each, clean) for each in value)
        return "" if value in ("", None) else filled(place[2], values, clean)

    # In one pass, so that nothing in a value can name another.
    return _PLACE.sub(shown, template)


def joined(children: Iterable[str], between: str = "") -> Markup:
    """Several pieces of a page as one. In text, what acts or hides is shown escaped, and nothing is markup."""
    return Markup(between.join(child if isinstance(child, Markup) else escape(_clean(child)) for child in children))


def element(name: str, *children: str) -> Markup:
    """An element of a page, with what is in it."""
    return Markup(f"<{name}>{joined(children)}</{name.partition(' ')[0]}>")


def _clean(text: str) -> str:
    return terminal(text, keep_newlines=True)


@cache
def _parts() -> dict[str, str]:
    named = (part.split("\n") for part in f"{asset('parts.html')}== page\n{asset('report.html')}".split("== ")[1:])
    return {name: "".join(map(str.strip, lines)) for name, *lines in named}


def fill(name: str, /, **values: Any) -> Markup:
    """A part of a page, filled."""
    return Markup(filled(_parts()[name], values, _clean))


def prose(words: str) -> Markup:
    """The text as blocks; empty for a blank one. Of an endless text only the beginning, and the cut is said."""
    rows = words[:_LONGEST].replace("\r\n", "\n").expandtabs(4).strip("\n").rstrip().split("\n")
    if not any(row.strip() for row in rows):
        return Markup()
    blocks: list[Markup] = []
    for part, is_code in blocks_of(rows[:_MOST_ROWS]):
        if is_code:
            blocks.append(element("pre", dedent("\n".join(part))))
        else:
            groups = groupby(part, key=lambda row: bool(row.strip()))
            blocks += [block for is_text, group in groups if is_text for block in _paragraphs(list(group))]
    if len(words) > _LONGEST or len(rows) > _MOST_ROWS:
        blocks.append(element('p class="note"', "… cut here; the JSON report has it whole"))
    return joined(blocks)


def inline(words: str) -> Markup:
    """One run of text, with its code and emphasis."""
    pieces: list[str] = []
    at = 0
    for match in _INLINE.finditer(words):
        code = (match["code"] or match["double"] or "").strip()
        pieces += [words[at : match.start()]]
        pieces += [element("strong", match["strong"]) if match["strong"] else element("code", code)]
        at = match.end()
    return joined([*pieces, words[at:]])


def _paragraphs(rows: list[str]) -> Iterator[Markup]:
    """Rows without a blank one among them: items become a list, with the rows that continue them."""
    first = next((at for at, row in enumerate(rows) if ITEM.match(row)), len(rows))
    if first:
        yield element("p", inline("\n".join(rows[:first])))
    items: list[str] = []
    for row in rows[first:]:
        if item := ITEM.match(row):
            items.append(row[item.end() :])
        else:
            items[-1] += f"\n{row.strip()}"
    if items:
        yield element("ul", *(element("li", inline(item)) for item in items))
