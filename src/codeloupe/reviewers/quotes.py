"""Quotes: where the code that a reviewer quotes is in a file.

A quote is found where its words and signs are in a row, in the new file or with deleted lines in a hunk: white space,
line breaks and the form of quote marks do not count. A code fence, quote marks, line numbers and diff signs around the
code are not part of it, nor are the escapes of JSON. An ellipsis or a masked secret stands for up to 200 lines, and so
does a line break if the quote is not found otherwise. Of several places, the best is on the stated line, then whole
lines, then added, then shown by the diff, then deleted, then nearest to the stated line. A quote without a letter or a
digit is found only on the stated line. A quote that is cut within its first or last word is found on the stated line,
or if there is only one such place. Nothing is matched by likeness, and every search is linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codeloupe.source.code import fold, has_letters, words_and_signs
from codeloupe.source.files import ReviewedFile, Run
from codeloupe.system.regex import regex

# Redaction writes this in place of a secret.
MASK = "[redacted]"
_MOST_CHARACTERS = 20_000
_FENCE = regex(r"\s{0,99}(?:`{3,9}|~{3,9})[^`]{0,80}$")
_QUOTED = regex(r"\s{0,99}(`{1,3}|[\"'])(.{1,20000})\1\s{0,99}", re.DOTALL)
# A line number in the margin, maybe after a path or before a column: `12: `, `12 | `, `L12: `, `a.py:12 - `, `:12`.
_NUMBER = regex(
    r"\s{0,9}(?:[^\s:]{0,300}:)?[Ll]?(\d{1,7})(?::\d{1,4})?"
    r"(?:\s{1,9}[-\u2013\u2014]\s|\s{0,9}[:|\u2502\u2192).]\s?|\s|$)"
)
_DIFF_HEADER = regex(r"@@ |diff --git |index [0-9a-f]{7}|--- [ab]/|\+\+\+ [ab]/|=== |\\ [Nn]o newline at")
_ESCAPE = regex(r'\\(["\'\\/nrt])')
_ESCAPED = {"n": "\n", "r": "", "t": "\t"}


class Reading(NamedTuple):
    """One reading of a quote, and whether it is found only on deleted lines."""

    text: str
    of_deletion: bool = False


class Quote(NamedTuple):
    """The readings of a quote, the most literal first, and the first line number in its margin."""

    readings: tuple[Reading, ...]
    line_in_margin: int | None = None


def read_quote(text: str) -> Quote:
    """Return the quote with less and less around it; more than 20,000 characters are not a quote."""
    if len(text) > _MOST_CHARACTERS:
        return Quote(())
    literal = text.replace("\r\n", "\n")
    bare = without_fence(literal)
    quoted = _QUOTED.fullmatch(bare)
    if quoted is not None:
        bare = quoted[2]
    unnumbered, number = _without_numbers(bare)
    readings = [
        Reading(bare),
        Reading(unnumbered),
        *_without_signs(unnumbered),
        Reading(_ESCAPE.sub(_unescaped, bare)),
    ]
    return Quote(tuple(dict.fromkeys(readings)), number)


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


def _without_numbers(text: str) -> tuple[str, int | None]:
    """Return the text without line numbers in its margin, and the lowest of them."""
    numbers: list[int] = []
    lines: list[str] = []
    for line in text.split("\n"):
        found = _NUMBER.match(line)
        if found is None:
            lines.append(line)
        else:
            lines.append(line[found.end() :])
            numbers.append(int(found[1]))
    return "\n".join(lines), min(numbers, default=None)


def _without_signs(text: str) -> Iterator[Reading]:
    """Yield the text without the signs of a diff: its new lines, its old lines, and all lines."""
    lines = [line for line in text.split("\n") if not _DIFF_HEADER.match(line)]
    new = [line.removeprefix("+") for line in lines if not line.startswith("-")]
    old = [line.removeprefix("-") for line in lines if not line.startswith("+")]
    has_added = len(old) < len(lines)
    has_deleted = len(new) < len(lines)
    if has_added:
        yield Reading("\n".join(new))
    if has_deleted:
        yield Reading("\n".join(old), of_deletion=True)
    yield Reading("\n".join(line[1:] if line.startswith(("+", "-")) else line for line in lines))


def _unescaped(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[1])


# The lowest is the best.
_ADDED, _SHOWN, _DELETED, _ELSEWHERE = range(4)
_MOST_PLACES = 5_000
_MOST_PIECES = 20
_GAP_LINES = 200
# An ellipsis, a mask, or the mark of a prompt for a cut line; on a line of its own also within a comment.
_GAP_SIGN = r"(?:\[redacted\]|\.{3,99}|\[cut:[0-9,]{1,20} more bytes\])"
_COMMENT_SIGN = r"[\[\](){}<>#/*;!-]{0,9}"
_GAP_TEXT = rf"^{_COMMENT_SIGN}{_GAP_SIGN}{_COMMENT_SIGN}$|{_GAP_SIGN}"
_NO_GAP = regex(r"(?!)")
_GAP = regex(_GAP_TEXT, re.MULTILINE)
_GAP_OR_LINE_BREAK = regex(rf"{_GAP_TEXT}|\n", re.MULTILINE)


class Pattern(NamedTuple):
    """A reading of a quote as words and signs; the gaps of the reading are between its pieces."""

    reading: Reading
    pieces: tuple[str, ...]
    has_gaps: bool


class Place(NamedTuple):
    """The rows of a pattern in a run of lines; `is_whole` says that the quote is exactly these lines."""

    run: Run
    first: int
    last: int
    is_whole: bool
    pattern: Pattern


def find_quote(file: ReviewedFile, quote: Quote, stated: int | None) -> Place | None:
    """Return the best place of a quote in a file. `stated` is the line that the reviewer named, if it exists."""
    for gap in (_NO_GAP, _GAP, _GAP_OR_LINE_BREAK):
        for reading in quote.readings:
            places = _places(file, _pattern(reading, gap), stated)
            if places:
                return min(places, key=lambda place: _rank(file, place, stated))
    for reading in quote.readings:
        places = _places(file, _pattern(reading, _NO_GAP), stated, may_be_cut=True)
        on_stated_line = [place for place in places if _is_stated(place, stated)]
        if on_stated_line or len(places) == 1:
            return min(on_stated_line or places, key=lambda place: _rank(file, place, stated))
    return None


def touches(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Tell whether one of the ordered ranges shares a line with those from first to last."""
    index = bisect_left(ranges, first, key=lambda pair: pair[1])
    return index < len(ranges) and ranges[index][0] <= last


