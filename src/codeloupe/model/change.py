"""A change under review: files, hunks and lines, as git sees them.

Paths are `str` decoded with `surrogateescape`, so that a path that is not UTF-8 survives a round trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from codeloupe.model.frozen import FrozenDict, FrozenStruct


class Expert(FrozenStruct, frozen=True, kw_only=True):
    """What to look for and what to leave alone. `paths` are globs, with `!` those to leave out; empty is every file.

    `severity_guide` says, by the label of a severity, what deserves it. `joined` experts are asked together, in one
    call, also where each of the others has calls of its own.
    """

    name: str
    description: str
    focus: tuple[str, ...]
    sceptical_of: tuple[str, ...] = ()
    do_not_flag: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    severity_guide: Mapping[str, str] = FrozenDict()
    joined: bool = False


SYMLINK_MODE = "120000"
SUBMODULE_MODE = "160000"

LineKind = Literal["context", "added", "deleted"]
_KINDS: dict[int, LineKind] = {ord(" "): "context", ord("+"): "added", ord("-"): "deleted"}


# What happened to a file, in the words of the JSON.
FileStatus = StrEnum("FileStatus", "ADDED MODIFIED DELETED RENAMED COPIED TYPE_CHANGED")


class DiffLine(Struct, frozen=True):
    """One line of a hunk, with its number in the old and in the new file (None on the side where it is not)."""

    kind: LineKind
    old_number: int | None
    new_number: int | None
    text: bytes
    ends_with_newline: bool = True


class Hunk(Struct, frozen=True):
    """One hunk, its body as git's own bytes; `section` is what git prints after the second `@@`."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    body: bytes
    section: str = ""
    added: int = 0
    deleted: int = 0

    def lines(self) -> Iterator[DiffLine]:
        """Each line with its numbers; `\\ No newline at end of file` becomes a flag of the line before it."""
        old, new = self.old_start, self.new_start
        rows = self.body.removesuffix(b"\n").split(b"\n") if self.body else []
        for index, row in enumerate(rows):
            if row[:1] == b"\\":
                continue
            kind = _KINDS[row[0]] if row else "context"
            following = rows[index + 1] if index + 1 < len(rows) else b""
            yield DiffLine(
                kind=kind,
                old_number=None if kind == "added" else old,
                new_number=None if kind == "deleted" else new,
                text=row[1:],
                ends_with_newline=following[:1] != b"\\",
            )
            old += kind != "added"
            new += kind != "deleted"


class FileChange(Struct, frozen=True):
    """One file of a change. `old_path` is None for an added file, `new_path` for a deleted one.

    `counts` are the added and deleted lines as git counts them, where that is not the sum of the hunks (a type change).
    """

    old_path: str | None
    new_path: str | None
    status: FileStatus
    old_mode: str | None = None
    new_mode: str | None = None
    old_blob: str | None = None
    new_blob: str | None = None
    similarity: int | None = None
    binary: bool = False
    hunks: tuple[Hunk, ...] = ()
    counts: tuple[int, int] | None = None

    @property
    def path(self) -> str:
        """The name a person knows the file by: the new one, or the old one of a deleted file."""
        return self.new_path or self.old_path or ""

    @property
    def added(self) -> int:
        """Number of added lines."""
        return self.counts[0] if self.counts else sum(hunk.added for hunk in self.hunks)

    @property
    def deleted(self) -> int:
        """Number of deleted lines."""
        return self.counts[1] if self.counts else sum(hunk.deleted for hunk in self.hunks)

    @property
    def is_bare(self) -> bool:
        """Whether no line of it is changed: it is empty, or has only another name or mode."""
        return not any(hunk.body for hunk in self.hunks)

    @property
    def is_symlink(self) -> bool:
        """Whether the new side (or the old side of a deleted file) is a symbolic link."""
        return (self.new_mode or self.old_mode) == SYMLINK_MODE

    @property
    def is_submodule(self) -> bool:
        """Whether either side is a submodule."""
        return SUBMODULE_MODE in (self.old_mode, self.new_mode)

    def added_line_numbers(self) -> frozenset[int]:
        """Numbers, in the new file, of the lines this change added."""
        lines = (line for hunk in self.hunks if hunk.added for line in hunk.lines() if line.kind == "added")
        return frozenset(line.new_number for line in lines if line.new_number is not None)


