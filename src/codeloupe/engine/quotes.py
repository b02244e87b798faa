"""Where a quote is: in whole lines, in a part of a line, in lines that were broken elsewhere, or with gaps.

What is on the line that the reviewer named counts before everything else. A quote that is not there is not found:
nothing is matched by likeness. Every way takes time linear in the text.
"""

from __future__ import annotations

import html
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.code_text import fold, has_letters

# What redaction puts in the place of a secret.
MASK = "[redacted]"
# Folded text holds no white space but single spaces, so no quote reaches over this sign from one run into the next.
_BOUNDARY = "\x1c"
_LOOSE_NEWLINE = re.compile(r"\n(?!\w)|(?<!\w)\n")

_Places = Iterable[tuple[int, int]]


class SearchText:
    """Runs of lines ready for quotes to be found in them: folded, blank ones left out, joined into one string.

    Each line is known by its row; rows only grow. A place is a pair of offsets into `text`, start and end. In `text` a
    newline is before and after each line. Building it is linear, and its memory about that of the lines.
    """

    __slots__ = ("_joined", "_rows", "_starts", "text")

    def __init__(self, runs: Iterable[Iterable[tuple[int, str]]]) -> None:
        self._starts = array("q")
        self._rows = array("q")
        self.text = "\n" + "".join(self._pieces(runs))
        self._joined: str | None = None

    def _pieces(self, runs: Iterable[Iterable[tuple[int, str]]]) -> Iterator[str]:
        offset, row = 1, 0
        for run in runs:
            for row, line in run:
                if folded := fold(line):
                    self._starts.append(offset)
                    self._rows.append(row)
                    offset += len(folded) + 1
                    yield folded + "\n"
            # The last row stands for the boundary as well, so that rows only grow.
            self._starts.append(offset)
            self._rows.append(row)
            offset += 2
            yield _BOUNDARY + "\n"

    def rows(self, start: int, end: int) -> tuple[int, int]:
        """The first and the last row of a place."""
        first, last = (bisect_right(self._starts, offset) - 1 for offset in (start, max(start, end - 1)))
        return self._rows[first], self._rows[last]

    def stretch(self, first_row: int, last_row: int) -> tuple[int, int]:
        """The place that holds all lines between two rows, with the newlines around them."""
        first, last = bisect_left(self._rows, first_row), bisect_right(self._rows, last_row)
        return self._start(first) - 1, self._start(last)

    def around(self, offset: int, *, lines_before: int = 0, lines_after: int = 0) -> tuple[int, int]:
        """The place of the line at an offset, or of so many more before and after it, without newlines around."""
        index = bisect_right(self._starts, offset) - 1
        return self._start(max(0, index - lines_before)), self._start(index + lines_after + 1) - 1

    def _start(self, index: int) -> int:
        return self._starts[index] if index < len(self._starts) else len(self.text)

    def places_run_together(self, pattern: str, most: int) -> list[tuple[int, int]]:
        """The places of a pattern in the text with its lines run together: a line that was broken is found so."""
        if self._joined is None:
            self._joined = _LOOSE_NEWLINE.sub("", self.text).replace("\n", " ")
        found: list[int] = []
        start = self._joined.find(pattern)
        while start >= 0 and len(found) < most:
            found.append(start)
            start = self._joined.find(pattern, start + 1)
        if not found:
            return []
        starts = array("q")
        lost = 0
        for start in self._starts:
            lost += _LOOSE_NEWLINE.match(self.text, start - 1) is not None
            starts.append(start - lost)

        def restored(offset: int) -> int:
            index = bisect_right(starts, offset) - 1
            return offset + self._starts[index] - starts[index]

        return [(restored(start), restored(start + len(pattern) - 1) + 1) for start in found]


