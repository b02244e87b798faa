"""The files that a user asks for: whether a pattern fits any at all, and what was probably meant. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from codeloupe.engine.globs import Globs
from codeloupe.errors import UsageError

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
