from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import pytest

from codeloupe.errors import GitFailed, NotARepository, RepositoryBusy
from codeloupe.git import command
from codeloupe.git.changes import read_change
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.git.snapshot import exported, exported_tree
from codeloupe.model.change import Change
from codeloupe.model.scope import (
    BaseScope,
    CommitScope,
    DefaultScope,
    RangeScope,
    ScopeRequest,
    StagedScope,
    UncommittedScope,
)
from tests.program import PYTHON_HEADER
from tests.repository import GitRepository
from tests.rows import each

_HOOK = """{header}import asyncio, json, os
from pathlib import Path
from codeloupe.git.changes import read_change
from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.scope import StagedScope

async def main():
    os.chdir("{start}")
    repository = await open_repository(Path())
    return await read_change(repository, await resolve_scope(repository, StagedScope(), base_branch=None))

change = asyncio.run(main())
seen = {{file.path: b"".join(hunk.body for hunk in file.hunks).decode() for file in change.files}}
Path("{result}").write_text(json.dumps(seen))
"""


_STAGED = {"a.py": "-a.py\n+staged\n"}
_UNSTAGED = {"b.py": "-b.py\n+not staged\n"}


def _read(path: Path, request: ScopeRequest) -> Change:
    async def go() -> Change:
        repository = await open_repository(path)
        return await read_change(repository, await resolve_scope(repository, request, base_branch=None))

    return asyncio.run(go())


def _statuses(change: Change) -> dict[str, str]:
    return {file.path: file.status.value for file in change.files}


def _added(change: Change, path: str) -> list[bytes]:
    (file,) = [file for file in change.files if file.path == path]
    return [line.text for hunk in file.hunks for line in hunk.lines() if line.kind == "added"]


@pytest.fixture
def committed(repository: GitRepository) -> GitRepository:
    for name in ("a.py", "b.py", "c.py", "d.py"):
        repository.write(name, f"{name}\n")
    repository.commit("root")
    return repository


def test_a_feature_branch_shows_commits_staged_unstaged_and_untracked_together(committed: GitRepository) -> None:
    committed.checkout("feature", new=True)
    committed.write("a.py", "committed\n")
    committed.commit()
    committed.write("b.py", "staged\n")
    committed.git("add", "b.py")
    committed.write("c.py", "unstaged\n")
    committed.write("new.py", "untracked\n")
    committed.remove("d.py")
    change = _read(committed.path, DefaultScope())
    assert _statuses(change) == {
        "a.py": "modified", "b.py": "modified", "c.py": "modified", "d.py": "deleted", "new.py": "added",
    }  # fmt: skip
    for name, text in {"a.py": b"committed", "b.py": b"staged", "c.py": b"unstaged", "new.py": b"untracked"}.items():
        assert _added(change, name) == [text]
    assert _read(committed.path, BaseScope("main")).files == change.files


