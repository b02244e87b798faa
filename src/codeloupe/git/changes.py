"""Reading a change: git's lists and patch of two sides, parsed and checked against each other."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError, GitFailed, NotARepository, OutputTooLarge, RepositoryBusy
from codeloupe.git.command import DIFF_FLAGS, PATCH_FLAGS, Place, both, failure, git, try_git
from codeloupe.git.diff import parse_diff
from codeloupe.git.diff_text import decode_path
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    Repository,
    borrow,
    comparison_settings,
    copy_index,
    in_engine,
    object_name,
    temporary_engine,
)
from codeloupe.git.scopes import Side, Sides
from codeloupe.model.change import Change, FileChange, FileStatus

_UNMERGED = re.compile(rb"(?:^|\0)\w \d+ [0-9a-f]+ [123]\t")
_ASSUMED = re.compile(rb"(?:^|\0)[a-z] \d+ [0-9a-f]+ 0\t([^\0]+)")
# May hit a name with a tab in it by mistake, so what it finds is looked at again.
_SUSPICIOUS_NAME = re.compile(rb"[\t/](?:|\.|\.\.|\.git)[/\0]", re.IGNORECASE)
_IMPOSSIBLE_PARTS = frozenset({b"", b".", b"..", b".git"})


async def check_index(repository: Repository, place: Place) -> list[str]:
    """Refuse conflicts, and an index with names that would lead git out of the working tree or into its own folder.

    Returns the files of which git was told to assume that they never change.
    """
    output = await git(place, "ls-files", "--stage", "-v", "-z")
    if _UNMERGED.search(output):
        raise _conflicts(_unmerged_names(output))
    if _SUSPICIOUS_NAME.search(output):
        for name in (entry.split(b"\t", 1)[1] for entry in output.split(b"\0") if entry):
            if not _IMPOSSIBLE_PARTS.isdisjoint(name.lower().split(b"/")):
                raise NotARepository(
                    f"the index of {repository.root} is damaged or forged: it names {os.fsdecode(name)!r}",
                    hint="git reset makes a new one; do not trust the origin of this repository",
                )
    return [os.fsdecode(name) for name in _ASSUMED.findall(output)]


def _unmerged_names(output: bytes) -> list[str]:
    entries = (entry.split(b"\t", 1) for entry in output.split(b"\0") if entry)
    return sorted({os.fsdecode(name) for facts, name in entries if not facts.endswith(b" 0")})


def _conflicts(names: list[str]) -> RepositoryBusy:
    shown = ", ".join(repr(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
    return RepositoryBusy(
        f"a merge, rebase or cherry-pick is in progress with conflicts in {len(names)} file(s): {shown}",
        hint="resolve and add them, or abort it (git merge --abort), then review again",
    )


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
    for record in fields:
        if record.startswith(b":") and not counts:
            entries.append(_read_raw(record, fields))
        else:
            counts.append(_read_numstat(record, fields))
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


# In the working tree: git's guards for other systems' file names would make it refuse a file that is there, and with
# sparse checkouts known it looks at files outside of the sparse part that are there all the same.
_TREE_SETTINGS = ("core.protectNTFS=false", "core.protectHFS=false", "core.sparseCheckout=true")
_MAX_FILE_BYTES = 256 * 1024**2
_CLOSED_FOLDER = re.compile(r"^warning: could not open directory '(.*?)': ([^\n']*)$", re.MULTILINE | re.DOTALL)


class _Prepared(Struct, frozen=True):
    """Where to run the diff, what to compare, and what had to be left out."""

    place: Place
    sides: tuple[str, ...]
    unreadable: dict[str, str] = field(default_factory=dict)
    nested_repositories: tuple[str, ...] = ()


async def read_change(repository: Repository, sides: Sides) -> Change:
    """The change between two sides. Raises RepositoryBusy on conflicts and GitFailed when git cannot read."""
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        prepared = await _prepare(repository, sides, git_dir)
        files, too_large = await _read_files(prepared)
    unreadable = prepared.unreadable | too_large
    readable = tuple(file for file in files if file.path not in unreadable)
    return Change(sides.scope, readable, tuple(unreadable.items()), prepared.nested_repositories)


async def _read_files(prepared: _Prepared) -> tuple[tuple[FileChange, ...], dict[str, str]]:
    """The files, and those of them that are too large to be shown."""
    words = ("diff", *DIFF_FLAGS, "--raw", "--numstat", "-z", "--no-abbrev", *prepared.sides, "--")
    listed, (patch, whole) = await both(git(prepared.place, *words), _read_patch(prepared))
    patched = parse_diff(patch)
    files = _with_new_blobs(reconcile(patched, parse_raw_numstat(listed)), patched)
    hidden = () if whole else (file.path for file in files if file.binary and not file.hunks)
    return files, dict.fromkeys(hidden, "binary, and too large to look into")


def _with_new_blobs(files: tuple[FileChange, ...], patched: tuple[FileChange, ...]) -> tuple[FileChange, ...]:
    """Name the new content of each file in the same way every time.

    The list names content of the working tree only where git is sure of it without reading the file, which depends on
    the moment; the patch always does, unless the content is the old one.
    """
    blobs = {file.path: file.new_blob or file.old_blob for file in patched}
    return tuple(
        replace(file, new_blob=blobs.get(file.path) or file.old_blob) if file.new_path and not file.new_blob else file
        for file in files
    )


async def _read_patch(prepared: _Prepared) -> tuple[bytes, bool]:
    """The patch, and whether it shows every file, also those that git takes for binary."""
    words = ("diff", *PATCH_FLAGS, *prepared.sides, "--")
    try:
        return await git(prepared.place, *words), True
    except (OutputTooLarge, GitFailed) as error:
        if isinstance(error, GitFailed) and "unable to generate diff" not in error.stderr:
            raise
        return await git(prepared.place, *(word for word in words if word != "--text")), False


async def _prepare(repository: Repository, sides: Sides, git_dir: Path) -> _Prepared:
    if sides.side is Side.COMMIT and sides.head is not None:
        return _Prepared(in_engine(git_dir), (sides.base, sides.head))
    copy_index(repository.index, git_dir)
    if sides.side is Side.INDEX:
        await check_index(repository, in_engine(git_dir))
        return _Prepared(in_engine(git_dir), ("--cached", sides.base))
    settings, assumed = await both(comparison_settings(repository), check_index(repository, in_engine(git_dir)))
    borrow(repository.common_dir / "info" / "exclude", git_dir / "info" / "exclude")
    place = in_engine(git_dir, *settings, *_TREE_SETTINGS, work_tree=repository.root)
    if assumed:
        # A change that git was told to overlook is a change.
        await git(place, "update-index", "--no-assume-unchanged", "-z", "--stdin", stdin=_joined(assumed))
    return await _prepare_tree(repository, sides, place)


async def _prepare_tree(repository: Repository, sides: Sides, place: Place) -> _Prepared:
    """Make the engine's index fit for a comparison with the working tree: untracked files in, unreadable ones out."""
    (untracked, closed), touched = await both(_list_untracked(place), _list_touched(place, sides.base))
    nested = tuple(name for name in untracked if name.endswith("/"))
    found = [name for name in untracked if not name.endswith("/") and not _is_ours(repository.root / name, place)]
    problems = _problems(repository.root, [*found, *touched])
    if out := [name for name in touched if name in problems]:
        await git(place, "update-index", "--assume-unchanged", "-z", "--stdin", stdin=_joined(out))
    if added := [name for name in found if name not in problems]:
        await _announce(place, added, object_name("blob", b"", repository.sources.object_format))
    return _Prepared(place, (sides.base,), closed | problems, nested)


