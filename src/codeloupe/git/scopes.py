"""From what a caller asked for to two fixed sides: a base object, and a commit, the index or the working tree."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import assert_never

from msgspec import Struct

from codeloupe.errors import NotARepository, RevisionError
from codeloupe.git.command import Place, git
from codeloupe.git.repository import (
    Head,
    Repository,
    find_head_and_base,
    is_lonely_branch,
    merge_base,
    no_commits,
    object_name,
    pushed_commit,
    read_head,
    resolve,
    resolve_all,
    suggest_revision,
)
from codeloupe.model import scope as scopes
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.scope import BaseScope, FetchedScope, ScopeRequest


class Side(Enum):
    """What the new side of a change is."""

    COMMIT = "commit"
    INDEX = "index"
    WORKING_TREE = "working tree"


class Sides(Struct, frozen=True):
    """A resolved scope: `base` is a commit, or the empty tree, `head` the new commit, or None for index and tree."""

    scope: Scope
    base: str
    side: Side

    @property
    def head(self) -> str | None:
        """The commit on the new side."""
        return self.scope.head


async def resolve_scope(repository: Repository, request: ScopeRequest, *, base_branch: str | None) -> Sides:
    """Resolve every name once. Raises RevisionError or NotARepository."""
    match request:
        case scopes.DefaultScope():
            scope = await _default(repository, base_branch)
        case scopes.UncommittedScope():
            scope = _against_head(await read_head(repository), ScopeKind.UNCOMMITTED, "uncommitted changes")
        case scopes.StagedScope():
            scope = _against_head(await read_head(repository), ScopeKind.STAGED, "staged changes")
        case BaseScope(revision):
            sha = await resolve(repository, revision)
            scope = await _branch(repository, await read_head(repository), revision, sha)
        case scopes.RangeScope(text):
            scope = await _range(repository, text)
        case scopes.CommitScope(revision):
            scope = await _commit(repository, revision)
        case FetchedScope(base, fetched, description):
            scope = Scope(ScopeKind.PULL_REQUEST, base, fetched, description)
        case scopes.DiffScope():
            raise RevisionError("a diff file has no revisions to resolve")
        case scopes.PullRequestScope():
            raise RevisionError("a pull request has to be fetched before it can be read")
        case _:
            assert_never(request)
    side = Side.INDEX if scope.kind is ScopeKind.STAGED else Side.COMMIT if scope.head else Side.WORKING_TREE
    return Sides(scope, scope.base or object_name("tree", b"", repository.object_format), side)


async def believed_base(
    repository: Repository, request: ScopeRequest, sides: Sides, *, base_branch: str | None
) -> str | None:
    """The commit whose settings, guidance and baseline hold for an untrusted change; None where none is known.

    That is where the change left the base branch. The base of the scope will not do: the parent of a commit, or the
    left side of a range, may be by the same stranger. A change that is on the base branch already has no such commit.
    """
    if isinstance(request, FetchedScope):
        return sides.base
    try:
        head, base = await find_head_and_base(repository, base_branch)
        if base is None:
            named = isinstance(request, BaseScope) or (sides.head is None and await is_lonely_branch(repository, head))
            return sides.scope.base if named else None
        pushed = await pushed_commit(repository, head.branch) if base.checked_out and head.branch else None
        tip = pushed or base.sha
        if sides.scope.base is None:
            return None
        if sides.head is not None and await merge_base(repository, sides.head, tip) == sides.head:
            return None
        return await merge_base(repository, tip, sides.scope.base)
    except RevisionError:  # no such branch, or no common history: nothing is known
        return None


async def _default(repository: Repository, base_branch: str | None) -> Scope:
    head, base = await find_head_and_base(repository, base_branch)
    if head.sha is None:
        raise no_commits(repository)
    if base is None and not await is_lonely_branch(repository, head):
        message = "no base branch to compare with: neither origin/HEAD nor main, master or develop exists"
        hint = "give --base REF, set base_branch in codeloupe.yaml, or fetch it (git fetch origin main:main)"
        raise RevisionError(message, hint=hint)
    if base is not None and not base.checked_out:
        return await _branch(repository, head, base.name, base.sha)
    # On the base branch itself, the commits that origin does not have yet are what was not reviewed.
    pushed = await pushed_commit(repository, head.branch) if head.branch else None
    if pushed is not None and pushed != head.sha:
        unpushed = await _branch(repository, head, f"origin/{head.branch}", pushed)
        if unpushed.base != head.sha:
            return unpushed
    return _against_head(head, ScopeKind.UNCOMMITTED, f"uncommitted changes on {head.branch}")


async def _branch(repository: Repository, head: Head, name: str, sha: str) -> Scope:
    if head.sha is None:
        raise no_commits(repository)
    base = await merge_base(repository, sha, head.sha)
    branch = head.branch or f"detached HEAD {head.sha[:12]}"
    return Scope(ScopeKind.BRANCH, base, None, f"{branch} and its working tree against {name} (from {base[:12]})")


def _against_head(head: Head, kind: ScopeKind, description: str) -> Scope:
    return Scope(kind, head.sha, None, description if head.sha else f"{description} (no commits yet)")


async def _range(repository: Repository, text: str) -> Scope:
    separator = "..." if "..." in text else ".."
    if separator not in text:
        raise one_revision(text)
    left, right = (part or "HEAD" for part in text.split(separator, 1))
    if not left.strip("0"):  # git's name for no object: everything up to the right side
        end = await resolve(repository, right)
        return Scope(ScopeKind.RANGE, None, end, f"everything up to {end[:12]}")
    start, end = await resolve_all(repository, (left, right))
    base = await merge_base(repository, start, end) if separator == "..." else start
    return Scope(ScopeKind.RANGE, base, end, f"{left}{separator}{right} ({base[:12]} to {end[:12]})")


async def unknown_word(repository: Repository, word: str, nearest: str | None) -> RevisionError:
    """Return the error for a word that names no file: it may be a revision, or be misspelt."""
    try:
        await resolve(repository, word)
    except (RevisionError, NotARepository):
        hint = "paths are relative to the current directory; `git ls-files` lists the files"
        meant = await suggest_revision(repository, word)
        if nearest:
            hint = f"did you mean {nearest}?"
        elif meant:
            hint = f"did you mean {meant}? For everything since: --base {meant}, or {meant}..HEAD"
        return RevisionError(f"{word!r} is neither a file in this repository nor a revision", hint=hint)
    return one_revision(word)


def one_revision(text: str) -> RevisionError:
    """The error for a single revision where a range or a path is meant to be."""
    if text in ("HEAD", "@"):
        hint = "for uncommitted changes: --uncommitted; for the last commit: --commit HEAD"
    else:
        hint = f"for that commit alone: --commit {text}; for everything since: --base {text}, or {text}..HEAD"
    return RevisionError(f"{text!r} is one revision, not a range", hint=hint)


async def _commit(repository: Repository, revision: str) -> Scope:
    if ".." in revision:
        hint = f"give it without --commit: codeloupe review {revision}"
        raise RevisionError(f"{revision!r} is a range, not one commit", hint=hint)
    sha = await resolve(repository, revision)
    if sha in shallow_edge(repository):
        message = f"the parent of {sha[:12]} is not in this shallow clone, so its change is unknown"
        raise RevisionError(message, hint="deepen it: git fetch --deepen=1 (in GitHub Actions: fetch-depth: 2)")
    return commit_scope(sha, await parents_of(repository.place, sha))


def commit_scope(sha: str, parents: Sequence[str]) -> Scope:
    """The scope of one commit against its first parent."""
    kind = "root commit" if not parents else "commit" if len(parents) == 1 else "merge (against its first parent)"
    return Scope(ScopeKind.COMMIT, parents[0] if parents else None, sha, f"{kind} {sha[:12]}")


def shallow_edge(repository: Repository) -> frozenset[str]:
    """The commits of a shallow clone whose parents are not here: to git each of them adds every file."""
    if not repository.shallow:
        return frozenset()
    return frozenset(repository.shallow_file.read_text(encoding="ascii", errors="replace").split())


async def parents_of(place: Place, sha: str) -> list[str]:
    """The parents that the commit itself names, whatever else in the repository claims."""
    header = (await git(place, "cat-file", "commit", sha)).split(b"\n\n", 1)[0]
    words = (line.split(b" ", 1) for line in header.split(b"\n"))
    return [word[1].decode("ascii") for word in words if word[0] == b"parent"]
