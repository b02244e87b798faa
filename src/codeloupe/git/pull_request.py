"""A pull request, fetched by URL and object name into a repository of our own. It is never the user's own to trust.

Only git talks to the remote, and no login of a forge is at hand: see `remote_call`. What is fetched is the history as
commits, and of two of them, head and merge base, all files; or, in a clone of the same repository, what it lacks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from codeloupe.errors import GitFailed, NotARepository, RevisionError, UsageError
from codeloupe.git.command import Place, git, git_for_user, try_git
from codeloupe.git.remote import (
    PullRequestName,
    RefFamily,
    RemoteAddress,
    RemoteRepository,
    address_beside,
    page_of,
    parse_pull_request,
    parse_remote,
    remote_failure,
)
from codeloupe.git.repository import Repository, merge_base, open_repository
from codeloupe.git.scopes import parents_of
from codeloupe.model.scope import FetchedScope, PullRequestScope

REMOTES = ("upstream", "origin")
# Tips beyond these would make the talk with the remote longer, not what it sends shorter.
_MOST_KNOWN_TIPS = 200
_SHA256_DIGITS = 64


class Known(Struct, frozen=True):
    """What the user's own clone has already: where its objects are, and the tips of its branches."""

    objects: Path
    tips: tuple[str, ...]
    object_format: str


