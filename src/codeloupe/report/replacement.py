"""Whether a suggestion is code that can take the place of the quoted lines, exactly.

Formats that offer a fix by one click ask here. A reviewer's suggestion is free text: most are advice in words, some
are a sketch. When in doubt it is advice: a wrong edit costs more than a missing one.
"""

from __future__ import annotations

import re
from collections import Counter

from codeloupe.model.finding import Finding
from codeloupe.model.records import dataclass
from codeloupe.report.sanitise import terminal
from codeloupe.report.sanitise_plain import is_masked

_LONGEST = 20_000
_WORD = re.compile(r"\w+")
# Of the words of both texts together, how many they must share to be two versions of one thing.
_SHARED = 0.5
_SUGGESTION_FENCE = "suggestion"


@dataclass(frozen=True, slots=True)
class Replacement:
    """Lines `line_start` to `line_end`, whole, become `text`, which has no line end at its end."""

    line_start: int
    line_end: int
    text: str


def exact_replacement(finding: Finding) -> Replacement | None:
    """The edit that the suggestion is, or None when it is anything else.

    It is one when the quote is exactly the anchored lines, whole and unmasked, and the suggestion is nothing but code:
    a fenced block, or lines indented as the quoted ones. A block that is marked as `suggestion` must keep the
    indentation; any other must also be as long as the quote and share half of its words.
    """
    code = _code_of(finding.suggestion or "")
    if code is None or not _quote_is_whole(finding) or not _is_plain(code.text):
        return None
    quote = finding.evidence.rstrip("\n")
    if code.text == quote or _indent(code.text) != _indent(quote):
        return None
    if not code.is_marked and not _is_version_of(code.text, quote):
        return None
    return Replacement(finding.first_line, finding.last_line, code.text)


@dataclass(frozen=True, slots=True)
class _Code:
    text: str
    is_marked: bool


def _code_of(suggestion: str) -> _Code | None:
    if not suggestion.strip() or len(suggestion) > _LONGEST:
        return None
    text = suggestion.replace("\r\n", "\n")
    rows = text.strip("\n").rstrip().split("\n")
    fence = _fence(rows[0])
    if fence:
        is_whole = len(rows) > 2 and rows[-1].strip() == fence and not any(_fence(row) for row in rows[1:-1])
        marked = rows[0].strip()[len(fence) :].strip().lower() == _SUGGESTION_FENCE
        return _Code("\n".join(rows[1:-1]), marked) if is_whole else None
    # Prose is not indented.
    return _Code("\n".join(rows), is_marked=False) if rows[0][:1] in (" ", "\t") else None


def _fence(row: str) -> str:
    mark = row.lstrip()
    for character in "`~":
        run = mark[: len(mark) - len(mark.lstrip(character))]
        if len(run) >= 3:
            return run
    return ""


def _quote_is_whole(finding: Finding) -> bool:
    quoted = finding.evidence.rstrip("\n").count("\n") + 1 if finding.evidence.strip() else 0
    lines = finding.last_line - finding.first_line + 1
    return finding.anchored and finding.first_line > 0 and quoted == lines and not is_masked(finding.evidence)


def _is_plain(text: str) -> bool:
    """Whether nothing in it is invisible or acts on a terminal: nobody would see what the edit brings in."""
    rows = text.replace("\t", " ").split("\n")
    return not is_masked(text) and all(terminal(row) == row for row in rows)


def _indent(text: str) -> str:
    first = next((row for row in text.split("\n") if row.strip()), "")
    return first[: len(first) - len(first.lstrip(" \t"))]


def _is_version_of(text: str, quote: str) -> bool:
    new, old = Counter(_WORD.findall(text)), Counter(_WORD.findall(quote))
    shared, both = (new & old).total(), (new | old).total()
    return text.count("\n") == quote.count("\n") and bool(both) and shared / both >= _SHARED
