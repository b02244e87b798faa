"""Files with another name or mode, whether lines of them changed or none. Pure.

Of a trusted change the changed lines are all there is to read. A stranger can make code of a text by its name or mode,
so an untrusted change has such files read whole under their new name.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from codeloupe.engine.select import SelectionRules
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.review import SkippedFile, SkipReason

_EXECUTABLE = "100755"


def with_and_without_lines(files: Sequence[FileChange]) -> tuple[tuple[FileChange, ...], tuple[SkippedFile, ...]]:
    """Files with changed lines, and those without: they belong to the change, and there is nothing in them to read."""
    read, bare = list[FileChange](), list[FileChange]()
    for file in files:
        (bare if file.is_bare else read).append(file)
    return tuple(read), tuple(SkippedFile(file.path, SkipReason.NOTHING_TO_READ, _what_happened(file)) for file in bare)


def _what_happened(file: FileChange) -> str:
    if file.status in (FileStatus.ADDED, FileStatus.DELETED):
        return f"{file.status.value}, an empty file"
    changed_mode = file.old_mode and file.new_mode and file.old_mode != file.new_mode
    mode = f"its mode is {file.new_mode} instead of {file.old_mode}" if changed_mode else ""
    moved = f"{file.status.value} from {file.old_path}" if file.old_path != file.new_path else ""
    return ", ".join(part for part in (moved, mode) if part) or "no line of it is changed"


def to_be_read(files: Sequence[FileChange], rules: SelectionRules) -> frozenset[str]:
    """Which moved, copied and newly executable files are to be read whole: none of a trusted change."""
    if rules.believe_content:
        return frozenset()
    there = (file for file in files if file.old_path and file.new_path and not file.is_submodule)
    return frozenset(file.path for file in there if file.old_path != file.new_path or _may_run_now(file))


def with_marked(files: Sequence[FileChange], whole: frozenset[str]) -> tuple[FileChange, ...]:
    """The files; of those in `whole` nothing is known yet, as of one that git takes for binary."""
    return tuple(replace(file, binary=True) if file.path in whole else file for file in files)


def _may_run_now(file: FileChange) -> bool:
    return file.new_mode != file.old_mode and file.new_mode in (None, _EXECUTABLE)


def shown_whole(file: FileChange, text: bytes) -> FileChange:
    """The file with all lines of its new text as added ones, and its deleted ones where they were."""
    lines = text.split(b"\n")
    ends = [b"\n"] * (len(lines) - 1) + [b"\n\\ No newline at end of file\n"]
    rows = [b"+" + line + end for line, end in zip(lines, ends, strict=True)][: len(lines) - (not lines[-1])]
    body: list[bytes] = []
    position = 0
    for hunk in file.hunks:
        for line in hunk.lines():
            if line.new_number is not None:
                body += rows[position : line.new_number]
                position = max(position, line.new_number)
            else:
                body += rows[position : hunk.new_start - bool(hunk.new_lines)]
                position = max(position, hunk.new_start - bool(hunk.new_lines))
                body.append(b"-" + line.text + b"\n")
    body += rows[position:]
    if not body:
        return replace(file, binary=False, hunks=(), counts=None)
    added, deleted = len(rows), sum(hunk.deleted for hunk in file.hunks)
    whole = Hunk(int(deleted > 0), deleted, int(added > 0), added, b"".join(body), added=added, deleted=deleted)
    return replace(file, binary=False, hunks=(whole,), counts=None)
