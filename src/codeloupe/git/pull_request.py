"""A pull request, fetched by URL and object name into a repository of our own. It is never the user's own to trust.

What is fetched is the history as commits, and of two of them, head and merge base, all files; or, in a clone of the
same repository, what it lacks. The result is laid out like a checkout without files, and read as any repository is.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from codeloupe.errors import GitFailed, NotARepository, RevisionError, UsageError
from codeloupe.git.command import Place, git, git_for_user
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
from codeloupe.git.repository import OBJECT_NAME, Repository, lay_out, merge_base, open_repository
from codeloupe.git.scopes import parents_of
from codeloupe.model.scope import FetchedScope, PullRequestScope

_FETCH = (
    *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-show-forced-updates"),
    *("--recurse-submodules=no", "--force"),
)


# A branch or tag of a remote by its short name, with its object; or a commit that was named outright.
_Branch = tuple[str, str]


async def fetch_pull_request(request: PullRequestScope, *, repo: Path, into: Path) -> tuple[FetchedScope, Path]:
    """Fetch a pull request below the empty directory `into`: what to review, and where. `repo` is where the caller is.

    Raises UsageError for what the caller can mend (no such pull request, a login is wanted, an address that is not
    understood) and ProcessError when the remote cannot be reached, or sends too much or too slowly.
    """
    asked = parse_pull_request(request.name)
    try:
        at_hand = await open_repository(repo)
    except NotARepository:
        at_hand = None
    address, is_at_hand = await _address(asked, at_hand, repo)
    # History calls the project by the name of the folder.
    name = address.name.rstrip("/").rpartition("/")[2].removesuffix(".git")
    root = into / (name if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}", name) else "repository")
    git_dir = make_engine(root, address)
    remote = RemoteRepository(address, git_dir)
    families, default = await _ask_for(remote, asked, base=request.base)
    family, (head, merge) = next(iter(families.items()))
    object_format = "sha256" if len(head) == 64 else "sha1"
    partial = not (at_hand and is_at_hand and await _borrow_known(git_dir, at_hand, object_format))
    make_engine(root, address, object_format=object_format, partial=partial)
    tried = None
    # The remote's own try to merge tells what the pull request goes to, as long as it is a try to merge this head.
    if merge is not None and request.base is None:
        await _fetch_commits(remote, partial=partial, head=head, merge=merge)
        parents = await parents_of(Place(git_dir), merge)
        if len(parents) == 2 and parents[1] == head:
            is_default = default is not None and default[1] == parents[0]
            tried = default if is_default else (f"its base {parents[0][:12]}", parents[0])
    base = tried or default
    if base is None:
        hint = "name that branch with --base"
        raise RevisionError(f"{address.name} does not say which branch the pull request targets", hint=hint)
    if tried is None:
        await _fetch_commits(remote, partial=partial, head=head, base=base[1])
    fetched = await open_repository(root)
    start = await merge_base(fetched, base[1], head)
    if start == head:
        message = f"every commit of pull request {asked.number} is in {base[0]} already, so there is nothing to review"
        raise RevisionError(message, hint="give --base a commit from before it was merged")
    if partial:
        trees = await git(fetched.place, "log", "--no-walk", "--no-patch", "--format=%T", start, head, "--")
        # What is here are commits alone; a remote that heard of them would take their files for here too.
        silent = ("fetch.negotiationAlgorithm=noop",)
        await remote.call(*_FETCH, "--no-filter", "--stdin", "origin", stdin=trees, settings=silent)
    # Checked out, so to say: history knows a pull request by the name of its branch, and a project by its root.
    ref = branch_ref(f"{address.name}/{family}/{asked.number}")
    await git(Place(git_dir), "update-ref", ref, base[1])
    (git_dir / "HEAD").write_text(f"ref: {ref}\n", encoding="ascii")
    is_assumed = request.base is None and tried is None
    against = f"{base[0]}, which is assumed," if is_assumed else base[0]
    page = page_of(address, asked.number, family)
    description = f"pull request {page} against {against} ({start[:12]} to {head[:12]})"
    return FetchedScope(start, head, description, base[0] if is_assumed else ""), root


async def _address(asked: PullRequestName, at_hand: Repository | None, repo: Path) -> tuple[RemoteAddress, bool]:
    """Where to ask, and whether that is a remote of the repository at hand."""
    remotes: list[str] = []
    own: list[RemoteAddress] = []
    if at_hand is not None:
        for name in ("upstream", "origin"):
            completed = await git_for_user(at_hand.place, "remote", "get-url", name)
            url = os.fsdecode(completed.stdout).split("\n", 1)[0]
            if completed.exit_code == 0 and url:
                remotes.append(url)
                with suppress(UsageError):
                    own.append(parse_remote(url, at_hand.root))
    if asked.repository is not None:
        address = address_beside(asked.repository, own)
        return address, address in own
    if asked.address is not None:
        # The user's own way there may have a login that a URL of the web has not.
        same = next((remote for remote in own if remote.is_same(asked.address)), None)
        return same or asked.address, same is not None
    if at_hand is None:
        message = f"{repo} is not inside a git repository, so it is unclear whose pull request {asked.number} is"
        raise NotARepository(message, hint="run it in a clone, or give the URL of the pull request")
    if not remotes:
        raise UsageError(
            f"{at_hand.root} has neither a remote `upstream` nor `origin`,"
            f" so it is unclear whose pull request {asked.number} is",
            hint="give the URL of the pull request",
        )
    return parse_remote(remotes[0], at_hand.root), True


def make_engine(root: Path, address: RemoteAddress, *, object_format: str = "sha1", partial: bool = False) -> Path:
    """Make the repository at `root` and return its git directory; `partial` allows that objects are missing."""
    # Printable, and without what would end the quotes: an address was checked, a path may hold either.
    url = address.url.replace("\\", "\\\\").replace('"', '\\"')
    config = "[extensions]\n\tpartialClone = origin\n" if partial else ""
    config += f'[remote "origin"]\n\turl = "{url}"\n' + ("\tpromisor = true\n" if partial else "")
    lay_out(root / ".git", object_format, config=config)
    return root / ".git"


async def _borrow_known(git_dir: Path, clone: Repository, object_format: str) -> bool:
    """Let the engine read the objects of the user's clone, so that only what is new travels; whether that can be."""
    objects, is_other = clone.sources.objects, clone.sources.object_format != object_format
    is_partial = any(objects.glob("pack/*.promisor"))
    if clone.shallow or is_partial or "\n" in str(objects) or is_other:
        return False
    # More tips would make the talk with the remote longer, not what it sends shorter.
    words = ("--sort=-committerdate", "--count=200", "--format=%(objecttype) %(objectname)")
    try:
        output = await git(clone.place, "for-each-ref", *words, "refs/heads", "refs/remotes")
    except GitFailed:  # with a broken ref, say: then everything is fetched
        return False
    rows = (line.split(" ") for line in output.decode("ascii", "replace").split("\n"))
    tips = dict.fromkeys(row[1] for row in rows if row[0] == "commit")
    if not tips:
        return False
    (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    refs = (f"{sha} refs/known/{number}\n" for number, sha in enumerate(tips))
    (git_dir / "packed-refs").write_text("".join(refs), encoding="ascii")
    return True


def branch_ref(name: str) -> str:
    """A branch that git accepts, near to a name."""
    parts = (re.sub(r"[^A-Za-z0-9_.-]|\.(?=\.|$)|^[.-]+|\.lock$", "-", part) for part in name.split("/") if part)
    return f"refs/heads/{'/'.join(parts)}"


async def _ask_for(
    remote: RemoteRepository, name: PullRequestName, *, base: str | None
) -> tuple[dict[RefFamily, tuple[str, str | None]], _Branch | None]:
    """By kind of ref the head and the remote's own try to merge, and the base: the one asked for, or the default."""
    families: tuple[RefFamily, ...] = ("pull", "merge-requests") if name.family is None else (name.family,)
    wanted = ["HEAD", *(f"refs/{family}/{name.number}/{part}" for family in families for part in ("head", "merge"))]
    homes = () if base is None else (f"refs/heads/{base}", f"refs/tags/{base}^{{}}", f"refs/tags/{base}")
    if base is not None and (not base or not base.isprintable() or " " in base or base.startswith("-")):
        raise RevisionError(f"{base!r} is not a revision", hint="give --base a branch or a tag of the remote")
    output = await remote.call("ls-remote", "--symref", "--", remote.address.url, *wanted, *homes)
    refs: dict[str, str] = {}
    default = "the default branch"
    for line in output.decode("utf-8", "replace").split("\n")[:1_000]:
        what, _, ref = line.partition("\t")
        if ref == "HEAD" and what.startswith("ref: refs/heads/"):
            default = what.removeprefix("ref: refs/heads/")
        elif ref in (*wanted, *homes) and OBJECT_NAME.fullmatch(what):  # a pattern of git's names others too
            refs[ref] = what
    places = {family: f"refs/{family}/{name.number}" for family in families}
    there = {
        family: (refs[f"{ref}/head"], refs.get(f"{ref}/merge"))
        for family, ref in places.items()
        if f"{ref}/head" in refs
    }
    if not there:
        hint = "check the number; of a clone with several remotes, `upstream` is asked, else `origin`"
        raise RevisionError(f"{remote.address.name} has no pull request {name.number}", hint=hint)
    if base is None:
        return there, (default, refs["HEAD"]) if "HEAD" in refs else None
    if OBJECT_NAME.fullmatch(base):
        return there, (base[:12], base)
    if home := next((home for home in homes if home in refs), None):
        return there, (base, refs[home])
    hint = "with --pr, --base names a branch or a tag of the remote, or a commit by its full name"
    raise RevisionError(f"{remote.address.name} has no branch or tag {base!r}", hint=hint)


async def _fetch_commits(remote: RemoteRepository, *, partial: bool, **wanted: str) -> None:
    """Fetch commits with their history, each under a ref of its name; of a `partial` engine, without their files."""
    refs = [f"{sha}:refs/pull-request/{name}" for name, sha in wanted.items()]
    # Commits without files are enough to find where a pull request began, and a small part of what a clone is.
    completed = await remote.try_call(*_FETCH, *(["--filter=tree:0"] if partial else []), "origin", *refs)
    if partial and completed.exit_code and "filter" in completed.stderr:
        # A server may allow some filters and not this one.
        completed = await remote.try_call(*_FETCH, "--no-filter", "origin", *refs)
    if completed.exit_code:
        raise remote_failure(remote.address, completed)
