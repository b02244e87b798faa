"""Where in a pull request's diff a finding can have its comment: on lines of the new side, within one hunk."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from codeloupe.model.finding import Finding
from codeloupe.model.publication import ChangedFile

_HUNK = re.compile(r"@@ -[0-9]{1,9}(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")


class Place(Struct, frozen=True):
    """Lines `first` to `last` of a file.

    `takes_edit` tells that these are all lines of the finding, and that no deleted line stands between them: GitHub
    shows an edit there, and then refuses to apply it.
    """

    path: str
    first: int
    last: int
    takes_edit: bool


class Nowhere(Struct, frozen=True):
    """No place, and why."""

    reason: str


class Hunk(Struct, frozen=True):
    """The lines of one hunk on the new side, and those of them right above which lines are deleted, in order."""

    first: int
    last: int
    below_deleted: tuple[int, ...]


class DiffPlaces:
    """The lines that the diff of a pull request shows on its new side."""

    def __init__(self, files: Sequence[ChangedFile]) -> None:
        self._hunks: Mapping[str, tuple[Hunk, ...] | None] = {
            file.path: None if file.patch is None else hunks_of(file.patch) for file in files
        }

    def __contains__(self, path: object) -> bool:
        return path in self._hunks

    def find(self, finding: Finding) -> Place | Nowhere:
        """Where the comment can stand. Of a finding that reaches over a hunk's edge, the part within the hunk."""
        if not finding.anchored or finding.first_line < 1:
            return Nowhere("it has no place in the code")
        if finding.file not in self._hunks:
            return Nowhere("its file is not in the pull request's diff")
        hunks = self._hunks[finding.file]
        if hunks is None:
            return Nowhere("GitHub shows no diff of its file")
        last_line = max(finding.last_line, finding.first_line)
        at = bisect_left(hunks, finding.first_line, key=lambda hunk: hunk.last)
        if at == len(hunks) or hunks[at].first > last_line:
            return Nowhere("its lines are not in the pull request's diff")
        first, last = max(hunks[at].first, finding.first_line), min(hunks[at].last, last_line)
        is_whole = (first, last) == (finding.first_line, last_line)
        cuts = hunks[at].below_deleted
        is_cut = bisect_right(cuts, first) < bisect_right(cuts, last)
        return Place(finding.file, first, last, takes_edit=is_whole and not is_cut)


def hunks_of(patch: str) -> tuple[Hunk, ...]:
    """The hunks that have lines on the new side, in order. What is no hunk's first line is not looked at.

    Lines are counted by the header, so a line of code that looks like one does no harm.
    """
    hunks: list[Hunk] = []
    rows = iter(patch.split("\n"))
    for row in rows:
        header = _HUNK.match(row)
        if header is None:
            continue
        first, count = int(header[2]), int(header[3] or 1)
        cuts = _below_deleted(rows, old=int(header[1] or 1), new=count, first=first)
        if count:
            hunks.append(Hunk(first, first + count - 1, cuts))
    return tuple(hunks)


def _below_deleted(rows: Iterator[str], *, old: int, new: int, first: int) -> tuple[int, ...]:
    """Read the rows of one hunk, and tell which lines stand right below deleted ones."""
    cuts: list[int] = []
    line, after_deleted = first, False
    while old > 0 or new > 0:
        row = next(rows, None)
        if row is None:
            break
        sign = row[:1] or " "
        old -= sign in "- "
        if sign in "+ ":
            if after_deleted:
                cuts.append(line)
            new, line = new - 1, line + 1
        if sign in "-+ ":
            after_deleted = sign == "-"
    return tuple(cuts)
