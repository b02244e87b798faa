"""HTML that cannot be broken out of: elements, attributes and prose, everything escaped where it is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from textwrap import dedent

from msgspec import Struct

from codeloupe.system.regex import regex
from codeloupe.system.untrusted import terminal

_VOID = frozenset({"meta", "link", "br", "input"})
_NAME = regex(r"[a-z][a-z0-9]{0,20}")
_ATTRIBUTE = regex(r"(?!on)[a-z][a-zA-Z-]{0,30}")
_LONGEST = 20_000
_MOST_ROWS = 1_000
_INLINE = regex(r"``(?P<double>[^\n]{1,2000}?)``|`(?P<code>[^`\n]{1,2000})`|\*\*(?P<strong>[^*\n]{1,500})\*\*")
_ITEM = regex(r"[ ]{0,8}(?:[-*+]|[0-9]{1,3}[.)])[ ]{1,4}(?=\S)")


class Html(Struct, frozen=True):
    """Markup that may be put on a page as it is."""

    text: str


Child = Html | str | None


def joined(children: Iterable[Child], between: str = "") -> Html:
    """Several pieces as one; None is left out. In text, what acts or hides is shown escaped, and nothing is markup."""
    return Html(
        escape(between).join(
            child.text if isinstance(child, Html) else escape(terminal(child, keep_newlines=True))
            for child in children
            if child is not None
        )
    )


def element(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """`<name …>children</name>`. An attribute that is None or False is left out; `_` in its name becomes `-`.

    Raises ValueError for a name that is none, and for an attribute that could run code.
    """
    if not _NAME.fullmatch(name) or name in ("script", "style"):
        raise ValueError(f"not an element to build: {name!r}")
    shown = ""
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if not _ATTRIBUTE.fullmatch(attribute) or attribute == "style":
            raise ValueError(f"not an attribute to set: {key!r}")
        if value is True:
            shown += f" {attribute}"
        elif value is not None and value is not False:
            shown += f' {attribute}="{escape(terminal(str(value)))}"'
    return Html(f"<{name}{shown}>" + ("" if name in _VOID else f"{joined(children).text}</{name}>"))


def prose(words: str) -> Html | None:
    """The text as blocks; None for a blank one. Of an endless text only the beginning, and the cut is said."""
    rows = words[:_LONGEST].replace("\r\n", "\n").expandtabs(4).strip("\n").rstrip().split("\n")
    if not any(row.strip() for row in rows):
        return None
    blocks = list(_blocks(rows[:_MOST_ROWS]))
    if len(words) > _LONGEST or len(rows) > _MOST_ROWS:
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
        if fence := _fence(rows[index]):
            end = next((at for at in range(index + 1, len(rows)) if rows[at].strip() == fence), len(rows))
            yield element("pre", dedent("\n".join(rows[index + 1 : end])))
            index = end + 1
            continue
        end = next((at for at in range(index, len(rows)) if not rows[at].strip() or _fence(rows[at])), len(rows))
        yield from _paragraphs(rows[index:end])
        index = end + (end < len(rows) and not _fence(rows[end]))


def _paragraphs(rows: list[str]) -> Iterator[Html]:
    """Rows without a blank one among them: items become a list, with the rows that continue them."""
    first = next((at for at, row in enumerate(rows) if _ITEM.match(row)), len(rows))
    if first:
        yield element("p", inline("\n".join(rows[:first])))
    items: list[str] = []
    for row in rows[first:]:
        if item := _ITEM.match(row):
            items.append(row[item.end() :])
        else:
            items[-1] += f"\n{row.strip()}"
    if items:
        yield element("ul", joined(element("li", inline(item)) for item in items))


def _fence(row: str) -> str:
    mark = row.strip()
    for character in "`~":
        length = len(mark) - len(mark.lstrip(character))
        if length >= 3 and character not in mark[length:]:
            return mark[:length]
    return ""
