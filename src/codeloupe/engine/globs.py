"""Path globs as in .gitignore: `*` stays within a folder, `**` does not, a bare name fits at any depth.

A pattern may come from a repository that nobody vouches for, and becomes a regular expression in which no star goes
back over what another one took: after a star the nearest fit is as good as any later one, since whatever follows has
the most room after it. So a match takes time that grows with the path and the pattern, not with the number of stars.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import PurePosixPath

from msgspec import Struct

from codeloupe.errors import UsageError
from codeloupe.model.review import NOT_INCLUDED
from codeloupe.model.scope import PathPattern, Piece, Wildcard, parse_pattern


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
    """Fits at the beginning of a path that the pattern covers: a pattern for a folder covers everything below it.

    One group for all parts up to the next jump: it is tried folder by folder, and left for good where it fits.
    """
    parts = list(_parts(parse_pattern(pattern)))
    # What ends in a star has no end to look for.
    is_open = not parts[-1].expression and parts[-1].slides
    groups: list[list[_Part]] = []
    for part in parts[:-1] if is_open else parts:
        if part.jumps or not groups:
            groups.append([])
        groups[-1].append(part)
    written = ""
    for group in groups if is_open else groups[:-1]:
        jump = "(?:.*?/)??" if group[0].jumps else ""
        written += f"(?>{jump}{''.join(map(_slide, group))})"
    if not is_open:
        # Nothing comes after it, so any fit will do, and the stars that take all they can are the faster ones.
        *others, last = groups[-1]
        jump = "(?:.*/)?" if groups[-1][0].jumps else ""
        star = "[^/]*" if last.slides else ""
        written += rf"{jump}{''.join(map(_slide, others))}{star}{last.expression}(?=/|\Z)"
    return re.compile(written, re.DOTALL)


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


def _slide(part: _Part) -> str:
    return f"(?>[^/]*?{part.expression})" if part.slides else part.expression


def _character(piece: Piece) -> str:
    if isinstance(piece, str):
        return re.escape(piece)
    if isinstance(piece, Wildcard):
        return "[^/]"
    # Written as a code, no character means anything else within brackets.
    codes = ((low, high, f"\\U{ord(low):08x}", f"\\U{ord(high):08x}") for low, high in piece.ranges)
    members = "".join(first if low == high else f"{first}-{last}" for low, high, first, last in codes if low <= high)
    if piece.negated:
        return f"[^/{members}]"
    return f"(?!/)[{members}]" if members else "(?!)"


_WILD = re.compile(r"[*?\[]")
# A comparison with each of a hundred thousand names takes seconds.
_MOST_CANDIDATES = 20_000


def unmatched(patterns: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """The patterns that fit none of some files."""
    left = {pattern: Globs((pattern,), ()) for pattern in patterns}
    for name in names:
        fitting = [pattern for pattern, globs in left.items() if globs.unwanted(name) is None]
        for pattern in fitting:
            del left[pattern]
        if not left:
            break
    return tuple(left)


def literal_pattern(path: str) -> str:
    """The pattern that fits a path and what is below it, and nothing else."""
    return "/" + re.sub(_WILD, lambda found: f"[{found[0]}]", path)


def no_such_files(pattern: str, names: Sequence[str], *, where: str = ", before or after the change") -> UsageError:
    """The error for a pattern that fits no file of the repository, by default before or after the change."""
    meant = nearest_pattern(pattern, names)
    hint = f"did you mean {meant}?" if meant else "`git ls-files` shows the files there are"
    return UsageError(f"no file of the repository matches {pattern!r}{where}", hint=hint)


def nearest_pattern(pattern: str, names: Sequence[str]) -> str | None:
    """The pattern with another spelling of its folder, name or suffix that would fit something; None for none."""
    body = pattern.strip("/")
    fixed = _WILD.split(body, maxsplit=1)[0]
    if not fixed:
        suffixes = {f"*{PurePosixPath(name).suffix}" for name in names if PurePosixPath(name).suffix}
        head, _, last = body.rpartition("/")
        alike = difflib.get_close_matches(last, sorted(suffixes), n=1)
        return f"{head}/{alike[0]}".lstrip("/") if alike else None
    whole = fixed == body
    folder = body if whole else fixed.rpartition("/")[0]
    rest = "" if whole else body[len(folder) :]
    near = nearest_path(folder or fixed, names, folders_only=not whole)
    return f"{near}{rest}" if near else None


def nearest_path(path: str, names: Sequence[str], *, folders_only: bool = False) -> str | None:
    """The file or folder whose name is most like a path; one with the same base name elsewhere comes first."""
    folders = dict.fromkeys(str(parent) for name in names for parent in PurePosixPath(name).parents if parent.name)
    known = list(folders) if folders_only else [*names, *folders]
    last = PurePosixPath(path).name.lower()
    same = [name for name in known if last in (PurePosixPath(name).name.lower(), PurePosixPath(name).stem.lower())]
    if same:
        return min(same, key=lambda name: (-difflib.SequenceMatcher(None, path, name).ratio(), name))
    near = difflib.get_close_matches(path, known[:_MOST_CANDIDATES], n=1)
    if near:
        return near[0]
    by_last = {PurePosixPath(name).name: name for name in reversed(known[:_MOST_CANDIDATES])}
    alike = difflib.get_close_matches(PurePosixPath(path).name, list(by_last), n=1)
    return by_last[alike[0]] if alike else None
