"""Where a quote stands: in whole lines, in a part of a line, in lines that were broken elsewhere, or with gaps.

What stands on the line that the reviewer named counts before everything else. A quote that is not there is not found:
nothing is matched by likeness. Every way takes time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.folding import fold, has_letters
from codeloupe.engine.quote_forms import QuoteForm, quote_forms
from codeloupe.engine.quote_gaps import gapped_places, pieces_of
from codeloupe.engine.search_text import SearchText

# What is shorter stands everywhere, and counts only on the line that the reviewer names.
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
# Long patterns make the library's search slow on hostile text, so the rest is compared where the beginning stands.
_LONGEST_PATTERN = 1000
_MOST_PLACES = 300

Rank = tuple[int, int, int]
_Find = Callable[[int, int], int]
_Reading = tuple[QuoteForm, tuple[str, ...]]


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

    def around_stated(self) -> Ground | None:
        """The same text, searched only around the line that was named; None when none was."""
        if self.stated is None:
            return None
        return replace(self, windows=((self.stated, self.stated),), only_windows=True)


class Match(Struct, frozen=True):
    """The rows of a quote, how good the place is, and the reading of the quote that led there.

    `whole` tells that it takes up its lines wholly, `gapped` that something in it stands for text that is not told.
    """

    first_row: int
    last_row: int
    rank: Rank
    form: QuoteForm
    whole: bool = False
    gapped: bool = False


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


def find_quote(quote: Quote, ground: Ground, *, deleted: bool = False) -> Match | None:
    """The best place of a quote: on the line that was named, else by the strictest way and the most literal reading.

    With `deleted`, readings that show deleted lines count as well.
    """
    readings = [(form, lines) for form, lines in quote.readings if deleted or not form.of_deletion]
    near = ground.around_stated()
    stated = _first_match((_whole_on_stated, _parts_on_stated), readings, near) if near is not None else None
    return stated or _first_match((_whole_lines, _parts_of_lines, _run_together, _with_gaps), readings, ground)


def find_fragments(quote: Quote, ground: Ground) -> Match | None:
    """The place of a quote that is cut within a word, or of one whose lines stand apart: where its first line is.

    A part of it on the line that was named decides before that.
    """
    readings = [(form, lines) for form, lines in quote.readings if not form.of_deletion]
    near = ground.around_stated()
    stated = _first_match((_cut_on_stated,), readings, near) if near is not None else None
    return stated or _first_match((_cut_at_end, _lines_apart), readings, ground)


def _first_match(ways: Sequence[_Way], readings: Sequence[_Reading], ground: Ground) -> Match | None:
    for way in ways:
        for form, lines in readings:
            found = _best(way(lines, ground), ground)
            if found is not None:
                rank, rows = found
                whole = way in (_whole_lines, _whole_on_stated)
                return Match(*rows, rank, form, whole=whole, gapped=way is _with_gaps)
    return None


_Way = Callable[[Sequence[str], Ground], Iterable[tuple[int, int]]]


def _best(places: Iterable[tuple[int, int]], ground: Ground) -> tuple[Rank, tuple[int, int]] | None:
    rows = (ground.text.rows(start, end) for start, end in places)
    return min(((ground.rank(*pair), pair) for pair in rows), default=None)


def _whole_lines(lines: Sequence[str], ground: Ground) -> Iterator[tuple[int, int]]:
    pattern = "\n".join(lines)
    places = ((start + 1, end - 1) for start, end in _literal_places(f"\n{pattern}\n", ground))
    is_short = len(pattern) < _SHORTEST_LINE or not has_letters(pattern)
    return _stated(places, ground) if is_short else places


def _stated(places: Iterable[tuple[int, int]], ground: Ground) -> Iterator[tuple[int, int]]:
    return (place for place in places if ground.is_stated(*ground.text.rows(*place)))


def _whole_on_stated(lines: Sequence[str], ground: Ground) -> Iterator[tuple[int, int]]:
    return _stated(_whole_lines(lines, ground), ground)


def _parts_on_stated(lines: Sequence[str], ground: Ground) -> Iterator[tuple[int, int]]:
    return _stated(_parts_of_lines(lines, ground), ground)


def _cut_on_stated(lines: Sequence[str], ground: Ground) -> Iterator[tuple[int, int]]:
    pattern = "\n".join(lines)
    if len(pattern) < _SHORTEST_LOOSE_STATED_PART or not has_letters(pattern):
        return iter(())
    return _stated(_literal_places(pattern, ground), ground)


def _cut_at_end(lines: Sequence[str], ground: Ground) -> Iterator[tuple[int, int]]:
    """Where a quote stands that begins with a word and is cut within one."""
    pattern = "\n".join(lines)
    if len(pattern) < _SHORTEST_PART or not has_letters(pattern):
        return iter(())
    text = ground.text.text
    return (place for place in _literal_places(pattern, ground) if not _is_within_word(text, place[0]))


def _is_within_word(text: str, start: int) -> bool:
    return start > 0 and _is_word(text[start - 1]) and _is_word(text[start])


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _lines_apart(lines: Sequence[str], ground: Ground) -> Iterable[tuple[int, int]]:
    """The place of one line of a quote, all of whose lines are there, but not together.

    That is the line that was named, where it is one of them, or else the first.
    """
    telling = [line for line in lines if len(line) >= _SHORTEST_LINE and has_letters(line)]
    size = len(ground.text.text) * len(telling)
    if not 1 < len(telling) <= _MOST_LINES_APART or size > _MOST_TEXT_FOR_LINES_APART or pieces_of(lines):
        return ()
    places = [list(_line_places(line, ground)) for line in telling]
    if not all(places):
        return ()
    stated = [place for found in places for place in found if ground.is_stated(*ground.text.rows(*place))]
    return stated or places[0]


def _line_places(line: str, ground: Ground) -> Iterator[tuple[int, int]]:
    whole = list(_whole_lines([line], ground))
    return iter(whole) if whole or len(line) < _SHORTEST_PART else _cut_at_end([line], ground)


def _parts_of_lines(lines: Sequence[str], ground: Ground) -> Iterator[tuple[int, int]]:
    pattern = "\n".join(lines)
    if len(pattern) < _SHORTEST_STATED_PART or not has_letters(pattern):
        return iter(())
    if len(pattern) >= _SHORTEST_LOOSE_PART:
        return _literal_places(pattern, ground)
    places = _word_places(pattern, ground)
    return places if len(pattern) >= _SHORTEST_PART else _stated(places, ground)


def _word_places(pattern: str, ground: Ground) -> Iterator[tuple[int, int]]:
    """Where a pattern stands that neither begins nor ends within a word."""
    words = re.compile(rf"(?:(?<!\w)|(?!\w)){re.escape(pattern)}(?:(?<!\w)|(?!\w))")
    text = ground.text.text

    def find(low: int, high: int) -> int:
        start = text.find(pattern, low, high)
        found = words.search(text, start, high) if start >= 0 else None
        return found.start() if found else -1

    return ((start, start + len(pattern)) for start in _places(find, ground, pattern.count("\n")))


def _run_together(lines: Sequence[str], ground: Ground) -> Iterable[tuple[int, int]]:
    pattern = fold(" ".join(lines))
    if len(pattern) < _SHORTEST_LOOSE_PART or len(pattern) > _LONGEST_PATTERN or not has_letters(pattern):
        return ()
    return ground.text.places_run_together(pattern, _MOST_PLACES)


def _with_gaps(lines: Sequence[str], ground: Ground) -> Iterable[tuple[int, int]]:
    pieces = pieces_of(lines)
    if not pieces:
        return ()
    longest = max(pieces, key=lambda piece: len(piece.text))
    starts = (start for start, _ in _literal_places(longest.text, ground))
    return gapped_places(ground.text, pieces, pieces.index(longest), starts)


def _literal_places(pattern: str, ground: Ground) -> Iterator[tuple[int, int]]:
    text = ground.text.text
    head, rest = pattern[:_LONGEST_PATTERN], pattern[_LONGEST_PATTERN:]
    for start in _places(partial(text.find, head), ground, pattern.count("\n")):
        if text.startswith(rest, start + len(head)):
            yield start, start + len(pattern)


def _places(find: _Find, ground: Ground, newlines: int) -> Iterator[int]:
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
