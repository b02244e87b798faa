"""Path globs as in .gitignore: `*` stays within a folder, `**` does not, a bare name fits at any depth.

A pattern may come from a repository that nobody vouches for, and becomes a regular expression in which no star goes
back over what another one took: behind a star the nearest fit is as good as any later one, since whatever follows has
the most room behind it. So a match takes time that grows with the path and the pattern, not with the number of stars.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from msgspec import Struct

from codeloupe.model.review import NOT_INCLUDED
from codeloupe.model.scope import PathPattern, Piece, Wildcard, check_pattern, parse_pattern

__all__ = ["Globs", "check_pattern"]

_END = r"(?=/|\Z)"


class Globs:
    """Include and exclude patterns for paths. No include pattern means everything; exclude wins.

    A range that runs backwards, which `check_pattern` complains about, holds no character.
    """

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self._include = [_compiled(pattern) for pattern in include]
        self._exclude = [(pattern, _compiled(pattern)) for pattern in exclude]

    def unwanted(self, path: str) -> str | None:
        """Why a path is left out, in words, or None when it is wanted."""
        for pattern, expression in self._exclude:
            if expression.match(path):
                return f"by the pattern {pattern}"
        if self._include and not any(expression.match(path) for expression in self._include):
            return NOT_INCLUDED
        return None


class _Part(Struct, frozen=True):
    """Characters without a star between them, and the stars in front of them.

    `jumps` tells that any number of whole folders may be skipped first, `slides` that any characters up to the next
    slash may be.
    """

    expression: str
    jumps: bool
    slides: bool


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Fits at the beginning of a path that the pattern covers: a pattern for a folder covers everything below it."""
    return re.compile(_expression(list(_parts(parse_pattern(pattern)))), re.DOTALL)


def _parts(pattern: PathPattern) -> Iterator[_Part]:
    written: list[str] = []
    jumps, slides = not pattern.anchored, False
    for piece in pattern.pieces:
        if not isinstance(piece, Wildcard) or piece is Wildcard.ONE:
            written.append(_character(piece))
            continue
        if written:
            yield _Part("".join(written), jumps, slides)
            written, jumps, slides = [], False, False
        jumps |= piece is not Wildcard.WITHIN
        slides |= piece is not Wildcard.FOLDERS
    yield _Part("".join(written), jumps, slides)


def _expression(parts: list[_Part]) -> str:
    """One group for all parts up to the next jump: it is tried folder by folder, and left for good where it fits."""
    # What ends in a star has no end to look for.
    is_open = not parts[-1].expression and parts[-1].slides
    groups: list[list[_Part]] = []
    for part in parts[:-1] if is_open else parts:
        if part.jumps or not groups:
            groups.append([])
        groups[-1].append(part)
    return "".join(map(_nearest, groups if is_open else groups[:-1])) + ("" if is_open else _at_the_end(groups[-1]))


def _nearest(group: list[_Part]) -> str:
    jump = "(?:.*?/)??" if group[0].jumps else ""
    return f"(?>{jump}{''.join(map(_slide, group))})"


def _at_the_end(group: list[_Part]) -> str:
    # Nothing comes behind it, so any fit will do, and the stars that take all they can are the faster ones.
    jump = "(?:.*/)?" if group[0].jumps else ""
    *others, last = group
    star = "[^/]*" if last.slides else ""
    return f"{jump}{''.join(map(_slide, others))}{star}{last.expression}{_END}"


def _slide(part: _Part) -> str:
    return f"(?>[^/]*?{part.expression})" if part.slides else part.expression


def _character(piece: Piece) -> str:
    if isinstance(piece, str):
        return re.escape(piece)
    if isinstance(piece, Wildcard):
        return "[^/]"
    members = "".join(_members(piece.ranges))
    if piece.negated:
        return f"[^/{members}]"
    return f"(?!/)[{members}]" if members else "(?!)"


def _members(ranges: Iterable[tuple[str, str]]) -> Iterator[str]:
    for low, high in ranges:
        if low == high:
            yield _code(low)
        elif low < high:
            yield f"{_code(low)}-{_code(high)}"


def _code(character: str) -> str:
    """A character that means nothing else within brackets."""
    return f"\\U{ord(character):08x}"
