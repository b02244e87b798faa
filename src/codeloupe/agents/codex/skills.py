"""The skills that lie in a working directory, which the codex program would read into the prompt.

It takes `$name` anywhere in a prompt for a mention of a skill, and loads that skill's text from the repository,
trusted or not. A diff is full of `$name`. No setting turns this off, but each skill can be turned off by its path.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from codeloupe.errors import InvalidRequest

_FOLDERS = (Path(".agents", "skills"), Path(".codex", "skills"))
_FILE = "skill.md"
# The program itself looks six levels deep and into at most 2,000 directories.
_MAX_LEVELS = 8
_MAX_DIRECTORIES = 4000


def skill_files(working_dir: Path, *, agent: str) -> tuple[Path, ...]:
    """Every skill that a run in this directory could load, by both names where a link leads to it.

    The skills of every directory above are among them, since a project's root may be any. Raises InvalidRequest when
    there are more directories than can be looked into, since some skill could stay on.
    """
    start = working_dir.absolute()
    found: dict[Path, None] = {}
    for root in (folder / skills for folder in (start, *start.parents) for skills in _FOLDERS):
        for file in _files_below(root, agent):
            found[file] = None
            with suppress(OSError, RuntimeError):
                found[file.resolve()] = None
    return tuple(found)


def _files_below(root: Path, agent: str) -> Iterator[Path]:
    level, seen, looked_into = [root], {_real_directory(root)}, 0
    for _ in range(_MAX_LEVELS):
        below: list[Path] = []
        for folder in level:
            looked_into += 1
            if looked_into > _MAX_DIRECTORIES:
                raise too_many(agent, f"{root} has more than {_MAX_DIRECTORIES:,} directories")
            for entry in _entries(folder):
                if entry.name.lower() == _FILE:
                    yield entry
                elif (real := _real_directory(entry)) and real not in seen:
                    seen.add(real)
                    below.append(entry)
        level = below


def too_many(agent: str, what: str) -> InvalidRequest:
    """The error of a directory with more skills than can be turned off."""
    return InvalidRequest(
        f"{agent} would load skills of the repository that cannot be turned off: {what}",
        agent=agent,
        hint="use another agent, or a copy of the files without .agents and .codex",
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # what we cannot read, a program of the same user cannot read either
        return []


def _real_directory(entry: Path) -> Path | None:
    try:
        return entry.resolve() if entry.is_dir() else None
    except (OSError, RuntimeError):
        return None
