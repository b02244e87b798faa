"""On the base branch itself the default scope holds the commits that were not pushed: none goes by unreviewed."""

from __future__ import annotations

import asyncio

import pytest

from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import Side, Sides, resolve_scope
from codeloupe.model.change import ScopeKind
from codeloupe.model.scope import DefaultScope
from tests.repository import GitRepository


def resolved(repository: GitRepository, base_branch: str | None = None) -> Sides:
    async def resolving() -> Sides:
        return await resolve_scope(await open_repository(repository.path), DefaultScope(), base_branch=base_branch)

    return asyncio.run(resolving())


@pytest.fixture
def pushed(repository: GitRepository) -> GitRepository:
    """`main`, with one commit that origin has too."""
    repository.write("a.txt", "1\n")
    repository.git("update-ref", "refs/remotes/origin/main", repository.commit("pushed"))
    return repository


@pytest.mark.parametrize("found", ["by its name", "by origin/HEAD", "by the settings"])
def test_commits_of_the_base_branch_that_were_not_pushed_are_reviewed(pushed: GitRepository, found: str) -> None:
    if found == "by origin/HEAD":
        pushed.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    base = pushed.head()
    pushed.commit("not pushed")
    sides = resolved(pushed, "main" if found == "by the settings" else None)
    assert (sides.scope.kind, sides.base, sides.side) == (ScopeKind.BRANCH, base, Side.WORKING_TREE)
    assert sides.scope.description == f"main and its working tree against origin/main (from {base[:12]})"


def test_commits_beside_those_of_origin_are_compared_with_where_they_left_it(pushed: GitRepository) -> None:
    base = pushed.head()
    pushed.git("update-ref", "refs/remotes/origin/main", pushed.commit("of somebody else"))
    pushed.git("reset", "--quiet", "--hard", base)
    pushed.write("a.txt", "2\n")
    pushed.commit("not pushed")
    assert resolved(pushed).base == base


@pytest.mark.parametrize("behind", [0, 1])
def test_a_base_branch_of_which_all_is_pushed_has_its_uncommitted_changes_reviewed(
    pushed: GitRepository, behind: int
) -> None:
    if behind:
        pushed.git("update-ref", "refs/remotes/origin/main", pushed.commit("of somebody else"))
        pushed.git("reset", "--quiet", "--hard", "HEAD~1")
    sides = resolved(pushed)
    assert (sides.scope.kind, sides.base) == (ScopeKind.UNCOMMITTED, pushed.head())
    assert sides.scope.description == "uncommitted changes on main"
