"""Earlier findings in the code of now: where each stands, or that its code is gone, or that nobody can tell."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.identity import same_block, shared_surroundings, surroundings_of
from codeloupe.engine.quote_gaps import MASK
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.suppression_syntax import comments_in, syntax_of
from codeloupe.engine.surroundings import Surroundings
from codeloupe.model.answer import ClaimedFinding
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.ports import ReviewTask

# What stands in evidence where a secret was.
_MASK = re.compile(rf"{re.escape(MASK)}|[*]{{8}}")
_FEWEST_KNOWN_CHARACTERS = 6
# A shorter quote may stand in another file by chance.
_FEWEST_TELLING_CHARACTERS = 12
# Only a hostile file has more lines that read the same and findings about each.
_MOST_ALIKE = 60
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
        self._texts: dict[str, Surroundings | None] = {}

    def placed(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings where they are now; those without a place, and those whose code is not found, are left out."""
        anchored = [finding for finding in findings if finding.anchored]
        assigned = dict(self._assigned(anchored))
        found = (
            assigned[index] if index in assigned else self._found(old) or self._moved(old)
            for index, old in enumerate(anchored)
        )
        return tuple(now for now in found if now is not None)

    def is_gone(self, finding: Finding) -> bool:
        """Whether the code of a finding that is not in `placed` is known to be gone, and not only out of sight."""
        if any(file.new_path is None and file.old_path == finding.file for file in self._task.change.files):
            return True
        if (content := self._reader.read(finding.file)) is not None:
            # What is masked cannot be searched for, only what stands around it on its line; nor can a blank line.
            known = max(_MASK.split(finding.evidence), key=len).strip()
            if known == finding.evidence.strip():
                return bool(known)
            return len(known) >= _FEWEST_KNOWN_CHARACTERS and known.encode() not in content
        tree = None if self._task.tree_is_partial else self._task.tree
        return tree is not None and finding.file not in self._task.without_content and _is_absent(tree, finding.file)

    def is_unchanged_around(self, placed: Finding) -> bool | None:
        """Whether the definition around a finding that is in `placed` is as it was; None when that is not known."""
        text = self._text(placed.file)
        if text is None or not placed.surroundings:
            return None
        return same_block(placed.surroundings, surroundings_of(placed, text))

    def _found(self, old: Finding) -> Finding | None:
        return _placed_by(self._anchorer, old, old.file)

    def _moved(self, old: Finding) -> Finding | None:
        """At its place in the one file that came with this change and has its code, when its own file is not there."""
        if self._arrived is None or len(old.evidence.strip()) < _FEWEST_TELLING_CHARACTERS:
            return None
        if self._reader.read(old.file) is not None or not self.is_gone(old):
            return None
        return _placed_by(self._arrived, old, None) or self._moved_and_reformatted(old)

    def _moved_and_reformatted(self, old: Finding) -> Finding | None:
        there = []
        for file in self._task.files:
            text = self._text(file.path) if file.status in _NEW_AT_THEIR_PATH else None
            there += [(file.path, *place) for place in (text.code.places(old.evidence) if text else ())]
        return self._at(old, *there[0]) if len(there) == 1 else None

    def _assigned(self, findings: Sequence[Finding]) -> Iterator[tuple[int, Finding | None]]:
        """The places of findings, by index, where several look alike, and where the code was reformatted.

        Each place is given once: of two lines that read the same and of which one is gone, one finding is left. What
        was fixed takes no place from others.
        """
        alike: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for index, finding in enumerate(findings):
            alike[finding.file, finding.evidence].append(index)
        for (path, evidence), indices in alike.items():
            text = self._text(path)
            places = [] if text is None else _places(text, evidence)
            standing = [index for index in indices if findings[index].status is not FindingStatus.FIXED]
            for group in (standing, [index for index in indices if index not in standing]):
                lines = sorted({findings[index].first_line for index in group})
                if (
                    text is None
                    or not group
                    or (len(lines) <= 1 and len(places) <= 1 and self._is_quoted(path, evidence, places))
                ):
                    continue
                if not places and not standing:
                    continue
                chosen = _chosen(text, [findings[index] for index in group], lines, places)
                for index in group:
                    place = chosen.get(findings[index].first_line)
                    yield index, None if place is None else self._at(findings[index], path, *place)
                places = [place for place in places if place not in chosen.values()]

    def _is_quoted(self, path: str, evidence: str, places: Sequence[tuple[int, int]]) -> bool:
        """Whether a quote is found by its text, or not at all: then the anchorer knows its place best."""
        content = self._reader.read(path)
        return not places or (content is not None and bool(_starts(content, evidence)))

    def _at(self, old: Finding, path: str, first: int, last: int) -> Finding:
        moved = replace(old, file=path, line_start=first, line_end=max(last, first + old.last_line - old.first_line))
        if last - first != old.evidence.count("\n"):
            moved = replace(moved, line_end=last, evidence=self._lines(path, first, last))
        return _standing(replace(moved, outside_change=not is_touched(moved, self._task.files)))

    def _lines(self, path: str, first: int, last: int) -> str:
        """Some lines without their comments, which nobody has looked through for secrets."""
        lines = (self._reader.read(path) or b"").decode("utf-8", "replace").split("\n")[first - 1 : last]
        return "\n".join(_without_comment(line, path) for line in lines)

    def _text(self, path: str) -> Surroundings | None:
        if path not in self._texts:
            content = self._reader.read(path)
            self._texts[path] = None if content is None else Surroundings(content, path)
        return self._texts[path]


