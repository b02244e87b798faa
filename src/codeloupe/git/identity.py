"""The names of a repository in the history, by which its reviews are found again from another clone.

A repository goes by a commit of its main line, which are the first parents of HEAD. It is the newest of the last 5,000
commits of that line by which the history already knows a repository. If there is none, it is the commit 1,000 back, or
the root of a shorter line. Git never walks further than these commits.

Clones and forks have that commit too, so they share their history. Commits do not show whether a repository is a fork
or another project that began with a copy of the commits, such as those of a template. Such a project counts as a fork,
unless the history knows it by a commit of its own. The newest commit counts, so that a later review of the template
does not take the name of the project away.

A shallow clone goes by the address of its origin. Without one, or before the first commit, a repository goes by its
place on the disk.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from codeloupe.errors import NotARepository, StoreError
from codeloupe.git.command import both, try_git
from codeloupe.git.repository import OBJECT_NAME, Repository, open_repository, origin_url, read_head
from codeloupe.model.change import Scope
from codeloupe.model.history import COMMIT_PREFIX, RepositoryIdentity
from codeloupe.system.regex import regex

# Limits of `commits_of_work`: commits of a change, moves of its branch, and bytes of the reflog that lists the moves.
_MOST_COMMITS = 2_000
_MOST_MOVES = 200
_MOST_LOG_BYTES = 100_000
_MOVE = regex(r"[0-9a-f]{40,64} [0-9a-f]{40,64} ")
_SCHEME = regex(r"[a-z][a-z0-9+.-]{0,20}://", re.IGNORECASE)
# How far the main line is searched for a known commit, and how far back the commit of a new repository is. Clones stay
# alike while their lines grow by the difference.
_MOST_SEARCHED = 5_000
_STEPS_BACK = 1_000


class IdentityMemory(Protocol):
    """The commits that repositories go by: a history. Methods raise StoreError."""

    def commit_of(self, place: bytes) -> str | None:
        """Return the commit of the repository at a place on this machine, if it is known."""

    def remember_commit(self, place: bytes, commit: str) -> None:
        """Store the commit of the repository at a place on this machine."""

    def known_commits(self) -> Iterable[str]:
        """Return the commits of all repositories that have reviews, sweeps or dismissals."""


class Checkout(NamedTuple):
    """A repository, its checked-out branch (None if detached), and its commit (None before the first one)."""

    identity: RepositoryIdentity
    branch: str | None
    head: str | None = None


async def read_checkout(start: Path, memory: IdentityMemory, repository: Repository | None = None) -> Checkout:
    """Return the checkout at `start`, or of the open `repository`. Raise as `find_identity` does."""
    repository = repository or await _repository(start)
    if repository is None:
        return Checkout(await find_identity(start, memory), None)
    identity, head = await both(_identity_of(repository, memory), read_head(repository))
    return Checkout(identity, head.branch, head.sha)


async def find_identity(start: Path, memory: IdentityMemory) -> RepositoryIdentity:
    """Return the names of the repository around `start`, or of the directory itself. Raise NotARepository."""
    repository = await _repository(start)
    if repository is not None:
        return await _identity_of(repository, memory)
    here = start.resolve()
    return RepositoryIdentity((_name("path", here),), here.name)


async def find_payer(start: Path, memory: IdentityMemory) -> tuple[str, str]:
    """Return the name of a repository in budgets, and its name for people. Raise as `find_identity` does.

    The address of the origin comes first, because a shallow clone has it too. People see it without credentials.
    """
    repository = await _repository(start)
    if repository is not None:
        address = same_address(await origin_url(repository) or "")
        if address is not None:
            return _name("origin", address), address
    identity = await find_identity(start, memory)
    return identity.names[0], identity.label


async def _repository(start: Path) -> Repository | None:
    try:
        return await open_repository(start)
    except NotARepository:
        if not start.is_dir():
            raise
        return None


async def commits_of_work(repository: Repository | None, scope: Scope, checkout: Checkout) -> frozenset[str]:
    """Return the commits of a change and the earlier tips of its branch, by which earlier reviews are recognised."""
    head = scope.head or checkout.head
    if head is None or repository is None:
        return frozenset()
    if scope.base is None or scope.base == head:
        words = ["--max-count=1", head]
    else:
        words = [f"--max-count={_MOST_COMMITS}", head, f"^{scope.base}"]
    names = set((await _asked(repository, "rev-list", *words, "--")).split())
    if checkout.branch is not None and scope.head is None:
        names |= _moves_of(repository, checkout.branch)
    # Other branches may have the same base, so it does not count.
    names.discard(scope.base or "")
    names.add(head)
    return frozenset(names)


def _moves_of(repository: Repository, branch: str) -> set[str]:
    """Return the last tips of a branch from its reflog, in which a line begins with the commits before and after."""
    try:
        with (repository.common_dir / "logs" / "refs" / "heads" / branch).open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _MOST_LOG_BYTES))
            lines = log.read().decode("ascii", "replace").splitlines()[-_MOST_MOVES:]
    except OSError:
        return set()
    return {line.split(" ", 2)[1] for line in lines if _MOVE.match(line)}


async def _identity_of(repository: Repository, memory: IdentityMemory) -> RepositoryIdentity:
    """Return the names of a repository, the most lasting one first."""
    commit, url = await both(_commit_of(repository, memory), origin_url(repository))
    address = same_address(url or "")
    names: list[str] = []
    if commit is not None:
        names.append(f"{COMMIT_PREFIX}{commit}")
    if address is not None:
        names.append(_name("origin", address))
    names.append(_name("path", repository.common_dir))
    return RepositoryIdentity(tuple(names), repository.root.name)


async def _commit_of(repository: Repository, memory: IdentityMemory) -> str | None:
    """Return the commit that a repository goes by, and remember it for its place."""
    if repository.shallow:
        return None
    place = os.fsencode(repository.common_dir)
    known: frozenset[str] = frozenset()
    with suppress(StoreError):
        remembered = memory.commit_of(place) or ""
        # It stays the repository's name also on a branch that has a root of its own.
        if OBJECT_NAME.fullmatch(remembered) and "commit" in await _asked(repository, "cat-file", "-t", remembered):
            return remembered
        known = frozenset(memory.known_commits())
    listed = await _asked(repository, "rev-list", "--first-parent", f"--max-count={_MOST_SEARCHED}", "HEAD", "--")
    line = listed.split()
    if not line:
        return None
    chosen = line[min(_STEPS_BACK, len(line) - 1)]
    for commit in line:
        if commit in known:
            chosen = commit
            break
    with suppress(StoreError):
        memory.remember_commit(place, chosen)
    return chosen


async def _asked(repository: Repository, *words: str) -> str:
    """Return git's answer, or an empty text if git fails."""
    completed = await try_git(repository.place, *words)
    return completed.stdout.decode("ascii", "replace") if completed.exit_code == 0 else ""


def same_address(address: str) -> str | None:
    """Return an address without the parts that may differ between two clones; None for a relative path."""
    scheme = _SCHEME.match(address)
    rest = address[scheme.end() :] if scheme else address
    host, slash, path = rest.partition("/")
    host = host.rpartition("@")[2]
    if not scheme and host and ":" not in host:
        return None
    # After a scheme, the colon begins a port; otherwise, as in ssh, it begins the path.
    host = host.partition(":")[0] if scheme else host.replace(":", "/", 1)
    plain = f"{host}{slash}{path}".rstrip("/").removesuffix(".git").rstrip("/")
    return plain or None


def _name(kind: str, value: str | Path) -> str:
    return f"{kind}:{hashlib.sha256(os.fsencode(value)).hexdigest()[:40]}"
