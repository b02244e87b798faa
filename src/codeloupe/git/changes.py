"""Reading a change: git's list (`--raw --numstat -z`) and patch of two sides, parsed and checked against each other.

The list gives names, status, modes and blobs, byte for byte; the patch gives the lines. Both describe one state of the
repository only if nothing moved while git read it, which is what the comparison proves.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace

from codeloupe.errors import DiffSyntaxError, GitFailed, NotARepository, OutputTooLarge, RepositoryBusy
from codeloupe.git.command import PATCH_FLAGS, Place, both, failure, git, try_git
from codeloupe.git.diff import parse_diff
from codeloupe.git.diff_names import decode_path
from codeloupe.git.repository import Entry, Repository, in_working_tree, object_name, reading
from codeloupe.git.scopes import Side, Sides
from codeloupe.model.change import SUBMODULE_MODE, Change, FileChange, FileStatus
from codeloupe.system.regex import regex

# List and patch at once: a NUL ends the list, and the patch follows.
CHANGE_FLAGS = (*PATCH_FLAGS, "--raw", "--numstat", "-z", "--no-abbrev")
# In the working tree: git's guards for other systems' file names would make it refuse a file that is there, and with
# sparse checkouts known it looks at files outside of the sparse part that are there all the same.
_TREE_SETTINGS = ("core.protectNTFS=false", "core.protectHFS=false", "core.sparseCheckout=true")
_MAX_FILE_BYTES = 256 * 1024**2
_CLOSED_FOLDER = regex(r"^warning: could not open directory '(.*?)': ([^\n']*)$", re.MULTILINE | re.DOTALL)
_UNMERGED = regex(rb"(?:^|\0)\w \d+ [0-9a-f]+ [123]\t([^\0]+)")
_ASSUMED = regex(rb"(?:^|\0)[a-z] \d+ [0-9a-f]+ 0\t([^\0]+)")
# May hit a name with a tab in it by mistake, so what it finds is checked again.
_SUSPICIOUS_NAME = regex(rb"[\t/](?:|\.|\.\.|\.git)[/\0]", re.IGNORECASE)
_RAW = regex(rb":([0-7]{6}) ([0-7]{6}) ([0-9a-f]{4,64}) ([0-9a-f]{4,64}) ([ACDMRTUXB])(\d{0,3})")
_NUMSTAT = regex(rb"(\d{1,18}|-)\t(\d{1,18}|-)\t(.*)", re.DOTALL)
_STATUSES = dict(zip("AMDRCT", FileStatus, strict=True))

# Each file of a working tree that is not ignored, with its mode and the name of its content.
TreeState = Mapping[str, str]


async def read_change(repository: Repository, sides: Sides) -> Change:
    """The change between two sides. Raises RepositoryBusy on conflicts and GitFailed when git cannot read."""
    async with reading(repository, index=sides.side is not Side.COMMIT) as engine:
        place, unreadable, nested = engine, dict[str, str](), tuple[str, ...]()
        words = (sides.base, sides.head) if sides.head is not None else (sides.base,)
        if sides.side is Side.INDEX:
            words = ("--cached", sides.base)
            await _check_index(repository, place)
        elif sides.side is Side.WORKING_TREE:
            place = await in_working_tree(repository, place, *_TREE_SETTINGS)
            unreadable, nested = await _enter_untracked(repository, place)
        files, is_whole = await _read_files(place, words)
    if sides.side is Side.WORKING_TREE:
        # Those that git did not find touched may be larger than it should have read.
        unreadable |= _problems(repository.root, (file.path for file in files if file.new_path))
    else:
        entries = (Entry(file.new_mode or "", file.new_blob or "", file.new_path) for file in files if file.new_path)
        present = {entry.path: entry for entry in entries if entry.blob and entry.mode != SUBMODULE_MODE}
        repository.known.entries[sides] = present
    if not is_whole:
        hidden = (file.path for file in files if file.binary and not file.hunks)
        unreadable |= dict.fromkeys(hidden, "binary, and too large to inspect")
    readable = tuple(file for file in files if file.path not in unreadable)
    return Change(sides.scope, readable, tuple(unreadable.items()), nested)


async def read_tree_state(repository: Repository) -> TreeState:
    """Each file of the working tree with its mode and content name."""
    async with reading(repository, index=True) as engine:
        place, _ = await both(in_working_tree(repository, engine), _check_index(repository, engine))
        await git(place, "add", "--all", "--ignore-errors", "--", ".")
        listed = await git(place, "ls-files", "--stage", "-z")
    entries = (entry.split(b"\t", 1) for entry in listed.split(b"\0") if entry)
    return {os.fsdecode(path): meta.decode("ascii") for meta, path in entries}


def identity(state: TreeState) -> str:
    """A name for the content of a tree: the same for the same files, wherever they lie."""
    digest = hashlib.sha256()
    for path, meta in sorted(state.items()):
        digest.update(f"{meta}\0".encode() + os.fsencode(path) + b"\0")
    return digest.hexdigest()


def changed_between(before: TreeState, after: TreeState) -> tuple[str, ...]:
    """Files that were added, changed or removed, sorted."""
    return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))


async def _read_files(place: Place, sides: tuple[str, ...]) -> tuple[tuple[FileChange, ...], bool]:
    words = ("diff", *CHANGE_FLAGS, *sides, "--")
    is_whole = True
    try:
        output = await git(place, *words)
    except (OutputTooLarge, GitFailed) as error:
        if isinstance(error, GitFailed) and "unable to generate diff" not in error.stderr:
            raise
        is_whole = False
        output = await git(place, *(word for word in words if word != "--text"))
    listed, patch = parse_list(output)
    patched = parse_diff(patch)
    # The list names content of the working tree only where git is sure of it without reading the file, which depends on
    # the moment; the patch always does, unless the content is the old one.
    blobs = {file.path: file.new_blob or file.old_blob for file in patched}
    files = (
        replace(file, new_blob=blobs.get(file.path) or file.old_blob) if file.new_path and not file.new_blob else file
        for file in reconcile(patched, listed)
    )
    return tuple(files), is_whole


async def _enter_untracked(repository: Repository, place: Place) -> tuple[dict[str, str], tuple[str, ...]]:
    """Enter untracked files in the engine's index, take unreadable ones out; returns those, and nested repositories."""
    words = ("ls-files", "--cached", "--modified", "--others", "--exclude-standard", "--stage", "-v", "-z")
    completed = await try_git(place, *words)
    if completed.exit_code:
        raise failure("ls-files", completed)

    async def update_index(option: str, names: Iterable[str]) -> None:
        listed = b"".join(os.fsencode(name) + b"\0" for name in names)
        if listed:
            await git(place, "update-index", option, "-z", "--stdin", stdin=listed)

    assumed = _check_listed(repository, completed.stdout)
    # A change that git is set to overlook is a change.
    await update_index("--no-assume-unchanged", assumed)
    records = completed.stdout.split(b"\0")
    untracked = [os.fsdecode(record[2:]) for record in records if record.startswith(b"? ")]
    touched = [os.fsdecode(record.split(b"\t", 1)[1]) for record in records if record.startswith(b"C ")]
    # Temporary files, among them the engine, may lie in the reviewed tree.
    ours = place.git_dir.parent
    found = [name for name in untracked if name[-1] != "/" and not (repository.root / name).is_relative_to(ours)]
    problems = _problems(repository.root, [*found, *touched, *assumed])
    await update_index("--assume-unchanged", [name for name in (*touched, *assumed) if name in problems])
    if added := [name for name in found if name not in problems]:
        # Entered as empty ones, so that the diff shows them as added.
        empty = object_name("blob", b"", repository.object_format)
        records = [os.fsencode(f"100644 {empty}\t{name}\0") for name in added]
        await git(place, "update-index", "-z", "--index-info", stdin=b"".join(records))
    closed = {name: reason.lower() for name, reason in _CLOSED_FOLDER.findall(completed.stderr)}
    return closed | problems, tuple(name for name in untracked if name.endswith("/"))


