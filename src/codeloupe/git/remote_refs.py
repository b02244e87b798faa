"""What a remote has of a pull request: which refs, and where its default branch stands."""

from __future__ import annotations

import re

from msgspec import Struct

from codeloupe.errors import RevisionError
from codeloupe.git.remote_address import PullRequestName, RefFamily
from codeloupe.git.remote_call import RemoteRepository

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
