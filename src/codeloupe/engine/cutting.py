"""An enormous hunk in pieces, each of them a hunk with the right numbers. Linear in the hunk, or nearly so.

A piece after the first begins with a few rows of the one before, so that a reviewer sees what stands above. They are
kept as they are in the diff, so that the piece stays a true hunk: its counts are those of all its rows. How many
rows are repeated is told beside it (`repeated_rows`); only the rows behind them are covered by the piece, and these,
put together, are the body of the whole hunk.

A single row is never cut, however long it is: the prompt shows no more than its beginning, and says so.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from math import ceil
from operator import add
from typing import NamedTuple

from msgspec.structs import replace

from codeloupe.engine.light_diff import MAX_LINE_BYTES
from codeloupe.engine.tokens import hunk_tokens, tokens_of
from codeloupe.model.change import Hunk

_MOST_REPEATED_ROWS = 5
_MOST_REPEATED_SHARE = 0.1
_MOST_OWN_SHARE = 1.15
_LOOK_BACK_SHARE = 0.2
_LOOK_AHEAD_SHARE = 0.1
# As much as git itself shows.
_LONGEST_SECTION = 80
_FURTHEST_SECTION = 2_000
_ENDS_OF_CHANGES = frozenset(((b"+", b" "), (b"-", b" "), (b"+", b"-")))
_DEFINITION = re.compile(rb"[-+ ][A-Za-z_$]")
_TOP_LEVEL = re.compile(rb"[-+ ][^\s})\]]")


class Piece(NamedTuple):
    """A hunk, or a part of one; `repeated_rows` of its body, at its beginning, stand in the piece before too."""

    hunk: Hunk
    repeated_rows: int
    tokens: int


class _Count(NamedTuple):
    """How many lines a body has on each side, and how many of them only there."""

    old: int
    new: int
    added: int
    deleted: int


def cut_hunk(hunk: Hunk, *, target_tokens: int, most_tokens: int) -> tuple[Piece, ...]:
    """The hunk whole when it has at most `most_tokens`; else even pieces, each of `target_tokens` or a little more.

    A piece has more than that only when it holds a single row of its own.
    """
    if len(hunk.section) > _LONGEST_SECTION:
        hunk = replace(hunk, section=hunk.section[:_LONGEST_SECTION])
    tokens = _shown_tokens(hunk)
    if tokens <= most_tokens:
        return (Piece(hunk, 0, tokens),)
    return tuple(_Cutter(hunk, target_tokens).pieces())


def stretches_of(hunk: Hunk, stretches: Iterable[tuple[int, int]]) -> Iterator[Hunk]:
    """Some stretches of a hunk's rows, each from a first row up to a last, as hunks with the right numbers.

    They come in order and do not overlap. Linear in the hunk.
    """
    rows = hunk.body.split(b"\n")
    last = len(rows) - (not rows[-1])
    old = hunk.old_start + (not hunk.old_lines)
    new = hunk.new_start + (not hunk.new_lines)
    passed = 0
    for start, end in stretches:
        if (start, end) == (0, last):
            yield hunk
            return
        # The marker of a missing newline belongs to its row.
        first = start - (start > passed and rows[start][:1] == b"\\")
        behind = end + (end < last and rows[end][:1] == b"\\")
        before = _count(_with_ends(rows[passed:first]))
        old, new = old + before.old, new + before.new
        section = _section_in(rows[max(0, first - _FURTHEST_SECTION) : first]) or hunk.section
        body = _with_ends(rows[first:behind])
        yield _hunk_at(old, new, body if behind < len(rows) else body[:-1], section)
        own = _count(body)
        old, new, passed = old + own.old, new + own.new, behind


def _with_ends(rows: Sequence[bytes]) -> bytes:
    return b"".join(row + b"\n" for row in rows)


def _shown_tokens(hunk: Hunk) -> int:
    """About how many tokens a hunk is as a prompt shows it, with endless rows cut."""
    tokens = hunk_tokens(hunk)
    if len(hunk.body) <= MAX_LINE_BYTES:
        return tokens
    rows = hunk.body.split(b"\n")
    if max(map(len, rows)) <= MAX_LINE_BYTES:
        return tokens
    return tokens - tokens_of(hunk.body) + tokens_of(b"\n".join(map(_shown, rows)))


def _shown(row: bytes) -> bytes:
    return row[:MAX_LINE_BYTES]


def _count(body: bytes) -> _Count:
    added, deleted, markers = (body.count(b"\n" + sign) + body.startswith(sign) for sign in (b"+", b"-", b"\\"))
    rows = body.count(b"\n") + (not body.endswith(b"\n") and body != b"")
    return _Count(rows - added - markers, rows - deleted - markers, added, deleted)


class _Cutter:
    """Cuts one hunk. `shown` are its rows as a prompt shows them; `starts` the bytes before each, and those of all."""

    def __init__(self, hunk: Hunk, target_tokens: int) -> None:
        self._hunk = hunk
        self._target = target_tokens
        self._ended = hunk.body.endswith(b"\n")
        self._rows = hunk.body.split(b"\n")
        if self._ended:
            self._rows.pop()
        self._shown = list(map(_shown, self._rows))
        self._starts = list(accumulate(map(add, map(len, self._shown), repeat(1)), initial=0))

    def pieces(self) -> Iterator[Piece]:
        """The pieces in order."""
        # In git's numbers a side without lines begins before its first line.
        old = self._hunk.old_start + (not self._hunk.old_lines)
        new = self._hunk.new_start + (not self._hunk.new_lines)
        section, previous = self._hunk.section, 0
        for start, end in self._ranges(0, len(self._rows)):
            begin = self._overlap_begin(start, previous)
            section = self._section(previous, begin) or section
            repeated, own = _count(self._body(begin, start)), _count(self._body(start, end))
            piece = _hunk_at(old - repeated.old, new - repeated.new, self._body(begin, end), section)
            yield Piece(piece, start - begin, _shown_tokens(piece))
            old, new, previous = old + own.old, new + own.new, start

    def _ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The rows from `start` to `end`, cut until each part is small enough or cannot be cut any more."""
        tokens = tokens_of(b"\n".join(self._shown[start:end]))
        tokens_per_byte = tokens / (self._starts[end] - self._starts[start])
        first, rest = start, float(tokens)
        while rest > self._target * _MOST_OWN_SHARE:
            bound = self._bound(first, end, parts=ceil(rest / self._target))
            if bound <= first or bound >= end:
                break
            yield from self._ranges(first, bound)
            first, rest = bound, (self._starts[end] - self._starts[bound]) * tokens_per_byte
        if first == start:
            yield start, end
        else:
            yield from self._ranges(first, end)

    def _bound(self, start: int, end: int, *, parts: int) -> int:
        """The best row to end the first of some even parts before: where one thing ends and another begins."""
        share = (self._starts[end] - self._starts[start]) / parts
        first, ideal, last = (
            min(max(bisect_left(self._starts, self._starts[start] + share * size, start, end), start + 1), end - 1)
            for size in (1 - _LOOK_BACK_SHARE, 1, 1 + _LOOK_AHEAD_SHARE)
        )
        best = min(range(first, last + 1), key=lambda row: (self._roughness(row), abs(row - ideal), row))
        if self._rows[best][:1] == b"\\":
            return best + 1 if best + 1 < end else best - 1
        return best

    def _roughness(self, row: int) -> int:
        """How much a cut before a row tears apart."""
        before, after = self._rows[row - 1], self._rows[row]
        if after[:1] == b"\\":
            return 5
        if before[:1] == b"-" and after[:1] == b"+":
            return 4
        blank = not before[1:].strip()
        if blank and _TOP_LEVEL.match(after):
            return 0
        if (before[:1], after[:1]) in _ENDS_OF_CHANGES:
            return 1
        return 2 if blank else 3

    def _overlap_begin(self, start: int, previous: int) -> int:
        """The first of the rows to repeat before `start`, all of them of the piece that began at `previous`."""
        begin = start
        for row in range(start - 1, max(previous, start - _MOST_REPEATED_ROWS) - 1, -1):
            if tokens_of(b"\n".join(self._shown[row:start])) > self._target * _MOST_REPEATED_SHARE:
                break
            begin = row
        # The marker of a missing newline says nothing without its row.
        return begin + 1 if begin < start and self._rows[begin][:1] == b"\\" else begin

    def _section(self, start: int, end: int) -> str:
        return _section_in(self._rows[start:end])

    def _body(self, start: int, end: int) -> bytes:
        if start == end:
            return b""
        return b"\n".join(self._rows[start:end]) + (b"\n" if self._ended or end < len(self._rows) else b"")


def _section_in(rows: Sequence[bytes]) -> str:
    """The last row at the left margin, as git shows it behind a hunk's numbers; empty when there is none."""
    found = (row for row in reversed(rows) if _DEFINITION.match(row))
    return next(found, b"")[1 : _LONGEST_SECTION + 1].decode("utf-8", "replace").rstrip()


def _hunk_at(old: int, new: int, body: bytes, section: str) -> Hunk:
    """A hunk whose first line on each side has, or would have, these numbers."""
    count = _count(body)
    return Hunk(
        old - (not count.old), count.old, new - (not count.new), count.new, body, section, count.added, count.deleted
    )
