"""What a kept tree holds."""

from __future__ import annotations

import os

from msgspec import Struct

from codeloupe.errors import WorkspaceError
from codeloupe.git.command import git
from codeloupe.git.workspace_objects import Entries, Kept, Objects

_FOLDER = "tree"


class Tree(Struct, frozen=True):
    """The files, links and submodules of a tree by path, and the names of all objects in it."""

    entries: Entries
    names: frozenset[str]


async def read_tree(objects: Objects, tree: str) -> Tree:
    """What a tree holds. Raises GitFailed when it is not there, and WorkspaceError for one that no directory can be."""
    listed = await git(objects.place(), "ls-tree", "-r", "-t", "-z", "--full-tree", tree)
    entries: dict[str, Kept] = {}
    names = {tree}
    folders = set()
    for record in listed.split(b"\0"):
        if record:
            facts, path = record.split(b"\t", 1)
            mode, kind, name = facts.decode("ascii").split(" ")
            names.add(name)
            if kind == _FOLDER:
                folders.add(os.fsdecode(path))
            else:
                entries[os.fsdecode(path)] = Kept(mode, name)
    if both := sorted(folders.intersection(entries)):
        raise WorkspaceError(
            f"the tree {tree} has {both[0]!r} as a file and as a folder at once",
            hint="`git fsck` says more about the repository",
        )
    return Tree(entries, frozenset(names))
