"""What a merge changed itself, by git's combined diff: the places at which it is like none of its parents."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate

from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.quoting import decode_path, unquote
from codeloupe.model.change import Change, FileChange, FileStatus, Hunk

# Lines of the new file, the first and the last; None stands for the whole file.
OwnPart = tuple[tuple[int, int], ...] | None

_FILE = re.compile(rb"diff --(?:cc|combined) (.*)")
_HUNK = re.compile(rb"@@@+ [-0-9, ]{1,2000}\+(\d{1,20})(?:,(\d{1,20}))? @@@")


def parse_combined(output: bytes) -> dict[str, OwnPart]:
    """The files of a combined diff without context, each with its places. Raises DiffSyntaxError for what is none.

    Every line of content begins with a blank, a plus or a minus, so that none can be taken for a header.
    """
    parts: dict[str, list[tuple[int, int]]] = {}
    places: list[tuple[int, int]] | None = None
    for line in output.split(b"\n"):
        if line.startswith(b"diff --") and (found := _FILE.fullmatch(line)) is not None:
            places = parts[_path(found[1])] = []
        elif line.startswith(b"@@@"):
            hunk = _HUNK.match(line)
            if hunk is None or places is None:
                raise DiffSyntaxError(f"git's combined diff of a merge cannot be read: {line[:80]!r}")
            first, count = int(hunk[1]), int(hunk[2]) if hunk[2] else 1
            places.append((first, first + max(count, 1)))
    return {path: tuple(sorted(found)) or None for path, found in parts.items()}


def _path(name: bytes) -> str:
    raw = unquote(name)
    if raw is None:
        raise DiffSyntaxError(
            f"git's combined diff of a merge names a file in a way that cannot be read: {name[:80]!r}"
        )
    return decode_path(raw)


def only_own(change: Change, parts: Mapping[str, OwnPart]) -> Change:
    """Of a merge's change against its first parent, the files and hunks at those places."""
    return replace(
        change,
        files=tuple(_own(file, parts[file.path]) for file in change.files if file.path in parts),
        unreadable=tuple((name, why) for name, why in change.unreadable if name in parts),
    )


def _own(file: FileChange, places: OwnPart) -> FileChange:
    if places is None or file.status in (FileStatus.ADDED, FileStatus.DELETED, FileStatus.TYPE_CHANGED):
        return file
    starts = [first for first, _ in places]
    ends = list(accumulate((last for _, last in places), max))

    def is_own(hunk: Hunk) -> bool:
        before = bisect_right(starts, hunk.new_start + hunk.new_lines)
        return before > 0 and ends[before - 1] >= hunk.new_start

    hunks = tuple(hunk for hunk in file.hunks if is_own(hunk))
    # Where the two diffs do not agree on the place, rather all of it than nothing.
    return replace(file, hunks=hunks) if hunks else file
