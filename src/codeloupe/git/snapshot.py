"""The reviewed tree as a directory: byte for byte, symbolic links as text, removed at the end even after an error.

A commit or an index is exported by git from an engine of our own, with filters off, and only under names that stay
inside. A working tree is copied by us, opening each component of a path without following links, so that no file
outside of the tree gets in. Of a change of which only a diff is known, the new content is rebuilt from what the
repository still has: when the old blob (or the file at HEAD) is here and every context and deleted line of the diff
agrees with it, applying the hunks gives the new content exactly. What cannot be rebuilt for certain is left out.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.errors import GitFailed, OutputTooLarge
from codeloupe.git.command import Place, failure, git, try_git
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    EXPORT_ATTRIBUTES,
    Entry,
    Repository,
    borrow,
    comparison_settings,
    copy_index,
    in_engine,
    list_entries,
    object_name,
    private_directory,
    read_head,
    read_objects,
    temporary_engine,
)
from codeloupe.git.scopes import Side, Sides
from codeloupe.model.change import FileChange, FileStatus

_FORBIDDEN_PARTS = frozenset({"", ".", "..", ".git"})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# git's guards for other systems' file names; ours are stricter where it matters and must not stop a whole export.
_EXPORT_SETTINGS = ("core.autocrlf=false", "core.fileMode=false", "core.protectNTFS=false", "core.protectHFS=false")
_FILES_BETWEEN_BREATHS = 50
_OUR_DIRECTORIES = "codeloupe-"  # how the names of temporary directories begin, which may lie in the reviewed tree
# Nobody reads such a file to judge a change.
_MAX_OTHER_FILE_BYTES = 16 * 1024**2
# The library makes and removes nested folders by recursion, for which a hostile path could be too deep.
_MAX_PARTS = 200
# What file systems hold. git stops at the first name that is longer, and would leave all files behind it out.
_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 3_500
# An agent reads a few files around a change, and to write tens of thousands would take longer than the review.
_MOST_NEAR_FILES = 1_000
_MOST_READ_BYTES = 1_000_000
_MOST_AT_ONCE_BYTES = 64 * 1024**2
_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9_-]{2,60}")


class Snapshot(Struct, frozen=True):
    """A directory with files of the reviewed tree, and those that could not be put there, with the reason.

    `is_partial` when further files were left out since the tree has very many.
    """

    root: Path
    missing: dict[str, str] = field(default_factory=dict)
    is_partial: bool = False


@asynccontextmanager
async def exported(repository: Repository, sides: Sides, *, paths: Iterable[str] | None) -> AsyncIterator[Snapshot]:
    """Some files of the reviewed tree, or all of a commit or index when `paths` is None, as a directory of our own."""
    with empty_directory() as root:
        if sides.side is Side.WORKING_TREE:
            yield Snapshot(root, await _copy_working_files(repository, sides, root, list(paths or ())))
        else:
            wanted = None if paths is None else list(paths)
            yield Snapshot(root, await _check_out(repository, sides, root, wanted))


@asynccontextmanager
async def exported_tree(
    repository: Repository, sides: Sides, *, needed: Iterable[str], nearness: Nearness | None = None
) -> AsyncIterator[Snapshot]:
    """The reviewed tree as a directory of our own; of a working tree what is tracked, or new and not ignored.

    Only the `needed` files are said to be missing: of others, those that are too large or cannot be read are left out.
    With `nearness` a tree that has more files comes in part, without it always whole.
    """
    wanted = list(dict.fromkeys(needed))
    is_partial = False

    def choose(names: Iterable[str]) -> list[str]:
        nonlocal is_partial
        others = sorted(set(names).difference(wanted))
        chosen = others if nearness is None else nearness.nearest(others, wanted)
        is_partial = len(chosen) < len(others)
        return chosen

    with empty_directory() as root:
        if sides.side is Side.WORKING_TREE:
            others = choose(await _list_working_files(repository))
            missing = await _copy_working_files(repository, sides, root, wanted)
            await _copy_files(repository.root, root, others, max_file_bytes=_MAX_OTHER_FILE_BYTES)
        else:
            absent = await _check_out(repository, sides, root, None, choose=lambda names: [*wanted, *choose(names)])
            here = {name for name in wanted if (place := place_of(root, name)) is not None and place.is_file()}
            missing = {name: absent.get(name, "not in the reviewed tree") for name in wanted if name not in here}
        yield Snapshot(root, missing, is_partial)


@contextmanager
def empty_directory() -> Iterator[Path]:
    """A private directory that is removed at the end, whatever was put into it."""
    with private_directory() as directory:
        root = directory / "tree"
        root.mkdir(mode=0o700)
        yield root


def write_file(root: Path, name: str, content: bytes) -> None:
    """Write one file below `root`, which must be a directory of ours; raises ValueError for a path that leaves it."""
    target = root.joinpath(*_checked_parts(name))
    target.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(target, _CREATE, 0o600), "wb") as sink:
        sink.write(content)


def read_regular_files(root: Path, names: Iterable[str], *, max_bytes: int, max_files: int) -> dict[str, bytes | None]:
    """The first bytes of those of some files below `root` that are there; None for one that cannot be read.

    A file that is a link, or is reached through one, counts as not there.
    """
    found: dict[str, bytes | None] = {}
    top = os.open(root, _DIRECTORY)
    try:
        for name in names:
            if len(found) >= max_files:
                break
            try:
                with _folder_beneath(top, _checked_parts(name)) as (folder, last, facts):
                    found[name] = _read_regular(folder, last, facts, max_bytes)
            except (FileNotFoundError, NotADirectoryError, ValueError):
                continue
            except OSError:
                found[name] = None
    finally:
        os.close(top)
    return found


def place_of(root: Path, name: str) -> Path | None:
    """Where a file of a snapshot is, or None for a path that leaves it."""
    try:
        return root.joinpath(*_checked_parts(name))
    except ValueError:
        return None


async def _check_out(
    repository: Repository,
    sides: Sides,
    root: Path,
    paths: list[str] | None,
    *,
    choose: Callable[[Iterable[str]], list[str]] = list,
) -> dict[str, str]:
    """Write some files, or those that are chosen of all; returns those that could not be written, with the reason."""
    if paths == []:
        return {}
    with temporary_engine(repository.sources, EXPORT_ATTRIBUTES) as git_dir:
        listed = repository.known.entries.get(sides) if paths is not None else None
        if listed is None or not listed.keys() >= set(paths or ()):
            if sides.head is None:
                copy_index(repository.index, git_dir)
            safe = None if paths is None else [name for name in paths if place_of(root, name)]
            listed = {entry.path: entry for entry in await list_entries(in_engine(git_dir), sides.head, safe)}
            (git_dir / "index").unlink(missing_ok=True)
        missing: dict[str, str] = {}
        chosen: list[Entry] = []
        for name in dict.fromkeys(choose(listed) if paths is None else paths):
            try:
                _checked_parts(name)
                chosen.append(listed[name])
            except ValueError as error:
                missing[name] = str(error)
            except KeyError:
                missing[name] = "not in the reviewed tree"
        place = in_engine(git_dir, *_EXPORT_SETTINGS, work_tree=root)
        return missing | await _write_entries(place, root, chosen, repository.sources.object_format)


async def _write_entries(place: Place, root: Path, entries: list[Entry], object_format: str) -> dict[str, str]:
    """Write files into the empty `root`; returns those that could not be written whole, with the reason.

    All of them become regular files: a link is its target as text.
    """
    if not entries:
        return {}
    try:
        blobs = await read_objects(place, list({entry.blob: None for entry in entries}), max_bytes=_MOST_AT_ONCE_BYTES)
    except (OutputTooLarge, GitFailed):
        blobs = {}
    if all(entry.blob in blobs for entry in entries):
        twice: dict[str, str] = {}
        for entry in entries:
            try:
                write_file(root, entry.path, blobs[entry.blob])
            except (FileExistsError, IsADirectoryError, NotADirectoryError):
                twice[entry.path] = "a file and a folder at once"
        return twice
    # Too much to be held, or something is missing: git writes what it can, and says why not the rest.
    records = (b"100644 %s\t%s\0" % (entry.blob.encode("ascii"), os.fsencode(entry.path)) for entry in entries)
    await git(place, "update-index", "-z", "--index-info", stdin=b"".join(records))
    completed = await try_git(place, "checkout-index", "--all", "--force", "--quiet")
    if completed.exit_code == 0:
        return {entry.path: "a file and a folder at once" for entry in entries if not (root / entry.path).is_file()}
    reason = f"cannot be exported: {failure('checkout-index', completed).message}"

    def is_whole(entry: Entry) -> bool:
        try:
            return object_name("blob", (root / entry.path).read_bytes(), object_format) == entry.blob
        except OSError:  # not there, or a name that this file system cannot hold
            return False

    return {entry.path: reason for entry in entries if not is_whole(entry)}


async def list_files(repository: Repository, sides: Sides | None) -> list[str]:
    """The files of both sides of a change; without sides those of the working tree."""
    if sides is None:
        return await _list_working_files(repository)
    trees = (sides.base, sides.head) if sides.side is Side.COMMIT else (sides.base,)
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        names = [entry.path for tree in trees for entry in await list_entries(in_engine(git_dir), tree, None)]
    return names if sides.side is Side.COMMIT else names + await _list_working_files(repository)


async def list_head_files(repository: Repository) -> list[str]:
    """The files of the commit that is checked out; none before the first one."""
    head = (await read_head(repository)).sha
    if head is None:
        return []
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        return [entry.path for entry in await list_entries(in_engine(git_dir), head, None)]


async def _list_working_files(repository: Repository) -> list[str]:
    """Files of the working tree that are tracked, or new and not ignored; no nested repositories."""
    with temporary_engine(repository.sources, EXPORT_ATTRIBUTES) as git_dir:
        copy_index(repository.index, git_dir)
        borrow(repository.common_dir / "info" / "exclude", git_dir / "info" / "exclude")
        place = in_engine(git_dir, *await comparison_settings(repository), work_tree=repository.root)
        listed = await git(place, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
        ours = str(git_dir.parent.parent.parent.resolve() / _OUR_DIRECTORIES)
    names = (os.fsdecode(name) for name in listed.split(b"\0") if name and not name.endswith(b"/"))
    return [name for name in names if not str(repository.root / name).startswith(ours)]


async def _copy_working_files(repository: Repository, sides: Sides, root: Path, names: list[str]) -> dict[str, str]:
    """Copy files of the working tree; those that a sparse checkout leaves out are as the index has them."""
    missing = await _copy_files(repository.root, root, names)
    absent = [name for name in missing if not os.path.lexists(repository.root / name)]
    if not absent:
        return missing
    with temporary_engine(repository.sources, EXPORT_ATTRIBUTES) as git_dir:
        copy_index(repository.index, git_dir)
        listed = await git(in_engine(git_dir), "ls-files", "-t", "-z")
    sparse = {os.fsdecode(entry[2:]) for entry in listed.split(b"\0") if entry.startswith(b"S ")}
    left_out = [name for name in absent if name in sparse]
    kept = {name: why for name, why in missing.items() if name not in left_out}
    return kept | await _check_out(repository, sides, root, left_out)


async def _copy_files(
    source: Path, target: Path, names: Sequence[str], *, max_file_bytes: int | None = None
) -> dict[str, str]:
    """Copy regular files, and links as text; returns those that could not be copied."""
    missing: dict[str, str] = {}
    top = os.open(source, _DIRECTORY)
    try:
        for number, name in enumerate(names):
            if number % _FILES_BETWEEN_BREATHS == 0:
                await asyncio.sleep(0)  # so that a cancellation is noticed
            try:
                with _folder_beneath(top, _checked_parts(name)) as (folder, last, facts):
                    if stat.S_ISLNK(facts.st_mode):
                        write_file(target, name, os.fsencode(os.readlink(last, dir_fd=folder)))
                    elif max_file_bytes is not None and facts.st_size > max_file_bytes:
                        missing[name] = f"more than {max_file_bytes:,} bytes"
                    else:
                        write_file(target, name, _read_regular(folder, last, facts))
            except (OSError, ValueError) as error:
                missing[name] = (getattr(error, "strerror", None) or str(error)).lower()
    finally:
        os.close(top)
    return missing


@contextmanager
def _folder_beneath(top: int, parts: tuple[str, ...]) -> Iterator[tuple[int, str, os.stat_result]]:
    """The folder of a file below an open directory, opened without following a link; the file's name and facts."""
    folder = os.dup(top)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder, parts[-1], os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(folder)


