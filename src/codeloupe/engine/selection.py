"""Which files of a change are reviewed, and why the others are not. Pure: diffs and first bytes in, reasons out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from codeloupe.engine.file_kinds import (
    GENERATED_MARK,
    GENERATED_NAME,
    LOCK_FILES,
    MINIFIABLE_SUFFIXES,
    MINIFIED_NAME,
    SOURCE_NAMES,
    SOURCE_SUFFIXES,
    VENDOR_FOLDERS,
)
from codeloupe.engine.globs import Globs
from codeloupe.model.change import Change, FileChange, FileStatus
from codeloupe.model.records import dataclass
from codeloupe.model.review import SkippedFile, SkipReason

HEAD_BYTES = 4096

_MINIFIED_LINE_BYTES = 5_000
# What git keeps of a file whose content lies elsewhere, as the specification of Git LFS has it.
_LFS_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n"
    rb"(?:ext-\d-\w{1,60} sha256:[0-9a-f]{64}\n){0,9}oid sha256:[0-9a-f]{64}\nsize \d{1,20}\n"
)
_IN_LFS = "Git LFS has its content, and here is only a pointer to it"
_UNSHOWN = "the diff says only that it differs (make the diff with --text)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRules:
    """What to leave out. `believe_content` is off for untrusted changes: no comment and no name may hide code."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_file_bytes: int = 1_000_000
    max_file_lines: int = 20_000
    skip_generated: bool = True
    skip_vendored: bool = True
    skip_lock_files: bool = True
    skip_minified: bool = True
    believe_content: bool = True


@dataclass(frozen=True, slots=True)
class FileContent:
    """The size and the first bytes of a file after the change."""

    size: int
    head: bytes


@dataclass(frozen=True, slots=True)
class Selection:
    """Files to review, and the rest with reasons."""

    files: tuple[FileChange, ...]
    skipped: tuple[SkippedFile, ...]

    @property
    def total(self) -> int:
        """How many files the change has in all."""
        return len(self.files) + len(self.skipped)


def select_by_diff(change: Change, rules: SelectionRules) -> Selection:
    """Decide by what the diff alone tells: names, kinds, numbers of lines."""
    globs = Globs(rules.include, rules.exclude)
    kept: list[FileChange] = []
    skipped = [_unless_excluded(skip, globs) for skip in _out_of_reach(change)]
    for file in change.files:
        reason = _reason_by_diff(file, rules, globs)
        if reason is None:
            kept.append(file)
        else:
            skipped.append(reason)
    return Selection(tuple(kept), tuple(skipped))


def _out_of_reach(change: Change) -> Iterator[SkippedFile]:
    for name, why in change.unreadable:
        yield SkippedFile(name, SkipReason.UNREADABLE, why)
    for name in change.nested_repositories:
        yield SkippedFile(name, SkipReason.SUBMODULE, "a repository of its own")


def _unless_excluded(skip: SkippedFile, globs: Globs) -> SkippedFile:
    # Of a folder whose content is not known: whatever is below it, so that `folder/**` covers it as well.
    unwanted = globs.unwanted(skip.file.rstrip("/"))
    if skip.file.endswith("/") and unwanted is None:
        unwanted = globs.unwanted(f"{skip.file}-")
    return skip if unwanted is None else SkippedFile(skip.file, SkipReason.EXCLUDED, unwanted)


def select_by_content(selection: Selection, contents: dict[str, FileContent], rules: SelectionRules) -> Selection:
    """Narrow a selection by the new content of its files, where that is known."""
    kept: list[FileChange] = []
    skipped = list(selection.skipped)
    for file in selection.files:
        content = contents.get(file.path)
        reason = _reason_by_content(file, content, rules) if content else None
        if reason is None:
            kept.append(file)
        else:
            skipped.append(reason)
    return Selection(tuple(kept), tuple(skipped))


def with_and_without_lines(files: Sequence[FileChange]) -> tuple[tuple[FileChange, ...], tuple[SkippedFile, ...]]:
    """Files with changed lines, and those without: they belong to the change, and there is nothing in them to read."""
    read, bare = list[FileChange](), list[FileChange]()
    for file in files:
        (read if any(hunk.body for hunk in file.hunks) else bare).append(file)
    return tuple(read), tuple(SkippedFile(file.path, SkipReason.NOTHING_TO_READ, _what_happened(file)) for file in bare)


