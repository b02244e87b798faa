"""Quotes: the ways to read what a reviewer quotes, and where it is in a file.

A quote is compared in folded form, and nothing is matched by likeness. Every search is linear in the text.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from codeloupe.source.code import fold, has_letters
from codeloupe.source.files import BOUNDARY, ReviewedFile, Side
from codeloupe.system.regex import regex

# Redaction writes this in place of a secret.
MASK = "[redacted]"
_MOST_CHARACTERS = 20_000
_MOST_LINES = 200
_FENCE = regex(r"\s{0,99}(?:`{3,9}|~{3,9})[^`]{0,80}$")
_WRAPPERS = ("```", "``", "`", '"', "'")
_ESCAPE = regex(r'\\(?:u([0-9a-fA-F]{4})|(["\'\\/nrt]))')
_ESCAPED = {"n": "\n", "r": "", "t": "\t"}
# A line number in the margin, maybe after a path or before a column: `12: `, `12 | `, `L12: `, `a.py:12 - `, `:12`.
_NUMBER = regex(
    r"\s{0,9}(?:[^\s:]{0,300}:)?[Ll]?(\d{1,7})(?::\d{1,4})?"
    r"(?:\s{1,9}[-\u2013\u2014]\s|\s{0,9}[:|\u2502\u2192).]\s?|\s|$)"
)
_DIFF_HEADER = regex(r"@@ |diff --git |index [0-9a-f]{7}|--- [ab]/|\+\+\+ [ab]/|=== |\\ [Nn]o newline at")


class Reading(NamedTuple):
    """One reading of a quote: its lines, whether they are marked as deleted, and the line number in its margin.

    `folded` is the folded lines without blank ones.
    """

    lines: tuple[str, ...]
    of_deletion: bool = False
    first_line: int | None = None
    folded: str = ""


def readings_of(quote: str) -> list[Reading]:
    """Return the readings of a quote, the most literal first; a very long quote is read at its beginning."""
    text = quote.replace("\r\n", "\n")
    if len(text) > _MOST_CHARACTERS:
        text = text[:_MOST_CHARACTERS]
        # The last line is cut, so it is nowhere in the file.
        complete_lines, _, _ = text.rpartition("\n")
        text = complete_lines or text
    readings: list[Reading] = []
    for spelling in _spellings(text):
        plain = Reading(tuple(spelling.split("\n")[:_MOST_LINES]))
        for reading in (plain, *_without_numbers(plain)):
            readings.append(reading)
            readings.extend(_without_signs(reading))
    different: dict[tuple[str, bool], Reading] = {}
    for reading in readings:
        folded_lines = [fold(line) for line in reading.lines]
        folded = "\n".join(line for line in folded_lines if line)
        if folded:
            different.setdefault((folded, reading.of_deletion), reading._replace(folded=folded))
    return list(different.values())


def is_fence(line: str) -> bool:
    """Tell whether a line opens or closes a block of code in Markdown."""
    return _FENCE.match(line) is not None


def without_fence(text: str) -> str:
    """Return the content of a code fence that encloses the whole text, or the text if there is none."""
    lines = text.strip("\n").split("\n")
    if len(lines) < 2 or not is_fence(lines[0]):
        return text
    if is_fence(lines[-1]):
        lines.pop()
    return "\n".join(lines[1:])


def _spellings(quote: str) -> list[str]:
    """Return the quote as it is, without fence and enclosing quote marks, and without the escapes of JSON and HTML."""
    bare = without_fence(quote)
    unwrapped = bare.strip()
    for sign in _WRAPPERS:
        if len(unwrapped) > 2 * len(sign) and unwrapped.startswith(sign) and unwrapped.endswith(sign):
            unwrapped = unwrapped[len(sign) : -len(sign)]
            break
    spellings = [quote, bare, unwrapped, _ESCAPE.sub(_unescaped, unwrapped), html.unescape(unwrapped)]
    return list(dict.fromkeys(spellings))


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return _ESCAPED.get(escape[2], escape[2])


def _without_numbers(reading: Reading) -> Iterator[Reading]:
    """Yield the reading without line numbers in the margin, if some lines have them."""
    numbers: list[int] = []
    lines: list[str] = []
    for line in reading.lines:
        found = _NUMBER.match(line)
        if found is None:
            lines.append(line)
        else:
            lines.append(line[found.end() :])
            numbers.append(int(found[1]))
    if numbers:
        yield Reading(tuple(lines), first_line=min(numbers))


def _without_signs(reading: Reading) -> Iterator[Reading]:
    """Yield the reading without the signs of a diff: the new side, the old side, and both."""
    lines = [line for line in reading.lines if not _DIFF_HEADER.match(line)]
    has_added = any(line.startswith("+") for line in lines)
    has_deleted = any(line.startswith("-") for line in lines)
    if has_added or len(lines) < len(reading.lines):
        new = tuple(line.removeprefix("+") for line in lines if not line.startswith("-"))
        yield Reading(new, first_line=reading.first_line)
    if has_deleted:
        old = tuple(line.removeprefix("-") for line in lines if not line.startswith("+"))
        both = tuple(line[1:] if line.startswith(("+", "-")) else line for line in lines)
        yield Reading(old, of_deletion=True, first_line=reading.first_line)
        yield Reading(both, of_deletion=True, first_line=reading.first_line)


_Rows = tuple[int, int]
_Offsets = tuple[int, int]
_CHANGED, _SHOWN, _ELSEWHERE = range(3)
_MOST_PLACES = 3_000
# Where to look first: so many lines around the stated one, and so many hunks.
_NEAR_LINES = 400
_NEAR_HUNKS = 300
_WITHIN_WORD = regex(r"(?<=\w)(?=\w)")
_MOST_LINES_APART = 20
_SHORTEST_LINE = 3


class Match(NamedTuple):
    """The rows of a quote in a side of a file, and how it was found.

    `is_whole` says that it is exactly these lines; `has_gaps` that it leaves parts of them out.
    """

    first: int
    last: int
    reading: Reading
    is_whole: bool
    has_gaps: bool


class QuoteFinder:
    """Find quotes in one side of a file. `stated` is the line that the reviewer named, if it exists."""

    def __init__(self, file: ReviewedFile, side: Side, stated: int | None) -> None:
        self.file = file
        self.side = side
        self.stated = stated

    def find(self, readings: Sequence[Reading]) -> Match | None:
        """Return the best place of a quote: on the stated line if it is there, whole lines before parts of lines."""
        return self._first_match(readings, _EXACT_WAYS)

    def find_fragments(self, readings: Sequence[Reading]) -> Match | None:
        """Return the best place of a quote that is cut within a word, or whose lines are not next to each other."""
        return self._first_match(readings, _FRAGMENT_WAYS)

    def is_far(self, match: Match) -> bool:
        """Tell whether a place is neither on the stated line nor in the lines that the diff shows."""
        rows = match.first, match.last
        return self._rank(rows)[0] == _ELSEWHERE and not self.is_stated(rows)

    def _first_match(self, readings: Sequence[Reading], ways: Sequence[_Way]) -> Match | None:
        for way in ways:
            if way.on_stated_line and self.stated is None:
                continue
            for reading in readings:
                pattern = reading.folded
                if len(pattern) < way.shortest or not (way.on_stated_line or has_letters(pattern)):
                    continue
                places = way.look(self, pattern)
                if way.on_stated_line:
                    places = [rows for rows in places if self.is_stated(rows)]
                if places:
                    first, last = min(places, key=lambda rows: (self._rank(rows), rows))
                    return Match(first, last, reading, way.look is _whole_lines, way.look is _with_gaps)
        return None

    def is_stated(self, rows: _Rows) -> bool:
        """Tell whether the stated line is among some rows."""
        first, last = rows
        return self.stated is not None and self.side.numbers[first] <= self.stated <= self.side.numbers[last]

    def _rank(self, rows: _Rows) -> tuple[int, int, int]:
        """Return a lower value for a better place: in the change, then shown by the diff, then near the stated line."""
        first = self.side.numbers[rows[0]]
        last = self.side.numbers[rows[1]]
        if self.side.has_deleted(*rows) or touches(self.file.added, first, last):
            relation = _CHANGED
        elif touches(self.file.shown, first, last):
            relation = _SHOWN
        else:
            relation = _ELSEWHERE
        if self.stated is None:
            return relation, 0, 0
        distance = max(first - self.stated, self.stated - last, 0)
        return relation, distance, abs(first - self.stated)

    def offsets_of(self, pattern: str) -> list[_Offsets]:
        """Return where a pattern is, at most 3,000 places, first those near the stated line and the hunks."""
        text = self.side.text
        if pattern not in text:
            return []
        found: dict[_Offsets, None] = {}
        for low, high in (*self._windows(pattern.count("\n")), (0, len(text))):
            start = text.find(pattern, low, high)
            while start >= 0 and len(found) < _MOST_PLACES:
                end = start + len(pattern)
                found[start, end] = None
                # Two places may share the newline between them, but no more: that keeps the search linear.
                start = text.find(pattern, max(end - 1, start + 1), high)
        return list(found)

    def _windows(self, more_lines: int) -> Iterator[_Offsets]:
        """Yield the parts of the text to search first; each ends so many lines later than its range."""
        ranges: list[tuple[int, int]] = []
        nearest_hunk = 0
        if self.stated is not None:
            ranges.append((self.stated, self.stated + _NEAR_LINES))
            ranges.append((self.stated - _NEAR_LINES, self.stated + _NEAR_LINES))
            nearest_hunk = bisect_left(self.file.shown, (self.stated, 0))
        first_hunk = max(0, nearest_hunk - _NEAR_HUNKS // 2)
        ranges += self.file.shown[first_hunk : first_hunk + _NEAR_HUNKS]
        for first, last in ranges:
            yield self.side.offsets(self.side.row(first), self.side.row(last) + more_lines)


def touches(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Tell whether one of the ordered ranges shares a line with those from first to last."""
    index = bisect_left(ranges, first, key=lambda pair: pair[1])
    return index < len(ranges) and ranges[index][0] <= last


