"""Several trees put together: what each changed since a common base, file by file, then line by line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from msgspec import Struct

from codeloupe.errors import WorkspaceError
from codeloupe.git.command import git, try_git
from codeloupe.git.repository import blob_sizes, private_directory
from codeloupe.git.workspace_objects import Kept, Objects, ObjectWriter
from codeloupe.git.workspace_scan import PLAIN_MODE, PROGRAM_MODE

_GONE = "000000"
_REGULAR = (PLAIN_MODE, PROGRAM_MODE)
# More than anybody writes by hand; to compare very long files takes very long.
_MOST_MERGED_BYTES = 2 * 1024**2
_MOST_NAMED = 10


class FileChange(Struct, frozen=True):
    """One file before and after; None where it is not there."""

    path: str
    before: Kept | None
    after: Kept | None


async def changes_between(objects: Objects, before: str, after: str) -> list[FileChange]:
    """The files that differ between two trees."""
    words = ("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none", before, after)
    fields = (await git(objects.place(), *words)).split(b"\0")
    return [_change(facts, path) for facts, path in zip(fields[::2], fields[1::2], strict=False)]


def _change(facts: bytes, path: bytes) -> FileChange:
    """Read `:old-mode new-mode old-name new-name status` and the path behind it."""
    old_mode, new_mode, old_name, new_name, _ = facts.decode("ascii").removeprefix(":").split(" ")
    return FileChange(os.fsdecode(path), _kept(old_mode, old_name), _kept(new_mode, new_name))


def _kept(mode: str, name: str) -> Kept | None:
    return None if mode == _GONE else Kept(mode, name)


async def merged_changes(
    objects: Objects, writer: ObjectWriter, base: str, trees: Sequence[str]
) -> Mapping[str, Kept | None]:
    """What has to be changed in the base: each file with its new content, None for one that is gone.

    Whatever the order of the trees, the result is the same. Raises WorkspaceError, which names the files that two of
    them changed in ways that do not go together.
    """
    versions: dict[str, set[Kept | None]] = {}
    originals: dict[str, Kept | None] = {}
    for tree in dict.fromkeys(trees):
        for change in await changes_between(objects, base, tree):
            versions.setdefault(change.path, set()).add(change.after)
            originals[change.path] = change.before
    chosen: dict[str, Kept | None] = {}
    conflicts = []
    for path, found in versions.items():
        if len(found) == 1:
            (chosen[path],) = found
        elif (both := await _merged_file(objects, writer, originals[path], found)) is not None:
            chosen[path] = both
        else:
            conflicts.append(path)
    conflicts += _files_that_are_folders(chosen)
    if conflicts:
        raise _conflict(sorted(conflicts))
    return chosen


def _files_that_are_folders(chosen: Mapping[str, Kept | None]) -> list[str]:
    files = {path for path, kept in chosen.items() if kept is not None}
    return sorted({folder for path in files for folder in _folders_above(path) if folder in files})


def _folders_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _conflict(paths: Sequence[str]) -> WorkspaceError:
    named = ", ".join(ascii(path)[1:-1] for path in paths[:_MOST_NAMED])
    more = f" and {len(paths) - _MOST_NAMED:,} more" if len(paths) > _MOST_NAMED else ""
    return WorkspaceError(
        f"the same files were changed in different ways: {named}{more}",
        hint="let one of the stages need the other, or have them write different files",
    )


async def _merged_file(
    objects: Objects, writer: ObjectWriter, original: Kept | None, versions: set[Kept | None]
) -> Kept | None:
    """One version with what all changed in a text, or None when they do not go together."""
    if original is None or original.mode not in _REGULAR:
        return None
    changed = [kept for kept in versions if kept is not None and kept.mode in _REGULAR]
    if len(changed) < len(versions):
        return None
    names = sorted({kept.name for kept in changed if kept.name != original.name})
    modes = {kept.mode for kept in changed if kept.mode != original.mode}
    mode = next(iter(modes), original.mode)
    if len(names) <= 1:
        return Kept(mode, names[0] if names else original.name)
    text = await _merged_text(objects, original.name, names)
    return None if text is None else Kept(mode, writer.add("blob", text))


async def _merged_text(objects: Objects, original: str, names: Sequence[str]) -> bytes | None:
    """A text with what each version changed in the original, or None when they do not go together."""
    place = objects.place()
    sizes = await blob_sizes(place, [original, *names])
    if max(sizes.values(), default=0) > _MOST_MERGED_BYTES:
        return None
    base, merged, *others = [await git(place, "cat-file", "blob", name) for name in (original, *names)]
    for other in others:
        if b"\0" in base + merged + other:
            return None
        together = await _merged_two(objects, (merged, base, other))
        if together is None:
            return None
        merged = together
    return merged


async def _merged_two(objects: Objects, texts: tuple[bytes, bytes, bytes]) -> bytes | None:
    with private_directory() as directory:
        for number, text in enumerate(texts):
            (directory / str(number)).write_bytes(text)
        files = [str(directory / str(number)) for number in range(len(texts))]
        completed = await try_git(objects.place(), "merge-file", "--stdout", "--quiet", *files)
    return completed.stdout if completed.exit_code == 0 else None