_LONGEST_QUOTE = 20_000
_MOST_LINES = 200
_LONGEST_RUN = 200
_FENCE = re.compile(r"\s{0,99}(?:`{3,9}|~{3,9})[^`]{0,80}$")
_REMARK = re.compile(r"\s{0,9}(?:#|//|/\*|--)?\s{0,9}(?:<-{1,3}|←)\s[^\n]{0,200}$", re.MULTILINE)
_BULLET = re.compile(r"^\s{0,9}[>*•]\s", re.MULTILINE)
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\'\\/nrt]))')
_ESCAPED = {"n": "\n", "r": "", "t": "\t"}
_VISIBLE = re.compile(r"<(?:U\+([0-9A-F]{4,6})(?:×(\d{1,7}))?|0x[0-9A-F]{2}(?:×\d{1,7})?)>")
_PLACE = re.compile(r"[^\s:]{1,300}:(\d{1,7})(?:[-:]\d{1,7})?(?:\s{0,9}[-:|\u2013\u2014]\s{1,9}|\s{1,9}|$)")
_NUMBER = re.compile(r"\s{0,9}[>*]?\s{0,9}[Ll]?(\d{1,7})(?::\d{1,4})?(?:\s{0,9}[:|│→).]\s?|\t|\s{2})")
_PLAIN_NUMBER = re.compile(r"\s{0,9}>?\s{0,9}(\d{1,7})(?:\s|$)")
_NUMBER_ROW = re.compile(r"\s{0,9}:(\d{1,7})\s{0,9}$")
_DIFF_ROW = re.compile(r"@@ |diff --git |index [0-9a-f]{7}|--- [ab]/|\+\+\+ [ab]/|=== |\\ [Nn]o newline at")


class QuoteForm(Struct, frozen=True):
    """One reading of a quote. `of_deletion` says that it shows deleted lines by its own marks.

    `first_line` is the line number that is in its margin, if any.
    """

    lines: tuple[str, ...]
    of_deletion: bool = False
    first_line: int | None = None


_Reading = tuple[QuoteForm, tuple[str, ...]]


class Quote(Struct, frozen=True):
    """The readings of a quote, each with its folded lines."""

    readings: tuple[_Reading, ...]

    @classmethod
    def of(cls, text: str) -> Quote:
        """All readings of a quote that say anything, the most literal first."""
        kept: dict[tuple[tuple[str, ...], bool], QuoteForm] = {}
        for form in quote_forms(text):
            lines = tuple(filter(None, map(fold, form.lines)))
            if lines:
                kept.setdefault((lines, form.of_deletion), form)
        return cls(tuple((form, lines) for (lines, _), form in kept.items()))

    @property
    def first_line(self) -> int | None:
        """A line number in the margin of the quote."""
        return next((form.first_line for form, _ in self.readings if form.first_line), None)


def quote_forms(quote: str) -> tuple[QuoteForm, ...]:
    """The readings of a quote, the most literal first. A very long quote is read at its beginning. Never raises."""
    text = quote[: _LONGEST_QUOTE + 1]
    if len(text) > _LONGEST_QUOTE:
        # The last line is cut somewhere, so that it is nowhere as it is.
        text = text[: text.rfind("\n")] if "\n" in text else text[:_LONGEST_QUOTE]
    forms: dict[QuoteForm, None] = {}
    for spelling in dict.fromkeys(_spellings(text.replace("\r\n", "\n"))):
        plain = QuoteForm(tuple(spelling.split("\n")[:_MOST_LINES]))
        for margins in _MARGINS:
            read = [plain]
            for without_margin in margins:
                read = [changed for form in read for changed in without_margin(form)]
            forms.update(dict.fromkeys(read))
    return tuple(form for form in forms if any(line and not line.isspace() for line in form.lines))


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
    return chr(code) * min(int(shown[2] or 1), _LONGEST_RUN) if code < 0x110000 else ""


def _with_numbers_off(form: QuoteForm) -> Iterator[QuoteForm]:
    """Without line numbers in the margin, on each line or on some, and without rows that hold a number alone."""
    rows = [line for line in form.lines if not _NUMBER_ROW.match(line)]
    alone = [int(found[1]) for line in form.lines if (found := _NUMBER_ROW.match(line))]
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
        yield replace(form, lines=lines, first_line=min(numbers or alone))


def _with_place_off(form: QuoteForm) -> Iterator[QuoteForm]:
    """Without `path:12 - ` before the code."""
    first = form.lines[0].lstrip()
    if found := _PLACE.match(first):
        yield replace(form, lines=(first[found.end() :], *form.lines[1:]), first_line=int(found[1]))