def _pattern(reading: Reading, gap: re.Pattern[str]) -> Pattern:
    folded = "\n".join(fold(line) for line in reading.text.split("\n"))
    parts = gap.split(folded)
    pieces = [words_and_signs(part) for part in parts]
    return Pattern(reading, tuple(piece for piece in pieces if piece), has_gaps=len(parts) > 1)


def _places(file: ReviewedFile, pattern: Pattern, stated: int | None, *, may_be_cut: bool = False) -> list[Place]:
    """Return the places of a pattern; those in a hunk include a deleted line, since its other lines are in the file."""
    if not 1 <= len(pattern.pieces) <= _MOST_PIECES:
        return []
    places: list[Place] = []
    if not pattern.reading.of_deletion:
        for run in file.new:
            places += _places_in_run(run, pattern, stated, may_be_cut=may_be_cut)
    for run in file.with_deletions:
        found = _places_in_run(run, pattern, stated, may_be_cut=may_be_cut)
        places += [place for place in found if run.has_deleted(place.first, place.last)]
    if any(has_letters(piece) for piece in pattern.pieces):
        return places
    return [place for place in places if _is_stated(place, stated)]


def _places_in_run(run: Run, pattern: Pattern, stated: int | None, *, may_be_cut: bool) -> Iterator[Place]:
    """Yield where the pieces of a pattern are in their order, at most 200 lines apart."""
    # In the text of a run there is a space before and after each word.
    edge = "" if may_be_cut else " "
    if any(f"{edge}{piece}{edge}" not in run.text for piece in pattern.pieces):
        return
    first_piece, *other_pieces = pattern.pieces
    spans = _spans(run, first_piece, stated, edge)
    for piece in other_pieces:
        spans = _extended(run, spans, _spans(run, piece, stated, edge))
    # If there are several ends after one start, the first is the nearest.
    ends: dict[int, int] = {}
    for start, end in spans:
        ends.setdefault(start, end)
    for start, end in ends.items():
        is_whole = not pattern.has_gaps and run.is_start(start) and run.is_start(end + 1)
        yield Place(run, run.row(start), run.row(end - 1), is_whole, pattern)


_Span = tuple[int, int]


def _spans(run: Run, piece: str, stated: int | None, edge: str) -> list[_Span]:
    """Return the start and end of each place of a piece, in order, at most 5,000.

    Two of them overlap only if one begins on the stated line: all that overlap would not be found in linear time.
    """
    wanted = f"{edge}{piece}{edge}"
    starts: set[int] = set()
    if stated is not None:
        starts.add(run.text.find(wanted, run.start(stated) - 1))
    start = run.text.find(wanted)
    while start >= 0 and len(starts) < _MOST_PLACES:
        starts.add(start)
        # Two places may share the space between them.
        start = run.text.find(wanted, start + len(edge + piece))
    starts.discard(-1)
    return [(start + len(edge), start + len(edge + piece)) for start in sorted(starts)]


def _extended(run: Run, spans: Sequence[_Span], following: Sequence[_Span]) -> list[_Span]:
    """Return a span up to the end of each following one, from the start of the nearest before it."""
    extended: list[_Span] = []
    for start, end in following:
        index = bisect_right(spans, start, key=lambda span: span[1]) - 1
        if index < 0:
            continue
        first_start, last_end = spans[index]
        if run.row(start) - run.row(last_end - 1) <= _GAP_LINES:
            extended.append((first_start, end))
    return extended


def _is_stated(place: Place, stated: int | None) -> bool:
    numbers = place.run.numbers
    return stated is not None and numbers[place.first] <= stated <= numbers[place.last]


def _rank(file: ReviewedFile, place: Place, stated: int | None) -> tuple[bool, bool, int, int]:
    """Return a lower value for a better place."""
    first = place.run.numbers[place.first]
    last = place.run.numbers[place.last]
    if place.run.has_deleted(place.first, place.last):
        relation = _DELETED
    elif touches(file.added, first, last):
        relation = _ADDED
    elif touches(file.shown, first, last):
        relation = _SHOWN
    else:
        relation = _ELSEWHERE
    distance = 0
    if stated is not None:
        distance = abs(first - stated)
    return not _is_stated(place, stated), not place.is_whole, relation, distance
