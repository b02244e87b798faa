"""Reviewing only what a reviewer has not seen yet: the rest of its last answer about the change is carried over.

A hunk is known by its file and its lines, not by its place, so a rebase or lines put in above change nothing. What is
carried over is placed anew in the code of now, and keeps what was learnt about it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from codeloupe.engine.placing_again import PlacesOfNow, is_touched
from codeloupe.model.change import FileChange, Hunk
from codeloupe.model.events import StageStarted
from codeloupe.model.finding import Finding
from codeloupe.model.records import dataclass
from codeloupe.model.review import ReviewerInfo
from codeloupe.ports import EventSink, Reviewer, ReviewerOutcome, ReviewTask

_DIGITS = 32


def hunk_digests(file: FileChange) -> Iterator[tuple[Hunk, str]]:
    """The hunks of a file, each with what it is known by: what happened to the file, the enclosing lines, its own.

    The same hunk again in a file is another one: it was not there to be seen when there was only the first.
    """
    facts = (file.path, file.old_path, file.status.value, file.old_mode, file.new_mode)
    times: Counter[tuple[str, bytes]] = Counter()
    for hunk in file.hunks:
        times[hunk.section, hunk.body] += 1
        told = repr((*facts, hunk.section, times[hunk.section, hunk.body]))
        text = told.encode("utf-8", "surrogateescape") + b"\0" + hunk.body
        yield hunk, hashlib.sha256(text).hexdigest()[:_DIGITS]


def digests(files: Iterable[FileChange]) -> frozenset[str]:
    """All hunks of some files."""
    return frozenset(digest for file in files for _, digest in hunk_digests(file))


def unseen(files: Iterable[FileChange], seen: frozenset[str]) -> tuple[FileChange, ...]:
    """The files with those hunks alone that are not in `seen`; a file of which nothing is left is left out."""
    left = ((file, tuple(hunk for hunk, digest in hunk_digests(file) if digest not in seen)) for file in files)
    return tuple(replace(file, hunks=hunks) for file, hunks in left if hunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastLook:
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
        asked_whole = {file.path: len(file.hunks) for file in left}
        whole = {file.path for file in task.files if asked_whole.get(file.path) == len(file.hunks)}
        carried = (
            *(finding for finding in placed if not is_touched(finding, left)),
            *(finding for finding in self._last.findings if not finding.anchored and finding.file not in whole),
        )
        total = sum(len(file.hunks) for file in task.files)
        known = total - sum(len(file.hunks) for file in left)
        if known:
            emit(StageStarted("carrying over", f"{known} of {total} hunks, known from the last review"))
        if not left:
            return ReviewerOutcome(findings=carried)
        touched = tuple(finding for finding in placed if is_touched(finding, left))
        outcome = await self._reviewer.review(replace(task, files=left, earlier=touched), emit)
        return replace(outcome, findings=(*outcome.findings, *carried))