def _with_signs_off(form: QuoteForm) -> Iterator[QuoteForm]:
    """Without the column of a diff: the new side first, or the old one when nothing is added."""
    rows = [line for line in form.lines if not _DIFF_ROW.match(line)]
    signs = {row[:1] for row in rows}

    def without(sign: str) -> tuple[str, ...]:
        return tuple(row[1:] if row[:1] in {"+", "-"} else row for row in rows if not sign or row[:1] != sign)

    if "+" in signs:
        yield replace(form, lines=without("-"))
    if "-" in signs:
        yield replace(form, lines=without("+"), of_deletion=True)
        yield replace(form, lines=without(""), of_deletion=True)
    if not signs & {"+", "-"} and len(rows) < len(form.lines):
        yield replace(form, lines=tuple(rows))


_MARGINS: tuple[tuple[Callable[[QuoteForm], Iterator[QuoteForm]], ...], ...] = (
    (),
    (_with_numbers_off,),
    (_with_signs_off,),
    (_with_numbers_off, _with_signs_off),
    (_with_signs_off, _with_numbers_off),
    (_with_place_off,),
)

_GAP = re.compile(r"\[redacted\]|\.{3,99}|\[cut:[0-9,]{1,20} more bytes\]")
_GAP_LINE = re.compile(r"[\[\](){}<>#/*;!-]{0,9}(?:\[redacted\]|\.{3,99})[\[\](){}<>#/*;!-]{0,9}$")
_LINES_LEFT_OUT = 200
# A private key is many lines behind one mask.
_LINES_OF_A_SECRET = 60
_WIDEST_GAP = 8_000
_SHORTEST_PIECE = 6
_SHORTEST_PIECE_OF_A_LINE = 3
_LONGEST_OTHER_PIECE = 1000
_MOST_TRIES = 100


class Piece(Struct, frozen=True):
    """A part of a quote after a gap: `reach` is how many lines the gap may span, 0 for one within a line."""

    text: str
    reach: int = 0
    behind_mask: bool = False


def pieces_of(lines: Sequence[str]) -> tuple[Piece, ...]:
    """The parts between the gaps of folded lines; none when nothing is left out, or too little is quoted."""
    if not any(_GAP.search(line) for line in lines):
        return ()
    pieces = [piece for piece in _split(lines) if piece.text]
    longest, *others = sorted(pieces, key=lambda piece: len(piece.text), reverse=True) or [Piece("")]
    if len(longest.text.strip("\n")) < _SHORTEST_PIECE_OF_A_LINE or not has_letters(longest.text):
        return ()
    return tuple(pieces) if all(len(piece.text) <= _LONGEST_OTHER_PIECE for piece in others) else ()


def _split(lines: Sequence[str]) -> Iterator[Piece]:
    text, reach, masked = "", 0, False
    for index, line in enumerate(lines):
        if _GAP_LINE.match(line):
            yield Piece(text, reach, masked)
            text, reach, masked = "", _LINES_OF_A_SECRET if MASK in line else _LINES_LEFT_OUT, False
            continue
        if text or (index and not reach):
            text += "\n"
        position = 0
        for gap in _GAP.finditer(line):
            yield Piece(text + line[position : gap.start()], reach, masked)
            text, position, masked = "", gap.end(), gap[0] == MASK
            ends_line = gap.end() == len(line) and not masked
            reach = _LINES_LEFT_OUT if ends_line and gap[0][0] == "." else 0
        text += line[position:]
    yield Piece(text, reach, masked)


def _gapped_place(
    text: SearchText, pieces: Sequence[Piece], anchor: int, start: int, hidden_lines: int
) -> tuple[int, int] | None:
    """The place of all pieces in order around the piece `anchor`, each in the reach of the gap between."""
    reaches = [max(piece.reach, hidden_lines) if piece.behind_mask else piece.reach for piece in pieces]
    first, end = start, start + len(pieces[anchor].text)
    for index in range(anchor - 1, -1, -1):
        piece = pieces[index].text
        low, _ = text.around(first - 1, lines_before=reaches[index + 1] + piece.count("\n"))
        first = text.text.rfind(piece, max(low, first - _WIDEST_GAP - len(piece)), first)
        if first < 0:
            return None
    for index in range(anchor + 1, len(pieces)):
        piece = pieces[index].text
        _, high = text.around(max(end - 1, 0), lines_after=reaches[index])
        found = text.text.find(piece, end, min(high, end + _WIDEST_GAP) + len(piece))
        if found < 0:
            return None
        end = found + len(piece)
    takes_whole_lines = text.text[first - 1] == "\n" and text.text[end : end + 1] == "\n"
    says_enough = takes_whole_lines or len(pieces[anchor].text) >= _SHORTEST_PIECE
    return (first, end) if says_enough and _BOUNDARY not in text.text[first:end] else None


