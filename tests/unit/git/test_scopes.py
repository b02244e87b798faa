"""From what a caller asks for to two fixed sides."""

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

pytestmark = pytest.mark.program

_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def _resolve(path: Path, request: ScopeRequest, *, base_branch: str | None = None) -> Sides:
    async def go() -> Sides:
        return await resolve_scope(await open_repository(path), request, base_branch=base_branch)

    return asyncio.run(go())


def _refusal(path: Path, request: ScopeRequest, words: str, *, base_branch: str | None = None) -> str:
    """The hint of the error with these words."""
    with pytest.raises((RevisionError, NotARepository), match=words) as caught:
        _resolve(path, request, base_branch=base_branch)
    assert caught.value.hint
    return caught.value.hint


def _shallow_clone(source: GitRepository, target: Path, *options: str) -> Path:
    words = ("git", "-c", "protocol.file.allow=always", "clone", "--quiet", "--template=", *options)
    subprocess.run((*words, source.path.as_uri(), str(target)), check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Branch `feature`, checked out, is two commits ahead of where it left `main`, which went on by one."""
    repository = GitRepository(tmp_path_factory.mktemp("forked") / "repository")
    repository.commit_files({"a.txt": "1\n"}, "root")
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


@each(
    ("at", "request_", "base_branch", "kind", "base", "description"),
    [
        ("feature", DefaultScope(), None, "branch", "fork", "feature and its working tree against main (from "),
        ("main", DefaultScope(), None, "uncommitted", "main", "uncommitted changes on main"),
        ("feature^0", DefaultScope(), None, "branch", "fork", "detached HEAD "),
        ("feature", DefaultScope(), "release", "branch", "feature~1", "feature and its working tree against release"),
        ("feature", DefaultScope(), "feature", "uncommitted", "feature", "uncommitted changes on feature"),
        ("feature", BaseScope("main"), None, "branch", "fork", "feature and its working tree against main"),
        ("feature", BaseScope("HEAD~1"), None, "branch", "feature~1", "feature and its working tree"),
        ("feature", UncommittedScope(), None, "uncommitted", "feature", "uncommitted changes"),
        ("feature", StagedScope(), None, "staged", "feature", "staged changes"),
    ],
)
def test_what_may_not_be_committed_is_compared_with_where_it_left_its_base(
    made: GitRepository,
    tmp_path: Path,
    *,
    at: str,
    request_: ScopeRequest,
    base_branch: str | None,
    kind: str,
    base: str,
    description: str,
) -> None:
    repository = made.copied_to(tmp_path / "copy")
    repository.branch("release", "feature~1")
    repository.git("checkout", "--quiet", at)
    sides = _resolve(repository.path, request_, base_branch=base_branch)
    assert (sides.scope.kind, sides.base, sides.head) == (ScopeKind(kind), _sha(repository, base), None)
    assert sides.side is (Side.INDEX if kind == "staged" else Side.WORKING_TREE)
    assert sides.scope.base == sides.base
    assert sides.scope.description.startswith(description)


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
    assert "BaseScope(REF)" in _refusal(repository.path, DefaultScope(), "no base branch to compare with")


def test_before_the_first_commit_everything_is_compared_with_nothing_or_refused(repository: GitRepository) -> None:
    for request in (UncommittedScope(), StagedScope()):
        sides = _resolve(repository.path, request)
        assert (sides.base, sides.scope.base) == (_EMPTY_TREE, None)
        assert "no commits yet" in sides.scope.description
    others = (DefaultScope(), BaseScope("HEAD"), RangeScope("..HEAD"), RangeScope("HEAD..."), CommitScope("HEAD"))
    for refused in others:
        for base_branch in (None, "main"):
            _refusal(repository.path, refused, "no commits yet", base_branch=base_branch)


@each(
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
def test_a_range_has_two_fixed_sides(made: GitRepository, text: str, base: str, head: str) -> None:
    sides = _resolve(made.path, RangeScope(text))
    assert (sides.scope.kind, sides.side) == (ScopeKind.RANGE, Side.COMMIT)
    assert (sides.base, sides.head) == (_sha(made, base), _sha(made, head))


@each(
    ("request_", "words"),
    [
        (RangeScope("main"), "is one revision, not a range"),
        (RangeScope("main..gone"), "'gone' is unknown"),
        (RangeScope("gone..main"), "'gone' is unknown"),
        (RangeScope("main..-x"), "begins with a dash"),
        (RangeScope("--output=sprung..main"), "begins with a dash"),
        (RangeScope("main..fork..feature"), "unknown"),
        (RangeScope("main....feature"), "unknown"),
        (RangeScope("main..nul\0"), "is not a revision"),
        (CommitScope("main..feature"), "is a range, not one commit"),
    ],
)
def test_what_is_no_range_or_commit_is_refused(made: GitRepository, request_: ScopeRequest, words: str) -> None:
    _refusal(made.path, request_, words)


def test_unrelated_histories_can_be_compared_with_two_dots_alone(forked: GitRepository) -> None:
    forked.git("checkout", "--quiet", "--orphan", "unrelated")
    head = forked.commit("unrelated")
    for request in (RangeScope("main...unrelated"), BaseScope("main"), DefaultScope()):
        assert "A..B" in _refusal(forked.path, request, "no common ancestor")
    assert _resolve(forked.path, RangeScope("main..unrelated")).head == head


def test_a_commit_is_compared_with_its_first_parent_and_a_root_with_nothing(forked: GitRepository) -> None:
    sides = _resolve(forked.path, CommitScope("feature"))
    assert (sides.scope.kind, sides.side) == (ScopeKind.COMMIT, Side.COMMIT)
    assert (sides.base, sides.head) == (_sha(forked, "feature~1"), _sha(forked, "feature"))
    sides = _resolve(forked.path, CommitScope("fork"))
    assert (sides.base, sides.scope.base, sides.head) == (_EMPTY_TREE, None, _sha(forked, "fork"))
    assert sides.scope.description.startswith("root commit ")
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


def test_a_shallow_clone_says_how_to_deepen_it(forked: GitRepository, tmp_path: Path) -> None:
    clone = _shallow_clone(forked, tmp_path / "clone", "--depth=1", "--no-single-branch")
    for request in (DefaultScope(), BaseScope("origin/main"), RangeScope("origin/main...HEAD")):
        hint = _refusal(clone, request, "no common ancestor .* shallow clone", base_branch="main")
        assert "git fetch --deepen" in hint
        assert "fetch-depth: 0" in hint
    hint = _refusal(clone, CommitScope("HEAD"), "the parent of .* is not in this shallow clone")
    assert "fetch-depth: 2" in hint
    single = _shallow_clone(forked, tmp_path / "single", "--depth=1")
    assert "git fetch --unshallow" in _refusal(single, BaseScope(_sha(forked, "fork")), "unknown")


@pytest.fixture
def pushed(repository: GitRepository) -> GitRepository:
    """`main`, with one commit that origin has too."""
    repository.git("update-ref", "refs/remotes/origin/main", repository.commit_files({"a.txt": "1\n"}, "pushed"))
    return repository


def test_commits_of_the_base_branch_that_were_not_pushed_are_reviewed(pushed: GitRepository) -> None:
    base = pushed.head()
    pushed.commit("not pushed")

    def check(base_branch: str | None = None) -> None:
        sides = _resolve(pushed.path, DefaultScope(), base_branch=base_branch)
        assert (sides.scope.kind, sides.base, sides.side) == (ScopeKind.BRANCH, base, Side.WORKING_TREE)
        assert sides.scope.description == f"main and its working tree against origin/main (from {base[:12]})"

    check()
    check("main")
    pushed.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    check()
    # Also beside commits of origin: compared with where they left it.
    pushed.git("reset", "--quiet", "--hard", base)
    pushed.git("update-ref", "refs/remotes/origin/main", pushed.commit("of somebody else"))
    pushed.git("reset", "--quiet", "--hard", base)
    pushed.commit_files({"a.txt": "2\n"}, "not pushed")
    check()


def test_a_base_branch_of_which_all_is_pushed_has_its_uncommitted_changes_reviewed(pushed: GitRepository) -> None:
    for behind in (0, 1):
        if behind:
            pushed.git("update-ref", "refs/remotes/origin/main", pushed.commit("of somebody else"))
            pushed.git("reset", "--quiet", "--hard", "HEAD~1")
        sides = _resolve(pushed.path, DefaultScope())
        assert (sides.scope.kind, sides.base) == (ScopeKind.UNCOMMITTED, pushed.head())
