"""Quotes with gaps: an ellipsis for what was left out, or the mask that stands for a secret in what was sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from codeloupe.engine.folding import has_letters
from codeloupe.engine.search_text import BOUNDARY, SearchText

# What redaction puts in the place of a secret.
MASK = "[redacted]"
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
    """A part of a quote behind a gap: `reach` is how many lines the gap may span, 0 for one within a line."""

    text: str
    reach: int = 0
    behind_mask: bool = False


def pieces_of(lines: Sequence[str]) -> tuple[Piece, ...]:
    """The parts between the gaps of folded lines; none when nothing is left out, or too little is told."""
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


def gapped_places(
    text: SearchText, pieces: Sequence[Piece], anchor: int, starts: Iterable[int]
) -> Iterator[tuple[int, int]]:
    """The places of all pieces in order, around where the piece `anchor` begins. Only so many starts are tried."""
    tried = list(islice(starts, _MOST_TRIES))
    for hidden_lines in (0, _LINES_OF_A_SECRET):
        places = [_Extension(text, pieces, hidden_lines).around(anchor, start) for start in tried]
        found = [place for place in places if place is not None and _tells_enough(text, pieces[anchor], place)]
        if found:
            yield from found
            return


def _tells_enough(text: SearchText, longest: Piece, place: tuple[int, int]) -> bool:
    start, end = place
    if BOUNDARY in text.text[start:end]:
        return False
    takes_whole_lines = text.text[start - 1] == "\n" and text.text[end : end + 1] == "\n"
    return takes_whole_lines or len(longest.text) >= _SHORTEST_PIECE


class _Extension(Struct, frozen=True):
    """Looks for the pieces before and behind one that was found, each in the reach of the gap between."""

    text: SearchText
    pieces: Sequence[Piece]
    hidden_lines: int

    def around(self, anchor: int, start: int) -> tuple[int, int] | None:
        end = start + len(self.pieces[anchor].text)
        first = start
        for index in range(anchor, 0, -1):
            first = self._before(self.pieces[index - 1].text, first, self._reach(index))
            if first < 0:
                return None
        for index in range(anchor + 1, len(self.pieces)):
            piece = self.pieces[index].text
            found = self._behind(piece, end, self._reach(index))
            if found < 0:
                return None
            end = found + len(piece)
        return first, end

    def _reach(self, index: int) -> int:
        piece = self.pieces[index]
        return max(piece.reach, self.hidden_lines) if piece.behind_mask else piece.reach

    def _before(self, piece: str, end: int, reach: int) -> int:
        low, _ = self.text.around(end - 1, lines_before=reach + piece.count("\n"))
        return self.text.text.rfind(piece, max(low, end - _WIDEST_GAP - len(piece)), end)

    def _behind(self, piece: str, start: int, reach: int) -> int:
        _, high = self.text.around(max(start - 1, 0), lines_after=reach)
        return self.text.text.find(piece, start, min(high, start + _WIDEST_GAP) + len(piece))
