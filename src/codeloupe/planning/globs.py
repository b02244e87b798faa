"""Match paths with patterns as in .gitignore: `*` stays within a folder, `**` does not, a name matches at any depth.

A pattern may come from an untrusted repository, so matching must not become slow. Each pattern becomes a regular
expression without backtracking between stars. That is correct because the nearest match after a star leaves the most
room for the rest of the pattern. The time of a match does not grow with the number of stars.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath

from codeloupe.errors import NotARepository, RevisionError, UsageError
from codeloupe.git.repository import Repository, find_root, open_repository
from codeloupe.git.scopes import Sides, resolve_scope, unknown_word
from codeloupe.git.snapshot import list_files, list_head_files
from codeloupe.model.change import Change
from codeloupe.model.review import NOT_INCLUDED
from codeloupe.model.scope import DiffScope, FetchedScope, OneOf, ScopeRequest, parse_pattern
from codeloupe.system.regex import regex


class Globs:
    """Include and exclude patterns for paths. Without include patterns every path is included. Exclude wins."""

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self._include = [_compiled(pattern) for pattern in include]
        self._exclude = [(pattern, _compiled(pattern)) for pattern in exclude]

    def unwanted(self, path: str) -> str | None:
        """Return why a path is skipped, or None if it is wanted."""
        for pattern, expression in self._exclude:
            if expression.match(path):
                return f"by the pattern {pattern}"
        if not self._include:
            return None
        for expression in self._include:
            if expression.match(path):
                return None
        return NOT_INCLUDED


# An atomic group that begins where folders may be skipped.
_AFTER_ANY_FOLDERS = "(?>(?:.*?/)??"
_AT_ROOT = "(?>"
_STAR = "(?>[^/]*?"


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return an expression that matches the beginning of each path that the pattern covers.

    A pattern for a folder covers everything in it. An atomic group reaches from one place where folders may be skipped
    to the next such place. Within it, another atomic group reaches from one star to the next star.
    """
    pieces, anchored = parse_pattern(pattern)
    expression = _AT_ROOT if anchored else _AFTER_ANY_FOLDERS
    # The end of the group of the last star, if there is one.
    star_end = ""
    ends_with_star = False
    for piece in pieces:
        ends_with_star = piece in ("*", "**")
        if piece in ("**/", "**"):
            expression += f"{star_end}){_AFTER_ANY_FOLDERS}"
            star_end = ""
        if ends_with_star:
            expression += f"{star_end}{_STAR}"
            star_end = ")"
        elif isinstance(piece, OneOf):
            expression += _one_of(piece)
        elif piece == "?":
            expression += "[^/]"
        elif piece != "**/":
            expression += re.escape(piece)
    if not ends_with_star:
        # A name must end here. After a star there is no end to look for.
        expression += r"(?=/|\Z)"
    return re.compile(f"{expression}{star_end})", re.DOTALL)


def _one_of(piece: OneOf) -> str:
    """Return the expression for a set of characters, none of which is a slash."""
    codes = ""
    for low, high in piece.ranges:
        if low <= high:
            # Written as a code, a character has no special meaning within brackets.
            codes += f"\\U{ord(low):08x}-\\U{ord(high):08x}"
    if piece.negated:
        return f"[^/{codes}]"
    if not codes:
        return "(?!)"
    return f"(?!/)[{codes}]"


_WILD = regex(r"[*?\[]")
# Comparing a path with a hundred thousand names takes seconds.
_MOST_COMPARED = 20_000