class _Way(NamedTuple):
    """A way to look for folded text, the shortest text that it accepts, and whether only the stated line counts."""

    look: Callable[[QuoteFinder, str], list[_Rows]]
    shortest: int
    on_stated_line: bool = False


def _whole_lines(finder: QuoteFinder, pattern: str) -> list[_Rows]:
    return [finder.side.rows(start + 1, end - 1) for start, end in finder.offsets_of(f"\n{pattern}\n")]


def _any_part(finder: QuoteFinder, pattern: str) -> list[_Rows]:
    return [finder.side.rows(start, end) for start, end in finder.offsets_of(pattern)]


def _beginning_of_words(finder: QuoteFinder, pattern: str) -> list[_Rows]:
    """Find a part of a line, or of several, that begins with a word and may end within one."""
    text = finder.side.text
    places = finder.offsets_of(pattern)
    return [finder.side.rows(start, end) for start, end in places if not _WITHIN_WORD.match(text, start)]


def _whole_words(finder: QuoteFinder, pattern: str) -> list[_Rows]:
    """Find a part of a line, or of several, that neither begins nor ends within a word."""
    text = finder.side.text
    rows: list[_Rows] = []
    for start, end in finder.offsets_of(pattern):
        if not _WITHIN_WORD.match(text, start) and not _WITHIN_WORD.match(text, end):
            rows.append(finder.side.rows(start, end))
    return rows