def _read_regular(folder: int, name: str, facts: os.stat_result, max_bytes: int = -1) -> bytes:
    """The first bytes of a file, by default all. Raises ValueError for what is no regular file."""
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError("not a regular file")
    # Not blocking: between the check and the opening a file may have become a pipe.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as stream:
        return stream.read(max_bytes)


def _checked_parts(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("/"))
    if any(part.lower() in _FORBIDDEN_PARTS or "\0" in part for part in parts):
        raise ValueError("the path leaves the tree or names git's own folder")
    if len(parts) > _MAX_PARTS:
        raise ValueError(f"more than {_MAX_PARTS} folders deep")
    if any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in parts) or len(os.fsencode(name)) > _MAX_PATH_BYTES:
        raise ValueError("a name longer than a file can have")
    return parts


class Nearness(Struct, frozen=True, kw_only=True):
    """How much of a large tree is exported: so many files, the nearest to the needed ones first.

    Names and folders alone decide, so that nothing has to be read. `names` are words of the change, in lower case: a
    file that is called like one of them is near.
    """

    most_files: int
    names: frozenset[str] = frozenset()

    def nearest(self, files: Sequence[str], needed: Sequence[str]) -> list[str]:
        """The nearest of some files: of the same folder, named in the change, of a folder above, then by folder."""
        if len(files) <= self.most_files:
            return list(files)
        own = {name.rpartition("/")[0] for name in needed}
        ends = {folder: (0, *(end for end, sign in enumerate(folder) if sign == "/")) for folder in own}
        related = own | {folder[:end] for folder in own for end in ends[folder]}
        ranks: dict[str, tuple[int, int]] = {}

        def folder_rank(folder: str) -> tuple[int, int]:
            """0 for a folder of needed files, 3 for one above, 4 for others; and how far the nearest relative is."""
            if folder in own:
                return 0, 0
            if folder in related:
                return 3, -folder.count("/")
            distance, outer = 0, folder
            while outer and outer not in related:
                outer = outer.rpartition("/")[0]
                distance += 1
            return 4, distance - 2 * (outer.count("/") + bool(outer))

        def rank(name: str) -> tuple[int, int, str, str]:
            folder, _, base = name.rpartition("/")
            if folder not in ranks:
                ranks[folder] = folder_rank(folder)
            is_named = base.partition(".")[0].lower() in self.names
            kind, distance = ranks[folder]
            return (0 if is_named else 1) if kind == 0 else 2 if is_named else kind, distance, folder, base

        return sorted(sorted(files, key=rank)[: self.most_files])


