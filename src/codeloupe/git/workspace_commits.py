"""Two kept trees as two commits of a small repository, so that what lies between them can be looked at as a change."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from codeloupe.git.command import Place, git
from codeloupe.model.scope import RangeScope
from codeloupe.system.directories import remove_tree

_IDENTITY = ("user.name=codeloupe", "user.email=codeloupe@example.invalid", "commit.gpgSign=false")


@asynccontextmanager
async def committed_change(root: Path, store: Path, *, before: str, after: str) -> AsyncIterator[RangeScope]:
    """A repository at `root` for as long as the block lasts; what a process that died left there is removed first.

    The objects are those of `store`, the directory of a workspace store. Raises GitFailed and OSError.
    """
    remove_tree(root)
    root.mkdir(mode=0o700, parents=True)
    try:
        yield await _committed(root, store, before, after)
    finally:
        with suppress(OSError):  # the next one tries again
            remove_tree(root)


async def _committed(root: Path, store: Path, before: str, after: str) -> RangeScope:
    place = Place(root / ".git", work_tree=root, settings=_IDENTITY)
    kind = "sha256" if len(after) == 64 else "sha1"
    await git(place, "init", "--quiet", "--template=", f"--object-format={kind}")
    alternates = root / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(parents=True, exist_ok=True)
    alternates.write_bytes(os.fsencode(store / "objects") + b"\n")
    base = (await git(place, "commit-tree", "-m", "before", before)).decode("ascii").strip()
    head = (await git(place, "commit-tree", "-m", "after", "-p", base, after)).decode("ascii").strip()
    return RangeScope(f"{base}..{head}")