def _run_together(finder: QuoteFinder, pattern: str) -> list[_Rows]:
    """Find a quote whose line breaks are not those of the file."""
    joined = fold(pattern.replace("\n", " "))
    return finder.side.rows_run_together(joined, _MOST_PLACES)


def _lines_apart(finder: QuoteFinder, pattern: str) -> list[_Rows]:
    """Find each line of a quote by itself; return the places on the stated line, or else those of the first line."""
    lines = [line for line in pattern.split("\n") if len(line) >= _SHORTEST_LINE and has_letters(line)]
    if not 2 <= len(lines) <= _MOST_LINES_APART or _GAP.search(pattern):
        return []
    found: list[list[_Rows]] = []
    for line in lines:
        places = _whole_lines(finder, line) or _beginning_of_words(finder, line)
        if not places:
            return []
        found.append(places)
    stated = [rows for places in found for rows in places if finder.is_stated(rows)]
    return stated or found[0]


# An ellipsis, a mask, or the mark of a prompt for a cut line; on a line of its own also within a comment.
_GAP_SIGN = r"(?:\[redacted\]|\.{3,99}|\[cut:[0-9,]{1,20} more bytes\])"
_COMMENT_SIGN = r"[\[\](){}<>#/*;!-]{0,9}"
_GAP = regex(rf"^{_COMMENT_SIGN}{_GAP_SIGN}{_COMMENT_SIGN}$|{_GAP_SIGN}", re.MULTILINE)
_GAP_LINES = 200
_GAP_CHARACTERS = 8_000
_MOST_PIECES = 20
_MOST_BEGINNINGS = 300
_SHORTEST_PIECE_OF_A_LINE = 6