async def _check_index(repository: Repository, place: Place) -> None:
    _check_listed(repository, await git(place, "ls-files", "--stage", "-v", "-z"))


def _check_listed(repository: Repository, output: bytes) -> list[str]:
    """Refuse conflicts and names that lead out of the tree; returns the files that git is set to overlook."""
    if names := sorted({os.fsdecode(name) for name in _UNMERGED.findall(output)}):
        shown = ", ".join(repr(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
        message = f"a merge, rebase or cherry-pick is in progress with conflicts in {len(names)} file(s): {shown}"
        raise RepositoryBusy(message, hint="resolve and add them, or abort it (git merge --abort), then review again")
    if _SUSPICIOUS_NAME.search(output):
        for row in output.split(b"\0"):
            name = row.partition(b"\t")[2]
            if name and not row.startswith(b"? ") and {b"", b".", b"..", b".git"} & set(name.lower().split(b"/")):
                message = f"the index of {repository.root} is damaged or forged: it names {os.fsdecode(name)!r}"
                hint = "run `git reset` to rebuild it; do not trust the source of this repository"
                raise NotARepository(message, hint=hint)
    return [os.fsdecode(name) for name in _ASSUMED.findall(output)]


def _problems(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Of some files of the working tree, those that cannot be read, and why. A missing one is a deletion."""
    found: dict[str, str] = {}
    for name in names:
        try:
            facts = (root / name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            problem = (error.strerror or "cannot be inspected").lower()
        else:
            if stat.S_ISDIR(facts.st_mode) or stat.S_ISLNK(facts.st_mode):
                continue
            if not stat.S_ISREG(facts.st_mode):
                problem = "a pipe, a socket or a device, not a file"
            elif facts.st_size > _MAX_FILE_BYTES:
                problem = f"{facts.st_size:,} bytes, too large to compare"
            elif os.access(root / name, os.R_OK):
                continue
            else:
                problem = "permission denied"
        # Where a folder above was replaced by a symbolic link, the file is deleted to git.
        if not any(os.path.islink(root / parent) for parent in Path(name).parents):  # noqa: PTH114 - Path's raises in closed folders
            found[name] = problem
    return found


def parse_list(data: bytes) -> tuple[tuple[FileChange, ...], bytes]:
    """The files of git's list, without hunks but with its counts, and the patch after it. Raises DiffSyntaxError."""
    head, end, patch = data.partition(b"\0\0")
    if head and not end and not head.endswith(b"\0"):
        _refuse_list("its last record is truncated")
    records = iter(head.removesuffix(b"\0").split(b"\0") if head else ())
    files: list[FileChange] = []
    counted = 0

    def take_path() -> str:
        return decode_path(next(records, b"") or _refuse_list("a record has no path"))

    for record in records:
        if (raw := _RAW.fullmatch(record)) and not counted:
            old_path = take_path()
            files.append(_listed_file(raw, old_path, take_path() if raw[5] in b"RC" else old_path))
        elif numbers := _NUMSTAT.fullmatch(record):
            paths = (decode_path(numbers[3]),) * 2 if numbers[3] else (take_path(), take_path())
            while counted < len(files) and (files[counted].old_path or paths[0], files[counted].path) != paths:
                counted += 1
            if counted == len(files):
                _refuse_list(f"numstat counts {paths[1]!r}, which is missing at this position of the raw list")
            binary = b"-" in numbers.group(1, 2)
            counts = None if binary else (int(numbers[1]), int(numbers[2]))
            files[counted] = replace(files[counted], binary=binary, counts=counts)
            counted += 1
        else:
            _refuse_list(f"a record is malformed: {record[:80]!r}")
    return tuple(files), patch


def _listed_file(raw: re.Match[bytes], old_path: str, new_path: str) -> FileChange:
    *sides, letter, score = (group.decode("ascii") for group in raw.groups())
    if letter == "U":
        hint = "resolve and add it, or abort the merge, then run again"
        raise RepositoryBusy(f"{new_path!r} has unresolved conflicts", hint=hint)
    if letter not in _STATUSES:
        _refuse_list(f"{new_path!r} has the unexpected status {letter!r}")
    old_mode, new_mode, old_blob, new_blob = (value if value.strip("0") else None for value in sides)
    paths = None if letter == "A" else old_path, None if letter == "D" else new_path
    similarity = int(score) if score and letter in "RC" else None
    status, counts = _STATUSES[letter], (0, 0)
    return FileChange(*paths, status, old_mode, new_mode, old_blob, new_blob, similarity, counts=counts)


def _refuse_list(problem: str) -> NoReturn:
    raise DiffSyntaxError(f"git's list of changed files cannot be read: {problem}", hint="retry")


def reconcile(patched: tuple[FileChange, ...], listed: tuple[FileChange, ...]) -> tuple[FileChange, ...]:
    """The files of git's list with the hunks of the patch. Raises DiffSyntaxError when the two do not agree."""
    left = list(reversed(patched))
    result: list[FileChange] = []
    for file in listed:
        is_type_change = file.status is FileStatus.TYPE_CHANGED
        names = (file.old_path, file.new_path, file.status)
        if left and (left[-1].old_path, left[-1].new_path, left[-1].status) == names:
            shown = left.pop()
            blobs = ((file.old_blob, shown.old_blob), (file.new_blob, shown.new_blob))
            same = all(not (one and other) or one.startswith(other) or other.startswith(one) for one, other in blobs)
            more = shown.added - file.added, shown.deleted - file.deleted
            # numstat compares the two contents of a type change; the patch deletes one whole and adds the other whole,
            # so a line that both have is counted on both sides of the patch.
            fits = more[0] == more[1] >= 0 if is_type_change else more == (0, 0)
            agree = same and (file.binary or (fits and not shown.binary))
            file_hunks = shown.hunks
        else:
            # The patch lacks a file of which the list says no more than that it was touched.
            moved = file.old_blob and file.new_blob and file.old_blob != file.new_blob
            is_touched = file.status is FileStatus.MODIFIED and file.old_mode == file.new_mode
            agree, file_hunks = is_touched and not moved and not any(file.counts or ()), ()
        if not agree:
            _disagree(file)
        counts = file.counts if is_type_change and not file.binary else None
        result.append(replace(file, hunks=file_hunks, counts=counts))
    if left:
        _disagree(left[-1])
    return tuple(result)


def _disagree(file: FileChange) -> NoReturn:
    hint = "the repository may have changed during the review; retry"
    raise DiffSyntaxError(f"git's list of changed files and its patch disagree on {file.path!r}", hint=hint)
