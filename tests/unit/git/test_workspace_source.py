from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from codeloupe.errors import WorkspaceError
from codeloupe.git.repository import open_repository
from codeloupe.git.workspaces import GitWorkspaceStore, KeptTree
from tests.repository import GitRepository
from tests.stage_workspaces import apply_patch, fill, held, sparse


class Run:
    """A run that begins with a repository, and one workspace of it."""

    def __init__(self, repository: GitRepository, directory: Path) -> None:
        self.store_path = directory / "store.git"
        self.repository = repository
        self.store = self.opened()
        self.work = directory / "work"

    def opened(self) -> GitWorkspaceStore:
        source = asyncio.run(open_repository(self.repository.path))
        return GitWorkspaceStore(self.store_path, source=source)

    def begin(self) -> str:
        tree = asyncio.run(self.store.beginning())
        asyncio.run(self.store.put(tree, self.work))
        return tree

    def keep(self) -> KeptTree:
        return asyncio.run(self.store.keep(self.work))

    def git(self, *words: str) -> str:
        """What a plain git tells an agent in the workspace."""
        environment = {"PATH": os.environ["PATH"], "HOME": os.devnull}
        done = subprocess.run(("git", *words), cwd=self.work, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()


@pytest.fixture
def run(repository: GitRepository, tmp_path: Path) -> Run:
    repository.write(".gitignore", "build/\n*.log\n!keep.log\n/local/*\n!/local/shared\n")
    repository.write("a.txt", "one\n")
    repository.write("sub/run.sh", "#!/bin/sh\n", executable=True)
    repository.write("tracked.log", "tracked though ignored\n")
    repository.git("add", "--force", "tracked.log")
    repository.commit("the beginning")
    return Run(repository, tmp_path)


def state_of(repository: GitRepository) -> dict[str, bytes]:
    files = (file for file in repository.path.rglob("*") if file.is_file())
    return {str(file): file.read_bytes() for file in files}


def test_a_run_begins_with_the_tree_of_head_whatever_lies_in_the_checkout(run: Run) -> None:
    run.repository.write("a.txt", "not committed\n")
    run.repository.write("untracked", "1")
    begun = run.begin()
    assert begun == run.repository.git("rev-parse", "HEAD^{tree}").decode().strip()
    assert held(run.work) == {
        b".gitignore": ((run.repository.path / ".gitignore").read_bytes(), False),
        b"a.txt": (b"one\n", False),
        b"sub/run.sh": (b"#!/bin/sh\n", True),
        b"tracked.log": (b"tracked though ignored\n", False),
    }
    assert run.keep() == KeptTree(begun, {})


def test_the_repository_is_only_read(run: Run) -> None:
    before = state_of(run.repository)
    begun = run.begin()
    fill(run.work, {"a.txt": "two\n", "new": "1"})
    kept = run.keep()
    asyncio.run(run.store.diff(begun, kept.tree))
    run.git("status")
    run.git("add", "--all")
    assert state_of(run.repository) == before


def test_the_users_own_directories_are_never_emptied(run: Run) -> None:
    begun = run.begin()
    before = state_of(run.repository)
    root = run.repository.path
    for place in (root, root / ".git", root.parent):
        with pytest.raises(WorkspaceError, match="it would be emptied"):
            asyncio.run(run.store.put(begun, place))
    assert state_of(run.repository) == before


def test_ignored_files_are_left_out_silently_unless_they_are_tracked(run: Run) -> None:
    begun = run.begin()
    fill(run.work, {"build/deep/x.o": "1", "debug.log": "1", "keep.log": "1", "tracked.log": "changed\n"})
    fill(run.work, {"local/own": "1", "local/shared": "1", "other/build/y": "1", "other/z": "1"})
    fill(run.work, {"sub/.gitignore": "secret\n", "sub/secret": "1", "sub/open": "1"})
    kept = run.keep()
    changed = ("keep.log", "local/shared", "other/z", "sub/.gitignore", "sub/open", "tracked.log")
    assert asyncio.run(run.store.changed(begun, kept.tree)) == changed
    assert kept.left_out == {}


def test_what_a_person_ignores_everywhere_is_ignored(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(Path(os.environ["XDG_CONFIG_HOME"]), {"git/ignore": "*.swp\n"})
    fill(run.repository.path, {".git/info/exclude": "mine\n"})
    begun = run.begin()
    fill(run.work, {"x.swp": "1", "mine": "1", "yours": "1"})
    assert asyncio.run(run.store.changed(begun, run.keep().tree)) == ("yours",)


def test_pipes_in_the_place_of_gits_files_hold_nobody_up(run: Run) -> None:
    begun = run.begin()
    fill(run.work, {"sub/x": "1", "nested/y": "1"})
    (run.work / ".gitignore").unlink()
    (run.work / "nested" / ".git").mkdir()
    for name in (".gitignore", "sub/.gitignore", ".gitattributes", "nested/.git/HEAD", ".git/info/attributes"):
        os.mkfifo(run.work / name)
    kept = run.keep()
    assert set(kept.left_out) == {".gitignore", "sub/.gitignore", ".gitattributes", "nested/.git"}
    assert asyncio.run(run.store.changed(begun, kept.tree)) == ("nested/y", "sub/x")


def test_nothing_that_an_agent_configures_in_its_workspace_counts(run: Run, tmp_path: Path) -> None:
    begun = run.begin()
    trap = f"touch {tmp_path / 'sprung'}"
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "core.sshCommand"):
        run.git("config", key, trap)
    run.git("config", "core.worktree", "/")
    fill(run.work, {".gitattributes": "* filter=evil diff=evil text eol=crlf ident\n", "new": "$Id$\n"})
    for hook in ("post-checkout", "post-index-change", "pre-commit"):
        fill(run.work, {f".git/hooks/{hook}": f"#!/bin/sh\n{trap}\n"})
        (run.work / ".git" / "hooks" / hook).chmod(0o755)
    fill(run.work, {".git/objects/info/alternates": "/nowhere\n", ".git/HEAD": "nonsense"})
    kept = run.keep()
    asyncio.run(run.store.diff(begun, kept.tree))
    other = tmp_path / "other"
    asyncio.run(run.store.put(kept.tree, other))
    assert held(other) == held(run.work)
    assert not (tmp_path / "sprung").exists()


def test_git_tells_an_agent_what_it_changed(run: Run) -> None:
    begun = run.begin()
    assert run.git("status", "--porcelain") == ""
    assert run.git("log", "--format=%s") == "the beginning\n"
    fill(run.work, {"a.txt": "two\n", "new": "1\n"})
    assert run.git("diff", "--name-only") == "a.txt\n"
    assert run.git("status", "--porcelain") == " M a.txt\n?? new\n"
    kept = run.keep()
    asyncio.run(run.store.put(kept.tree, run.work))
    assert run.git("diff", "--name-only") == ""
    assert run.git("diff", "--name-only", "HEAD") == "a.txt\nnew\n"
    assert kept.tree != begun


def test_the_checkout_itself_can_be_kept_without_touching_it(run: Run) -> None:
    run.repository.write("a.txt", "edited\n")
    run.repository.write("x.log", "ignored")
    run.repository.write("new", "1")
    before = state_of(run.repository)
    kept = asyncio.run(run.store.keep(run.repository.path))
    begun = asyncio.run(run.store.beginning())
    assert asyncio.run(run.store.changed(begun, kept.tree)) == ("a.txt", "new")
    assert state_of(run.repository) == before
    # What the repository has is not written again: there are two new contents.
    (pack,) = (run.store_path / "objects" / "pack").glob("*.pack")
    assert int.from_bytes(pack.read_bytes()[8:12], "big") == 2


def test_links_that_leave_and_large_files_of_the_repository_stay_as_they_are(
    repository: GitRepository, tmp_path: Path
) -> None:
    (repository.path / "out").symlink_to("/usr/share")
    (repository.path / "up").symlink_to("../elsewhere")
    repository.write("large", b"x" * 5000)
    repository.write("grows", b"x" * 5000)
    repository.commit()
    source = asyncio.run(open_repository(repository.path))
    store = GitWorkspaceStore(tmp_path / "store.git", source=source, max_file_bytes=1000)
    begun, work = asyncio.run(store.beginning()), tmp_path / "work"
    asyncio.run(store.put(begun, work))
    os.utime(work / "large")
    assert asyncio.run(store.keep(work)) == KeptTree(begun, {})
    (work / "out").unlink()
    (work / "out").symlink_to("/etc")
    sparse(work / "grows", 6000)
    kept = asyncio.run(store.keep(work))
    assert set(kept.left_out) == {"out", "grows"}
    assert kept.tree == begun


def test_submodules_stay_what_they_were(repository: GitRepository, tmp_path: Path) -> None:
    inner = GitRepository(tmp_path / "inner")
    inner.write("x", "1")
    inner.commit()
    repository.git("submodule", "--quiet", "add", str(inner.path), "vendored")
    repository.commit()
    run = Run(repository, tmp_path)
    begun = run.begin()
    assert run.keep() == KeptTree(begun, {})
    fill(run.work, {"vendored/y": "1", "z": "1"})
    kept = run.keep()
    assert kept.left_out == {"vendored": "a submodule, whose files are not kept"}
    assert asyncio.run(run.store.changed(begun, kept.tree)) == ("z",)
    (run.work / "vendored" / "y").unlink()
    (run.work / "vendored").rmdir()
    assert asyncio.run(run.store.changed(begun, run.keep().tree)) == ("vendored", "z")


def test_a_repository_with_long_names_for_its_objects_is_served_too(tmp_path: Path) -> None:
    path = tmp_path / "repository"
    path.mkdir()
    made = ("git", "init", "--quiet", "--template=", "--object-format=sha256", "--initial-branch=main", str(path))
    subprocess.run(made, check=True, env={"PATH": os.environ["PATH"]})
    repository = GitRepository(path)
    repository.write("a/b", "1\n")
    repository.commit()
    run = Run(repository, tmp_path)
    begun = run.begin()
    assert len(begun) == 64
    fill(run.work, {"a/b": "2\n", "c": bytes(range(256))})
    kept = run.keep()
    assert run.git("diff", "--name-only") == "a/b\n"
    patch = asyncio.run(run.store.diff(begun, kept.tree))
    apply_patch(path, patch)
    assert held(path) == held(run.work)


def test_a_shallow_clone_is_served_too(run: Run, tmp_path: Path) -> None:
    run.repository.write("a.txt", "two\n")
    run.repository.commit("second")
    clone = tmp_path / "clone"
    run.repository.git("clone", "--quiet", "--depth=1", f"file://{run.repository.path}", str(clone))
    shallow = Run(GitRepository(clone), tmp_path / "shallow")
    shallow.begin()
    assert shallow.git("log", "--format=%s") == "second\n"


def test_a_repository_without_commits_begins_empty(repository: GitRepository, tmp_path: Path) -> None:
    run = Run(repository, tmp_path)
    run.begin()
    assert held(run.work) == {}
    fill(run.work, {"a": "1"})
    assert run.git("status", "--porcelain") == "?? a\n"
    assert held(run.work) == {b"a": (b"1", False)}


def test_objects_that_are_missing_are_told_in_words(run: Run) -> None:
    blob = run.repository.git("rev-parse", "HEAD:a.txt").decode().strip()
    file = run.repository.path / ".git" / "objects" / blob[:2] / blob[2:]
    file.unlink()
    with pytest.raises(WorkspaceError, match="cannot be filled: git checkout-index failed") as caught:
        run.begin()
    assert caught.value.__cause__ is not None


def test_a_hostile_tree_in_the_repository_writes_nothing_elsewhere(repository: GitRepository, tmp_path: Path) -> None:
    blob = repository.git("hash-object", "-w", "--stdin", stdin=b"evil").decode().strip()
    link = repository.git("hash-object", "-w", "--stdin", stdin=os.fsencode(tmp_path)).decode().strip()
    inner = repository.git("mktree", stdin=f"100644 blob {blob}\towned\n".encode()).decode().strip()
    for lines in (
        f"040000 tree {inner}\t.git\n",
        f"040000 tree {inner}\t..\n",
        f"120000 blob {link}\tx\n040000 tree {inner}\tx\n",
    ):
        tree = repository.git("hash-object", "-w", "-t", "tree", "--literally", "--stdin", stdin=raw_tree(lines))
        commit = repository.git("commit-tree", tree.decode().strip(), "-m", "evil").decode().strip()
        repository.git("update-ref", "refs/heads/main", commit)
        run = Run(repository, tmp_path / commit)
        with pytest.raises(WorkspaceError):
            run.begin()
        assert list(tmp_path.rglob("owned")) == []


def raw_tree(lines: str) -> bytes:
    """A tree object's content, of any names, without git's checks."""
    rows = (line.split("\t") for line in lines.splitlines())
    return b"".join(
        f"{facts.split()[0].lstrip('0')} {name}\0".encode() + bytes.fromhex(facts.split()[2]) for facts, name in rows
    )