def near_to(files: Sequence[FileChange]) -> Nearness:
    """What is near to the changes of some files: their words may be names of others."""
    bodies = b"\n".join(hunk.body for file in files for hunk in file.hunks)[:_MOST_READ_BYTES]
    names = frozenset(word.decode("ascii").lower() for word in set(_NAME.findall(bodies)))
    return Nearness(most_files=_MOST_NEAR_FILES, names=names)


async def rebuild(repository: Repository | None, files: Sequence[FileChange]) -> list[bytes | None]:
    """The whole new content of each file of a diff, or None where it cannot be known."""
    contents: list[bytes | None] = []
    for file in files:
        is_whole = file.status in (FileStatus.ADDED, FileStatus.TYPE_CHANGED) and not (file.binary and not file.hunks)
        # A type change deletes the one file whole and adds the other whole.
        added = tuple(hunk for hunk in file.hunks if not hunk.old_lines)
        contents.append(apply_hunks(b"", replace(file, hunks=added)) if is_whole else None)
    if repository is None or None not in contents:
        return contents
    try:
        top = (await read_head(repository)).sha
    except GitFailed:
        top = None
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        for by_path in (False, True):
            unknown = [known is None for known in contents]
            names = [_old_name(file, top, by_path=by_path) for file in files]
            names = [name if wanted else "" for name, wanted in zip(names, unknown, strict=True)]
            blobs = await _read_known(in_engine(git_dir), names)
            for number, (name, file) in enumerate(zip(names, files, strict=True)):
                if name in blobs and not (file.binary and not file.hunks):
                    content = apply_hunks(blobs[name], file)
                    made = object_name("blob", content or b"", repository.sources.object_format)
                    # Only what the diff says it leads to: lines that the diff does not show may be others.
                    if content is not None and made.startswith(file.new_blob or ""):
                        contents[number] = content
    return contents


