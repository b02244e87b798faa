"""The reviewed tree as a directory: byte for byte, symbolic links as text, removed at the end even after an error.

Files are written only under names that stay inside, and no link is followed. Of a change of which only a diff is known,
the new content is rebuilt where the old blob (or the file at HEAD) is here and every line of the diff agrees with it.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.errors import GitFailed, OutputTooLarge
from codeloupe.git.command import git
from codeloupe.git.objects import opened_objects, reading_objects
from codeloupe.git.repository import (
    EXPORT_ATTRIBUTES,
    Entry,
    Repository,
    in_working_tree,
    list_entries,
    object_name,
    read_head,
    reading,
)
from codeloupe.git.scopes import Side, Sides
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.system.directories import opened_file, opened_folder, temporary_folder
from codeloupe.system.regex import regex

# Nobody reads such a file to judge a change.
_MAX_OTHER_FILE_BYTES = 16 * 1024**2
# The library makes and removes nested folders by recursion, for which a hostile path could be too deep.
_MAX_PARTS = 200
# An agent reads a few files around a change, and to write tens of thousands would take longer than the review.
_MOST_FILES = 1_000
_NAME = regex(rb"[A-Za-z][A-Za-z0-9_-]{2,60}")


class Snapshot(Struct, frozen=True):
    """A directory with files of the reviewed tree; why others are `missing`; `is_partial` of a very large tree."""

    root: Path
    missing: dict[str, str] = field(default_factory=dict)
    is_partial: bool = False


@asynccontextmanager
async def exported(repository: Repository, sides: Sides, *, paths: Iterable[str]) -> AsyncIterator[Snapshot]:
    """Some files of the reviewed tree as a directory of our own."""
    wanted = list(dict.fromkeys(paths))
    async with temporary_folder() as root:
        export = _copy_working_files if sides.side is Side.WORKING_TREE else _check_out
        yield Snapshot(root, await export(repository, sides, root, wanted))


@asynccontextmanager
async def exported_tree(
    repository: Repository, sides: Sides, *, needed: Iterable[str], nearness: frozenset[str] | None = None
) -> AsyncIterator[Snapshot]:
    """The reviewed tree as a directory of our own; of a working tree what is tracked, or new and not ignored.

    Only the `needed` files are said to be missing: of others, those that are too large or cannot be read are left out.
    With `nearness`, the words of the change, a very large tree comes in part, without it always whole.
    """
    wanted = list(dict.fromkeys(needed))
    is_working = sides.side is Side.WORKING_TREE
    listed = {} if is_working else await _list_tree(repository, sides, None)
    others = sorted(set(await _list_working_files(repository) if is_working else listed).difference(wanted))
    chosen = others if nearness is None else _nearest(others, wanted, nearness)
    async with temporary_folder() as root:
        if is_working:
            missing = await _copy_working_files(repository, sides, root, wanted)
            await _copy_files(repository.root, root, chosen, max_file_bytes=_MAX_OTHER_FILE_BYTES)
        else:
            missing = await _check_out(repository, sides, root, [*wanted, *chosen], listed)
        missing = {name: why for name, why in missing.items() if name in wanted}
        yield Snapshot(root, missing, len(chosen) < len(others))


def write_file(root: Path, name: str, content: bytes) -> None:
    """Write one file below `root`, which must be a directory of ours; raises ValueError for a path that leaves it."""
    if problem := _path_problem(name):
        raise ValueError(problem)
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb") as sink:
        sink.write(content)


def read_regular_files(root: Path, names: Iterable[str], *, max_bytes: int, max_files: int) -> dict[str, bytes | None]:
    """The first bytes of those of some files that are there and no links; None for one that cannot be read."""
    found: dict[str, bytes | None] = {}
    with opened_folder(root) as top:
        for name in names:
            if len(found) >= max_files:
                break
            if _path_problem(name):
                continue
            try:
                with opened_file(top, name) as stream:
                    found[name] = stream.read(max_bytes)
            except (FileNotFoundError, NotADirectoryError, ValueError):
                continue
            except OSError:
                found[name] = None
    return found


def place_of(root: Path, name: str) -> Path | None:
    """Where a file of a snapshot is, or None for a path that leaves it."""
    return None if _path_problem(name) else root / name


def _path_problem(name: str) -> str | None:
    parts = name.split("/")
    if any(part.lower() in ("", ".", "..", ".git") or "\0" in part for part in parts):
        return "the path leaves the tree or names git's own folder"
    if len(parts) > _MAX_PARTS:
        return f"more than {_MAX_PARTS} folders deep"
    is_long = any(len(os.fsencode(part)) > 255 for part in parts) or len(os.fsencode(name)) > 3_500
    return "a name that is too long" if is_long else None


async def _list_tree(repository: Repository, sides: Sides, paths: Sequence[str] | None) -> dict[str, Entry]:
    async with reading(repository, EXPORT_ATTRIBUTES, index=sides.head is None) as place:
        return {entry.path: entry for entry in await list_entries(place, sides.head, paths)}


async def _check_out(
    repository: Repository, sides: Sides, root: Path, paths: list[str], listed: Mapping[str, Entry] | None = None
) -> dict[str, str]:
    """Write some files of a commit or index, links as text; returns those that could not be written, and why."""
    if listed is None:
        listed = repository.known.entries.get(sides, {})
        if not listed.keys() >= set(paths):
            listed = await _list_tree(repository, sides, [name for name in paths if place_of(root, name)])
    missing = {name: _path_problem(name) or "not in the reviewed tree" for name in paths if name not in listed}
    left = [[listed[name] for name in paths if name in listed]]
    async with reading(repository, EXPORT_ATTRIBUTES) as place, opened_objects(place) as objects:
        while left:
            part = left.pop()
            most = (64 if len(part) > 1 else 256) * 1024**2
            try:
                blobs = await objects.read(list({entry.blob: None for entry in part}), max_bytes=most)
            except (OutputTooLarge, GitFailed) as error:
                # Too much to be held at once, or one of them is broken.
                middle = len(part) // 2
                left += [part[:middle], part[middle:]] if middle else []
                missing |= {} if middle else {part[0].path: f"cannot be exported: {error.message}"}
                continue
            for entry in part:
                try:
                    write_file(root, entry.path, blobs[entry.blob])
                except KeyError:
                    missing[entry.path] = "cannot be exported: its content is not in the repository"
                except ValueError as error:
                    missing[entry.path] = str(error)
                except (FileExistsError, IsADirectoryError, NotADirectoryError):
                    missing[entry.path] = "both a file and a folder"
    return missing


async def list_files(repository: Repository, sides: Sides | None) -> list[str]:
    """The files of both sides of a change; without sides those of the working tree."""
    if sides is None:
        return await _list_working_files(repository)
    if sides.side is Side.COMMIT:
        return await _list_trees(repository, sides.base, sides.head)
    return await _list_trees(repository, sides.base) + await _list_working_files(repository)


async def list_head_files(repository: Repository) -> list[str]:
    """The files of the commit that is checked out; none before the first one."""
    head = (await read_head(repository)).sha
    return [] if head is None else await _list_trees(repository, head)


async def _list_trees(repository: Repository, *trees: str | None) -> list[str]:
    async with reading(repository) as place:
        return [entry.path for tree in trees for entry in await list_entries(place, tree, None)]


async def _list_working_files(repository: Repository) -> list[str]:
    """Files of the working tree that are tracked, or new and not ignored; no nested repositories."""
    async with reading(repository, EXPORT_ATTRIBUTES, index=True) as engine:
        place = await in_working_tree(repository, engine)
        listed = await git(place, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
        # Our temporary directories may lie in the reviewed tree.
        ours = str(place.git_dir.parent.parent.resolve() / "codeloupe-")
    names = (os.fsdecode(name) for name in listed.split(b"\0") if name and not name.endswith(b"/"))
    return [name for name in names if not str(repository.root / name).startswith(ours)]


async def _copy_working_files(repository: Repository, sides: Sides, root: Path, names: list[str]) -> dict[str, str]:
    """Copy files of the working tree; those that a sparse checkout leaves out are as the index has them."""
    missing = await _copy_files(repository.root, root, names)
    absent = [name for name in missing if not os.path.lexists(repository.root / name)]
    if not absent:
        return missing
    async with reading(repository, EXPORT_ATTRIBUTES, index=True) as place:
        listed = await git(place, "ls-files", "-t", "-z")
    sparse = {os.fsdecode(entry[2:]) for entry in listed.split(b"\0") if entry.startswith(b"S ")}
    left_out = [name for name in absent if name in sparse]
    kept = {name: why for name, why in missing.items() if name not in left_out}
    return kept | (await _check_out(repository, sides, root, left_out) if left_out else {})


async def _copy_files(
    source: Path, target: Path, names: Sequence[str], *, max_file_bytes: int | None = None
) -> dict[str, str]:
    """Copy regular files, and links as text; returns those that could not be copied."""
    missing: dict[str, str] = {}
    with opened_folder(source) as top:
        for number, name in enumerate(names):
            if number % 50 == 0:
                await asyncio.sleep(0)  # so that a cancellation is noticed
            if problem := _path_problem(name):
                missing[name] = problem
                continue
            try:
                folder_path, _, last = name.rpartition("/")
                with opened_folder(folder_path, inside=top) as folder:
                    facts = os.stat(last, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISLNK(facts.st_mode):
                        write_file(target, name, os.fsencode(os.readlink(last, dir_fd=folder)))
                    elif max_file_bytes is not None and facts.st_size > max_file_bytes:
                        missing[name] = f"more than {max_file_bytes:,} bytes"
                    else:
                        with opened_file(folder, last) as stream:
                            write_file(target, name, stream.read())
            except (OSError, ValueError) as error:
                missing[name] = (getattr(error, "strerror", None) or str(error)).lower()
    return missing


def near_to(files: Sequence[FileChange]) -> frozenset[str]:
    """The words of the changes of some files, in lower case: they may be names of other files, which then are near."""
    bodies = b"\n".join(hunk.body for file in files for hunk in file.hunks)[:1_000_000]
    return frozenset(word.decode("ascii").lower() for word in set(_NAME.findall(bodies)))


def _nearest(files: Sequence[str], needed: Sequence[str], names: frozenset[str]) -> list[str]:
    """The nearest of many files: of the same folder, named in the change, then by the way between the folders."""
    if len(files) <= _MOST_FILES:
        return list(files)
    own = {name.rpartition("/")[0] for name in needed}
    above = {"", *own, *(str(each) for folder in own for each in PurePosixPath(folder).parents)}

    @cache
    def distance(folder: str) -> int:
        """How many folders down from the nearest one that is above a needed file; a deeper one of those counts."""
        steps = 0
        while folder not in above:
            folder, steps = folder.rpartition("/")[0], steps + 1
        return steps - folder.count("/") - bool(folder)

    def rank(name: str) -> tuple[bool, bool, int, str]:
        folder, _, base = name.rpartition("/")
        return folder not in own, base.partition(".")[0].lower() not in names, distance(folder), name

    return sorted(sorted(files, key=rank)[:_MOST_FILES])


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
    by_blob = [file.old_blob if file.old_blob and file.old_blob.strip("0") else "" for file in files]
    by_path = [f"{top}:{file.old_path}" if top and file.old_path else "" for file in files]
    async with reading_objects(repository) as objects:
        for names in (by_blob, by_path):
            wanted = {name for name, known in zip(names, contents, strict=True) if known is None}
            try:
                blobs = await objects.read([name for name in wanted if name])
            except GitFailed:
                continue
            for number, (name, file) in enumerate(zip(names, files, strict=True)):
                if contents[number] is None and name in blobs and not (file.binary and not file.hunks):
                    content = apply_hunks(blobs[name], file)
                    made = object_name("blob", content or b"", repository.object_format)
                    # Only what the diff says it leads to: lines that the diff does not show may be others.
                    if content is not None and made.startswith(file.new_blob or ""):
                        contents[number] = content
    return contents


async def write_rebuilt(repository: Repository | None, files: Sequence[FileChange], root: Path) -> frozenset[str]:
    """Write each file whose new content can be known below `root`; returns the paths of those that were written."""
    written: set[str] = set()
    for file, content in zip(files, await rebuild(repository, files), strict=True):
        if content is not None:
            with suppress(OSError, ValueError):  # a path that leaves the tree, or is file and folder at once
                write_file(root, file.path, content)
                written.add(file.path)
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
