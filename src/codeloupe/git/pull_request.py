"""A pull request, fetched by URL and object name into a repository of our own. It is never the user's own to trust.

Only git talks to the remote, and no login of a forge is at hand: see `remote_call`. What is fetched is the history as
commits, and of two of them, head and merge base, all files; or, in a clone of the same repository, what it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from codeloupe.errors import NotARepository, RevisionError, UsageError
from codeloupe.git.command import Place, git
from codeloupe.git.remote_address import (
    PullRequestName,
    RemoteAddress,
    address_beside,
    page_of,
    parse_pull_request,
    parse_remote,
)
from codeloupe.git.remote_call import RemoteRepository
from codeloupe.git.remote_engine import (
    REMOTES,
    borrow_known,
    find_known,
    find_remotes,
    make_engine,
    name_branch,
    object_format_of,
    write_config,
)
from codeloupe.git.remote_failures import remote_failure
from codeloupe.git.remote_refs import RemoteBranch, RemotePullRequest, ask_for
from codeloupe.git.repository import Repository, merge_base, open_repository
from codeloupe.git.scopes import parents_of
from codeloupe.model.scope import FetchedScope, PullRequestScope

_FETCH = (
    *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-show-forced-updates"),
    *("--recurse-submodules=no", "--force"),
)
# Commits without their files: enough to find where a pull request began, and a small part of what a clone is.
_COMMITS_ONLY = "--filter=tree:0"
# What is here are commits alone; a remote that heard of them would take their files for here too.
_TELL_NOTHING = "fetch.negotiationAlgorithm=noop"


class FetchedPullRequest(Struct, frozen=True):
    """A pull request at hand: the repository of ours that holds it, and what is to be reviewed there."""

    repo: Path
    scope: FetchedScope


async def fetch_pull_request(request: PullRequestScope, *, repo: Path, into: Path) -> FetchedPullRequest:
    """Fetch a pull request below the empty directory `into`. `repo` is where the caller stands; a number needs it.

    Raises UsageError for what the caller can mend (no such pull request, a login is wanted, an address that is not
    understood) and ProcessError when the remote cannot be reached, or sends too much or too slowly.
    """
    asked = parse_pull_request(request.name)
    at_hand = await _repository_at(repo)
    address, is_at_hand = await _address(asked, at_hand, repo)
    root = into / _folder_name(address)
    remote = RemoteRepository(address, make_engine(root, address))
    there = await ask_for(remote, asked, base=request.base)
    fetch = _Fetch(remote, partial=not await _prepare(remote, there, at_hand if is_at_hand else None))
    base, head = await _fetch_history(fetch, there), there.head
    is_assumed = not there.asked_for_base and base is there.base
    fetched = await open_repository(root)
    start = await merge_base(fetched, base.sha, head)
    if start == head:
        raise RevisionError(
            f"every commit of pull request {asked.number} is in {base.name} already, so there is nothing to review",
            hint="give --base a commit from before it was merged",
        )
    await fetch.files_of(fetched, start, head)
    await name_branch(fetched.git_dir, f"{address.name}/{there.family}/{asked.number}", base.sha)
    page = page_of(address, asked.number, there.family)
    against = f"{base.name}, which is assumed," if is_assumed else base.name
    description = f"pull request {page} against {against} ({start[:12]} to {head[:12]})"
    return FetchedPullRequest(root, FetchedScope(start, head, description, base.name if is_assumed else ""))


async def _repository_at(repo: Path) -> Repository | None:
    try:
        return await open_repository(repo)
    except NotARepository:
        return None


async def _address(asked: PullRequestName, at_hand: Repository | None, repo: Path) -> tuple[RemoteAddress, bool]:
    """Where to ask, and whether that is a remote of the repository at hand."""
    remotes = {} if at_hand is None else await find_remotes(at_hand)
    own = _understood(remotes.values(), at_hand)
    if asked.repository is not None:
        address = address_beside(asked.repository, own)
        return address, address in own
    if asked.address is None:
        if at_hand is None:
            raise NotARepository(
                f"{repo} is not inside a git repository, so it is unclear whose pull request {asked.number} is",
                hint="run it in a clone, or give the URL of the pull request",
            )
        for text in remotes.values():
            return parse_remote(text, at_hand.root), True
        raise UsageError(
            f"{at_hand.root} has neither a remote `{REMOTES[0]}` nor `{REMOTES[1]}`,"
            f" so it is unclear whose pull request {asked.number} is",
            hint="give the URL of the pull request",
        )
    for remote in own:
        # The user's own way there may have a login that a URL of the web has not.
        if remote.is_same(asked.address):
            return remote, True
    return asked.address, False


def _understood(texts: Iterable[str], at_hand: Repository | None) -> list[RemoteAddress]:
    """Those of the remotes at hand whose address can be used."""
    found: list[RemoteAddress] = []
    for text in texts:
        with suppress(UsageError):
            found += [parse_remote(text, at_hand.root)] if at_hand is not None else []
    return found


async def _prepare(remote: RemoteRepository, there: RemotePullRequest, at_hand: Repository | None) -> bool:
    """Make the engine ready for what the remote has; returns whether it borrows from the repository at hand."""
    known = None if at_hand is None else await find_known(at_hand)
    object_format = object_format_of(there.head)
    borrows = known is not None and known.object_format == object_format
    write_config(remote.git_dir, remote.address, object_format=object_format, partial=not borrows)
    if known is not None and borrows:
        borrow_known(remote.git_dir, known)
    return borrows


async def _fetch_history(fetch: _Fetch, there: RemotePullRequest) -> RemoteBranch:
    """Fetch the commits of the pull request and of what it is compared with, which is returned.

    The remote's own try to merge tells what the pull request goes to, as long as it is a try to merge this head.
    """
    if there.merge is not None and not there.asked_for_base:
        await fetch.commits(head=there.head, merge=there.merge)
        parents = await parents_of(Place(fetch.remote.git_dir), there.merge)
        if len(parents) == 2 and parents[1] == there.head:
            base = there.base
            name = base.name if base is not None and base.sha == parents[0] else f"its base {parents[0][:12]}"
            return RemoteBranch(name, parents[0])
    if there.base is None:
        raise RevisionError(
            f"{fetch.remote.address.name} does not say which branch the pull request targets",
            hint="name that branch with --base",
        )
    await fetch.commits(head=there.head, base=there.base.sha)
    return there.base


class _Fetch(Struct, frozen=True):
    """Fetches into the engine. Of a `partial` one files are fetched apart from the commits."""

    remote: RemoteRepository
    partial: bool

    async def commits(self, **wanted: str) -> None:
        """Fetch commits with their history, each under a ref of its name."""
        refs = [f"{sha}:refs/pull-request/{name}" for name, sha in wanted.items()]
        if not self.partial:
            await self.remote.call(*_FETCH, "origin", *refs)
            return
        completed = await self.remote.try_call(*_FETCH, _COMMITS_ONLY, "origin", *refs)
        if completed.exit_code and "filter" in completed.stderr:
            # A server may allow some filters and not this one.
            completed = await self.remote.try_call(*_FETCH, "--no-filter", "origin", *refs)
        if completed.exit_code:
            raise remote_failure(self.remote.address, "fetch", completed)

    async def files_of(self, repository: Repository, *commits: str) -> None:
        """Fetch all files of some commits, but none of their history."""
        if self.partial:
            trees = await git(repository.place, "log", "--no-walk", "--no-patch", "--format=%T", *commits, "--")
            await self.remote.call(*_FETCH, "--no-filter", "--stdin", "origin", stdin=trees, settings=(_TELL_NOTHING,))


def _folder_name(address: RemoteAddress) -> str:
    """The repository's name: it is what history calls the project."""
    name = address.name.rstrip("/").rpartition("/")[2].removesuffix(".git")
    return name if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}", name) else "repository"
