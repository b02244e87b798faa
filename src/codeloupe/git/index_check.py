"""Whether the index of a repository can be used: no conflicts, and no names that would lead git astray."""

from __future__ import annotations

import os
import re

from codeloupe.errors import NotARepository, RepositoryBusy
from codeloupe.git.command import Place, git
from codeloupe.git.repository import Repository

_UNMERGED = re.compile(rb"(?:^|\0)\w \d+ [0-9a-f]+ [123]\t")
_ASSUMED = re.compile(rb"(?:^|\0)[a-z] \d+ [0-9a-f]+ 0\t([^\0]+)")
# May hit a name with a tab in it by mistake, so what it finds is looked at again.
_SUSPICIOUS_NAME = re.compile(rb"[\t/](?:|\.|\.\.|\.git)[/\0]", re.IGNORECASE)
_IMPOSSIBLE_PARTS = frozenset({b"", b".", b"..", b".git"})


async def check_index(repository: Repository, place: Place) -> list[str]:
    """Refuse conflicts, and an index with names that would lead git out of the working tree or into its own folder.

    Returns the files of which git was told to assume that they never change.
    """
    output = await git(place, "ls-files", "--stage", "-v", "-z")
    if _UNMERGED.search(output):
        raise _conflicts(_unmerged_names(output))
    if _SUSPICIOUS_NAME.search(output):
        for name in (entry.split(b"\t", 1)[1] for entry in output.split(b"\0") if entry):
            if not _IMPOSSIBLE_PARTS.isdisjoint(name.lower().split(b"/")):
                raise NotARepository(
                    f"the index of {repository.root} is damaged or forged: it names {os.fsdecode(name)!r}",
                    hint="git reset makes a new one; do not trust the origin of this repository",
                )
    return [os.fsdecode(name) for name in _ASSUMED.findall(output)]


def _unmerged_names(output: bytes) -> list[str]:
    entries = (entry.split(b"\t", 1) for entry in output.split(b"\0") if entry)
    return sorted({os.fsdecode(name) for facts, name in entries if not facts.endswith(b" 0")})


def _conflicts(names: list[str]) -> RepositoryBusy:
    shown = ", ".join(repr(name) for name in names[:3]) + (" …" if len(names) > 3 else "")
    return RepositoryBusy(
        f"a merge, rebase or cherry-pick is in progress with conflicts in {len(names)} file(s): {shown}",
        hint="resolve and add them, or abort it (git merge --abort), then review again",
    )
