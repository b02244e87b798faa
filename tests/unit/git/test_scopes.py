from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from codeloupe.errors import NotARepository, RevisionError
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import Side, Sides, resolve_scope
from codeloupe.model.change import ScopeKind
from codeloupe.model.scope import (
    BaseScope,
    CommitScope,
    DefaultScope,
    RangeScope,
    ScopeRequest,
    StagedScope,
    UncommittedScope,
)
from tests.repository import GitRepository
from tests.rows import each

_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def _resolve(path: Path, request: ScopeRequest, *, base_branch: str | None = None) -> Sides:
    async def go() -> Sides:
        return await resolve_scope(await open_repository(path), request, base_branch=base_branch)

    return asyncio.run(go())


def _shallow_clone(source: GitRepository, target: Path, *options: str) -> Path:
    words = ("git", "-c", "protocol.file.allow=always", "clone", "--quiet", "--template=", *options)
    subprocess.run((*words, source.path.as_uri(), str(target)), check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Branch `feature`, checked out, is two commits ahead of where it left `main`, which went on by one."""
    repository = GitRepository(tmp_path_factory.mktemp("forked") / "repository")
    repository.write("a.txt", "1\n")
    repository.commit("root")
    repository.git("tag", "fork")
    repository.checkout("feature", new=True)
    repository.commit("one")
    repository.commit("two")
    repository.checkout("main")
    repository.commit("meanwhile")
    repository.checkout("feature")
    return repository


@pytest.fixture
def forked(made: GitRepository, tmp_path: Path) -> GitRepository:
    """A copy of it, which a test may change."""
    return made.copied_to(tmp_path / "forked")


def _sha(repository: GitRepository, name: str) -> str:
    return repository.git("rev-parse", f"{name}^{{commit}}").decode().strip()


def test_by_default_a_feature_branch_is_compared_with_where_it_left_the_base(forked: GitRepository) -> None:
    sides = _resolve(forked.path, DefaultScope())
    assert (sides.scope.kind, sides.side) == (ScopeKind.BRANCH, Side.WORKING_TREE)
    assert sides.base == sides.scope.base == _sha(forked, "fork")
    assert sides.head is None
    assert "feature and its working tree against main" in sides.scope.description


def test_by_default_the_base_branch_has_its_uncommitted_changes_reviewed(forked: GitRepository) -> None:
    forked.checkout("main")
    sides = _resolve(forked.path, DefaultScope())
    assert (sides.scope.kind, sides.side, sides.base) == (ScopeKind.UNCOMMITTED, Side.WORKING_TREE, forked.head())
    assert sides.scope.description == "uncommitted changes on main"


def test_by_default_a_detached_head_is_compared_with_where_it_left_the_base(forked: GitRepository) -> None:
    forked.git("checkout", "--quiet", "--detach")
    sides = _resolve(forked.path, DefaultScope())
    assert (sides.scope.kind, sides.base) == (ScopeKind.BRANCH, _sha(forked, "fork"))
    assert f"detached HEAD {forked.head()[:12]}" in sides.scope.description


def test_a_configured_base_branch_is_used(forked: GitRepository) -> None:
    forked.branch("release", "feature~1")
    assert _resolve(forked.path, DefaultScope(), base_branch="release").base == _sha(forked, "feature~1")
    on_it = _resolve(forked.path, DefaultScope(), base_branch="feature")
    assert on_it.scope.kind is ScopeKind.UNCOMMITTED


def test_a_branch_without_company_is_its_own_base(tmp_path: Path) -> None:
    repository = GitRepository(tmp_path / "repository", branch="trunk")
    repository.commit()
    repository.git("tag", "v1")
    sides = _resolve(repository.path, DefaultScope())
    assert (sides.scope.kind, sides.base) == (ScopeKind.UNCOMMITTED, repository.head())
    assert sides.scope.description == "uncommitted changes on trunk"


@each("company", ["heads/other", "remotes/upstream/trunk", "detached"])
def test_without_a_base_branch_nothing_is_reviewed_silently(tmp_path: Path, company: str) -> None:
    repository = GitRepository(tmp_path / "repository", branch="trunk")
    sha = repository.commit()
    if company == "detached":
        repository.git("checkout", "--quiet", "--detach")
    else:
        repository.git("update-ref", f"refs/{company}", sha)
    with pytest.raises(RevisionError, match="no base branch to compare with") as caught:
        _resolve(repository.path, DefaultScope())
    assert "BaseScope(REF)" in caught.value.hint


@pytest.mark.parametrize(
    ("request_", "kind", "side"),
    [
        (UncommittedScope(), ScopeKind.UNCOMMITTED, Side.WORKING_TREE),
        (StagedScope(), ScopeKind.STAGED, Side.INDEX),
    ],
)
def test_what_is_not_committed_is_compared_with_head(
    forked: GitRepository, request_: ScopeRequest, kind: ScopeKind, side: Side
) -> None:
    sides = _resolve(forked.path, request_)
    assert (sides.scope.kind, sides.side, sides.base, sides.head) == (kind, side, forked.head(), None)


@pytest.mark.parametrize("request_", [UncommittedScope(), StagedScope()])
def test_before_the_first_commit_everything_is_compared_with_nothing(
    repository: GitRepository, request_: ScopeRequest
) -> None:
    sides = _resolve(repository.path, request_)
    assert (sides.base, sides.scope.base) == (_EMPTY_TREE, None)
    assert "no commits yet" in sides.scope.description


@pytest.mark.parametrize(
    "request_", [DefaultScope(), BaseScope("HEAD"), RangeScope("..HEAD"), RangeScope("HEAD..."), CommitScope("HEAD")]
)
@pytest.mark.parametrize("base_branch", [None, "main"])
def test_before_the_first_commit_the_other_scopes_say_so(
    repository: GitRepository, request_: ScopeRequest, base_branch: str | None
) -> None:
    with pytest.raises(NotARepository, match="no commits yet"):
        _resolve(repository.path, request_, base_branch=base_branch)


def test_a_branch_that_begins_anew_has_no_commits_yet(forked: GitRepository) -> None:
    forked.git("checkout", "--quiet", "--orphan", "anew")
    for request in (DefaultScope(), BaseScope("main")):
        with pytest.raises(NotARepository, match="no commits yet on its branch"):
            _resolve(forked.path, request)
    assert _resolve(forked.path, UncommittedScope()).base == _EMPTY_TREE


def test_a_given_base_is_compared_from_where_it_was_left(forked: GitRepository) -> None:
    sides = _resolve(forked.path, BaseScope("main"))
    assert (sides.scope.kind, sides.side, sides.base) == (ScopeKind.BRANCH, Side.WORKING_TREE, _sha(forked, "fork"))
    assert _resolve(forked.path, BaseScope("HEAD~1")).base == _sha(forked, "HEAD~1")


@pytest.mark.parametrize(
    ("text", "base", "head"),
    [
        ("main..feature", "main", "feature"),
        ("main...feature", "fork", "feature"),
        ("feature...main", "fork", "main"),
        ("main..", "main", "feature"),
        ("..main", "feature", "main"),
        ("...main", "fork", "main"),
        ("fork..feature~1", "fork", "feature~1"),
        ("refs/heads/main..@{0}", "main", "feature"),
    ],
)
def test_a_range_has_two_fixed_sides(forked: GitRepository, text: str, base: str, head: str) -> None:
    sides = _resolve(forked.path, RangeScope(text))
    assert (sides.scope.kind, sides.side) == (ScopeKind.RANGE, Side.COMMIT)
    assert (sides.base, sides.head) == (_sha(forked, base), _sha(forked, head))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("main", "is one revision, not a range"),
        ("main..gone", "'gone' is unknown"),
        ("gone..main", "'gone' is unknown"),
        ("main..-x", "begins with a dash"),
        ("--output=sprung..main", "begins with a dash"),
        ("main..fork..feature", "unknown"),
        ("main....feature", "unknown"),
        ("main..nul\0", "is not a revision"),
    ],
)
def test_what_is_no_range_is_refused_in_words(forked: GitRepository, text: str, words: str) -> None:
    with pytest.raises(RevisionError, match=words) as caught:
        _resolve(forked.path, RangeScope(text))
    assert caught.value.hint


def test_unrelated_histories_can_be_compared_with_two_dots_alone(forked: GitRepository) -> None:
    forked.git("checkout", "--quiet", "--orphan", "unrelated")
    head = forked.commit("unrelated")
    for request in (RangeScope("main...unrelated"), BaseScope("main"), DefaultScope()):
        with pytest.raises(RevisionError, match="no common ancestor"):
            _resolve(forked.path, request)
    assert _resolve(forked.path, RangeScope("main..unrelated")).head == head


def test_a_commit_is_compared_with_its_first_parent(forked: GitRepository) -> None:
    sides = _resolve(forked.path, CommitScope("feature"))
    assert (sides.scope.kind, sides.side) == (ScopeKind.COMMIT, Side.COMMIT)
    assert (sides.base, sides.head) == (_sha(forked, "feature~1"), _sha(forked, "feature"))


def test_a_root_commit_is_compared_with_nothing(forked: GitRepository) -> None:
    sides = _resolve(forked.path, CommitScope("fork"))
    assert (sides.base, sides.scope.base, sides.head) == (_EMPTY_TREE, None, _sha(forked, "fork"))
    assert sides.scope.description.startswith("root commit ")


def test_a_merge_and_an_octopus_are_compared_with_their_first_parent(forked: GitRepository) -> None:
    first = forked.head()
    forked.branch("third", "fork")
    tree = forked.git("rev-parse", "HEAD^{tree}").decode().strip()
    for parents in (("main",), ("main", "third")):
        others = [word for name in parents for word in ("-p", _sha(forked, name))]
        merge = forked.git("commit-tree", "-m", "merge", "-p", first, *others, tree).decode().strip()
        sides = _resolve(forked.path, CommitScope(merge))
        assert (sides.base, sides.head) == (first, merge)
        assert sides.scope.description.startswith("merge (against its first parent)")


def test_a_message_that_imitates_a_parent_line_is_no_parent(forked: GitRepository) -> None:
    head, main = forked.head(), _sha(forked, "main")
    person = "A <a@example.invalid> 1 +0000"
    header = f"tree {_EMPTY_TREE}\nparent {head}\nauthor {person}\ncommitter {person}\n"
    signature = f"gpgsig -----BEGIN\n parent {main}\n parent {main}\n"
    raw = f"{header}{signature}\nparent {main}\n\nparent {main}\n".encode()
    sha = forked.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw).decode().strip()
    sides = _resolve(forked.path, CommitScope(sha))
    assert sides.base == head
    assert sides.scope.description.startswith("commit ")


def test_a_range_is_not_one_commit(forked: GitRepository) -> None:
    with pytest.raises(RevisionError, match="is a range, not one commit"):
        _resolve(forked.path, CommitScope("main..feature"))


def test_a_shallow_clone_without_the_merge_base_says_how_to_deepen(forked: GitRepository, tmp_path: Path) -> None:
    clone = _shallow_clone(forked, tmp_path / "clone", "--depth=1", "--no-single-branch")
    for request in (DefaultScope(), BaseScope("origin/main"), RangeScope("origin/main...HEAD")):
        with pytest.raises(RevisionError, match="no common ancestor .* shallow clone") as caught:
            _resolve(clone, request, base_branch="main")
        assert "git fetch --deepen" in caught.value.hint
        assert "fetch-depth: 0" in caught.value.hint


def test_a_commit_at_the_edge_of_a_shallow_clone_is_no_root_commit(forked: GitRepository, tmp_path: Path) -> None:
    clone = _shallow_clone(forked, tmp_path / "clone", "--depth=1")
    with pytest.raises(RevisionError, match="the parent of .* is not in this shallow clone") as caught:
        _resolve(clone, CommitScope("HEAD"))
    assert "fetch-depth: 2" in caught.value.hint


def test_a_true_root_and_other_commits_of_a_shallow_clone_can_be_reviewed(
    forked: GitRepository, tmp_path: Path
) -> None:
    deep_enough = _shallow_clone(forked, tmp_path / "two", "--depth=2")
    assert _resolve(deep_enough, CommitScope("HEAD")).base == _sha(forked, "feature~1")
    forked.git("checkout", "--quiet", "--orphan", "short")
    forked.commit("root of its own")
    forked.commit("second")
    with_root = _shallow_clone(forked, tmp_path / "three", "--depth=3", "--no-single-branch", "--branch=short")
    assert _resolve(with_root, CommitScope("HEAD~1")).base == _EMPTY_TREE


def test_an_unknown_revision_in_a_shallow_clone_can_be_fetched(forked: GitRepository, tmp_path: Path) -> None:
    clone = _shallow_clone(forked, tmp_path / "clone", "--depth=1")
    with pytest.raises(RevisionError, match="unknown") as caught:
        _resolve(clone, BaseScope(_sha(forked, "fork")))
    assert "git fetch --unshallow" in caught.value.hint


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
