"""Reading a change: git's list (`--raw --numstat -z`) and patch of two sides, parsed and checked against each other.

The list gives names, status, modes and blobs, byte for byte; the patch gives the lines. Both describe one state of the
repository only if nothing moved while git read it, which is what the comparison proves.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError, GitFailed, NotARepository, OutputTooLarge, RepositoryBusy
from codeloupe.git.command import PATCH_FLAGS, Place, failure, git, try_git
from codeloupe.git.diff import parse_diff
from codeloupe.git.diff_text import decode_path
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    Entry,
    Repository,
    borrow,
    comparison_settings,
    copy_index,
    in_engine,
    object_name,
    temporary_engine,
)
from codeloupe.git.scopes import Side, Sides
from codeloupe.model.change import SUBMODULE_MODE, Change, FileChange, FileStatus

# List and patch at once: a NUL ends the list, and the patch follows.
CHANGE_FLAGS = (*PATCH_FLAGS, "--raw", "--numstat", "-z", "--no-abbrev")
# In the working tree: git's guards for other systems' file names would make it refuse a file that is there, and with
# sparse checkouts known it looks at files outside of the sparse part that are there all the same.
_TREE_SETTINGS = ("core.protectNTFS=false", "core.protectHFS=false", "core.sparseCheckout=true")
_MAX_FILE_BYTES = 256 * 1024**2
_CLOSED_FOLDER = re.compile(r"^warning: could not open directory '(.*?)': ([^\n']*)$", re.MULTILINE | re.DOTALL)
_UNMERGED = re.compile(rb"(?:^|\0)\w \d+ [0-9a-f]+ [123]\t")
_ASSUMED = re.compile(rb"(?:^|\0)[a-z] \d+ [0-9a-f]+ 0\t([^\0]+)")
# May hit a name with a tab in it by mistake, so what it finds is checked again.
_SUSPICIOUS_NAME = re.compile(rb"[\t/](?:|\.|\.\.|\.git)[/\0]", re.IGNORECASE)
_IMPOSSIBLE_PARTS = frozenset({b"", b".", b"..", b".git"})
_RAW = re.compile(rb":([0-7]{6}) ([0-7]{6}) ([0-9a-f]{4,64}) ([0-9a-f]{4,64}) ([ACDMRTUXB])(\d{0,3})")
_NUMSTAT = re.compile(rb"(\d{1,18}|-)\t(\d{1,18}|-)\t(.*)", re.DOTALL)
_TWO_PATHS = ("R", "C")
_STATUSES = {
    "A": FileStatus.ADDED,
    "M": FileStatus.MODIFIED,
    "D": FileStatus.DELETED,
    "R": FileStatus.RENAMED,
    "C": FileStatus.COPIED,
    "T": FileStatus.TYPE_CHANGED,
}


async def read_change(repository: Repository, sides: Sides) -> Change:
    """The change between two sides. Raises RepositoryBusy on conflicts and GitFailed when git cannot read."""
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        place, unreadable, nested = in_engine(git_dir), dict[str, str](), tuple[str, ...]()
        words = (sides.base, sides.head) if sides.head is not None else (sides.base,)
        if sides.side is not Side.COMMIT:
            copy_index(repository.index, git_dir)
        if sides.side is Side.INDEX:
            words = ("--cached", sides.base)
            await check_index(repository, place)
        elif sides.side is Side.WORKING_TREE:
            borrow(repository.common_dir / "info" / "exclude", git_dir / "info" / "exclude")
            settings = await comparison_settings(repository)
            place = in_engine(git_dir, *settings, *_TREE_SETTINGS, work_tree=repository.root)
            unreadable, nested = await _enter_untracked(repository, place)
        files, is_whole = await _read_files(place, words)
    if sides.side is Side.WORKING_TREE:
        # Those that git did not find touched may be larger than it should have read.
        unreadable |= _problems(repository.root, (file.path for file in files if file.new_path))
    elif repository.remembers:
        entries = (Entry(file.new_mode or "", file.new_blob or "", file.new_path) for file in files if file.new_path)
        present = {entry.path: entry for entry in entries if entry.blob and entry.mode != SUBMODULE_MODE}
        repository.known.entries[sides] = present
    if not is_whole:
        hidden = (file.path for file in files if file.binary and not file.hunks)
        unreadable |= dict.fromkeys(hidden, "binary, and too large to look into")
    readable = tuple(file for file in files if file.path not in unreadable)
    return Change(sides.scope, readable, tuple(unreadable.items()), nested)


async def _read_files(place: Place, sides: tuple[str, ...]) -> tuple[tuple[FileChange, ...], bool]:
    """The files, and whether the patch shows all of them, also those that git takes for binary."""
    words = ("diff", *CHANGE_FLAGS, *sides, "--")
    is_whole = True
    try:
        output = await git(place, *words)
    except (OutputTooLarge, GitFailed) as error:
        if isinstance(error, GitFailed) and "unable to generate diff" not in error.stderr:
            raise
        is_whole = False
        output = await git(place, *(word for word in words if word != "--text"))
    entries, patch = parse_list(output)
    patched = parse_diff(patch)
    # The list names content of the working tree only where git is sure of it without reading the file, which depends on
    # the moment; the patch always does, unless the content is the old one.
    blobs = {file.path: file.new_blob or file.old_blob for file in patched}
    files = (
        replace(file, new_blob=blobs.get(file.path) or file.old_blob) if file.new_path and not file.new_blob else file
        for file in reconcile(patched, entries)
    )
    return tuple(files), is_whole


async def _enter_untracked(repository: Repository, place: Place) -> tuple[dict[str, str], tuple[str, ...]]:
    """Make the engine's index fit for a comparison with the working tree: untracked files in, unreadable ones out.

    Returns the unreadable files with the reason, and the untracked folders that are repositories.
    """
    words = ("ls-files", "--cached", "--modified", "--others", "--exclude-standard", "--stage", "-v", "-z")
    completed = await try_git(place, *words)
    if completed.exit_code != 0:
        raise failure("ls-files", completed)
    assumed = _check_listed(repository, completed.stdout)
    if assumed:
        # A change that git was told to overlook is a change.
        await git(place, "update-index", "--no-assume-unchanged", "-z", "--stdin", stdin=_joined(assumed))
    records = completed.stdout.split(b"\0")
    untracked = [os.fsdecode(record[2:]) for record in records if record.startswith(b"? ")]
    touched = [os.fsdecode(record.split(b"\t", 1)[1]) for record in records if record.startswith(b"C ")]
    # Temporary files, among them the engine, may lie in the reviewed tree.
    ours = place.git_dir.parent.parent
    found = [name for name in untracked if name[-1] != "/" and not (repository.root / name).is_relative_to(ours)]
    problems = _problems(repository.root, [*found, *touched, *assumed])
    if out := [name for name in (*touched, *assumed) if name in problems]:
        await git(place, "update-index", "--assume-unchanged", "-z", "--stdin", stdin=_joined(out))
    if added := [name for name in found if name not in problems]:
        # Entered as empty ones, so that the diff shows them as added.
        facts = f"100644 {object_name('blob', b'', repository.sources.object_format)}\t".encode("ascii")
        records = [facts + os.fsencode(name) + b"\0" for name in added]
        await git(place, "update-index", "-z", "--index-info", stdin=b"".join(records))
    closed = {name: reason.lower() for name, reason in _CLOSED_FOLDER.findall(completed.stderr)}
    return closed | problems, tuple(name for name in untracked if name.endswith("/"))


def _joined(names: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(name) + b"\0" for name in names)


async def check_index(repository: Repository, place: Place) -> list[str]:
    """Refuse conflicts, and an index with names that would lead git out of the working tree or into its own folder.

    Returns the files of which git was told to assume that they never change.
    """
    return _check_listed(repository, await git(place, "ls-files", "--stage", "-v", "-z"))


def _check_listed(repository: Repository, output: bytes) -> list[str]:
    if _UNMERGED.search(output):
        rows = (row.split(b"\t", 1) for row in output.split(b"\0") if row and not row.startswith(b"? "))
        names = sorted({os.fsdecode(name) for facts, name in rows if not facts.endswith(b" 0")})
        shown = ", ".join(repr(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
        raise RepositoryBusy(
            f"a merge, rebase or cherry-pick is in progress with conflicts in {len(names)} file(s): {shown}",
            hint="resolve and add them, or abort it (git merge --abort), then review again",
        )
    if _SUSPICIOUS_NAME.search(output):
        rows = (row.split(b"\t", 1) for row in output.split(b"\0") if row and not row.startswith(b"? "))
        for _, name in rows:
            if not _IMPOSSIBLE_PARTS.isdisjoint(name.lower().split(b"/")):
                raise NotARepository(
                    f"the index of {repository.root} is damaged or forged: it names {os.fsdecode(name)!r}",
                    hint="git reset makes a new one; do not trust the origin of this repository",
                )
    return [os.fsdecode(name) for name in _ASSUMED.findall(output)]


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
    # Where a folder above was replaced by a symbolic link, the file is deleted to git.
    links = (os.path.islink(root / parent) for parent in Path(name).parents)  # noqa: PTH114 - Path's raises in closed folders
    return None if any(links) else problem


class RawEntry(Struct, frozen=True, kw_only=True):
    """One file in git's list. A mode of `000000` or a blob of zeros is git's word for none.

    `old_path` and `new_path` are the same except for renames and copies. `added` and `deleted` are None where git
    takes the file for binary, and 0 where the list names no lines. `status` is git's letter, `U` for unmerged.
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