# What is shorter is everywhere, and counts only on the line that the reviewer names.
_SHORTEST_LINE = 3
_SHORTEST_PART = 7
_SHORTEST_STATED_PART = 3
# From here on a quote may begin or end within a word.
_SHORTEST_LOOSE_PART = 20
# What may begin and end within a word on the line that the reviewer names.
_SHORTEST_LOOSE_STATED_PART = 4
# Lines that do not stand together are looked for one by one, in so much text altogether.
_MOST_LINES_APART = 40
_MOST_TEXT_FOR_LINES_APART = 50_000_000
# Long patterns make the library's search slow on hostile text, so the rest is compared where the beginning is.
_LONGEST_PATTERN = 1000
_MOST_PLACES = 300

Rank = tuple[int, int, int]


class Ground(Struct, frozen=True):
    """A text to search, and what is better in it: `rank` of two rows is lower for a better place.

    `windows` are rows around which the best places are; `is_stated` tells whether rows hold the line that was named,
    which is in the row `stated`.
    """

    text: SearchText
    rank: Callable[[int, int], Rank]
    is_stated: Callable[[int, int], bool]
    windows: Sequence[tuple[int, int]] = ()
    stated: int | None = None
    only_windows: bool = False


class Match(Struct, frozen=True):
    """The rows of a quote, how good the place is, and the reading of the quote that led there.

    `whole` tells that it takes up its lines wholly, `gapped` that something in it stands for text that is not quoted.
    """

    first_row: int
    last_row: int
    rank: Rank
    form: QuoteForm
    whole: bool = False
    gapped: bool = False


def find_quote(quote: Quote, ground: Ground, *, deleted: bool = False) -> Match | None:
    """The best place of a quote: on the line that was named, else by the strictest way and the most literal reading.

    With `deleted`, readings that show deleted lines count as well.
    """
    readings = [(form, lines) for form, lines in quote.readings if deleted or not form.of_deletion]
    stated = _on_stated((_whole_lines, _parts_of_lines), readings, ground)
    return stated or _first_match((_whole_lines, _parts_of_lines, _run_together, _with_gaps), readings, ground)


def find_fragments(quote: Quote, ground: Ground) -> Match | None:
    """The place of a quote that is cut within a word, or of one whose lines stand apart: where its first line is.

    A part of it on the line that was named decides before that.
    """
    readings = [(form, lines) for form, lines in quote.readings if not form.of_deletion]
    return _on_stated((_cut_anywhere,), readings, ground) or _first_match((_cut_at_end, _lines_apart), readings, ground)


_Way = Callable[[Sequence[str], Ground], _Places]


def _on_stated(ways: Sequence[_Way], readings: Sequence[_Reading], ground: Ground) -> Match | None:
    """As `_first_match`, but only on the line that was named, if one was."""
    if ground.stated is None:
        return None
    near = replace(ground, windows=((ground.stated, ground.stated),), only_windows=True)
    return _first_match(ways, readings, near)


def _first_match(ways: Sequence[_Way], readings: Sequence[_Reading], ground: Ground) -> Match | None:
    for way in ways:
        for form, lines in readings:
            places = way(lines, ground)
            rows = (ground.text.rows(*place) for place in (_stated(places, ground) if ground.only_windows else places))
            found = min(((ground.rank(*pair), pair) for pair in rows), default=None)
            if found is not None:
                rank, (first, last) = found
                return Match(first, last, rank, form, whole=way is _whole_lines, gapped=way is _with_gaps)
    return None


def _stated(places: _Places, ground: Ground) -> _Places:
    return (place for place in places if ground.is_stated(*ground.text.rows(*place)))


def _whole_lines(lines: Sequence[str], ground: Ground) -> _Places:
    pattern = "\n".join(lines)
    places = ((start + 1, end - 1) for start, end in _literal_places(f"\n{pattern}\n", ground))
    is_short = len(pattern) < _SHORTEST_LINE or not has_letters(pattern)
    return _stated(places, ground) if is_short else places


