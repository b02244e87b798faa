"""Reading a change: git's lists and patch of two sides, parsed and checked against each other."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.errors import GitFailed, OutputTooLarge
from codeloupe.git.command import DIFF_FLAGS, PATCH_FLAGS, Place, both, failure, git, try_git
from codeloupe.git.diff import parse_diff
from codeloupe.git.engine import DIFF_ATTRIBUTES, borrow, copy_index, in_engine, object_name, temporary_engine
from codeloupe.git.index_check import check_index
from codeloupe.git.raw import parse_raw_numstat, reconcile
from codeloupe.git.repository import Repository, comparison_settings
from codeloupe.git.scopes import Side, Sides
from codeloupe.model.change import Change, FileChange

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
