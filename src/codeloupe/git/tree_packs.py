"""Packs with the git objects of trees, which make a store of workspaces complete again on any machine.

Each pack is named by a tree, and has the objects of this tree that no earlier pack of the same store has.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from codeloupe.git.command import Place, git

# Packs are made here and renamed when they are complete, so that git never reads half of one.
_UNFINISHED = "unfinished"


def has_pack(git_dir: Path, tree: str) -> bool:
    """Return whether a store has the pack of a tree, with its index."""
    file = _pack_file(git_dir, tree)
    return file.is_file() and file.with_suffix(".idx").is_file()


def unfinished_pack(git_dir: Path, tree: str) -> Path:
    """Return where the pack of a tree is written before `add_pack`. Raise OSError."""
    folder = git_dir / _UNFINISHED
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / f"pack-{tree}.pack"


async def add_pack(place: Place, tree: str) -> None:
    """Index the pack that was written to `unfinished_pack`, and add it to the store. Raise GitFailed, OSError."""
    file = unfinished_pack(place.git_dir, tree)
    await git(place, "index-pack", str(file))
    _finish(place.git_dir, file, tree)


async def pack_objects(place: Place, tree: str, names: Iterable[str]) -> Path | None:
    """Pack objects by their names, as the pack of a tree. Raise GitFailed, OSError."""
    return await _packed(place, tree, "\n".join(names))


async def pack_tree(place: Place, tree: str, *, without: Iterable[str]) -> Path | None:
    """Pack the objects of a tree that some other trees lack; None if there are none. Raise GitFailed, OSError."""
    lines = [tree]
    lines.extend(f"^{other}" for other in sorted(without))
    return await _packed(place, tree, "\n".join(lines), "--revs")


async def sizes_of_objects(place: Place, tree: str) -> dict[str, int]:
    """Return all objects of a tree, itself included, with the sizes of its files. Raise GitFailed."""
    listed = await git(place, "ls-tree", "-r", "-t", "-l", "-z", "--full-tree", tree)
    sizes = {tree: 0}
    for record in listed.split(b"\0"):
        if not record:
            continue
        _, kind, name, length = record.partition(b"\t")[0].decode("ascii").split()
        # The commit of a submodule is in another repository.
        if kind != "commit":
            sizes[name] = 0 if length == "-" else int(length)
    return sizes


async def _packed(place: Place, tree: str, objects: str, *options: str) -> Path | None:
    base = unfinished_pack(place.git_dir, tree).with_name("new")
    # Without a search for deltas, the same objects of a repository make the same pack, which is stored once.
    words = ("pack-objects", "-q", "--non-empty", "--window=0", "--threads=1", *options, str(base))
    named = await git(place, *words, stdin=f"{objects}\n".encode("ascii"))
    checksum = named.decode("ascii").strip()
    if not checksum:
        return None
    return _finish(place.git_dir, base.with_name(f"new-{checksum}.pack"), tree)


def _finish(git_dir: Path, file: Path, tree: str) -> Path:
    """Move a pack and its index to their place; the index is last, because git reads a pack only with its index."""
    pack = _pack_file(git_dir, tree)
    index = pack.with_suffix(".idx")
    index.unlink(missing_ok=True)
    file.replace(pack)
    file.with_suffix(".idx").replace(index)
    return pack


def _pack_file(git_dir: Path, tree: str) -> Path:
    return git_dir / "objects" / "pack" / f"pack-{tree}.pack"