def _places(text: Surroundings, evidence: str) -> list[tuple[int, int]]:
    return [] if MASK in evidence else text.code.places(evidence)


def _chosen(
    text: Surroundings, findings: Sequence[Finding], lines: Sequence[int], places: Sequence[tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """By their lines of before, the places of findings that look alike: by what is around them, else by order."""
    are_as_many = len(places) == len(lines)
    if are_as_many and len(lines) > _MOST_ALIKE:
        return dict(zip(lines, places, strict=True))
    by_line = {finding.first_line: finding for finding in findings}
    around = {
        place: surroundings_of(replace(findings[0], line_start=place[0], line_end=place[1]), text) for place in places
    }
    ranked = sorted(
        (
            -shared_surroundings(by_line[line].surroundings, around[place]),
            abs(rank - number) if are_as_many else abs(place[0] - line),
            line,
            place,
        )
        for number, line in enumerate(lines[:_MOST_ALIKE])
        for rank, place in enumerate(places[:_MOST_ALIKE])
    )
    chosen: dict[int, tuple[int, int]] = {}
    for _, _, line, place in ranked:
        if line not in chosen and place not in chosen.values():
            chosen[line] = place
    return chosen


def _placed_by(anchorer: Anchorer, old: Finding, file: str | None) -> Finding | None:
    claim = ClaimedFinding(
        severity=old.severity,
        title=old.title,
        body=old.body,
        file=file,
        line_start=old.first_line,
        line_end=old.last_line,
        category=old.category,
        evidence=old.evidence,
    )
    now = anchorer.place(claim, Origin(reviewer=old.reviewer, expert=old.expert, source=old.source))
    if not now.anchored:
        return None
    # New code fits the lines it was given for, and no others.
    code = old.replacement if now.evidence == old.evidence else None
    place = replace(old, file=now.file, line_start=now.line_start, line_end=now.line_end, replacement=code)
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


def _without_comment(line: str, path: str) -> str:
    comment = next(iter(comments_in(line, syntax_of(path))), None)
    if comment is None or not comment.text.strip():
        return line
    return line.partition(comment.text)[0].rstrip().rstrip("#/*<!-;%").rstrip()


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
            if start <= finding.last_line and finding.first_line < start + max(length, 1):
                return True
    return False


def is_on_added_lines(finding: Finding, files: Sequence[FileChange]) -> bool:
    """Whether one of a finding's lines was added by some files' hunks."""
    lines = range(finding.first_line, finding.last_line + 1)
    return any(
        not file.added_line_numbers().isdisjoint(lines)
        for file in files
        if file.path == finding.file and is_touched(finding, (file,))
    )