def parse_list(data: bytes) -> tuple[tuple[RawEntry, ...], bytes]:
    """The entries of git's list in its order, and the patch behind it. Raises DiffSyntaxError on anything else.

    git prints all raw records first, then the numstat records in the same order, then a NUL and the patch; a file that
    was touched and did not change has no numstat record.
    """
    entries: list[RawEntry] = []
    position = counted = 0

    def take() -> bytes:
        nonlocal position
        end = data.find(b"\0", position)
        if end < 0:
            _refuse_list("its last record is cut off")
        start, position = position, end + 1
        return data[start:end]

    while position < len(data) and (record := take()):
        if (raw := _RAW.fullmatch(record)) and not counted:
            entries.append(_raw_entry(raw, take))
        elif numbers := _NUMSTAT.fullmatch(record):
            paths = (decode_path(numbers[3]),) * 2 if numbers[3] else (_path(take()), _path(take()))
            while counted < len(entries) and (entries[counted].old_path, entries[counted].new_path) != paths:
                counted += 1
            if counted == len(entries):
                _refuse_list(f"numstat counts {paths[1]!r}, which is not in its place in the raw list")
            added, deleted = (None if number == b"-" else int(number) for number in numbers.group(1, 2))
            entries[counted] = replace(entries[counted], added=added, deleted=deleted)
            counted += 1
        else:
            _refuse_list(f"a record is malformed: {record[:80]!r}")
    return tuple(entries), data[position:]