def make_engine(root: Path, address: RemoteAddress) -> Path:
    """Make the empty repository at `root`, and return its git directory."""
    git_dir = root / ".git"
    for folder in ("objects/info", "objects/pack", "refs", "info"):
        (git_dir / folder).mkdir(parents=True)
    write_config(git_dir, address, object_format="sha1", partial=False)
    (git_dir / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
    return git_dir


def write_config(git_dir: Path, address: RemoteAddress, *, object_format: str, partial: bool) -> None:
    """Write the whole configuration. `partial` allows that objects are missing which nobody needs."""
    # Printable, and without what would end the quotes: an address was checked, a path may hold either.
    url = address.url.replace("\\", "\\\\").replace('"', '\\"')
    lines = ["[core]", "\trepositoryformatversion = 1", "\tbare = false", "[extensions]"]
    lines += [f"\tobjectFormat = {object_format}"] if object_format != "sha1" else []
    lines += ["\tpartialClone = origin"] if partial else []
    lines += ['[remote "origin"]', f'\turl = "{url}"', *(["\tpromisor = true"] if partial else [])]
    (git_dir / "config").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")


def borrow_known(git_dir: Path, known: Known) -> None:
    """Let the engine read the objects of the user's clone, and tell a remote of its tips."""
    (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(known.objects) + b"\n")
    rows = (f"{sha} refs/known/{number}\n" for number, sha in enumerate(known.tips))
    (git_dir / "packed-refs").write_text("".join(rows), encoding="ascii")


async def name_branch(git_dir: Path, name: str, sha: str) -> None:
    """Check a branch out, so to say: history knows a pull request by the name of it, and a project by its root."""
    ref = f"refs/heads/{_as_ref(name)}"
    await git(Place(git_dir), "update-ref", ref, sha)
    (git_dir / "HEAD").write_text(f"ref: {ref}\n", encoding="ascii")


def object_format_of(sha: str) -> str:
    """How a repository names its objects, told by one of the names."""
    return "sha256" if len(sha) == _SHA256_DIGITS else "sha1"


async def find_remotes(repository: Repository) -> dict[str, str]:
    """The addresses of the remotes that may have the pull requests, the likeliest first, as the user's git has them."""
    found: dict[str, str] = {}
    for name in REMOTES:
        completed = await git_for_user(repository.place, "remote", "get-url", name)
        address = os.fsdecode(completed.stdout).split("\n", 1)[0]
        if completed.exit_code == 0 and address:
            found[name] = address
    return found


async def find_known(repository: Repository) -> Known | None:
    """What can be borrowed of the user's clone; None when it does not have the whole of its own history."""
    pattern = r"^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$"
    partial = await try_git(repository.place, "config", "--get-regexp", pattern)
    if repository.shallow or partial.exit_code == 0 or "\n" in str(repository.sources.objects):
        return None
    words = ("--sort=-committerdate", f"--count={_MOST_KNOWN_TIPS}", "--format=%(objecttype) %(objectname)")
    with suppress(GitFailed):  # with a broken ref, say: then everything is fetched
        output = await git(repository.place, "for-each-ref", *words, "refs/heads", "refs/remotes")
        rows = (line.split(" ") for line in output.decode("ascii", "replace").split("\n"))
        tips = tuple(dict.fromkeys(row[1] for row in rows if row[0] == "commit"))
        return Known(repository.sources.objects, tips, repository.sources.object_format) if tips else None
    return None


def _as_ref(name: str) -> str:
    """A name that git takes for a branch, near to what was given."""
    parts = (re.sub(r"[^A-Za-z0-9_.-]|\.(?=\.|$)|^[.-]+|\.lock$", "-", part) for part in name.split("/") if part)
    return "/".join(parts)


OBJECT_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FAMILIES: tuple[RefFamily, ...] = ("pull", "merge-requests")
_MOST_LINES = 1_000


class RemoteBranch(Struct, frozen=True):
    """A branch or tag of a remote by its short name, with its object; or a commit that was named outright."""

    name: str
    sha: str


class RemotePullRequest(Struct, frozen=True):
    """The commits a remote names: `merge` is its own try to merge, None where it made none.

    `base` is what the caller asked to compare with, or else the default branch; None where there is neither.
    """

    family: RefFamily
    head: str
    merge: str | None
    base: RemoteBranch | None
    asked_for_base: bool


async def ask_for(remote: RemoteRepository, name: PullRequestName, *, base: str | None) -> RemotePullRequest:
    """Ask a remote for a pull request. Raises RevisionError when it has none, else as the call does."""
    families = _FAMILIES if name.family is None else (name.family,)
    wanted = ["HEAD", *(f"refs/{family}/{name.number}/{part}" for family in families for part in ("head", "merge"))]
    if base is not None:
        _check_name(base)
        wanted += _homes_of(base)
    output = await remote.call("ls-remote", "--symref", "--", remote.address.url, *wanted)
    refs, default = _parse(output, frozenset(wanted))
    for family in families:
        head = refs.get(f"refs/{family}/{name.number}/head")
        if head is not None:
            merge = refs.get(f"refs/{family}/{name.number}/merge")
            found = _base(remote, refs, default, base)
            return RemotePullRequest(family, head, merge, found, asked_for_base=base is not None)
    raise RevisionError(
        f"{remote.address.name} has no pull request {name.number}",
        hint="check the number; of a clone with several remotes, `upstream` is asked, else `origin`",
    )


def _homes_of(base: str) -> tuple[str, ...]:
    return (f"refs/heads/{base}", f"refs/tags/{base}^{{}}", f"refs/tags/{base}")


def _base(remote: RemoteRepository, refs: dict[str, str], default: str | None, base: str | None) -> RemoteBranch | None:
    if base is None:
        return RemoteBranch(default or "the default branch", refs["HEAD"]) if "HEAD" in refs else None
    if OBJECT_NAME.fullmatch(base):
        return RemoteBranch(base[:12], base)
    for home in _homes_of(base):
        if home in refs:
            return RemoteBranch(base, refs[home])
    raise RevisionError(
        f"{remote.address.name} has no branch or tag {base!r}",
        hint="with --pr, --base names a branch or a tag of the remote, or a commit by its full name",
    )


def _check_name(base: str) -> None:
    if not base or not base.isprintable() or " " in base or base.startswith("-"):
        raise RevisionError(f"{base!r} is not a revision", hint="give --base a branch or a tag of the remote")


def _parse(output: bytes, wanted: frozenset[str]) -> tuple[dict[str, str], str | None]:
    """The wanted refs with their objects, and the name of the default branch. A pattern of git's names others too."""
    refs: dict[str, str] = {}
    default = None
    for line in output.decode("utf-8", "replace").split("\n")[:_MOST_LINES]:
        what, _, ref = line.partition("\t")
        if ref == "HEAD" and what.startswith("ref: refs/heads/"):
            default = what.removeprefix("ref: refs/heads/")
        elif ref in wanted and OBJECT_NAME.fullmatch(what):
            refs[ref] = what
    return refs, default


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
