"""What a push would bring to a remote, as ranges of commits."""

from __future__ import annotations

from collections.abc import Sequence

from codeloupe.git.command import git, try_git
from codeloupe.git.repository import Repository, find_base_branch, merge_base, resolve
from codeloupe.model.scope import PushedRange, PushedRef


async def pushed_ranges(
    repository: Repository, refs: Sequence[PushedRef], *, remote: str, base_branch: str | None
) -> tuple[PushedRange, ...]:
    """For each ref the commits that the remote does not have yet. Raises RevisionError for a ref that is not here."""
    return tuple([await _range_of(repository, ref, remote=remote, base_branch=base_branch) for ref in refs])


async def _range_of(repository: Repository, ref: PushedRef, *, remote: str, base_branch: str | None) -> PushedRange:
    if ref.local is None:
        return PushedRange(ref.name, None, "it is deleted at the remote")
    head = await resolve(repository, ref.local)
    if ref.remote is not None and await _is_here(repository, ref.remote):
        known = await resolve(repository, ref.remote)
        if known == head:
            return PushedRange(ref.name, None, "the remote has this commit")
        return PushedRange(ref.name, f"{await merge_base(repository, known, head)}..{head}")
    listed = await git(repository.place, "rev-list", "--boundary", head, "--not", f"--remotes={remote or '*'}", "--")
    rows = listed.decode("ascii").split()
    edges = [row.removeprefix("-") for row in rows if row.startswith("-")]
    if len(rows) == len(edges):
        return PushedRange(ref.name, None, "the remote has this commit")
    if len(edges) == 1:
        return PushedRange(ref.name, f"{edges[0]}..{head}")
    base = await find_base_branch(repository, base_branch) if edges else None
    start = await merge_base(repository, base.sha, head) if base is not None else "0" * len(head)
    return PushedRange(ref.name, f"{start}..{head}")


async def _is_here(repository: Repository, sha: str) -> bool:
    return (await try_git(repository.place, "cat-file", "-e", f"{sha}^{{commit}}")).exit_code == 0
