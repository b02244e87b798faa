"""What a repository is called in the history, so that its reviews are found again from a clone that lies elsewhere.

The most lasting name is its root commit: that of the first parents, which every clone has, wherever it is and
however it was made. A shallow clone does not have it and goes by the address of its origin; without one, or before
the first commit, the place on the disk has to do. Forks share their root, and so their history.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from codeloupe.errors import NotARepository, StoreError
from codeloupe.git.command import both, try_git
from codeloupe.git.repository import Repository, open_repository, read_head
from codeloupe.model.history import RepositoryIdentity

_OBJECT_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,20}://", re.IGNORECASE)


class RootMemory(Protocol):
    """Remembers root commits by the place of the repository: to walk to one takes long in a long history."""

    def known_root(self, place: bytes) -> str | None:
        """The root commit that was found out before."""

    def remember_root(self, place: bytes, root: str) -> None:
        """Keep a root commit."""


async def find_identity(start: Path, memory: RootMemory) -> RepositoryIdentity:
    """The names of the repository that holds `start`, or of the directory itself when there is none.

    Raises NotARepository when `start` is no directory and ProcessError when git fails. A memory that fails costs
    time, nothing else.
    """
    repository = await _repository(start)
    if repository is None:
        here = start.resolve()
        return RepositoryIdentity((_path_name(here),), here.name)
    root, origin = await both(_root(repository, memory), _origin(repository))
    names = (
        *([] if root is None else [f"root:{root}"]),
        *([] if origin is None else [f"origin:{_digest(os.fsencode(origin))}"]),
        _path_name(repository.common_dir),
    )
    return RepositoryIdentity(names, repository.root.name)


async def current_branch(start: Path) -> str | None:
    """The branch that is checked out; None when none is, or outside of a repository. Raises as `find_identity`."""
    repository = await _repository(start)
    return None if repository is None else (await read_head(repository)).branch


async def _repository(start: Path) -> Repository | None:
    try:
        return await open_repository(start)
    except NotARepository:
        if not start.is_dir():
            raise
        return None


async def _root(repository: Repository, memory: RootMemory) -> str | None:
    if repository.shallow:
        return None
    place = os.fsencode(repository.common_dir)
    known = None
    with suppress(StoreError):
        known = memory.known_root(place)
    # It stays the repository's name also on a branch that has a root of its own.
    if known is not None and await _is_here(repository, known):
        return known
    completed = await try_git(repository.place, "rev-list", "--max-parents=0", "--first-parent", "HEAD", "--")
    root = completed.stdout.decode("ascii", "replace").strip()
    if completed.exit_code != 0 or not _OBJECT_NAME.fullmatch(root):
        return None
    with suppress(StoreError):
        memory.remember_root(place, root)
    return root


async def _is_here(repository: Repository, commit: str) -> bool:
    if not _OBJECT_NAME.fullmatch(commit):
        return False
    return (await try_git(repository.place, "cat-file", "-e", f"{commit}^{{commit}}")).exit_code == 0


async def _origin(repository: Repository) -> str | None:
    completed = await try_git(repository.place, "config", "--get", "remote.origin.url")
    return same_address(os.fsdecode(completed.stdout).rstrip("\n")) if completed.exit_code == 0 else None


def same_address(address: str) -> str | None:
    """An address without what may differ between two clones: scheme, user, password, port, `.git`.

    None for one that means something only where it stands, such as a path that begins with `..`.
    """
    scheme = _SCHEME.match(address)
    rest = address[scheme.end() :] if scheme else address
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2]
    if not scheme and host and ":" not in host:
        return None
    # Behind a scheme it is a port, else, as ssh has it, the beginning of the path.
    host = host.partition(":")[0] if scheme else host.replace(":", "/", 1)
    plain = f"{host}{slash}{path}".rstrip("/").removesuffix(".git").rstrip("/")
    return plain or None


def _path_name(path: Path) -> str:
    return f"path:{_digest(os.fsencode(path))}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:40]
