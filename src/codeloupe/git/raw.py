"""git's own lists of a change (`--raw --numstat -z`), and the patch checked against them.

The lists give names, status, modes and blobs, byte for byte; the patch gives the lines. Both come from one state
of the repository only if nothing moved between the two reads, which is what the comparison proves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError, RepositoryBusy
from codeloupe.git.quoting import decode_path
from codeloupe.model.change import FileChange, FileStatus

_RAW = re.compile(rb":([0-7]{6}) ([0-7]{6}) ([0-9a-f]{4,64}) ([0-9a-f]{4,64}) ([ACDMRTUXB])(\d{0,3})")
_NUMSTAT = re.compile(rb"(\d{1,18}|-)\t(\d{1,18}|-)\t(.*)", re.DOTALL)
_NO_MODE = "000000"
_TWO_PATHS = ("R", "C")
_STATUSES = {
    "A": FileStatus.ADDED,
    "M": FileStatus.MODIFIED,
    "D": FileStatus.DELETED,
    "R": FileStatus.RENAMED,
    "C": FileStatus.COPIED,
    "T": FileStatus.TYPE_CHANGED,
}


class RawEntry(Struct, frozen=True, kw_only=True):
    """One file in git's lists. A mode of `000000` or a blob of zeros is git's word for none.

    `old_path` and `new_path` are the same except for renames and copies. `added` and `deleted` are None where git
    takes the file for binary, and 0 where the lists name no lines. `status` is git's letter, `U` for unmerged.
    """

    old_mode: str
    new_mode: str
    old_blob: str
    new_blob: str
    status: str
    similarity: int | None
    old_path: str
    new_path: str
    added: int | None = 0
    deleted: int | None = 0


class _Counts(Struct, frozen=True):
    old_path: str
    new_path: str
    added: int | None
    deleted: int | None


def parse_raw_numstat(data: bytes) -> tuple[RawEntry, ...]:
    """The entries of one `git diff --raw --numstat -z` call, in git's order. Raises DiffSyntaxError on anything else.

    git prints all raw records first, then the numstat records in the same order; a file that was touched and did
    not change has no numstat record.
    """
    if data and not data.endswith(b"\0"):
        _refuse_list("its last record is cut off")
    fields = iter(data.split(b"\0")[:-1])
    entries: list[RawEntry] = []
    counts: list[_Counts] = []
    for field in fields:
        if field.startswith(b":") and not counts:
            entries.append(_read_raw(field, fields))
        else:
            counts.append(_read_numstat(field, fields))
    return tuple(_with_counts(entries, counts))


def _read_raw(field: bytes, fields: Iterator[bytes]) -> RawEntry:
    match = _RAW.fullmatch(field)
    if match is None:
        _refuse_list(f"a raw record is malformed: {field[:80]!r}")
    old_mode, new_mode, old_blob, new_blob, status, score = (group.decode("ascii") for group in match.groups())
    old_path = _next_path(fields)
    return RawEntry(
        old_mode=old_mode,
        new_mode=new_mode,
        old_blob=old_blob,
        new_blob=new_blob,
        status=status,
        similarity=int(score) if score and status in _TWO_PATHS else None,
        old_path=old_path,
        new_path=_next_path(fields) if status in _TWO_PATHS else old_path,
    )


def _read_numstat(field: bytes, fields: Iterator[bytes]) -> _Counts:
    match = _NUMSTAT.fullmatch(field)
    if match is None:
        _refuse_list(f"a numstat record is malformed: {field[:80]!r}")
    added, deleted = (None if number == b"-" else int(number) for number in match.group(1, 2))
    if match[3]:
        path = decode_path(match[3])
        return _Counts(path, path, added, deleted)
    return _Counts(_next_path(fields), _next_path(fields), added, deleted)


def _next_path(fields: Iterator[bytes]) -> str:
    path = next(fields, b"")
    if not path:
        _refuse_list("a record has no path")
    return decode_path(path)


def _with_counts(entries: list[RawEntry], counts: list[_Counts]) -> Iterator[RawEntry]:
    place = 0
    for entry in entries:
        found = counts[place] if place < len(counts) else None
        if found and (found.old_path, found.new_path) == (entry.old_path, entry.new_path):
            place += 1
            yield replace(entry, added=found.added, deleted=found.deleted)
        else:
            yield entry
    if place < len(counts):
        _refuse_list(f"numstat counts {counts[place].new_path!r}, which is not in its place in the raw list")


def _refuse_list(problem: str) -> NoReturn:
    raise DiffSyntaxError(f"git's list of changed files cannot be read: {problem}", hint="run it again")


def reconcile(files: tuple[FileChange, ...], entries: tuple[RawEntry, ...]) -> tuple[FileChange, ...]:
    """The files of git's list, in its order, with the hunks of the patch.

    The patch is made with `--text`, so a file that git takes for binary may have hunks; it keeps them. Raises
    RepositoryBusy for an unmerged file, and DiffSyntaxError when list and patch do not describe the same change.
    """
    place = 0
    result: list[FileChange] = []
    for entry in entries:
        change = _from_entry(entry)
        patched = files[place] if place < len(files) else None
        if patched is not None and _same_file(change, patched):
            place += 1
            _compare(entry, change, patched=patched)
            change = replace(change, hunks=patched.hunks, counts=_counts_of_type_change(entry, change))
        elif not _may_lack_section(entry, change):
            _disagree(f"{change.path!r} is in the list and not in its place in the patch")
        result.append(change)
    if place < len(files):
        _disagree(f"{files[place].path!r} is in the patch and not in its place in the list")
    return tuple(result)


def _from_entry(entry: RawEntry) -> FileChange:
    if entry.status == "U":
        raise RepositoryBusy(
            f"{entry.new_path!r} has unresolved conflicts",
            hint="resolve and add it, or abort the merge, then run again",
        )
    if entry.status not in _STATUSES:
        _disagree(f"{entry.new_path!r} has the status {entry.status!r}, which means nothing here")
    status = _STATUSES[entry.status]
    return FileChange(
        old_path=None if status is FileStatus.ADDED else entry.old_path,
        new_path=None if status is FileStatus.DELETED else entry.new_path,
        status=status,
        old_mode=None if entry.old_mode == _NO_MODE else entry.old_mode,
        new_mode=None if entry.new_mode == _NO_MODE else entry.new_mode,
        old_blob=entry.old_blob if entry.old_blob.strip("0") else None,
        new_blob=entry.new_blob if entry.new_blob.strip("0") else None,
        similarity=entry.similarity,
        binary=entry.added is None,
    )


def _counts_of_type_change(entry: RawEntry, listed: FileChange) -> tuple[int, int] | None:
    if listed.status is not FileStatus.TYPE_CHANGED or entry.added is None or entry.deleted is None:
        return None
    return entry.added, entry.deleted


def _same_file(listed: FileChange, patched: FileChange) -> bool:
    return (listed.old_path, listed.new_path, listed.status) == (patched.old_path, patched.new_path, patched.status)


def _may_lack_section(entry: RawEntry, listed: FileChange) -> bool:
    """Whether the list says no more of a file than that it was touched."""
    moved = listed.old_blob and listed.new_blob and listed.old_blob != listed.new_blob
    counted = entry.added or entry.deleted
    return entry.status == "M" and entry.old_mode == entry.new_mode and not moved and not counted


def _compare(entry: RawEntry, listed: FileChange, *, patched: FileChange) -> None:
    sides = ((listed.old_blob, patched.old_blob), (listed.new_blob, patched.new_blob))
    if any(one and other and not one.startswith(other) and not other.startswith(one) for one, other in sides):
        _disagree(f"the content of {listed.path!r} is another one in the list than in the patch")
    if entry.added is None or entry.deleted is None:
        return
    surplus_added, surplus_deleted = patched.added - entry.added, patched.deleted - entry.deleted
    # numstat compares the two contents of a type change; the patch deletes one whole and adds the other whole,
    # so a line that both have is counted on both sides of the patch.
    shared_lines = listed.status is FileStatus.TYPE_CHANGED and surplus_added == surplus_deleted >= 0
    if patched.binary or (not shared_lines and (surplus_added or surplus_deleted)):
        _disagree(f"the changed lines of {listed.path!r} are not as many in the list as in the patch")


def _disagree(problem: str) -> NoReturn:
    raise DiffSyntaxError(
        f"git's list of changed files and its patch disagree: {problem}",
        hint="the repository may have changed while it was read; run it again",
    )
