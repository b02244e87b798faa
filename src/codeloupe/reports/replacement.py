"""How to fix a finding: advice in words, new code for the quoted lines, and whether that code is an exact edit.

Formats that offer a fix by one click take the edit. Without code of its own a finding has only its suggestion, which is
free text: most are advice, some are a sketch. When in doubt it is advice: a wrong edit costs more than a missing one.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct

from codeloupe.model.finding import Finding
from codeloupe.system.untrusted import is_masked, terminal

_LONGEST = 20_000
_WORD = re.compile(r"\w+")
# Of the words of both texts together, how many they must share to be two versions of one thing.
_SHARED = 0.5
_SUGGESTION_FENCE = "suggestion"
_ITEM = re.compile(r"[ ]{0,8}(?:[-*+]|[0-9]{1,3}[.)])[ ]{1,4}(?=\S)")
_INDENTED = re.compile(r"(?: {2}|\t)[ \t]*\S")
# How a line of code begins or ends, where no sentence does.
_CODE_START = re.compile(
    r"(?:(?:async |public |private |static |export |pub )*"
    r"(?:def|class|if|elif|else|for|while|with|try|except|finally|return|raise|import|from|switch|case|func|fn|function|"
    r"const|let|var|match|struct|type|select|do|then|fi|done|end|SELECT|INSERT|UPDATE|DELETE|CREATE|WHERE)\b"
    r"|[\w.\[\]\"']+ ?(?:[-+*/|&]?=|:=|\() ?|[@#<{}()\[\]/\"'])"
)
_CODE_END = re.compile(r"[{}()\[\];,:=\\]$")
_SENTENCE = re.compile(r"[A-Za-z][a-z']* [a-z']+ [a-z']+ [a-z']+|.*[.!?]$")


class Replacement(Struct, frozen=True):
    """Lines `line_start` to `line_end`, whole, become `text`, which has no line end at its end."""

    line_start: int
    line_end: int
    text: str


class Fix(Struct, frozen=True):
    """How to fix a finding; each part may be missing.

    `words` is advice. `code` is new code for the quoted lines, with its indentation.
    `edit` is the same code where it can take the place of the lines exactly.
    """

    words: str
    code: str
    edit: Replacement | None


def fix_of(finding: Finding) -> Fix:
    """The fix as every format shows it."""
    edit = exact_replacement(finding)
    offered = finding.replacement or ""
    code = edit.text if edit is not None else offered if _is_visible(offered) else ""
    suggestion = finding.suggestion or ""
    suggested = _code_of(suggestion)
    said = suggested is not None and suggested.text.strip() == code.strip()
    return Fix("" if said else suggestion, code, edit)


def exact_replacement(finding: Finding) -> Replacement | None:
    """The edit that the fix is, or None when it is anything else.

    It is one only when the quote is exactly the anchored lines, whole and unmasked. Code that was given as the
    replacement of these lines may have any length. Without such code, a suggestion is an edit when it is nothing but
    code: a fenced block, or lines indented as the quoted ones. A block that is marked as `suggestion` must keep the
    indentation; any other must also be as long as the quote and share half of its words.
    """
    if not _quote_is_whole(finding):
        return None
    quote = finding.evidence.rstrip("\n")
    if finding.replacement is not None and finding.replacement.strip():
        text = finding.replacement.replace("\r\n", "\n").rstrip("\n")
        is_edit = text != quote and len(text) <= _LONGEST and _is_plain(text)
        return Replacement(finding.first_line, finding.last_line, text) if is_edit else None
    code = _code_of(finding.suggestion or "")
    if code is None or not _is_plain(code.text):
        return None
    if code.text == quote or _indent(code.text) != _indent(quote):
        return None
    if not code.is_marked and not _is_version_of(code.text, quote):
        return None
    return Replacement(finding.first_line, finding.last_line, code.text)


def fenced(words: str) -> str:
    """The text with fences around its lines of code, so that no format takes their indentation away.

    Lines are code when they are indented and no part of a list, or look like code beside such lines. A text that has
    fences already stays as it is.
    """
    text = words.replace("\r\n", "\n").strip("\n").rstrip()
    rows = text.split("\n")
    if len(rows) == 1 or len(text) > _LONGEST or any(_fence(row) for row in rows):
        return text
    marks = _code_rows(rows)
    shown: list[str] = []
    at = 0
    while at < len(rows):
        end = at
        while end < len(rows) and marks[end] == marks[at]:
            end += 1
        block = rows[at:end]
        is_block = marks[at] and any(_INDENTED.match(row) for row in block)
        shown += ["```", *block, "```"] if is_block else block
        at = end
    return "\n".join(shown)


def _code_rows(rows: list[str]) -> list[bool]:
    """For each row, whether it is code; a blank one is when both its neighbours are."""
    marks: list[bool] = []
    in_list = False
    for row in rows:
        is_indented = _INDENTED.match(row) is not None
        in_list = bool(_ITEM.match(row)) or (in_list and is_indented)
        marks.append(not in_list and bool(row.strip()) and (is_indented or _looks_like_code(row)))
    # Blank rows between two of code are code too.
    last: int | None = None
    for at, row in enumerate(rows):
        if not row.strip():
            continue
        if last is not None and marks[last] and marks[at]:
            marks[last:at] = [True] * (at - last)
        last = at
    return marks


def _looks_like_code(row: str) -> bool:
    text = row.rstrip()
    if _SENTENCE.match(text) and not text.endswith((";", "{", ":", "(", ")")):
        return False
    return bool(_CODE_START.match(text)) and bool(_CODE_END.search(text) or not _SENTENCE.match(text))


class _Code(Struct, frozen=True):
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
    return not is_masked(text) and _is_visible(text)


def _is_visible(text: str) -> bool:
    """Whether nothing in it is invisible or acts on a terminal: nobody would see what the edit brings in."""
    rows = text.replace("\r\n", "\n").replace("\t", " ").split("\n")
    return all(terminal(row) == row for row in rows)


def _indent(text: str) -> str:
    first = next((row for row in text.split("\n") if row.strip()), "")
    return first[: len(first) - len(first.lstrip(" \t"))]


def _is_version_of(text: str, quote: str) -> bool:
    new, old = Counter(_WORD.findall(text)), Counter(_WORD.findall(quote))
    shared, both = (new & old).total(), (new | old).total()
    return text.count("\n") == quote.count("\n") and bool(both) and shared / both >= _SHARED
