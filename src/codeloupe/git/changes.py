"""What a working tree holds, by content: its identity, and what changed between two looks at it.

Files are entered in a copy of the index inside an engine, so that only those that differ from the index are read;
neither the repository nor its index is touched. Ignored files do not count.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from codeloupe.git.changes import check_index
from codeloupe.git.command import both, git
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    Repository,
    comparison_settings,
    copy_index,
    in_engine,
    temporary_engine,
)

TreeState = Mapping[str, str]


async def read_tree_state(repository: Repository) -> TreeState:
    """Each file of the working tree with its mode and content name."""
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        copy_index(repository.index, git_dir)
        settings, _ = await both(comparison_settings(repository), check_index(repository, in_engine(git_dir)))
        place = in_engine(git_dir, *settings, work_tree=repository.root)
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
