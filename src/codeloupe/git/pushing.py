"""What a push would bring to a remote, as ranges of commits, and what each of these commits changes.

What git says of the remote's refs at the time of the push is certain. What it noted earlier, its remote-tracking
branches, may be long gone there: only the base branch among them is believed, unless the push says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codeloupe.errors import RevisionError
from codeloupe.git.command import git, try_git
from codeloupe.git.commit_changes import CommitChange, read_commit_changes
from codeloupe.git.commits import list_named_commits
from codeloupe.git.repository import Repository, merge_base, resolve
from codeloupe.model.scope import PushedRange, PushedRef

_USUAL_BASES = ("main", "master", "develop")


async def pushed_ranges(
    repository: Repository, refs: Sequence[PushedRef], *, remote: str, base_branch: str | None
) -> tuple[PushedRange, ...]:
    """For each ref the commits that the remote does not have yet. Raises RevisionError for a ref that is not here."""
    told = {f"refs/remotes/{remote}/{ref.remote_name.removeprefix('refs/heads/')}": ref.remote for ref in refs}
    names = _USUAL_BASES if base_branch is None else (base_branch.removeprefix(f"{remote}/"),)
    known = await _tracked(repository, [f"refs/remotes/{remote}/{name}" for name in ("HEAD", *names)], told)
    return tuple([await _range_of(repository, ref, known) for ref in refs])


async def _tracked(repository: Repository, names: Sequence[str], told: Mapping[str, str | None]) -> list[str]:
    """The commits of those remote-tracking branches that exist, but for the ones that the remote has told otherwise."""
    form = "--format=%(objectname) %(refname) %(symref)"
    listed = await git(repository.place, "for-each-ref", form, *names)
    rows = [row.split() for row in listed.decode("utf-8", "replace").splitlines()]
    # A pattern of for-each-ref names whole folders too.
    found = {row[1]: (row[-1], row[0]) for row in rows if row[1] in names}
    return list(dict.fromkeys(found[name][1] for name in names if name in found and found[name][0] not in told))


async def _range_of(repository: Repository, ref: PushedRef, tracked: Sequence[str]) -> PushedRange:
    if ref.local is None:
        return PushedRange(ref.name, None, "it is deleted at the remote")
    head = await resolve(repository, ref.local)
    told = [await resolve(repository, ref.remote)] if ref.remote and await _is_here(repository, ref.remote) else []
    listed = await git(repository.place, "rev-list", head, "--not", *told, *tracked, "--")
    commits = tuple(listed.decode("ascii").split())
    if not commits:
        return PushedRange(ref.name, None, "the remote has this commit")
    return PushedRange(ref.name, f"{await _start(repository, head, [*told, *tracked])}..{head}", commits=commits)


async def _start(repository: Repository, head: str, known: Sequence[str]) -> str:
    """Where to compare from: the point at which the pushed commits left what the remote has; else nothing at all."""
    for one in known:
        try:
            return await merge_base(repository, one, head)
        except RevisionError:  # histories that have nothing in common
            continue
    return "0" * len(head)


async def _is_here(repository: Repository, sha: str) -> bool:
    return (await try_git(repository.place, "cat-file", "-e", f"{sha}^{{commit}}")).exit_code == 0


async def read_pushed(repository: Repository, commits: Sequence[str]) -> list[CommitChange]:
    """What each commit changes, the oldest first; of a merge, what it is like none of its parents in."""
    listed = await list_named_commits(repository, commits[::-1])
    return [read async for read in read_commit_changes(repository, listed, merges=True)]