# Where a change comes from.
ScopeKind = StrEnum("ScopeKind", "UNCOMMITTED STAGED BRANCH RANGE COMMIT PULL_REQUEST DIFF_FILE")
# How far a line of a change has got on its way to others.
Moment = StrEnum("Moment", "UNCOMMITTED STAGED COMMITTED PUSHED UNKNOWN")


_OF_A_BRANCH = (ScopeKind.UNCOMMITTED, ScopeKind.STAGED, ScopeKind.BRANCH, ScopeKind.RANGE)


class Scope(Struct, frozen=True):
    """A resolved scope: `base` and `head` are full object names; `head` is None for an index or a working tree."""

    kind: ScopeKind
    base: str | None
    head: str | None
    description: str

    @property
    def others(self) -> dict[str, str]:
        """The scopes to review instead if nothing is changed in this one: their options by what they review."""
        found: dict[str, str] = {}
        if self.kind is ScopeKind.STAGED:
            found["all uncommitted changes"] = "--uncommitted"
        # Without a base there may be no commit at all. A commit, a pull request and a diff have no neighbours.
        if self.base is not None and self.kind in _OF_A_BRANCH:
            found["the last commit"] = "--commit HEAD"
            found["everything since REF"] = "--base REF"
        return found


class Change(Struct, frozen=True):
    """The files under review, of a scope; `unreadable` ones with the reason, `nested_repositories` are untracked."""

    scope: Scope
    files: tuple[FileChange, ...]
    unreadable: tuple[tuple[str, str], ...] = ()
    nested_repositories: tuple[str, ...] = ()


class Commit(Struct, frozen=True, kw_only=True):
    """One commit; `files` are the paths its diff against the first parent touches."""

    sha: str
    author: str
    email: str
    time: datetime
    subject: str
    body: str
    files: tuple[str, ...]
    insertions: int
    deletions: int
    parents: tuple[str, ...]


class Intent(Struct, frozen=True, kw_only=True):
    """What the change is meant to do, in its author's words. Assurances in it prove nothing."""

    title: str = ""
    messages: tuple[str, ...] = ()
    context: str = ""


class GuidanceFile(Struct, frozen=True):
    """What REVIEW.md, AGENTS.md or CLAUDE.md says for the files below it; one without text is `unused`, and why."""

    path: str
    text: str
    unused: str = ""

    @property
    def folder(self) -> str:
        """The folder for which it speaks; empty for the whole repository."""
        return self.path.rpartition("/")[0]


class PathInstruction(Struct, frozen=True):
    """A rule of the configuration for the files that match one of some globs."""

    paths: tuple[str, ...]
    text: str


class Effort(StrEnum):
    """How finely a change is cut: small units find more and cost more."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"

    def unit_tokens(self, own_tokens: int = 0) -> int:
        """About how many tokens of diff go into one unit; more where an agent adds many of its own to each call."""
        tokens, times = {Effort.LOW: (15_000, 8), Effort.MEDIUM: (5_000, 5), Effort.HIGH: (1_000, 1)}[self]
        return min(max(tokens, times * own_tokens), 3 * tokens)


class UnitPart(Struct, frozen=True):
    """Some hunks of one file, or a piece of a large one: its first `repeated_rows` belong to the piece before it."""

    file: FileChange
    hunks: tuple[Hunk, ...]
    repeated_rows: int = 0


class Unit(Struct, frozen=True, kw_only=True):
    """A few related hunks for one call; `name` is unique in a plan, `tokens` estimates the diff alone."""

    name: str
    parts: tuple[UnitPart, ...]
    experts: tuple[Expert, ...]
    tokens: int
    pass_number: int = 1

    @property
    def files(self) -> tuple[str, ...]:
        """The paths in it, in order."""
        return tuple(dict.fromkeys(part.file.path for part in self.parts))