def _parts_of_lines(lines: Sequence[str], ground: Ground) -> _Places:
    """Where a quote is in a part of a line; a short one neither begins nor ends within a word."""
    pattern = "\n".join(lines)
    if len(pattern) < _SHORTEST_STATED_PART or not has_letters(pattern):
        return ()
    if len(pattern) >= _SHORTEST_LOOSE_PART:
        return _literal_places(pattern, ground)
    words = re.compile(rf"(?:(?<!\w)|(?!\w)){re.escape(pattern)}(?:(?<!\w)|(?!\w))")
    text = ground.text.text

    def find(low: int, high: int) -> int:
        start = text.find(pattern, low, high)
        found = words.search(text, start, high) if start >= 0 else None
        return found.start() if found else -1

    places = ((start, start + len(pattern)) for start in _starts(find, ground, pattern.count("\n")))
    return places if len(pattern) >= _SHORTEST_PART else _stated(places, ground)


def _run_together(lines: Sequence[str], ground: Ground) -> _Places:
    pattern = fold(" ".join(lines))
    if not _SHORTEST_LOOSE_PART <= len(pattern) <= _LONGEST_PATTERN or not has_letters(pattern):
        return ()
    return ground.text.places_run_together(pattern, _MOST_PLACES)


def _with_gaps(lines: Sequence[str], ground: Ground) -> _Places:
    """Where all pieces of a quote with gaps stand in order. Only so many starts of the longest one are tried."""
    pieces = pieces_of(lines)
    if not pieces:
        return ()
    anchor = max(range(len(pieces)), key=lambda index: len(pieces[index].text))
    starts = [start for start, _ in islice(_literal_places(pieces[anchor].text, ground), _MOST_TRIES)]
    for hidden_lines in (0, _LINES_OF_A_SECRET):
        found = [_gapped_place(ground.text, pieces, anchor, start, hidden_lines) for start in starts]
        if places := [place for place in found if place is not None]:
            return places
    return ()


def _cut_anywhere(lines: Sequence[str], ground: Ground) -> _Places:
    pattern = "\n".join(lines)
    if len(pattern) < _SHORTEST_LOOSE_STATED_PART or not has_letters(pattern):
        return ()
    return _literal_places(pattern, ground)


def _cut_at_end(lines: Sequence[str], ground: Ground) -> _Places:
    """Where a quote is that begins with a word and is cut within one."""
    pattern = "\n".join(lines)
    if len(pattern) < _SHORTEST_PART or not has_letters(pattern):
        return ()
    inside = re.compile(r"(?<=\w)(?=\w)")
    return (place for place in _literal_places(pattern, ground) if not inside.match(ground.text.text, place[0]))


def _lines_apart(lines: Sequence[str], ground: Ground) -> _Places:
    """The place of one line of a quote, all of whose lines are there, but not together.

    That is the line that was named, where it is one of them, or else the first.
    """
    telling = [line for line in lines if len(line) >= _SHORTEST_LINE and has_letters(line)]
    size = len(ground.text.text) * len(telling)
    if not 1 < len(telling) <= _MOST_LINES_APART or size > _MOST_TEXT_FOR_LINES_APART or pieces_of(lines):
        return ()
    places = [list(_whole_lines([line], ground)) or list(_cut_at_end([line], ground)) for line in telling]
    if not all(places):
        return ()
    return list(_stated((place for found in places for place in found), ground)) or places[0]


def _literal_places(pattern: str, ground: Ground) -> Iterator[tuple[int, int]]:
    text = ground.text.text
    head, rest = pattern[:_LONGEST_PATTERN], pattern[_LONGEST_PATTERN:]
    for start in _starts(partial(text.find, head), ground, pattern.count("\n")):
        if text.startswith(rest, start + len(head)):
            yield start, start + len(pattern)


def _starts(find: Callable[[int, int], int], ground: Ground, newlines: int) -> Iterator[int]:
    """Where something with so many newlines begins, once a line: near the windows first, then in the whole text.

    Of a text that repeats it endlessly only so many places are looked at.
    """
    text = ground.text.text
    everything = (0, len(text))
    if find(*everything) < 0:
        return
    near = (ground.text.stretch(first - newlines, last + newlines) for first, last in ground.windows)
    for low, high in near if ground.only_windows else (*near, everything):
        left = _MOST_PLACES
        start = find(low, high)
        while start >= 0 and left > 0:
            yield start
            left -= 1
            start = find(text.find("\n", start + 1), high)
