"""The patches of a pull request's files: which lines a comment may stand on, and where a line went with a push."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Side = Literal["LEFT", "RIGHT"]

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class PatchLine:
    """One line below a hunk's header. `position` is GitHub's: lines below the file's first header."""

    kind: str
    text: str
    old_line: int | None
    new_line: int | None
    position: int
    hunk: int

    def number(self, side: Side) -> int | None:
        """Its line number on a side; None when it is not there."""
        return self.old_line if side == "LEFT" else self.new_line


@dataclass(frozen=True)
class Patch:
    """A file's patch as GitHub gives it: hunks, without the lines that name the file."""

    text: str

    @cached_property
    def headers(self) -> tuple[str, ...]:
        """The hunks' first lines."""
        return tuple(line for line in self.text.split("\n") if line.startswith("@@"))

    @cached_property
    def lines(self) -> tuple[PatchLine, ...]:
        """Every line of the hunks. Raises ValueError for text that is no patch."""
        return tuple(_lines(self.text))

    @property
    def additions(self) -> int:
        """How many lines are added."""
        return sum(line.kind == "+" for line in self.lines)

    @property
    def deletions(self) -> int:
        """How many lines are removed."""
        return sum(line.kind == "-" for line in self.lines)

    def find(self, side: Side, number: int | None) -> PatchLine | None:
        """The line with a number on a side, or None when the diff does not show it."""
        return next((line for line in self.lines if number is not None and line.number(side) == number), None)

    def at_position(self, position: int) -> PatchLine | None:
        """The line at a position, or None: the header of a hunk has a position and takes no comment."""
        return next((line for line in self.lines if line.position == position), None)

    def hunk_until(self, last: PatchLine) -> str:
        """What GitHub shows above a comment: its hunk down to its line."""
        shown = [
            line.kind + line.text for line in self.lines if line.hunk == last.hunk and line.position <= last.position
        ]
        return "\n".join([self.headers[last.hunk], *shown])

    def moved(self, line: PatchLine, side: Side, after: Patch) -> PatchLine | None:
        """The same line in a later patch of the file, or None when it is changed, gone or not shown any more."""
        if side == "LEFT":
            found = after.find(side, line.old_line)
            return found if found is not None and (found.kind, found.text) == (line.kind, line.text) else None
        ours = [each for each in self.lines if each.new_line is not None]
        theirs = [each for each in after.lines if each.new_line is not None]
        index = _moved_index(ours.index(line), [each.text for each in ours], [each.text for each in theirs])
        return None if index is None else theirs[index]


def _moved_index(index: int, before: list[str], after: list[str]) -> int | None:
    """Where an item of a list is in another one; what both begin and end with is compared first, to be quick."""
    shortest = min(len(before), len(after))
    head = next((at for at in range(shortest) if before[at] != after[at]), shortest)
    if index < head:
        return index
    most = shortest - head
    tail = next((at for at in range(most) if before[-1 - at] != after[-1 - at]), most)
    if index >= len(before) - tail:
        return index - len(before) + len(after)
    middle = before[head : len(before) - tail], after[head : len(after) - tail]
    for block in difflib.SequenceMatcher(None, *middle, autojunk=False).get_matching_blocks():
        if block.a <= index - head < block.a + block.size:
            return index + block.b - block.a
    return None


def _lines(text: str) -> list[PatchLine]:
    found: list[PatchLine] = []
    position = old_line = new_line = 0
    hunk = -1
    for offset, line in enumerate(text.removesuffix("\n").split("\n")):
        position = offset
        if header := _HUNK.match(line):
            old_line, new_line, hunk = int(header[1]), int(header[3]), hunk + 1
            continue
        kind, rest = line[:1] or " ", line[1:]
        if hunk < 0 or kind not in "+- \\":
            raise ValueError(f"this is no line of a patch: {line[:80]!r}")
        if kind == "\\":
            continue
        is_old, is_new = kind in "- ", kind in "+ "
        found.append(
            PatchLine(
                kind=kind,
                text=rest,
                old_line=old_line if is_old else None,
                new_line=new_line if is_new else None,
                position=position,
                hunk=hunk,
            )
        )
        old_line, new_line = old_line + is_old, new_line + is_new
    return found


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file of a pull request. Without a patch it is binary, or too large to be shown."""

    path: str
    patch: Patch | None
    status: str = "modified"
    previous_path: str | None = None


def changed_file(path: str, patch: str | ChangedFile | None) -> ChangedFile:
    """A file as GitHub would list it: its status is as the patch says, and what is no UTF-8 is replaced."""
    if isinstance(patch, ChangedFile):
        return patch
    path = _shown(path)
    if not patch:
        return ChangedFile(path, None)
    parsed = Patch(_shown(patch.removesuffix("\n")))
    if not parsed.lines:
        raise ValueError(f"the patch of {path} has no lines")
    header = _HUNK.match(parsed.headers[0])
    assert header is not None
    return ChangedFile(path, parsed, status=_status(header))


def _shown(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _status(header: re.Match[str]) -> str:
    if (header[1], header[2]) == ("0", "0"):
        return "added"
    return "removed" if (header[3], header[4]) == ("0", "0") else "modified"


def whole_diff(files: tuple[ChangedFile, ...]) -> str:
    """The diff of all files, as `git diff` prints it."""
    parts: list[str] = []
    for file in files:
        old = file.previous_path or file.path
        parts.append(f"diff --git a/{old} b/{file.path}\n")
        if file.status in ("added", "removed"):
            parts.append(f"{'new' if file.status == 'added' else 'deleted'} file mode 100644\n")
        if file.previous_path is not None:
            parts.append(f"rename from {old}\nrename to {file.path}\n")
        if file.patch is None:
            parts.append(f"Binary files a/{old} and b/{file.path} differ\n")
            continue
        before = "/dev/null" if file.status == "added" else f"a/{old}"
        after = "/dev/null" if file.status == "removed" else f"b/{file.path}"
        parts.append(f"--- {before}\n+++ {after}\n{file.patch.text}\n")
    return "".join(parts)
