"""Which files a rule for artifacts means: globs of names, or of whole paths where a glob has a slash."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

_ANY_FOLDERS = "**"


def matches(path: str, pattern: str, *, recursive: bool) -> bool:
    """Whether a glob means a file, named by its path below the workspace.

    Without a slash it means names, below the top only unless `recursive`. With one it means the path, part by part;
    a part `**` is any number of folders.
    """
    pattern = pattern.removeprefix("./")
    if path == pattern:
        return True
    if "/" in pattern.rstrip("/"):
        return _parts_match(path.split("/"), pattern.removeprefix("/").split("/"))
    folder, _, name = path.rpartition("/")
    return (recursive or not folder) and fnmatchcase(name, pattern)


def matches_any(path: str, patterns: Iterable[str], *, recursive: bool) -> bool:
    """Whether one of some globs means a file."""
    return any(matches(path, pattern, recursive=recursive) for pattern in patterns)


def _parts_match(parts: list[str], patterns: list[str]) -> bool:
    """One pass over the patterns, with all the places that the path may have reached: no star is tried again."""
    reached = {0}
    for pattern in patterns:
        if pattern == _ANY_FOLDERS:
            reached = set(range(min(reached), len(parts) + 1)) if reached else reached
        else:
            reached = {place + 1 for place in reached if place < len(parts) and fnmatchcase(parts[place], pattern)}
    return len(parts) in reached
