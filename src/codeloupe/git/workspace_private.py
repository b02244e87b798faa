"""A small repository of its own for a workspace, so that git tells an agent what it changed.

It borrows the objects of the run's store, stands at the commit with which the run began, and has the workspace's tree
in its index. Nothing in it is ever believed: whatever an agent does to it, the workspace is kept without looking there.
"""

from __future__ import annotations

import os
from pathlib import Path

from codeloupe.git.repository import borrow
from codeloupe.git.workspace_objects import Objects, alternates_line, repository_config
from codeloupe.git.workspace_removal import make_private


def add_repository(directory: Path, objects: Objects, *, commit: str | None, index: Path) -> None:
    """Give a workspace that was just filled its repository; `index` is moved there. Raises OSError."""
    git_dir = directory / ".git"
    for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
        make_private(git_dir / folder)
    (git_dir / "config").write_text(repository_config(objects.object_format, bare=False), encoding="ascii")
    lent = os.fsencode(alternates_line(objects.directory / "objects"))
    (git_dir / "objects" / "info" / "alternates").write_bytes(lent)
    borrow(objects.directory / "info" / "exclude", git_dir / "info" / "exclude")
    borrow(objects.directory / "shallow", git_dir / "shallow")
    index.replace(git_dir / "index")
    (git_dir / "HEAD").write_text(f"{commit}\n" if commit else "ref: refs/heads/main\n", encoding="ascii")
