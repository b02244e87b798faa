"""How to fix a finding: advice as prose, new code for the quoted lines, and whether that code is an exact edit.

Formats that offer a fix by one click take the edit. Without code of its own a finding has only its suggestion, which is
free text: most are advice, some are a sketch. When in doubt it is advice: a wrong edit costs more than a missing one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby, pairwise
from operator import itemgetter

from msgspec import Struct

from codeloupe.model.finding import Finding
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import is_masked, terminal

_LONGEST = 20_000
_WORD = regex(r"\w+")
ITEM = regex(r"[ ]{0,8}(?:[-*+]|[0-9]{1,3}[.)])[ ]{1,4}(?=\S)")
_INDENTED = regex(r"(?: {2}|\t)[ \t]*\S")
# How a line of code begins or ends, where no sentence does.
_CODE_START = regex(
    r"(?:(?:async |public |private |static |export |pub )*"
    r"(?:def|class|if|elif|else|for|while|with|try|except|finally|return|raise|import|from|switch|case|func|fn|function|"
    r"const|let|var|match|struct|type|select|do|then|fi|done|end|SELECT|INSERT|UPDATE|DELETE|CREATE|WHERE)\b"
    r"|[\w.\[\]\"']+ ?(?:[-+*/|&]?=|:=|\() ?|[@#<{}()\[\]/\"'])"
)
_CODE_END = regex(r"[{}()\[\];,:=\\]$")
_SENTENCE = regex(r"[A-Za-z][a-z']* [a-z']+ [a-z']+ [a-z']+|.*[.!?]$")


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
    is_said = suggested is not None and suggested[0].strip() == code.strip()
    return Fix("" if is_said else suggestion, code, edit)


def exact_replacement(finding: Finding) -> Replacement | None:
    """The edit that the fix is, or None when it is anything else.

    It is one only when the quote is exactly the anchored lines, whole and unmasked. Code that was given as the
    replacement of these lines may have any length. Without such code, a suggestion is an edit when it is nothing but
    code: a fenced block, or lines indented as the quoted ones. A block that is marked as `suggestion` must keep the
    indentation; any other must also be as long as the quote and share half of its words.
    """
    quote, first, last = finding.evidence.rstrip("\n"), finding.first_line, finding.last_line
    lines = quote.count("\n") + 1 if quote.strip() else 0
    if not finding.anchored or first < 1 or lines != last - first + 1 or is_masked(quote):
        return None
    if finding.replacement is not None and finding.replacement.strip():
        text = finding.replacement.replace("\r\n", "\n").rstrip("\n")
        is_edit = len(text) <= _LONGEST
    else:
        text, is_marked = _code_of(finding.suggestion or "") or ("", False)
        is_edit = bool(text) and _indent(text) == _indent(quote) and (is_marked or _is_version_of(text, quote))
    is_edit = is_edit and text != quote and not is_masked(text) and _is_visible(text)
    return Replacement(first, last, text) if is_edit else None


def fenced(words: str) -> str:
    """The text with fences around its lines of code, so that no format takes their indentation away.

    Lines are code when they are indented and no part of a list, or look like code beside such lines. A text that has
    fences already stays as it is.
    """
    text = words.replace("\r\n", "\n").strip("\n").rstrip()
    rows = text.split("\n")
    if len(rows) == 1 or len(text) > _LONGEST or any(_fence(row) for row in rows):
        return text
    shown: list[str] = []
    for is_code, group in groupby(zip(_code_rows(rows), rows, strict=True), key=itemgetter(0)):
        block = [row for _, row in group]
        is_block = is_code and any(_INDENTED.match(row) for row in block)
        shown += ["```", *block, "```"] if is_block else block
    return "\n".join(shown)


def _code_rows(rows: list[str]) -> list[bool]:
    """For each row, whether it is code; a blank one is when both its neighbours are."""
    marks: list[bool] = []
    in_list = False
    for row in rows:
        is_indented = _INDENTED.match(row) is not None
        in_list = bool(ITEM.match(row)) or (in_list and is_indented)
        marks.append(not in_list and bool(row.strip()) and (is_indented or _looks_like_code(row)))
    filled = [at for at, row in enumerate(rows) if row.strip()]
    for last, at in pairwise(filled):
        if marks[last] and marks[at]:
            marks[last:at] = [True] * (at - last)
    return marks


def _looks_like_code(row: str) -> bool:
    text = row.rstrip()
    if _SENTENCE.match(text) and not text.endswith((";", "{", ":", "(", ")")):
        return False
    return bool(_CODE_START.match(text)) and bool(_CODE_END.search(text) or not _SENTENCE.match(text))


def _code_of(suggestion: str) -> tuple[str, bool] | None:
    """The code that a suggestion consists of, and whether it is marked as an edit; None when it is anything else."""
    if not suggestion.strip() or len(suggestion) > _LONGEST:
        return None
    rows = suggestion.replace("\r\n", "\n").strip("\n").rstrip().split("\n")
    if fence := _fence(rows[0]):
        is_whole = len(rows) > 2 and rows[-1].strip() == fence and not any(_fence(row) for row in rows[1:-1])
        is_marked = rows[0].strip()[len(fence) :].strip().lower() == "suggestion"
        return ("\n".join(rows[1:-1]), is_marked) if is_whole else None
    # Prose is not indented.
    return ("\n".join(rows), False) if rows[0][:1] in (" ", "\t") else None


def _fence(row: str) -> str:
    """The marks that open a block of code; empty for any other row."""
    mark = row.strip()
    for character in "`~":
        length = len(mark) - len(mark.lstrip(character))
        if length >= 3 and character not in mark[length:]:
            return mark[:length]
    return ""


def blocks_of(rows: Iterable[str]) -> list[tuple[list[str], bool]]:
    """The rows of prose and of fenced code in turn, each with whether it is code; an open fence runs to the end."""
    blocks: list[tuple[list[str], bool]] = [([], False)]
    fence = ""
    for row in rows:
        if (fence and row.strip() == fence) or (not fence and _fence(row)):
            fence = "" if fence else _fence(row)
            blocks.append(([], bool(fence)))
        else:
            blocks[-1][0].append(row)
    return blocks


def _is_visible(text: str) -> bool:
    """Whether nothing in it is invisible or acts on a terminal: nobody would see what the edit brings in."""
    return all(terminal(row) == row for row in text.replace("\r\n", "\n").replace("\t", " ").split("\n"))


def _indent(text: str) -> str:
    first = next((row for row in text.split("\n") if row.strip()), "")
    return first[: len(first) - len(first.lstrip(" \t"))]


def _is_version_of(text: str, quote: str) -> bool:
    """Whether it is as long, and of the words of both together they share half."""
    new, old = Counter(_WORD.findall(text)), Counter(_WORD.findall(quote))
    shared, both = (new & old).total(), (new | old).total()
    return text.count("\n") == quote.count("\n") and bool(both) and shared / both >= 0.5