def test_uncommitted_includes_untracked_files_and_leaves_ignored_ones_out(committed: GitRepository) -> None:
    home = Path(os.environ["HOME"])
    (home / ".config" / "git").mkdir(parents=True)
    (home / ".config" / "git" / "ignore").write_text("*.mine\n")
    committed.write(".gitignore", "*.log\n/out/\n")
    (committed.path / ".git" / "info").mkdir(exist_ok=True)
    (committed.path / ".git" / "info" / "exclude").write_text("*.local\n!kept.mine\n")
    for name in ("x.log", "out/y.py", "z.local", "notes.mine", "kept.mine", "deep/er/new.py", " odd\tname\n", "-dash"):
        committed.write(name, "x\n")
    expected = {".gitignore", "kept.mine", "deep/er/new.py", " odd\tname\n", "-dash"}
    assert _statuses(_read(committed.path, UncommittedScope())) == dict.fromkeys(expected, "added")
    (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/other\n")
    (home / "other").write_text("deep/\n")
    changed = (expected - {"deep/er/new.py"}) | {"notes.mine"}
    assert _statuses(_read(committed.path / "deep", UncommittedScope())) == dict.fromkeys(changed, "added")


def test_every_new_content_is_named_whether_git_had_to_read_the_file_or_not(committed: GitRepository) -> None:
    committed.checkout("feature", new=True)
    committed.write("a.py", "committed\n")
    committed.commit()
    committed.write("b.py", "unstaged\n")
    (committed.path / "c.py").chmod(0o755)
    (committed.path / "d.py").rename(committed.path / "e.py")
    (committed.path / "link").symlink_to("a.py")
    committed.write("empty.py", "")
    seen = {}
    for moment in ("fresh", "stale"):
        if moment == "stale":
            os.utime(committed.path / "a.py", (1, 1))
        change = _read(committed.path, DefaultScope())
        seen[moment] = {file.new_path: file.new_blob for file in change.files}
    assert seen["fresh"] == seen["stale"]
    assert set(seen["fresh"]) == {"a.py", "b.py", "c.py", "e.py", "link", "empty.py"}
    for name, blob in seen["fresh"].items():
        content = b"a.py" if name == "link" else (committed.path / str(name)).read_bytes()
        assert committed.git("hash-object", "--stdin", stdin=content).decode().strip() == blob


def test_staged_sees_the_index_and_not_the_working_tree(committed: GitRepository) -> None:
    committed.write("a.py", "staged\n")
    committed.write("b.py", "staged\n")
    committed.write("new.py", "staged\n")
    committed.git("add", "--all")
    committed.write("a.py", "edited further\n")
    committed.write("c.py", "not staged\n")
    committed.write("untracked.py", "x\n")
    committed.remove("b.py")
    change = _read(committed.path, StagedScope())
    assert _statuses(change) == {"a.py": "modified", "b.py": "modified", "new.py": "added"}
    assert [_added(change, name) for name in ("a.py", "b.py", "new.py")] == [[b"staged"]] * 3


def test_a_file_that_was_only_announced_is_not_staged_but_uncommitted(committed: GitRepository) -> None:
    committed.write("new.py", "x\n")
    committed.git("add", "--intent-to-add", "new.py")
    assert _statuses(_read(committed.path, StagedScope())) == {}
    assert _statuses(_read(committed.path, UncommittedScope())) == {"new.py": "added"}


@pytest.mark.parametrize(
    ("words", "expected", "start", "split"),
    [
        (("-m", "x"), _STAGED, ".", False),
        (("-m", "x"), _STAGED, "below", True),
        (("-a", "-m", "x"), _STAGED | _UNSTAGED, "below", False),
        (("-a", "-m", "x"), _STAGED | _UNSTAGED, ".", True),
        (("-m", "x", "--", "b.py"), _UNSTAGED, ".", False),
        (("-m", "x", "--", "b.py"), _UNSTAGED, "below", True),
    ],
)
def test_in_a_commit_hook_staged_is_what_this_commit_will_hold(
    committed: GitRepository,
    tmp_path: Path,
    words: tuple[str, ...],
    expected: dict[str, str],
    start: str,
    *,
    split: bool,
) -> None:
    committed.git("config", "core.splitIndex", str(split))
    (committed.path / "below").mkdir()
    committed.write("a.py", "staged\n")
    committed.git("add", "a.py")
    committed.write("b.py", "not staged\n")
    hook = _HOOK.format(header=PYTHON_HEADER, start=start, result=tmp_path / "result")
    committed.write(".git/hooks/pre-commit", hook, executable=True)
    committed.git("commit", *words)
    assert json.loads((tmp_path / "result").read_text()) == expected


def test_an_index_named_by_the_environment_outside_of_the_repository_is_not_used(
    committed: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index").write_bytes(b"no index")
    for named in (str(tmp_path / "index"), "../index", ".git/not-there", ".git/../../index"):
        monkeypatch.setenv("GIT_INDEX_FILE", named)
        assert _statuses(_read(committed.path, StagedScope())) == {}


def test_before_the_first_commit_everything_is_added(repository: GitRepository) -> None:
    repository.write("staged.py", "x\n")
    repository.git("add", "--all")
    repository.write("untracked.py", "x\n")
    repository.write("empty.py", "")
    assert _statuses(_read(repository.path, StagedScope())) == {"staged.py": "added"}
    everything = dict.fromkeys(("empty.py", "staged.py", "untracked.py"), "added")
    assert _statuses(_read(repository.path, UncommittedScope())) == everything


@each("option", ["sha256", "index-v4", "split-index", "stat-less"])
def test_every_kind_of_repository_and_index_is_read(tmp_path: Path, option: str) -> None:
    repository = GitRepository(tmp_path / "repository")
    if option == "sha256":
        shutil.rmtree(repository.path / ".git")
        repository.git("init", "--quiet", "--template=", "--initial-branch=main", "--object-format=sha256")
    for number in range(30):
        repository.write(f"folder/file-{number}.py", f"{number}\n")
    repository.commit()
    if option == "index-v4":
        repository.git("update-index", "--index-version=4")
    if option == "split-index":
        repository.git("update-index", "--split-index")
    if option == "stat-less":
        repository.git("read-tree", "HEAD")
    repository.checkout("feature", new=True)
    repository.write("folder/file-1.py", "staged\n")
    repository.git("add", "--all")
    repository.write("folder/file-2.py", "unstaged\n")
    repository.write("folder/empty.py", "")
    assert _statuses(_read(repository.path, StagedScope())) == {"folder/file-1.py": "modified"}
    expected = {"folder/empty.py": "added", "folder/file-1.py": "modified", "folder/file-2.py": "modified"}
    assert _statuses(_read(repository.path, DefaultScope())) == expected
    repository.commit()
    assert _statuses(_read(repository.path, RangeScope("main..feature"))) == expected
    assert len(_read(repository.path, CommitScope("main")).files) == 30


@pytest.mark.parametrize("sparse_index", ["--sparse-index", "--no-sparse-index"])
def test_in_a_sparse_checkout_only_what_is_there_and_changed_is_shown(
    committed: GitRepository, sparse_index: str
) -> None:
    for name in ("in/a.py", "out/a.py", "out/b.py", "far/c.py"):
        committed.write(name, "x\n")
    committed.commit()
    committed.git("sparse-checkout", "set", "--cone", sparse_index, "in")
    assert not (committed.path / "out").exists()
    committed.write("in/a.py", "changed\n")
    committed.write("in/new.py", "new\n")
    assert _statuses(_read(committed.path, UncommittedScope())) == {"in/a.py": "modified", "in/new.py": "added"}
    committed.write("out/a.py", "back by hand and changed\n")
    committed.write("out/new.py", "new\n")
    expected = {"in/a.py": "modified", "in/new.py": "added", "out/a.py": "modified", "out/new.py": "added"}
    assert _statuses(_read(committed.path, UncommittedScope())) == expected


def test_a_merge_in_progress_is_refused_only_while_it_has_conflicts(committed: GitRepository) -> None:
    committed.checkout("feature", new=True)
    for name in ("a.py", "b.py", "c.py", "d.py"):
        committed.write(name, "ours\n")
    committed.commit()
    committed.checkout("main")
    for name in ("a.py", "b.py", "c.py", "d.py"):
        committed.write(name, "theirs\n")
    committed.commit()
    committed.checkout("feature")
    committed.git("merge", "main", may_fail=True)
    for request in (DefaultScope(), UncommittedScope(), StagedScope()):
        with pytest.raises(RepositoryBusy, match=r"conflicts in 4 file\(s\): 'a.py', 'b.py', 'c.py' …") as caught:
            _read(committed.path, request)
        assert "git merge --abort" in caught.value.hint
    assert len(_read(committed.path, RangeScope("main..feature")).files) == 4
    for name in ("a.py", "b.py", "c.py", "d.py"):
        committed.write(name, "resolved\n")
    committed.git("add", "--all")
    assert (committed.path / ".git" / "MERGE_HEAD").exists()
    assert len(_read(committed.path, DefaultScope()).files) == 4


def test_an_untracked_repository_is_named_and_not_entered(committed: GitRepository) -> None:
    inner = GitRepository(committed.path / "folder" / "inner")
    inner.write("x.py", "x\n")
    inner.commit()
    GitRepository(committed.path / "without-commits").write("y.py", "y\n")
    committed.write("folder/beside.py", "x\n")
    change = _read(committed.path, UncommittedScope())
    assert _statuses(change) == {"folder/beside.py": "added"}
    assert set(change.nested_repositories) == {"folder/inner/", "without-commits/"}


def test_a_submodule_that_moved_is_shown_and_its_own_changes_are_not(committed: GitRepository, tmp_path: Path) -> None:
    library = GitRepository(tmp_path / "library")
    library.write("lib.py", "1\n")
    old = library.commit()
    committed.git("submodule", "--quiet", "add", str(library.path), "lib")
    committed.git("config", "-f", ".gitmodules", "submodule.lib.ignore", "all")
    committed.commit()
    committed.write("lib/lib.py", "dirty\n")
    committed.write("lib/new.py", "dirty\n")
    assert _read(committed.path, UncommittedScope()).files == ()
    library.write("lib.py", "2\n")
    new = library.commit()
    subprocess.run(("git", "checkout", "--quiet", "--", "."), cwd=committed.path / "lib", check=True)
    subprocess.run(("git", "fetch", "--quiet"), cwd=committed.path / "lib", check=True)
    subprocess.run(("git", "checkout", "--quiet", new), cwd=committed.path / "lib", check=True)
    (file,) = _read(committed.path, UncommittedScope()).files
    assert (file.path, file.status.value, file.is_submodule) == ("lib", "modified", True)
    body = b"".join(hunk.body for hunk in file.hunks).decode()
    assert body == f"-Subproject commit {old}\n+Subproject commit {new}\n"


def test_pipes_and_sockets_neither_hang_nor_break_the_review(committed: GitRepository) -> None:
    os.mkfifo(committed.path / "pipe")
    os.mkfifo(committed.path / "pipe.py")
    committed.remove("a.py")
    os.mkfifo(committed.path / "a.py")
    committed.remove("b.py")
    with socket.socket(socket.AF_UNIX) as listener:
        # The path of a socket has a limit that a temporary directory may exceed.
        here = Path.cwd()
        os.chdir(committed.path)
        try:
            listener.bind("b.py")
        finally:
            os.chdir(here)
        committed.write("c.py", "changed\n")
        change = _read(committed.path, UncommittedScope())
    assert _statuses(change) == {"c.py": "modified"}
    assert dict(change.unreadable) == dict.fromkeys(("a.py", "b.py"), "a pipe, a socket or a device, not a file")


def test_an_edit_in_the_same_moment_and_of_the_same_size_is_seen(committed: GitRepository) -> None:
    for attempt in range(5):
        committed.write("a.py", f"one {attempt:03}\n")
        committed.git("add", "a.py")
        committed.write("a.py", f"two {attempt:03}\n")
        assert _added(_read(committed.path, UncommittedScope()), "a.py") == [f"two {attempt:03}".encode()]


@each("way", ["autocrlf of the repository", "autocrlf of the user", "attribute"])
def test_a_checkout_with_crlf_shows_only_what_changed(tmp_path: Path, way: str) -> None:
    repository = GitRepository(tmp_path / "repository")
    repository.write("a.txt", "one\ntwo\nthree\n")
    repository.write("b.txt", "one\ntwo\nthree\n")
    if way == "attribute":
        repository.write(".gitattributes", "*.txt eol=crlf\n")
    repository.commit()
    if way == "autocrlf of the repository":
        repository.git("config", "core.autocrlf", "true")
    if way == "autocrlf of the user":
        (Path(os.environ["HOME"]) / ".gitconfig").write_text("[core]\n\tautocrlf = true\n")
    repository.write("a.txt", b"one\r\nTWO\r\nthree\r\n")
    repository.write("b.txt", b"one\r\ntwo\r\nthree\r\n")
    change = _read(repository.path, UncommittedScope())
    assert _statuses(change) == {"a.txt": "modified"}
    assert _added(change, "a.txt") == [b"TWO"]


def test_a_changed_mode_is_noise_only_where_the_repository_says_so(committed: GitRepository) -> None:
    (committed.path / "a.py").chmod(0o755)
    (file,) = _read(committed.path, UncommittedScope()).files
    assert (file.old_mode, file.new_mode) == ("100644", "100755")
    committed.git("config", "core.fileMode", "false")
    committed.write("new.sh", "x\n", executable=True)
    (file,) = _read(committed.path, UncommittedScope()).files
    assert (file.path, file.new_mode) == ("new.sh", "100644")


_EVERY_SCOPE = (
    DefaultScope(),
    UncommittedScope(),
    StagedScope(),
    BaseScope("main"),
    RangeScope("main..HEAD"),
    CommitScope("HEAD"),
)


def _forge_index(repository: GitRepository, *names: bytes) -> None:
    """An index with any names; git itself writes none of these."""
    entries = b""
    blob = hashlib.sha1(b"blob 0\0").digest()
    for name in sorted(names):
        entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0) + blob + struct.pack(">H", len(name)) + name
        entries += entry + b"\0" * (8 - len(entry) % 8)
    data = b"DIRC" + struct.pack(">II", 2, len(names)) + entries
    (repository.path / ".git" / "index").write_bytes(data + hashlib.sha1(data).digest())


def _state(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything below a folder: mode, time of change and content."""
    seen = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            place = Path(folder, name)
            facts = place.lstat()
            content = place.read_bytes() if place.is_file() else b""
            seen[str(place.relative_to(root))] = (facts.st_mode, facts.st_mtime_ns, content)
    return seen


@pytest.fixture
def small(repository: GitRepository) -> GitRepository:
    repository.write("a.py", "a = 1\n")
    repository.write("folder/b.py", "b = 1\n")
    repository.commit("root")
    return repository


def test_a_review_changes_nothing_in_the_repository(small: GitRepository) -> None:
    small.checkout("feature", new=True)
    small.write("a.py", "a = 2\n")
    small.commit()
    small.write("folder/b.py", "b = 2\n")
    small.write("new.py", "n = 1\n")
    small.write("staged.py", "s = 1\n")
    small.git("add", "staged.py")
    # Files that git would like to look at again, and to note that it did.
    os.utime(small.path / "a.py", (1, 1))
    before = _state(small.path)

    async def review(request: ScopeRequest) -> None:
        repository = await open_repository(small.path)
        sides = await resolve_scope(repository, request, base_branch=None)
        change = await read_change(repository, sides)
        async with exported(repository, sides, paths=[file.path for file in change.files]) as snapshot:
            assert not snapshot.missing
        async with exported_tree(repository, sides, needed=()):
            pass

    for request in _EVERY_SCOPE:
        asyncio.run(review(request))
    assert _state(small.path) == before


def _branch_off(repository: GitRepository, place: Path) -> None:
    """In a checkout of `repository`: a commit, a staged, an unstaged and an untracked change on a branch of its own."""
    run = partial(repository.git, "-C", str(place), "-c", "safe.directory=*")
    run("checkout", "--quiet", "-b", "feature")
    (place / "a.py").write_text("a = 2\n")
    run("commit", "--quiet", "--all", "-m", "feature")
    (place / "staged.py").write_text("s = 1\n")
    run("add", "--all")
    (place / "folder" / "b.py").write_text("b = 2\n")
    (place / "new.py").write_text("n = 1\n")


def _see(place: Path) -> dict[str, bytes]:
    """The changed files by default, each with its content from the snapshot."""

    async def go() -> dict[str, bytes]:
        repository = await open_repository(place)
        sides = await resolve_scope(repository, DefaultScope(), base_branch="main")
        change = await read_change(repository, sides)
        async with exported(repository, sides, paths=[file.path for file in change.files]) as snapshot:
            assert not snapshot.missing
            return {file.path: (snapshot.root / file.path).read_bytes() for file in change.files}

    return asyncio.run(go())


_SEEN = {"a.py": b"a = 2\n", "folder/b.py": b"b = 2\n", "new.py": b"n = 1\n", "staged.py": b"s = 1\n"}


@pytest.mark.parametrize(
    "name", ["with space", "with'quote", 'with"quote', "$HOME", "-dash", "ünï", os.fsdecode(b"caf\xe9"), "*[x]?", "a:b"]
)
def test_a_change_is_read_wherever_the_repository_lies(small: GitRepository, tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    small.path.rename(place)
    small.path = place
    _branch_off(small, place)
    assert _see(place) == _see(place / "folder") == _SEEN


def test_a_change_is_read_in_a_linked_worktree(small: GitRepository, tmp_path: Path) -> None:
    small.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    _branch_off(small, tmp_path / "linked")
    assert _see(tmp_path / "linked") == _SEEN
    assert _see(small.path) == {}


def test_a_change_is_read_in_the_checkout_of_a_submodule(small: GitRepository, tmp_path: Path) -> None:
    outer = GitRepository(tmp_path / "outer")
    outer.git("submodule", "--quiet", "add", str(small.path), "inner")
    _branch_off(outer, outer.path / "inner")
    assert _see(outer.path / "inner") == _SEEN


def test_a_change_is_read_in_a_repository_of_another_user(small: GitRepository) -> None:
    _branch_off(small, small.path)
    if os.geteuid() == 0:
        for place in (small.path, *small.path.rglob("*")):
            os.chown(place, 12345, 12345)
    assert _see(small.path) == _SEEN


def test_a_file_in_the_place_of_a_folder_and_a_folder_in_the_place_of_a_file(small: GitRepository) -> None:
    small.remove("folder/b.py")
    (small.path / "folder").rmdir()
    small.write("folder", "now a file\n")
    small.remove("a.py")
    small.write("a.py/inner.py", "now below a folder\n")
    assert _statuses(_read(small.path, UncommittedScope())) == {
        "a.py": "deleted",
        "a.py/inner.py": "added",
        "folder": "added",
        "folder/b.py": "deleted",
    }


def test_a_folder_that_was_replaced_by_a_link_shows_the_link_and_nothing_behind_it(
    small: GitRepository, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.py").write_text("host = 'secret'\n")
    (outside / "more.py").write_text("host = 'secret'\n")
    small.remove("folder/b.py")
    (small.path / "folder").rmdir()
    (small.path / "folder").symlink_to(outside)
    change = _read(small.path, UncommittedScope())
    assert _statuses(change) == {"folder": "added", "folder/b.py": "deleted"}
    assert not any(b"secret" in hunk.body for file in change.files for hunk in file.hunks)


@pytest.mark.parametrize(
    "name",
    [b"../outside.py", b"/outside.py", b"folder/../../outside.py", b".git/config", b"folder/.GIT/x", b"./x", b"a//b"],
)
def test_an_index_that_leads_out_of_the_tree_is_refused(small: GitRepository, tmp_path: Path, name: bytes) -> None:
    (tmp_path / "outside.py").write_text("host = 'secret'\n")
    _forge_index(small, b"a.py", name)
    for request in (UncommittedScope(), StagedScope(), DefaultScope()):
        with pytest.raises(NotARepository, match="damaged or forged") as caught:
            _read(small.path, request)
        assert "git reset" in caught.value.hint


def test_a_name_that_only_looks_forged_is_read(small: GitRepository) -> None:
    names = ["tab\t.git", "tab\t../x", "...", ".gitignored", "x.git/y", "git~1", "a\\.git\\b"]
    for name in names:
        small.write(name, "x\n")
    small.git("-c", "core.protectNTFS=false", "add", "tab\t.git", "tab\t../x")
    assert _statuses(_read(small.path, UncommittedScope())) == dict.fromkeys(sorted(names), "added")


def test_a_damaged_index_is_an_error(small: GitRepository) -> None:
    (small.path / ".git" / "index").write_bytes(b"DIRC" + b"\xff" * 60)
    with pytest.raises(GitFailed):
        _read(small.path, UncommittedScope())


def test_objects_that_are_missing_are_an_error_and_no_empty_change(small: GitRepository) -> None:
    blob = small.git("rev-parse", "HEAD:a.py").decode().strip()
    small.write("a.py", "a = 2\n")
    small.commit()
    (small.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(GitFailed) as caught:
        _read(small.path, CommitScope("HEAD"))
    assert "git fetch" in caught.value.hint


def test_a_file_too_large_to_compare_is_named_and_the_others_are_reviewed(small: GitRepository) -> None:
    small.write("a.py", "a = 2\n")
    with (small.path / "image.bin").open("wb") as stream:
        stream.truncate(300 * 1024**2)
    change = _read(small.path, UncommittedScope())
    assert _statuses(change) == {"a.py": "modified"}
    assert change.unreadable == (("image.bin", "314,572,800 bytes, more than can be compared"),)


@pytest.mark.parametrize("request_", [UncommittedScope(), StagedScope(), CommitScope("HEAD")])
def test_when_the_whole_text_would_be_too_much_binary_files_are_named_instead_of_shown(
    small: GitRepository, monkeypatch: pytest.MonkeyPatch, request_: ScopeRequest
) -> None:
    small.write("a.py", "a = 2\n")
    small.write("image.bin", b"\0" + os.urandom(200_000))
    small.git("add", "--all")
    if isinstance(request_, CommitScope):
        small.commit()
    # The real limit is 2 GiB.
    monkeypatch.setattr(command, "_MAX_OUTPUT_BYTES", 100_000)
    change = _read(small.path, request_)
    assert _statuses(change) == {"a.py": "modified"}
    assert change.unreadable == (("image.bin", "binary, and too large to look into"),)


def test_temporary_files_in_the_reviewed_tree_are_not_reviewed(
    small: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = small.path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    small.write("temporary/kept.py", "x\n")
    assert _statuses(_read(small.path, UncommittedScope())) == {"temporary/kept.py": "added"}