def _what_happened(file: FileChange) -> str:
    if file.status in (FileStatus.ADDED, FileStatus.DELETED):
        return f"{file.status.value}, an empty file"
    changed_mode = file.old_mode and file.new_mode and file.old_mode != file.new_mode
    mode = f"its mode is {file.new_mode} instead of {file.old_mode}" if changed_mode else ""
    moved = f"{file.status.value} from {file.old_path}" if file.old_path != file.new_path else ""
    return ", ".join(part for part in (moved, mode) if part) or "no line of it is changed"


def _reason_by_diff(file: FileChange, rules: SelectionRules, globs: Globs) -> SkippedFile | None:
    if (unwanted := globs.unwanted(file.path)) is not None:
        return SkippedFile(file.path, SkipReason.EXCLUDED, unwanted)
    if file.is_submodule:
        return SkippedFile(file.path, SkipReason.SUBMODULE)
    by_name = _reason_by_name(file.path, rules)
    if by_name is not None and (rules.believe_content or not _may_hide_code(file)):
        return by_name
    if file.binary and not _may_hide_code(file):
        return SkippedFile(file.path, SkipReason.BINARY)
    if file.binary and _is_unshown(file):
        return SkippedFile(file.path, SkipReason.UNREADABLE, _UNSHOWN)
    changed = file.added + file.deleted
    if changed > rules.max_file_lines:
        detail = f"{changed:,} changed lines, the limit is {rules.max_file_lines:,} (max_file_lines)"
        return SkippedFile(file.path, SkipReason.TOO_LARGE, detail)
    return None


def _reason_by_name(name: str, rules: SelectionRules) -> SkippedFile | None:
    path = PurePosixPath(name)
    if rules.skip_lock_files and path.name.lower() in LOCK_FILES:
        return SkippedFile(name, SkipReason.LOCK_FILE)
    folder = next((part for part in path.parts[:-1] if part.lower() in VENDOR_FOLDERS), None)
    if rules.skip_vendored and folder is not None:
        return SkippedFile(name, SkipReason.VENDORED, f"below {folder}/")
    if rules.skip_generated and GENERATED_NAME.search(path.name):
        return SkippedFile(name, SkipReason.GENERATED, "by its name")
    if rules.skip_minified and MINIFIED_NAME.search(path.name):
        return SkippedFile(name, SkipReason.MINIFIED, "by its name")
    return None


def _may_hide_code(file: FileChange) -> bool:
    """Whether a file is a program or a text by its name or first line, whatever else is said of it."""
    path = PurePosixPath(file.path)
    if path.name.lower() in LOCK_FILES:
        return False
    if path.suffix.lower() in SOURCE_SUFFIXES or path.name.lower() in SOURCE_NAMES:
        return True
    return any(hunk.new_start <= 1 and hunk.body.startswith((b"+#!", b" #!")) for hunk in file.hunks)


def _is_unshown(file: FileChange) -> bool:
    """Whether it has other content of which no line is known: a diff from elsewhere may only say that it differs."""
    # A type change deletes the one file and adds the other: only the latter is there now.
    is_shown = any(hunk.new_lines or file.status is not FileStatus.TYPE_CHANGED for hunk in file.hunks)
    return not is_shown and (file.old_blob is None or file.old_blob != file.new_blob)


def _reason_by_content(file: FileChange, content: FileContent, rules: SelectionRules) -> SkippedFile | None:
    if content.size > rules.max_file_bytes:
        detail = f"{content.size:,} bytes, the limit is {rules.max_file_bytes:,} (max_file_bytes)"
        return SkippedFile(file.path, SkipReason.TOO_LARGE, detail)
    if content.size == len(content.head) and _LFS_POINTER.fullmatch(content.head):
        is_gap = _may_hide_code(file) and not rules.believe_content
        return SkippedFile(file.path, SkipReason.UNREADABLE if is_gap else SkipReason.BINARY, _IN_LFS)
    if not rules.believe_content:
        return None
    if rules.skip_generated and GENERATED_MARK.search(content.head[:1024]):
        return SkippedFile(file.path, SkipReason.GENERATED, "by a mark in its first lines")
    suffix = PurePosixPath(file.path).suffix.lower()
    if rules.skip_minified and suffix in MINIFIABLE_SUFFIXES and _has_long_lines(content):
        return SkippedFile(file.path, SkipReason.MINIFIED, "by the length of its lines")
    return None


def _has_long_lines(content: FileContent) -> bool:
    return content.size > _MINIFIED_LINE_BYTES and len(content.head) == HEAD_BYTES and b"\n" not in content.head
