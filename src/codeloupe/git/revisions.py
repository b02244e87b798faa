"""The revision that a misspelt one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable

from codeloupe.system.regex import regex
from codeloupe.system.spelling import nearest

USUAL_NAMES = ("main", "master", "develop")
# The part of a revision after the name of a branch or a tag, such as ~2, ^, @{upstream} or :path.
_STEPS = regex(r"[~^:]|@\{")
_HOMES = ("refs/heads/", "refs/tags/", "refs/remotes/")


def meant_revision(revision: str, refs: Iterable[str]) -> str | None:
    """Return the revision that is meant by an unknown one, or None. `refs` are the full names of all refs.

    In this order: the same branch at a remote or here, the main branch by its other usual name, the nearest spelling.
    """
    name, steps = split_steps(revision)
    names = _spellings(refs)
    meant = names.get(name) or names.get(name.partition("/")[2]) or _usual(name, names)
    if meant is None:
        near = nearest(name, names)
        if near is None:
            return None
        meant = names[near]
    return f"{meant}{steps}" if meant != name else None


def split_steps(revision: str) -> tuple[str, str]:
    """Split `main~2` into `main` and `~2`."""
    found = _STEPS.search(revision)
    if found is None:
        return revision, ""
    return revision[: found.start()], revision[found.start() :]


def _spellings(refs: Iterable[str]) -> dict[str, str]:
    """Return the names to type, by each name that people use: a branch of a remote also by its name alone."""
    names = {"HEAD": "HEAD"}
    alone: dict[str, str] = {}
    for ref in sorted(refs, key=_home_of):
        short = ref.removeprefix(_HOMES[_home_of(ref)])
        names.setdefault(short, short)
        branch = short.partition("/")[2]
        # A ref of git-svn has no name of a remote.
        if ref.startswith("refs/remotes/") and branch:
            alone.setdefault(branch, short)
    return {**alone, **names}


def _home_of(ref: str) -> int:
    for place, home in enumerate(_HOMES):
        if ref.startswith(home):
            return place
    return 0


def _usual(name: str, names: dict[str, str]) -> str | None:
    """Return the main branch by its other usual name, of the same remote if one is named."""
    remote, slash, branch = name.rpartition("/")
    if branch not in USUAL_NAMES:
        return None
    for usual in USUAL_NAMES:
        if f"{remote}{slash}{usual}" in names:
            return names[f"{remote}{slash}{usual}"]
    return None
