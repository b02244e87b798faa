"""What a claim quotes, in all its readings and with its gaps, and the code that it offers instead."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from codeloupe.engine.code_text import fold, has_letters
from codeloupe.engine.reviewed_file import BOUNDARY, Side
from codeloupe.system.regex import regex
from codeloupe.system.untrusted import has_hidden

# What redaction puts in the place of a secret.
MASK = "[redacted]"
_FENCE = regex(r"\s{0,99}(?:`{3,9}|~{3,9})[^`]{0,80}$")
_REMARK = regex(r"\s{0,9}(?:#|//|/\*|--)?\s{0,9}(?:<-{1,3}|←)\s[^\n]{0,200}$", re.MULTILINE)
_BULLET = regex(r"^\s{0,9}[>*•]\s", re.MULTILINE)
_ESCAPE = regex(r'\\(?:u([0-9a-fA-F]{4})|(["\'\\/nrt]))')
_ESCAPED = {"n": "\n", "r": "", "t": "\t"}
_VISIBLE = regex(r"<(?:U\+([0-9A-F]{4,6})(?:×(\d{1,7}))?|0x[0-9A-F]{2}(?:×\d{1,7})?)>")
_PLACE = regex(r"[^\s:]{1,300}:(\d{1,7})(?:[-:]\d{1,7})?(?:\s{0,9}[-:|\u2013\u2014]\s{1,9}|\s{1,9}|$)")
_NUMBER = regex(r"\s{0,9}[>*]?\s{0,9}[Ll]?(\d{1,7})(?::\d{1,4})?(?:\s{0,9}[:|│→).]\s?|\t|\s{2})")
_PLAIN_NUMBER = regex(r"\s{0,9}>?\s{0,9}(\d{1,7})(?:\s|$)")
_NUMBER_ROW = regex(r"\s{0,9}:(\d{1,7})\s{0,9}$")
_DIFF_ROW = regex(r"@@ |diff --git |index [0-9a-f]{7}|--- [ab]/|\+\+\+ [ab]/|=== |\\ [Nn]o newline at")


class Reading(NamedTuple):
    """One reading of a quote, with the number in its margin; `of_deletion` when its own marks show deleted lines."""

    lines: tuple[str, ...]
    of_deletion: bool = False
    first_line: int | None = None
    folded: tuple[str, ...] = ()


def readings_of(quote: str) -> list[Reading]:
    """The readings of a quote, the most literal first. A very long quote is read at its beginning. Never raises."""
    text = quote[:20_000]
    if text != quote:
        # The last line is cut somewhere, so that it is nowhere as it is.
        text = quote[:20_001].rpartition("\n")[0] or text
    kept: dict[tuple[tuple[str, ...], bool], Reading] = {}
    for spelling in dict.fromkeys(_spellings(text.replace("\r\n", "\n"))):
        plain = Reading(tuple(spelling.split("\n")[:200]))
        for margins in _MARGINS:
            read = [plain]
            for without_margin in margins:
                read = [changed for one in read for changed in without_margin(one)]
            for one in read:
                folded = tuple(filter(None, map(fold, one.lines)))
                if folded:
                    kept.setdefault((folded, one.of_deletion), one._replace(folded=folded))
    return list(kept.values())


def _spellings(quote: str) -> Iterator[str]:
    yield quote
    lines = quote.strip("\n").split("\n")
    if len(lines) > 1 and _FENCE.match(lines[0]):
        lines = lines[1 : -1 if _FENCE.match(lines[-1]) else None]
    bare = unquoted = "\n".join(lines)
    stripped = bare.strip()
    for sign in ("```", "``", "`", '"', "'"):
        if len(stripped) > 2 * len(sign) and stripped.startswith(sign) and stripped.endswith(sign):
            unquoted = stripped[len(sign) : -len(sign)]
            break
    yield bare
    yield unquoted
    for text in (bare, unquoted):
        yield _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPED.get(found[2], found[2]), text)
        yield _VISIBLE.sub(_hidden, text)
        yield html.unescape(text)
    yield _REMARK.sub("", bare)
    yield _BULLET.sub("", bare)
    # Between an odd backtick and the next even one is code, everything else is words.
    yield max(bare.split("`")[1:-1:2], key=len, default=bare)


def _hidden(shown: re.Match[str]) -> str:
    """The characters that a prompt shows as `<U+200B×40>`; a byte that is not UTF-8 is nothing to compare with."""
    code = int(shown[1], 16) if shown[1] else 0x110000
    return chr(code) * min(int(shown[2] or 1), 200) if code < 0x110000 else ""


def _without_numbers(reading: Reading) -> Iterator[Reading]:
    """Without line numbers in the margin, on each line or on some, and without rows that hold a number alone."""
    rows = [line for line in reading.lines if not _NUMBER_ROW.match(line)]
    alone = [int(found[1]) for line in reading.lines if (found := _NUMBER_ROW.match(line))]
    numbered = [_NUMBER.match(line) for line in rows]
    if not any(numbered):
        numbered = [_PLAIN_NUMBER.match(line) for line in rows]
        numbers = [int(found[1]) for found in numbered if found]
        # A number and a space may be code; several that count upwards are a margin.
        if len(numbers) < len(rows) or len(rows) < 2 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            numbered = [None] * len(rows)
    numbers = [int(found[1]) for found in numbered if found]
    if numbers or alone:
        lines = tuple(line[found.end() :] if found else line for line, found in zip(rows, numbered, strict=True))
        yield reading._replace(lines=lines, first_line=min(numbers or alone))


def _without_place(reading: Reading) -> Iterator[Reading]:
    """Without `path:12 - ` before the code."""
    first = reading.lines[0].lstrip()
    if found := _PLACE.match(first):
        yield reading._replace(lines=(first[found.end() :], *reading.lines[1:]), first_line=int(found[1]))


def _without_signs(reading: Reading) -> Iterator[Reading]:
    """Without the column of a diff: the new side first, or the old one when nothing is added."""
    rows = [line for line in reading.lines if not _DIFF_ROW.match(line)]
    signs = {row[:1] for row in rows}

    def without(sign: str) -> tuple[str, ...]:
        return tuple(row[1:] if row[:1] in {"+", "-"} else row for row in rows if not sign or row[:1] != sign)

    if "+" in signs:
        yield reading._replace(lines=without("-"))
    if "-" in signs:
        yield reading._replace(lines=without("+"), of_deletion=True)
        yield reading._replace(lines=without(""), of_deletion=True)
    if not signs & {"+", "-"} and len(rows) < len(reading.lines):
        yield reading._replace(lines=tuple(rows))


_MARGINS: tuple[tuple[Callable[[Reading], Iterator[Reading]], ...], ...] = (
    (),
    (_without_numbers,),
    (_without_signs,),
    (_without_numbers, _without_signs),
    (_without_signs, _without_numbers),
    (_without_place,),
)
_GAP = regex(r"\[redacted\]|\.{3,99}|\[cut:[0-9,]{1,20} more bytes\]")
_GAP_LINE = regex(r"[\[\](){}<>#/*;!-]{0,9}(?:\[redacted\]|\.{3,99})[\[\](){}<>#/*;!-]{0,9}$")
# How many lines an ellipsis may replace, and a mask: a private key is many lines.
_LINES_LEFT_OUT, _LINES_OF_A_SECRET = 200, 60
_WIDEST_GAP = 8_000
# A part of a quote after a gap: its text, how many lines the gap may span, 0 for one within a line, and whether it is
# a mask.
_Piece = tuple[str, int, bool]


def pieces_of(lines: Sequence[str]) -> list[_Piece]:
    """The parts between the gaps of folded lines; none when nothing is left out, or too little is quoted."""
    if not any(_GAP.search(line) for line in lines):
        return []
    pieces = [piece for piece in _split(lines) if piece[0]]
    longest, *others = sorted((text for text, *_ in pieces), key=len, reverse=True) or [""]
    if len(longest.strip("\n")) < 3 or not has_letters(longest) or any(len(other) > 1000 for other in others):
        return []
    return pieces


def _split(lines: Sequence[str]) -> Iterator[_Piece]:
    text, reach, masked = "", 0, False
    for index, line in enumerate(lines):
        if _GAP_LINE.match(line):
            yield text, reach, masked
            text, reach, masked = "", _LINES_OF_A_SECRET if MASK in line else _LINES_LEFT_OUT, False
            continue
        if text or (index and not reach):
            text += "\n"
        position = 0
        for gap in _GAP.finditer(line):
            yield text + line[position : gap.start()], reach, masked
            text, position, masked = "", gap.end(), gap[0] == MASK
            reach = _LINES_LEFT_OUT if gap[0][0] == "." and gap.end() == len(line) else 0
        text += line[position:]
    yield text, reach, masked


def places_with_gaps(
    lines: Sequence[str], text: Side, literal: Callable[[str], Iterable[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """Where all pieces of a quote with gaps are in order, around some of the `literal` places of the longest one."""
    pieces = pieces_of(lines)
    if not pieces:
        return []
    longest = max(range(len(pieces)), key=lambda index: len(pieces[index][0]))
    starts = [start for start, _ in islice(literal(pieces[longest][0]), 100)]
    for hidden_lines in (0, _LINES_OF_A_SECRET):
        reaches = [max(reach, hidden_lines) if masked else reach for _, reach, masked in pieces]
        found = [_gapped_place(text, [piece[0] for piece in pieces], reaches, longest, start) for start in starts]
        if places := [place for place in found if place is not None]:
            return places
    return []


def _gapped_place(
    text: Side, pieces: Sequence[str], reaches: Sequence[int], longest: int, start: int
) -> tuple[int, int] | None:
    """The place of all pieces in order around the longest one, each in the reach of the gap between."""
    first, end = start, start + len(pieces[longest])
    for index in range(longest - 1, -1, -1):
        piece = pieces[index]
        low, _ = text.around(first - 1, lines_before=reaches[index + 1] + piece.count("\n"))
        first = text.text.rfind(piece, max(low, first - _WIDEST_GAP - len(piece)), first)
        if first < 0:
            return None
    for index in range(longest + 1, len(pieces)):
        piece = pieces[index]
        _, high = text.around(max(end - 1, 0), lines_after=reaches[index])
        found = text.text.find(piece, end, min(high, end + _WIDEST_GAP) + len(piece))
        if found < 0:
            return None
        end = found + len(piece)
    are_whole_lines = text.text[first - 1] == "\n" and text.text[end : end + 1] == "\n"
    says_enough = are_whole_lines or len(pieces[longest]) >= 6
    return (first, end) if says_enough and BOUNDARY not in text.text[first:end] else None


# How advice begins. No line of code begins with such a word in this spelling and goes on as a sentence.
_ADVICE = regex(
    r"(?:Use|Replace|Add|Remove|Change|Consider|Instead|Make|Move|Wrap|Escape|Validate|Ensure|Rename|Avoid|Delete|"
    r"Pass|Set|Keep|Handle|Guard|Close|Do not|Don't|The|This|You|It|N/A|None needed|No change)[ ,][`'\"\w]"
)
_PROSE_SUFFIXES = (".md", ".markdown", ".txt", ".rst", ".adoc", ".tex", ".html", ".htm")


def replacement_of(offered: str | None, *, quote: str, lines: str, path: str) -> str | None:
    """The code that takes the place of `lines`, the whole lines that were found for `quote`; None for anything else.

    Fences and the marks of a diff are taken off, and indentation that was left out is put back. It is none when it
    changes nothing, is advice, holds what was masked or cannot be seen, or when the quote is only a part of
    the lines: then nobody knows what it replaces.
    """
    if offered is None or not lines.strip() or len(offered) > 20_000 or MASK in lines:
        return None
    code, bare = _without_fence(offered), _without_fence(quote)
    if code is None or bare is None:
        return None
    rows = code.strip("\n").split("\n")
    if all(row.startswith("+") for row in rows if row.strip()):
        code = "\n".join(row[1:] for row in rows)
    if not code.strip() or MASK in code or has_hidden(code):
        return None
    # The quote is these lines, whole, but for indentation, the marks of a diff and a fence.
    wanted, quoted = ([row.strip() for row in text.split("\n") if row.strip()] for text in (lines, bare))
    if wanted not in (quoted, [row.removeprefix("+").strip() for row in quoted]):
        return None
    if not path.lower().endswith(_PROSE_SUFFIXES) and _ADVICE.match(code.lstrip()):
        return None
    fitted = _indented(code.strip("\n").rstrip(), lines)
    return None if fitted == lines.rstrip() else fitted


def _without_fence(text: str) -> str | None:
    """What is in a block that is the whole text; the text when it has none; None for words around a block."""
    text = text.replace("\r\n", "\n")
    rows = text.strip().split("\n")
    fences = [number for number, row in enumerate(rows) if _FENCE.match(row)]
    if not fences:
        return text
    return "\n".join(rows[1:-1]) if fences == [0, len(rows) - 1] else None


def _indented(code: str, lines: str) -> str:
    """The code, indented as the lines are where its first line has lost its indentation."""
    first = next((row for row in lines.split("\n") if row.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    rows = code.split("\n")
    if not indent or rows[0][:1].isspace():
        return code
    others = [row for row in rows[1:] if row.strip()]
    if others and all(row.startswith(indent) for row in others):
        return f"{indent}{code}"
    return "\n".join(f"{indent}{row}" if row.strip() else row for row in rows)