async def _list_untracked(place: Place) -> tuple[list[str], dict[str, str]]:
    """Untracked files that are not ignored, nested repositories with a slash at the end; and folders closed to us."""
    completed = await try_git(place, "ls-files", "--others", "--exclude-standard", "-z")
    if completed.exit_code != 0:
        raise failure("ls-files", completed)
    closed = {name: reason.lower() for name, reason in _CLOSED_FOLDER.findall(completed.stderr)}
    return _names(completed.stdout), closed


async def _list_touched(place: Place, base: str) -> list[str]:
    """Tracked files that may differ from the base.

    diff-index compares only what the index recorded and opens no file, so that it does not fail on those it may not.
    """
    return _names(await git(place, "diff-index", "--ignore-submodules=dirty", "--name-only", "-z", base, "--"))


async def _announce(place: Place, names: list[str], empty_blob: str) -> None:
    """Enter untracked files in the engine's index as empty ones, so that the diff shows them as added."""
    records = (f"100644 {empty_blob}\t".encode("ascii") + os.fsencode(name) + b"\0" for name in names)
    await git(place, "update-index", "-z", "--index-info", stdin=b"".join(records))


def _is_ours(file: Path, place: Place) -> bool:
    """Whether a file is in the directory of the engine itself: temporary files may lie in the reviewed tree."""
    return file.is_relative_to(place.git_dir.parent.parent)


def _problems(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Of some files of the working tree, those that cannot be read, and why. A missing one is a deletion."""
    found = ((name, _problem(root, name)) for name in names)
    return {name: problem for name, problem in found if problem is not None}


def _problem(root: Path, name: str) -> str | None:
    try:
        facts = (root / name).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problem = (error.strerror or "cannot be looked at").lower()
    else:
        if stat.S_ISDIR(facts.st_mode) or stat.S_ISLNK(facts.st_mode):
            return None
        if not stat.S_ISREG(facts.st_mode):
            problem = "a pipe, a socket or a device, not a file"
        elif facts.st_size > _MAX_FILE_BYTES:
            problem = f"{facts.st_size:,} bytes, more than can be compared"
        elif os.access(root / name, os.R_OK):
            return None
        else:
            problem = "permission denied"
    return None if _is_behind_link(root, name) else problem


def _is_behind_link(root: Path, name: str) -> bool:
    """Whether a folder above a file was replaced by a symbolic link; to git the file is deleted then."""
    links = (os.path.islink(root / parent) for parent in Path(name).parents)  # noqa: PTH114 - Path's raises in closed folders
    return any(links)


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _joined(names: list[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)
