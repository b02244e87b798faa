"""Reviewing only what a reviewer has not seen yet: the rest of its last answer about the change is carried over.

Lines are known by their file and by those next to them, not by their place, so a rebase or lines put in above change
nothing, and of a long hunk only the part with a new line is asked about again. What is carried over is placed anew in
the code of now, and keeps what was learnt about it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.engine.identity import PlacesOfNow, is_touched
from codeloupe.engine.plan import stretches_of
from codeloupe.model.change import FileChange, Hunk
from codeloupe.model.events import StageStarted
from codeloupe.model.finding import Finding
from codeloupe.model.ports import EventSink, Reviewer, ReviewerOutcome, ReviewTask
from codeloupe.model.review import ReviewerInfo

_DIGITS = 24
_MOST_ROWS = 24
_ROWS_AROUND = 4


class _Part(NamedTuple):
    """Rows of a hunk that are known or not known as a whole, and what they are known by."""

    hunk: Hunk
    start: int
    end: int
    digest: str


def digests(files: Iterable[FileChange]) -> frozenset[str]:
    """What all lines of some files' hunks are known by."""
    return frozenset(part.digest for file in files for part in _parts(file))


def unseen(files: Iterable[FileChange], seen: frozenset[str]) -> tuple[FileChange, ...]:
    """The files with those lines alone that are not in `seen`; a file of which nothing is left is left out.

    Of a long hunk that is a part of it, with a few rows around; its numbers are right.
    """

    def is_new(digest: str) -> bool:
        return digest not in seen

    left = (replace(file, hunks=tuple(_chosen(file, is_new, _ROWS_AROUND))) for file in files)
    return tuple(file for file in left if file.hunks)


def already_seen(files: Iterable[FileChange], seen: frozenset[str]) -> tuple[FileChange, ...]:
    """The files with those lines alone that are in `seen`."""
    return tuple(replace(file, hunks=tuple(_chosen(file, seen.__contains__, 0))) for file in files)


def _chosen(file: FileChange, is_wanted: Callable[[str], bool], rows_around: int) -> Iterator[Hunk]:
    """The parts of a file's hunks that are wanted, those next to each other as one."""
    for hunk, parts in groupby(_parts(file), key=lambda part: part.hunk):
        stretches: list[tuple[int, int]] = []
        last = 0
        for part in parts:
            if is_wanted(part.digest):
                start = max(0, part.start - rows_around)
                if stretches and start <= stretches[-1][1]:
                    start = stretches.pop()[0]
                stretches.append((start, part.end + rows_around))
            last = part.end
        yield from stretches_of(hunk, ((start, min(end, last)) for start, end in stretches))


def _parts(file: FileChange) -> Iterator[_Part]:
    """The hunks of a file in parts, each with what it is known by: what happened to the file, its section, its rows.

    The same rows again in a file are others: they were not there to be seen when there were only the first.
    """
    facts = (file.path, file.old_path, file.status.value, file.old_mode, file.new_mode)
    times: Counter[tuple[str, bytes]] = Counter()
    for hunk in file.hunks:
        rows = hunk.body.split(b"\n")
        for start, end in _stretches(rows):
            body = b"\n".join(rows[start:end])
            # Of a part in the middle git names no section, and what stands above it may have changed.
            section = hunk.section if start == 0 else ""
            times[section, body] += 1
            told = repr((*facts, section, times[section, body]))
            digest = hashlib.sha256(told.encode("utf-8", "surrogateescape") + b"\0" + body).hexdigest()[:_DIGITS]
            yield _Part(hunk, start, end, digest)


def _stretches(rows: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """The rows in stretches whose ends the rows themselves decide, so that a line put in moves no end but the next."""
    last = len(rows) - (rows[-1:] == [b""])
    start = 0
    for row in range(1, last):
        if row - start >= _MOST_ROWS or _ends(rows[row - 1], rows[row]):
            yield start, row
            start = row
    yield start, last


def _ends(before: bytes, after: bytes) -> bool:
    """Whether something ends between two rows: behind blank ones, or before a definition at the left margin."""
    if not after[1:].strip():
        return False
    return not before[1:].strip() or (after[1:2].isalpha() and before[1:2].isspace())


class LastLook(Struct, frozen=True, kw_only=True):
    """What a reviewer saw the last time: hunks, and what it found in them."""

    seen: frozenset[str]
    findings: tuple[Finding, ...]


class IncrementalReviewer:
    """Lets another reviewer look at what it has not seen, and carries over what it found in the rest."""

    def __init__(self, reviewer: Reviewer, last: LastLook) -> None:
        self._reviewer = reviewer
        self._last = last

    @property
    def info(self) -> ReviewerInfo:
        """That of the reviewer itself."""
        return self._reviewer.info

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review what is new. Failures are in the outcome; only cancellation is raised."""
        left = unseen(task.files, self._last.seen)
        placed = PlacesOfNow(task).placed(self._last.findings)
        asked = {file.path: file.hunks for file in left}
        whole = {file.path for file in task.files if asked.get(file.path) == file.hunks}
        carried = (
            *(finding for finding in placed if not is_touched(finding, left)),
            *(finding for finding in self._last.findings if not finding.anchored and finding.file not in whole),
        )
        total = _rows(task.files)
        known = total - _rows(left)
        if known > 0:
            emit(StageStarted("carrying over", f"{known:,} of {total:,} lines, known from the last review"))
        if not left:
            return ReviewerOutcome(findings=carried)
        touched = tuple(finding for finding in placed if is_touched(finding, left))
        outcome = await self._reviewer.review(replace(task, files=left, earlier=touched, is_follow_up=True), emit)
        return replace(outcome, findings=(*outcome.findings, *carried))


def _rows(files: Iterable[FileChange]) -> int:
    return sum(hunk.body.count(b"\n") for file in files for hunk in file.hunks)