def _old_name(file: FileChange, top: str | None, *, by_path: bool) -> str:
    if by_path:
        return f"{top}:{file.old_path}" if top and file.old_path else ""
    return file.old_blob if file.old_blob and file.old_blob.strip("0") else ""


async def _read_known(place: Place, names: Iterable[str]) -> dict[str, bytes]:
    """Those of some blobs that are here. They are handed over line by line."""
    try:
        return await read_objects(place, [name for name in dict.fromkeys(names) if name and "\n" not in name])
    except GitFailed:
        return {}


async def write_rebuilt(repository: Repository | None, files: Sequence[FileChange], root: Path) -> frozenset[str]:
    """Write each file whose new content can be known below `root`; returns the paths of those that were written."""
    written: set[str] = set()
    for file, content in zip(files, await rebuild(repository, files), strict=True):
        if content is not None:
            try:
                write_file(root, file.path, content)
                written.add(file.path)
            except (OSError, ValueError):  # a path that leaves the tree, or is file and folder at once
                continue
    return frozenset(written)


def apply_hunks(old: bytes, file: FileChange) -> bytes | None:
    """The old content with the hunks applied, or None when it is not what they were made from."""
    # Only LF ends a line.
    source = [line + b"\n" for line in old.split(b"\n")]
    if last := source.pop()[:-1]:
        source.append(last)
    result: list[bytes] = []
    position = 0
    for hunk in file.hunks:
        start = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        if not position <= start <= len(source):
            return None
        result += source[position:start]
        position = start
        for line in hunk.lines():
            text = line.text + b"\n" if line.ends_with_newline else line.text
            if line.kind != "added":
                if position >= len(source) or source[position] != text:
                    return None
                position += 1
            if line.kind != "deleted":
                result.append(text)
    result += source[position:]
    if any(not line.endswith(b"\n") for line in result[:-1]):
        return None
    return b"".join(result)
