"""What a revision or an index holds: the list of its files, and single ones of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codeloupe.git.command import Place, git
from codeloupe.git.engine import DIFF_ATTRIBUTES, in_engine, temporary_engine
from codeloupe.git.repository import Repository
from codeloupe.model.change import SUBMODULE_MODE

_KINDS = ("blob", "tree", "commit")
_REGULAR_MODES = ("100644", "100755")
# The system limits how much may stand on a command line; beyond this the whole list is read instead.
_MAX_ARGUMENT_BYTES = 64_000


class Entry(NamedTuple):
    """One file of a tree or an index: a regular file or a symbolic link."""

    mode: str
    blob: str
    path: str


async def read_file_at(repository: Repository, revision: str, path: str) -> bytes | None:
    """A regular file's content in a revision, or None; a symbolic link is not followed and counts as none."""
    with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
        place = in_engine(git_dir)
        for entry in await list_entries(place, revision, [path]):
            if entry.path == path and entry.mode in _REGULAR_MODES:
                return await git(place, "cat-file", "blob", entry.blob)
    return None


async def list_entries(place: Place, tree: str | None, paths: Sequence[str] | None) -> list[Entry]:
    """The files of a tree, or of the index when `tree` is None; of submodules nothing.

    With `paths` at least those of them that are there. No path is checked: a hostile tree may hold any name.
    """
    verb = ("ls-files", "--stage", "-z") if tree is None else ("ls-tree", "-r", "-z", "--full-tree", tree)
    if paths is not None and not paths:
        return []
    few = paths is not None and sum(len(os.fsencode(path)) + 1 for path in paths) < _MAX_ARGUMENT_BYTES
    output = await git(place, *verb, "--", *(paths if paths and few else ()))
    return list(_parse_entries(output))


def _parse_entries(output: bytes) -> Iterator[Entry]:
    """Read `mode blob stage<TAB>path` of an index, or `mode type blob<TAB>path` of a tree, each ended by NUL."""
    for record in output.split(b"\0"):
        if record:
            facts, _, path = record.partition(b"\t")
            mode, first, second = facts.decode("ascii").split(" ")
            if mode != SUBMODULE_MODE:
                yield Entry(mode, second if first in _KINDS else first, os.fsdecode(path))
