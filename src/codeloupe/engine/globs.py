"""Path globs as in .gitignore: `*` stays within a folder, `**` does not, a bare name fits at any depth.

A pattern may come from a repository that nobody vouches for, and becomes a regular expression in which no star goes
back over what another one took: after a star the nearest fit is as good as any later one, since whatever follows has
the most room after it. So a match takes time that grows with the path and the pattern, not with the number of stars.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import PurePosixPath

from codeloupe.errors import UsageError
from codeloupe.model.review import NOT_INCLUDED
from codeloupe.model.scope import OneOf, parse_pattern
from codeloupe.system.regex import regex


class Globs:
    """Include and exclude patterns for paths. No include pattern means everything; exclude wins."""

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self._include = [_compiled(pattern) for pattern in include]
        self._exclude = [(pattern, _compiled(pattern)) for pattern in exclude]

    def unwanted(self, path: str) -> str | None:
        """Why a path is left out, or None when it is wanted."""
        for pattern, expression in self._exclude:
            if expression.match(path):
                return f"by the pattern {pattern}"
        if self._include and not any(expression.match(path) for expression in self._include):
            return NOT_INCLUDED
        return None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Fits at the beginning of a path that the pattern covers: a pattern for a folder covers everything below it.

    An atomic group reaches from where folders may be skipped to the next such place: it is tried folder by folder, and
    left for good where it fits. In it is one for each star, up to the next star.
    """
    pieces, anchored = parse_pattern(pattern)
    written, starred, ends = "(?>" if anchored else "(?>(?:.*?/)??", "", True
    for piece in pieces:
        # What ends in a star has no end to look for.
        ends = piece not in ("*", "**")
        if piece in ("**/", "**"):
            written, starred = f"{written}{starred})(?>(?:.*?/)??", ""
        if not ends:
            written, starred = f"{written}{starred}(?>[^/]*?", ")"
        elif isinstance(piece, OneOf):
            # Written as a code, no character means anything else within brackets.
            codes = "".join(f"\\U{ord(low):08x}-\\U{ord(high):08x}" for low, high in piece.ranges if low <= high)
            one_of = f"(?!/)[{codes}]" if codes else "(?!)"
            written += f"[^/{codes}]" if piece.negated else one_of
        elif piece != "**/":
            written += "[^/]" if piece == "?" else re.escape(piece)
    end = r"(?=/|\Z)" if ends else ""
    return re.compile(f"{written}{end}{starred})", re.DOTALL)


_WILD = regex(r"[*?\[]")


def unmatched(patterns: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """The patterns that fit none of some files."""
    known = list(names)
    return tuple(pattern for pattern in patterns if not any(map(_compiled(pattern).match, known)))


def literal_pattern(path: str) -> str:
    """The pattern that fits a path and what is below it, and nothing else."""
    return "/" + _WILD.sub(lambda found: f"[{found[0]}]", path)


def no_such_files(pattern: str, names: Sequence[str], *, where: str = ", before or after the change") -> UsageError:
    """The error for a pattern that fits no file of the repository; its hint is a spelling that would fit something."""
    body = pattern.strip("/")
    fixed = _WILD.split(body, maxsplit=1)[0]
    folder = body if fixed == body else fixed.rpartition("/")[0]
    if folder:
        near = nearest_path(folder, names if fixed == body else [str(PurePosixPath(name).parent) for name in names])
        meant = f"{near}{body[len(folder) :]}" if near else None
    else:
        suffixes = {f"*{PurePosixPath(name).suffix}" for name in names if PurePosixPath(name).suffix}
        meant = _most_like(body.removeprefix("**/"), sorted(suffixes))
    hint = f"did you mean {meant}?" if meant else "`git ls-files` shows the files there are"
    return UsageError(f"no file of the repository matches {pattern!r}{where}", hint=hint)


def nearest_path(path: str, names: Sequence[str]) -> str | None:
    """The file or folder whose name is most like a path; one with the same base name elsewhere comes first."""
    places = [place for name in names for place in (PurePosixPath(name), *PurePosixPath(name).parents) if place.name]
    last = PurePosixPath(path).name.lower()
    known = dict.fromkeys(map(str, places))
    same = dict.fromkeys(str(place) for place in places if last in (place.name.lower(), place.stem.lower()))
    # A comparison with each of a hundred thousand names takes seconds.
    compared, cutoff = (list(same), 0.0) if same else (list(known)[:20_000], 0.6)
    return _most_like(path, compared, cutoff)


def _most_like(word: str, known: Sequence[str], cutoff: float = 0.6) -> str | None:
    import difflib  # noqa: PLC0415 - for a mistake alone

    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=cutoff)), None)