def _raw_entry(match: re.Match[bytes], take: Callable[[], bytes]) -> RawEntry:
    old_mode, new_mode, old_blob, new_blob, status, score = (group.decode("ascii") for group in match.groups())
    old_path = _path(take())
    return RawEntry(
        old_mode=old_mode,
        new_mode=new_mode,
        old_blob=old_blob,
        new_blob=new_blob,
        status=status,
        similarity=int(score) if score and status in _TWO_PATHS else None,
        old_path=old_path,
        new_path=_path(take()) if status in _TWO_PATHS else old_path,
    )


def _path(name: bytes) -> str:
    return decode_path(name) if name else _refuse_list("a record has no path")


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
        names = (change.old_path, change.new_path, change.status)
        if patched is not None and (patched.old_path, patched.new_path, patched.status) == names:
            place += 1
            _compare(entry, change, patched=patched)
            counts = None
            if change.status is FileStatus.TYPE_CHANGED and entry.added is not None and entry.deleted is not None:
                counts = entry.added, entry.deleted
            change = replace(change, hunks=patched.hunks, counts=counts)
        else:
            # The patch lacks a file of which the list says no more than that it was touched.
            moved = change.old_blob and change.new_blob and change.old_blob != change.new_blob
            if entry.status != "M" or entry.old_mode != entry.new_mode or moved or entry.added or entry.deleted:
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
        old_mode=entry.old_mode if entry.old_mode.strip("0") else None,
        new_mode=entry.new_mode if entry.new_mode.strip("0") else None,
        old_blob=entry.old_blob if entry.old_blob.strip("0") else None,
        new_blob=entry.new_blob if entry.new_blob.strip("0") else None,
        similarity=entry.similarity,
        binary=entry.added is None,
    )


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