def _with_gaps(finder: QuoteFinder, pattern: str) -> list[_Rows]:
    """Find the pieces between the gaps of a quote, in their order; a gap spans at most 200 lines."""
    side = finder.side
    pieces = [piece.strip("\n") for piece in _GAP.split(pattern)]
    has_gap = len(pieces) > 1
    pieces = [piece for piece in pieces if piece]
    longest = max(pieces, key=len, default="")
    if not has_gap or len(longest) < _SHORTEST_LINE or not has_letters(longest) or len(pieces) > _MOST_PIECES:
        return []
    # Of two beginnings with the same end, the later one is closer.
    by_end: dict[int, _Rows] = {}
    beginnings = finder.offsets_of(pieces[0])[:_MOST_BEGINNINGS]
    for start, first_end in sorted(beginnings):
        end = _end_of_pieces(side.text, pieces[1:], first_end)
        if end is None:
            continue
        are_whole_lines = side.text[start - 1] == "\n" and side.text[end] == "\n"
        if are_whole_lines or len(longest) >= _SHORTEST_PIECE_OF_A_LINE:
            by_end[end] = side.rows(start, end)
    return list(by_end.values())


def _end_of_pieces(text: str, pieces: Sequence[str], end: int) -> int | None:
    """Return where the last of some pieces ends if each follows the one before within the reach of a gap."""
    for piece in pieces:
        found = text.find(piece, end, end + _GAP_CHARACTERS + len(piece))
        if found < 0:
            return None
        skipped = text[end:found]
        if skipped.count("\n") > _GAP_LINES or BOUNDARY in skipped:
            return None
        end = found + len(piece)
    return end


# The strictest way first. A short text is everywhere, so it counts only on the stated line.
_EXACT_WAYS = (
    _Way(_whole_lines, shortest=1, on_stated_line=True),
    _Way(_whole_words, shortest=3, on_stated_line=True),
    _Way(_whole_lines, shortest=_SHORTEST_LINE),
    _Way(_whole_words, shortest=7),
    _Way(_run_together, shortest=20),
    _Way(_with_gaps, shortest=_SHORTEST_LINE),
)
_FRAGMENT_WAYS = (
    _Way(_any_part, shortest=4, on_stated_line=True),
    _Way(_beginning_of_words, shortest=7),
    _Way(_lines_apart, shortest=7),
)
