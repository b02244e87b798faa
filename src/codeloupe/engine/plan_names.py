"""Names of units, for people: the file, the lines when it is only a part of it, and what else tells units apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from codeloupe.model.change import UnitPart


def describe(parts: Sequence[UnitPart], *, first_is_whole: bool) -> str:
    """What a unit holds: `src/a.py`, `src/a.py:120-260`, `src/a.py and 3 more files`."""
    first = parts[0]
    name = first.file.path if first_is_whole else f"{first.file.path}:{_lines(first)}"
    others = len({id(part.file) for part in parts}) - 1
    return f"{name} and {others} more file{'s' if others > 1 else ''}" if others else name


def _lines(part: UnitPart) -> str:
    """From the first to the last line in the new file; in the old one where there is nothing but deleted lines."""
    first, last = part.hunks[0], part.hunks[-1]
    if not any(hunk.new_lines for hunk in part.hunks):
        return f"{first.old_start}-{last.old_start + last.old_lines - 1}"
    return f"{first.new_start}-{last.new_start + max(last.new_lines - 1, 0)}"


class UniqueNames:
    """Gives a name that was already given a number."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        """The name, or `name (2)` when it is taken."""
        wanted = name
        while self._given[wanted]:
            self._given[name] += 1
            wanted = f"{name} ({self._given[name]})"
        self._given[wanted] += 1
        return wanted