def unmatched(patterns: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns that match none of the names."""
    known = list(names)
    missing: list[str] = []
    for pattern in patterns:
        expression = _compiled(pattern)
        if not any(expression.match(name) for name in known):
            missing.append(pattern)
    return tuple(missing)


def literal_pattern(path: str) -> str:
    """Return the pattern that matches a path and everything in it, and nothing else."""
    return "/" + _WILD.sub(lambda found: f"[{found[0]}]", path)


def no_such_files(pattern: str, names: Sequence[str], *, where: str = ", before or after the change") -> UsageError:
    """Return the error for a pattern that matches no file of the repository, with a spelling that would as its hint."""
    meant = _nearest_pattern(pattern.strip("/"), names)
    hint = "`git ls-files` lists the files"
    if meant is not None:
        hint = f"did you mean {meant}?"
    return UsageError(f"no file of the repository matches {pattern!r}{where}", hint=hint)


def _nearest_pattern(pattern: str, names: Sequence[str]) -> str | None:
    """Return a similar pattern: another path, another folder before the wildcard, or another suffix."""
    wildcard = _WILD.search(pattern)
    if wildcard is None:
        return nearest_path(pattern, names)
    folder = pattern[: wildcard.start()].rpartition("/")[0]
    if not folder:
        return nearest_path(pattern, [f"*{PurePosixPath(name).suffix}" for name in names])
    near = nearest_path(folder, [str(PurePosixPath(name).parent) for name in names])
    if near is None:
        return None
    return near + pattern.removeprefix(folder)


def nearest_path(path: str, names: Sequence[str]) -> str | None:
    """Return the file or folder whose path, or whose name alone, is spelt most like a path."""
    spellings: dict[str, str] = {}
    for name in names:
        file = PurePosixPath(name)
        for place in (file, *file.parents[:-1]):
            spellings[str(place).lower()] = str(place)
            spellings.setdefault(place.name.lower(), str(place))
    compared = list(spellings)[:_MOST_COMPARED]
    matches = difflib.get_close_matches(path.lower(), compared, n=1)
    if not matches:
        return None
    return spellings[matches[0]]


async def check_patterns(
    change: Change, patterns: Sequence[str], repository: Repository | None, sides: Sides | None
) -> None:
    """Raise UsageError for an include pattern that matches nothing: a typo must not look like a clean review."""
    names: set[str] = set()
    for file in change.files:
        names.update(name for name in (file.old_path, file.new_path) if name)
    names.update(name.rstrip("/") for name, _ in change.unreadable)
    names.update(name.rstrip("/") for name in change.nested_repositories)
    wrong = unmatched(patterns, names)
    if wrong and repository is not None:
        names.update(await list_files(repository, sides))
        wrong = unmatched(wrong, names)
    if wrong:
        raise no_such_files(wrong[0], sorted(names))


async def patterns_of(
    words: Sequence[str], paths: Sequence[str], scope: ScopeRequest, *, repo: Path
) -> tuple[str, ...]:
    """Return the include patterns for files and folders that are named relative to `repo`.

    `paths` are taken as they are. Raise UsageError for one of the `words` that is not a file of the working tree or of
    HEAD, and for any path outside of the repository.
    """
    if not words and not paths:
        return ()
    is_elsewhere = isinstance(scope, DiffScope | FetchedScope)
    try:
        root = find_root(repo)
    except NotARepository:
        if not is_elsewhere:
            raise
        root = repo.resolve()
    word_of = {_inside(word, root, repo): word for word in words}
    if not is_elsewhere:
        await _check_words(word_of, root, scope, repo)
    inside = [*word_of, *(_inside(path, root, repo) for path in paths)]
    if "" in inside:
        # The whole repository is named.
        return ()
    return tuple(literal_pattern(path) for path in inside)


def _inside(word: str, root: Path, repo: Path) -> str:
    """Return a path relative to the root of the repository; an empty one is the root itself."""
    # Links are not resolved: a link in the repository is a file of its own.
    path = os.path.normpath(os.path.join(repo.resolve(), word))  # noqa: PTH118 - Path has no such normalisation
    relative = os.path.relpath(path, root)
    if relative == ".." or relative.startswith("../"):
        raise UsageError(f"{word!r} is outside the repository {root}", hint="give a path inside it")
    return "" if relative == "." else relative


async def _check_words(word_of: Mapping[str, str], root: Path, scope: ScopeRequest, repo: Path) -> None:
    """Raise UsageError for a path that is on neither side of the change nor in HEAD. Its word names it in the error."""
    absent = [path for path in word_of if path and not os.path.lexists(root / path)]
    if not absent:
        return
    repository = await open_repository(repo)
    sides: Sides | None = None
    # A scope that cannot be resolved is reported later, by the review itself.
    with suppress(RevisionError, NotARepository):
        sides = await resolve_scope(repository, scope, base_branch=None)
    known = [*await list_files(repository, sides), *await list_head_files(repository)]
    for path in absent:
        if not any(file == path or file.startswith(f"{path}/") for file in known):
            raise await unknown_word(repository, word_of[path], nearest_path(path, known))
