"""Pieces of a diff, in order, into units of about one size. Pure numbers; linear.

A unit ends near the size that is asked for, where the pieces before and behind have least to do with each other. What
is left over in too small units then joins others that have room, so that few calls pay for the instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

# A unit may be so much larger than asked for, rather than leave crumbs or tear things apart.
MOST_FILL = 1.3
# A little above what is asked for, since the places to end a unit are more often before than behind it.
_BEST_FILL = 1.08
_LEAST_FILL = 0.6
_CRUMB_FILL = 0.5
_LOOK_BACK_UNITS = 16


class Bond(IntEnum):
    """What a piece has to do with the one before it."""

    STRANGER = 0
    FOLDER = 1
    BLOCK = 2
    FILE = 3
    SECTION = 4


class Weight(NamedTuple):
    """A piece to pack: its tokens, those of its file's header, and its bond to the piece before."""

    tokens: int
    header_tokens: int
    bond: Bond


# What it costs to end a unit before a piece, in parts of a unit that is too small or too large.
_TEARING = {
    Bond.STRANGER: 0.0,
    Bond.FOLDER: 0.05,
    Bond.BLOCK: 0.2,
    Bond.FILE: 0.3,
    Bond.SECTION: 0.6,
}


class _Load(NamedTuple):
    places: list[int]
    tokens: int


def pack(weights: Sequence[Weight], target_tokens: int) -> list[tuple[int, ...]]:
    """The places of the pieces of each unit; every place is in exactly one, in order inside it.

    A unit has at most MOST_FILL times `target_tokens`, unless it is a single piece.
    """
    loads = [_Load(list(range(start, end)), tokens) for start, end, tokens in _stretches(weights, target_tokens)]
    return [tuple(sorted(load.places)) for load in _joined(loads, target_tokens)]


def _stretches(weights: Sequence[Weight], target_tokens: int) -> Iterator[tuple[int, int, int]]:
    start = 0
    while start < len(weights):
        end, tokens = _end_of(weights, start, target_tokens)
        yield start, end, tokens
        start = end


def _end_of(weights: Sequence[Weight], start: int, target_tokens: int) -> tuple[int, int]:
    """Behind which piece the unit that begins at `start` ends best, and its tokens."""
    first = weights[start]
    tokens = first.tokens + first.header_tokens
    best, best_cost = (start + 1, tokens), float("inf")
    for place in range(start + 1, len(weights)):
        weight = weights[place]
        fill = tokens / target_tokens
        cost = _TEARING[weight.bond] + abs(fill - _BEST_FILL) if fill >= _LEAST_FILL else 2 - fill
        if cost <= best_cost:
            best, best_cost = (place, tokens), cost
        more = weight.tokens + (weight.header_tokens if weight.bond < Bond.FILE else 0)
        if tokens + more > target_tokens * MOST_FILL:
            return best
        tokens += more
    return len(weights), tokens


def _joined(loads: Sequence[_Load], target_tokens: int) -> list[_Load]:
    """Loads put to others that have room, the nearest first; a crumb may make another larger than asked for."""
    joined: list[_Load] = []
    for load in loads:
        for place in range(len(joined) - 1, max(-1, len(joined) - 1 - _LOOK_BACK_UNITS), -1):
            other = joined[place]
            has_crumb = min(load.tokens, other.tokens) < target_tokens * _CRUMB_FILL
            if load.tokens + other.tokens <= target_tokens * (MOST_FILL if has_crumb else _BEST_FILL):
                joined[place] = _Load(other.places + load.places, load.tokens + other.tokens)
                break
        else:
            joined.append(load)
    return joined
