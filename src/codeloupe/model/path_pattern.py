"""Path patterns as in .gitignore, cut into the pieces that they mean.

`*` and `?` stay within a folder, `**` does not, `[ab]` is one of some characters, and `**/` where a folder could begin
is any number of folders. There is no escape: a backslash is itself, and so is a bracket that is not closed before the
next slash.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct


class Wildcard(Enum):
    """What stands for a run of characters, or for one."""

    FOLDERS = "**/"
    ANYTHING = "**"
    WITHIN = "*"
    ONE = "?"


class OneOf(Struct, frozen=True):
    """One character out of some ranges, both ends included, or with `negated` one outside of them; never a slash."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False


Piece = str | Wildcard | OneOf


class PathPattern(Struct, frozen=True):
    """A pattern: its pieces, and whether it is tied to the root; one that is not fits at any depth."""

    pieces: tuple[Piece, ...]
    anchored: bool


def parse_pattern(text: str) -> PathPattern:
    """The pattern that a text means; every text means one. Takes time linear in the text."""
    body = text.rstrip("/")
    return PathPattern(tuple(_pieces(body.removeprefix("/"))), anchored="/" in body)


def check_pattern(text: str) -> str | None:
    """Why a pattern cannot fit what it seems to say, in words about "it"; None when it can."""
    folders = text.rstrip("/").removeprefix("/").split("/")
    if folders == [""]:
        return "it names no file"
    wrong = next((folder for folder in folders if folder in ("", ".", "..")), None)
    if wrong is not None:
        return f"it has {f'`{wrong}`' if wrong else 'nothing'} where a path has the name of a folder or file"
    ranges = (ends for piece in parse_pattern(text).pieces if isinstance(piece, OneOf) for ends in piece.ranges)
    backward = next((f"{low!r} to {high!r}" for low, high in ranges if low > high), None)
    return None if backward is None else f"its range from {backward} runs backwards"


def _pieces(body: str) -> Iterator[Piece]:
    position = 0
    while position < len(body):
        found, length = _piece_at(body, position)
        yield found
        position += length


def _piece_at(body: str, position: int) -> tuple[Piece, int]:
    if body[position] == "[":
        return _bracket_at(body, position)
    known = [wildcard for wildcard in Wildcard if body.startswith(wildcard.value, position)]
    if known[:1] == [Wildcard.FOLDERS] and body[position - 1 : position] not in ("", "/"):
        known = [Wildcard.ANYTHING]
    wildcard = known[0] if known else None
    return (body[position], 1) if wildcard is None else (wildcard, len(wildcard.value))


def _bracket_at(body: str, start: int) -> tuple[Piece, int]:
    negated = body[start + 1 : start + 2] in ("!", "^")
    first = start + 2 if negated else start + 1
    # Right behind the opening one, a closing bracket is a character like others.
    end = body.find("]", first + 1)
    if end < 0 or "/" in body[first:end]:
        return "[", 1
    return OneOf(tuple(_ranges(body[first:end])), negated), end + 1 - start


def _ranges(members: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(members):
        is_range = members[position + 1 : position + 2] == "-" and position + 2 < len(members)
        last = position + 2 if is_range else position
        yield members[position], members[last]
        position = last + 1
