"""Earlier findings in the code of now: where each stands, or that its code is gone, or that nobody can tell."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.reviewed_text import TextReader
from codeloupe.model.answer import ClaimedFinding
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.ports import ReviewTask

# A shorter quote may stand in another file by chance.
_FEWEST_TELLING_CHARACTERS = 12
_NEW_AT_THEIR_PATH = (FileStatus.ADDED, FileStatus.RENAMED, FileStatus.COPIED)


class PlacesOfNow:
    """Looks for the code of earlier findings in the reviewed tree.

    `tree` is the whole of it, for a task that has none of its own: only quotes are looked for there, and no link is
    followed.
    """

    def __init__(self, task: ReviewTask, *, tree: Path | None = None) -> None:
        whole = replace(task, tree=task.tree or tree)
        self._task = whole
        self._reader = TextReader(whole)
        self._anchorer = Anchorer(task.files, self._reader.read)
        arrived = [file for file in task.files if file.status in _NEW_AT_THEIR_PATH and file.new_path is not None]
        self._arrived = Anchorer(arrived, self._reader.read) if arrived else None

    def placed(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings where they stand now; those without a place, and those whose code is not found, are left out."""
        anchored = [finding for finding in findings if finding.anchored]
        by_order = dict(self._by_order(anchored))
        return tuple(
            now
            for index, old in enumerate(anchored)
            if (now := by_order.get(index) or self._found(old) or self._moved(old)) is not None
        )

    def is_gone(self, finding: Finding) -> bool:
        """Whether the code of a finding that is not in `placed` is known to be gone, and not only out of sight."""
        if any(file.new_path is None and file.old_path == finding.file for file in self._task.change.files):
            return True
        if self._reader.read(finding.file) is not None:
            return True
        tree = self._task.tree
        return tree is not None and finding.file not in self._task.without_content and _is_absent(tree, finding.file)

    def _found(self, old: Finding) -> Finding | None:
        return _placed_by(self._anchorer, old, old.file)

    def _moved(self, old: Finding) -> Finding | None:
        """At its place in the one file that came with this change and has its code, when its own file is not there."""
        if self._arrived is None or len(old.evidence.strip()) < _FEWEST_TELLING_CHARACTERS:
            return None
        if self._reader.read(old.file) is not None or not self.is_gone(old):
            return None
        return _placed_by(self._arrived, old, None)

    def _by_order(self, findings: Sequence[Finding]) -> Iterator[tuple[int, Finding]]:
        """Findings about the same lines that stand several times in a file, by their order, since all look alike."""
        alike: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for index, finding in enumerate(findings):
            alike[finding.file, finding.evidence].append(index)
        for (path, evidence), indices in alike.items():
            lines = sorted({findings[index].line_start for index in indices})
            content = self._reader.read(path) if len(lines) > 1 else None
            starts = [] if content is None else _starts(content, evidence)
            if len(starts) != len(lines):
                continue
            place = dict(zip(lines, starts, strict=True))
            for index in indices:
                old = findings[index]
                start = place[old.line_start]
                moved = replace(old, line_start=start, line_end=start + old.line_end - old.line_start)
                yield index, _standing(replace(moved, outside_change=not is_touched(moved, self._task.files)))


def _placed_by(anchorer: Anchorer, old: Finding, file: str | None) -> Finding | None:
    claim = ClaimedFinding(
        severity=old.severity,
        title=old.title,
        body=old.body,
        file=file,
        line_start=old.line_start,
        line_end=old.line_end,
        category=old.category,
        evidence=old.evidence,
    )
    now = anchorer.place(claim, Origin(reviewer=old.reviewer, expert=old.expert, source=old.source))
    if not now.anchored:
        return None
    place = replace(old, file=now.file, line_start=now.line_start, line_end=now.line_end)
    return _standing(replace(place, outside_change=now.outside_change))


def _standing(finding: Finding) -> Finding:
    return replace(finding, status=FindingStatus.OPEN) if finding.is_open else finding


def _starts(content: bytes, evidence: str) -> list[int]:
    """The lines, from 1, at which a quote begins; they do not overlap."""
    wanted = [line.strip() for line in evidence.split("\n")]
    lines = [line.strip() for line in content.decode("utf-8", "replace").split("\n")]
    starts: list[int] = []
    row = 0
    while row + len(wanted) <= len(lines):
        if lines[row] == wanted[0] and lines[row : row + len(wanted)] == wanted:
            starts.append(row + 1)
            row += len(wanted)
        else:
            row += 1
    return starts


def _is_absent(tree: Path, path: str) -> bool:
    """Whether nothing at all is at a path; what cannot be looked at is not absent."""
    try:
        os.lstat(tree / path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def is_touched(finding: Finding, files: Sequence[FileChange]) -> bool:
    """Whether a finding stands on lines that the hunks of some files show; in a deleted file lines are the old ones."""
    for file in files:
        if file.path != finding.file:
            continue
        for hunk in file.hunks:
            is_deleted = file.new_path is None
            start, length = (hunk.old_start, hunk.old_lines) if is_deleted else (hunk.new_start, hunk.new_lines)
            if start <= finding.line_end and finding.line_start < start + max(length, 1):
                return True
    return False


def is_on_added_lines(finding: Finding, files: Sequence[FileChange]) -> bool:
    """Whether one of a finding's lines was added by some files' hunks."""
    lines = range(finding.line_start, finding.line_end + 1)
    return any(
        not file.added_line_numbers().isdisjoint(lines)
        for file in files
        if file.path == finding.file and is_touched(finding, (file,))
    )
