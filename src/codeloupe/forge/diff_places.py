"""Where in a pull request's diff a finding can have its comment: on lines of the new side, within one hunk."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codeloupe.model.finding import Finding
from codeloupe.model.publication import ChangedFile

_HUNK = re.compile(r"@@ -[0-9]{1,9}(?:,[0-9]{1,9})? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")


@dataclass(frozen=True, slots=True)
class Place:
    """Lines `first` to `last` of a file. `is_whole` tells that these are all lines of the finding."""

    path: str
    first: int
    last: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Nowhere:
    """No place, and why."""

    reason: str


class DiffPlaces:
    """The lines that the diff of a pull request shows on its new side."""

    def __init__(self, files: Sequence[ChangedFile]) -> None:
        self._spans: Mapping[str, tuple[tuple[int, int], ...] | None] = {
            file.path: None if file.patch is None else new_side(file.patch) for file in files
        }

    def __contains__(self, path: object) -> bool:
        return path in self._spans

    def find(self, finding: Finding) -> Place | Nowhere:
        """Where the comment can stand. Of a finding that reaches over a hunk's edge, the part within the hunk."""
        if not finding.anchored or finding.line_start < 1:
            return Nowhere("it has no place in the code")
        if finding.file not in self._spans:
            return Nowhere("its file is not in the pull request's diff")
        spans = self._spans[finding.file]
        if spans is None:
            return Nowhere("GitHub shows no diff of its file")
        last_line = max(finding.line_end, finding.line_start)
        at = bisect_left(spans, finding.line_start, key=lambda span: span[1])
        if at == len(spans) or spans[at][0] > last_line:
            return Nowhere("its lines are not in the pull request's diff")
        start, end = max(spans[at][0], finding.line_start), min(spans[at][1], last_line)
        return Place(finding.file, start, end, is_whole=(start, end) == (finding.line_start, last_line))


def new_side(patch: str) -> tuple[tuple[int, int], ...]:
    """The first and last line of each hunk on the new side, in order. What is no hunk's first line is not looked at.

    Lines are counted by the header, so a line of code that looks like one does no harm.
    """
    spans: list[tuple[int, int]] = []
    old_left = new_left = 0
    for row in patch.split("\n"):
        if old_left > 0 or new_left > 0:
            old_left -= row[:1] in ("-", " ", "")
            new_left -= row[:1] in ("+", " ", "")
            continue
        header = _HUNK.match(row)
        if header is None:
            continue
        start, count = int(header[1]), int(header[2] or 1)
        old_left, new_left = _old_count(row), count
        if count:
            spans.append((start, start + count - 1))
    return tuple(spans)


def _old_count(header: str) -> int:
    _, _, count = header.split(" ", 2)[1].partition(",")
    return int(count or 1)
