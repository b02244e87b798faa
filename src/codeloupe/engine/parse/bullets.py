"""Findings in Markdown: `- **Severity:** HIGH`, `**Category:** …`, `**Description:** …`, `**Evidence:** a.py:12 - …`.

Nothing marks the end of such an item. So where a text ends in the middle of one, its last field may be shorter than it
was meant to be; an item without words or without a place at the very end of a text counts as cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice, pairwise

from codeloupe.engine.parse.finding_item import answer_of, findings_of
from codeloupe.engine.parse.patterns import late
from codeloupe.model.finding import ReviewAnswer

_NAMES = {
    "severity": "severity",
    "priority": "severity",
    "category": "category",
    "title": "title",
    "issue": "title",
    "description": "description",
    "message": "description",
    "problem": "description",
    "details": "body",
    "body": "body",
    "evidence": "evidence",
    "location": "location",
    "file": "file",
    "line": "line",
    "lines": "line",
    "quote": "quote",
    "suggestion": "suggestion",
    "suggested fix": "suggestion",
    "recommendation": "suggestion",
    "fix": "suggestion",
    "confidence": "confidence",
}
_WORDS = {"title", "description", "body"}
_PLACES = {"evidence", "location", "file", "quote"}
_LONG = {*_WORDS, "suggestion"}
_ONE_LINE = {"severity", "category", "file", "line", "confidence"}
_NAME = "|".join(sorted(_NAMES, key=len, reverse=True))
_BOLD = rf"(?:\*\*|__)\s?({_NAME})\s?(?::\s?(?:\*\*|__)|(?:\*\*|__)\s?:)"
_BARE = rf"^[ \t]{{0,20}}(?:[-*+•][ \t]{{1,4}}|\d{{1,3}}[.)][ \t]{{1,4}})?({_NAME})[ \t]{{0,2}}:"
# A name in bold anywhere in a line, or any name at its beginning.
_FIELD = late(f"{_BOLD}|{_BARE}", re.IGNORECASE | re.MULTILINE)
_BOLD_FIELD = late(f"{_BOLD}()", re.IGNORECASE)
_SECTION_END = late(r"\n[ \t]*+(?=#{1,6} |-{3,}\s|\*{3,}\s|={3,}\s)")
# A quote of several lines is seldom meant, and a line like these begins something else.
_PARAGRAPH_END = late(r"\n[ \t]*+(?=\n|[-*+•#_]|\d{1,3}[.)])")
_LINE_END = late(r"\n")
# A last line that is only the beginning of the next field.
_BEGUN = late(r"\s*(?:[-*+•]|\d{1,3}[.)]?)?\s*(?:[*_]{1,2}[\w ]{0,20}:?[*_]{0,2})?")
_MAX_BULLET_CHARACTERS = 30
_MAX_ABOVE_CHARACTERS = 300
_CORE = late(r"\w(?:.*\w)?", re.DOTALL)


class _Items:
    """The items of a text, in turn. `is_cut` is known at the end.

    A field that an item has already begins the next, and so does one behind a blank line, unless all of them are.
    """

    def __init__(self, text: str, field: re.Pattern[str]) -> None:
        self._text = text
        self._field = field
        self._reaches_end = False
        marks = islice(field.finditer(text), 1, None)
        self._gaps_matter = any(not _stands_apart(text, mark.start()) for mark in marks)
        self.is_cut = False

    def __iter__(self) -> Iterator[dict[str, str]]:
        item: dict[str, str] = {}
        for name, value, stands_apart in self._fields():
            if name in item or (stands_apart and self._gaps_matter):
                yield from self._worth_reading(item)
                item = {}
            item[name] = value
        is_whole = _WORDS & item.keys() and _PLACES & item.keys()
        self.is_cut = self._reaches_end and "severity" in item and not is_whole
        if not self.is_cut:
            yield from self._worth_reading(item)

    def _fields(self) -> Iterator[tuple[str, str, bool]]:
        text = self._text
        for mark, following in pairwise(chain(self._field.finditer(text), (None,))):
            if mark is None:
                return
            name = _NAMES[(mark[1] or mark[2]).lower()]
            end = following.start() if following else len(text)
            value_end = _value_end(name).search(text, mark.end(), end)
            self._reaches_end = following is None and value_end is None and not text.endswith("\n")
            value = _value(name, text[mark.end() : value_end.start() if value_end else end])
            yield name, value, _stands_apart(text, mark.start())

    @staticmethod
    def _worth_reading(item: dict[str, str]) -> Iterator[dict[str, str]]:
        # The names of other fields occur in prose.
        if "severity" in item:
            yield item


def read_bullets(text: str, *, in_bold_only: bool = False) -> ReviewAnswer | None:
    """The findings in the bullets of a text, or None when it has none.

    `in_bold_only` is for texts that hold JSON, where a bare name and a colon may be a part of that.
    """
    items = _Items(text, _BOLD_FIELD if in_bold_only else _FIELD)
    found, reasons = findings_of(items)
    return answer_of(found, reasons, is_cut=items.is_cut)


def _stands_apart(text: str, position: int) -> bool:
    """Whether what begins here begins a line, but for a bullet, with a blank line, a heading or a rule above it."""
    window = max(0, position - _MAX_BULLET_CHARACTERS)
    line_end = text.rfind("\n", window, position)
    if (line_end < 0 and window) or text[line_end + 1 : position].strip(" \t-*+•0123456789.)"):
        return False
    above = text[max(0, line_end - _MAX_ABOVE_CHARACTERS) : max(0, line_end)].rpartition("\n")[2]
    return above.startswith("#") or not above.strip("-=* \t\r")


def _value_end(name: str) -> re.Pattern[str]:
    if name in _ONE_LINE:
        return _LINE_END
    return _SECTION_END if name in _LONG else _PARAGRAPH_END


def _value(name: str, raw: str) -> str:
    if name in _ONE_LINE:
        core = _CORE.search(raw) if name != "file" else None
        return core[0] if core else raw.strip(" \t\r*`")
    lines = [line for line in raw.strip().split("\n") if not line.lstrip().startswith(("```", "~~~"))]
    if len(lines) > 1 and _BEGUN.fullmatch(lines[-1]):
        lines.pop()
    value = "\n".join(lines).strip()
    is_quoted = name in _LONG and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if is_quoted and value.count(value[0]) == 2 else value
