"""Reading a change: of every scope, in every kind of repository, and at the edges."""

import asyncio
import hashlib
import json
import os
import shutil
import socket
import struct
import tempfile
from functools import partial
from pathlib import Path

import pytest

from codeloupe.errors import GitFailed, NotARepository, RepositoryBusy
from codeloupe.git import command
from codeloupe.git.changes import TreeState, changed_between, identity, read_tree_state
from codeloupe.git.repository import open_repository
from codeloupe.model.scope import (
    BaseScope,
    CommitScope,
    DefaultScope,
    RangeScope,
    ScopeRequest,
    StagedScope,
    UncommittedScope,
)
from tests.diff_checks import read_scope as _read
from tests.program import PYTHON_HEADER
from tests.repository import GitRepository
from tests.rows import each

_NAMES = ("a.py", "b.py", "c.py", "folder/d.py")
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


def _statuses(path: Path, request: ScopeRequest) -> dict[str, str]:
    return {file.path: file.status.value for file in _read(path, request).files}


def _added(path: Path, request: ScopeRequest) -> dict[str, bytes]:
    """The added lines of each file that is there."""
    files = [file for file in _read(path, request).files if file.new_path]
    lines = {file.path: [line for hunk in file.hunks for line in hunk.lines()] for file in files}
    return {name: b"".join(line.text for line in found if line.kind == "added") for name, found in lines.items()}


@pytest.fixture
def committed(repository: GitRepository) -> GitRepository:
    repository.commit_files({name: f"{name}\n" for name in _NAMES}, "root")
    return repository


def _branch_off(repository: GitRepository, place: Path | None = None) -> dict[str, bytes]:
    """A commit, a staged, an unstaged, an untracked and a deleted file on a branch; returns what is there of them."""
    place = place or repository.path
    run = partial(repository.git, "-C", str(place), "-c", "safe.directory=*")
    run("checkout", "--quiet", "-b", "feature")
    (place / "a.py").write_text("committed\n")
    run("commit", "--quiet", "--all", "-m", "feature")
    (place / "b.py").write_text("staged\n")
    run("add", "--all")
    (place / "folder" / "d.py").write_text("unstaged\n")
    (place / "new.py").write_text("untracked\n")
    (place / "c.py").unlink()
    return {"a.py": b"committed", "b.py": b"staged", "folder/d.py": b"unstaged", "new.py": b"untracked"}


class TestScopes:
    def test_a_feature_branch_shows_commits_staged_unstaged_and_untracked_together(
        self, committed: GitRepository
    ) -> None:
        seen = _branch_off(committed)
        expected = {**dict.fromkeys(seen, "modified"), "c.py": "deleted", "new.py": "added"}
        for request in (DefaultScope(), BaseScope("main")):
            assert _statuses(committed.path, request) == expected
            assert _added(committed.path, request) == seen

    def test_uncommitted_includes_untracked_files_and_leaves_ignored_ones_out(self, committed: GitRepository) -> None:
        home = Path(os.environ["HOME"])
        (home / ".config" / "git").mkdir(parents=True)
        (home / ".config" / "git" / "ignore").write_text("*.mine\n")
        committed.write(".gitignore", "*.log\n/out/\n")
        (committed.path / ".git" / "info").mkdir(exist_ok=True)
        (committed.path / ".git" / "info" / "exclude").write_text("*.local\n!kept.mine\n")
        expected = {".gitignore", "kept.mine", "deep/er/new.py", " odd\tname\n", "-dash"}
        for name in ("x.log", "out/y.py", "z.local", "notes.mine", *(expected - {".gitignore"})):
            committed.write(name, "x\n")
        assert _statuses(committed.path, UncommittedScope()) == dict.fromkeys(expected, "added")
        (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/other\n")
        (home / "other").write_text("deep/\n")
        changed = (expected - {"deep/er/new.py"}) | {"notes.mine"}
        assert _statuses(committed.path / "deep", UncommittedScope()) == dict.fromkeys(changed, "added")

    def test_staged_sees_the_index_and_not_the_working_tree(self, committed: GitRepository) -> None:
        for name in ("a.py", "b.py", "new.py"):
            committed.write(name, "staged\n")
        committed.git("add", "--all")
        committed.write("a.py", "edited further\n")
        committed.write("c.py", "not staged\n")
        committed.write("announced.py", "x\n")
        committed.git("add", "--intent-to-add", "announced.py")
        committed.remove("b.py")
        staged = {"a.py": "modified", "b.py": "modified", "new.py": "added"}
        assert _statuses(committed.path, StagedScope()) == staged
        assert _added(committed.path, StagedScope()) == dict.fromkeys(staged, b"staged")
        everything = {**staged, "b.py": "deleted", "c.py": "modified", "announced.py": "added"}
        assert _statuses(committed.path, UncommittedScope()) == everything

    @pytest.mark.parametrize(
        ("words", "expected", "start", "split"),
        [
            (["-m", "x"], {"a.py"}, ".", False),
            (["-m", "x"], {"a.py"}, "folder", True),
            (["-a", "-m", "x"], {"a.py", "b.py"}, "folder", False),
            (["-a", "-m", "x"], {"a.py", "b.py"}, ".", True),
            (["-m", "x", "--", "b.py"], {"b.py"}, ".", False),
            (["-m", "x", "--", "b.py"], {"b.py"}, "folder", True),
        ],
    )
    def test_in_a_commit_hook_staged_is_what_this_commit_will_hold(
        self, committed: GitRepository, tmp_path: Path, words: list[str], expected: set[str], start: str, *, split: bool
    ) -> None:
        committed.git("config", "core.splitIndex", str(split))
        committed.write("a.py", "new\n")
        committed.git("add", "a.py")
        committed.write("b.py", "new\n")
        hook = _HOOK.format(header=PYTHON_HEADER, start=start, result=tmp_path / "result")
        committed.write(".git/hooks/pre-commit", hook, executable=True)
        committed.git("commit", *words)
        assert json.loads((tmp_path / "result").read_text()) == {name: f"-{name}\n+new\n" for name in expected}

    def test_an_index_named_by_the_environment_outside_of_the_repository_is_not_used(
        self, committed: GitRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "index").write_bytes(b"no index")
        for named in (str(tmp_path / "index"), "../index", ".git/not-there", ".git/../../index"):
            monkeypatch.setenv("GIT_INDEX_FILE", named)
            assert _statuses(committed.path, StagedScope()) == {}

    def test_before_the_first_commit_everything_is_added(self, repository: GitRepository) -> None:
        repository.write("staged.py", "x\n")
        repository.git("add", "--all")
        repository.write("untracked.py", "x\n")
        repository.write("empty.py", "")
        assert _statuses(repository.path, StagedScope()) == {"staged.py": "added"}
        everything = dict.fromkeys(("empty.py", "staged.py", "untracked.py"), "added")
        assert _statuses(repository.path, UncommittedScope()) == everything


class TestKindsOfRepositories:
    @pytest.mark.program
    @each("option", ["sha256", "index-v4", "split-index", "stat-less"])
    def test_every_kind_of_repository_and_index_is_read(self, tmp_path: Path, option: str) -> None:
        repository = GitRepository(tmp_path / "repository")
        if option == "sha256":
            shutil.rmtree(repository.path / ".git")
            repository.git("init", "--quiet", "--template=", "--initial-branch=main", "--object-format=sha256")
        for number in range(30):
            repository.write(f"folder/file-{number}.py", f"{number}\n")
        repository.commit()
        words = {"index-v4": "update-index --index-version=4", "split-index": "update-index --split-index"}
        words["stat-less"] = "read-tree HEAD"
        if option in words:
            repository.git(*words[option].split())
        repository.checkout("feature", new=True)
        repository.write("folder/file-1.py", "staged\n")
        repository.git("add", "--all")
        repository.write("folder/file-2.py", "unstaged\n")
        repository.write("folder/empty.py", "")
        assert _statuses(repository.path, StagedScope()) == {"folder/file-1.py": "modified"}
        expected = {"folder/empty.py": "added", "folder/file-1.py": "modified", "folder/file-2.py": "modified"}
        assert _statuses(repository.path, DefaultScope()) == expected
        repository.commit()
        assert _statuses(repository.path, RangeScope("main..feature")) == expected
        assert len(_read(repository.path, CommitScope("main")).files) == 30

    @pytest.mark.parametrize("sparse_index", ["--sparse-index", "--no-sparse-index"])
    def test_in_a_sparse_checkout_only_what_is_there_and_changed_is_shown(
        self, committed: GitRepository, sparse_index: str
    ) -> None:
        committed.commit_files(dict.fromkeys(("in/a.py", "out/a.py", "out/b.py", "far/c.py"), "x\n"))
        committed.git("sparse-checkout", "set", "--cone", sparse_index, "in")
        assert not (committed.path / "out").exists()
        expected: dict[str, str] = {}
        for folder in ("in", "out"):
            committed.write(f"{folder}/a.py", "changed, perhaps back by hand\n")
            committed.write(f"{folder}/new.py", "new\n")
            expected |= {f"{folder}/a.py": "modified", f"{folder}/new.py": "added"}
            assert _statuses(committed.path, UncommittedScope()) == expected

    def test_a_merge_in_progress_is_refused_only_while_it_has_conflicts(self, committed: GitRepository) -> None:
        def write(content: str) -> None:
            for name in _NAMES:
                committed.write(name, content)

        committed.checkout("feature", new=True)
        write("ours\n")
        committed.commit()
        committed.checkout("main")
        write("theirs\n")
        committed.commit()
        committed.checkout("feature")
        committed.git("merge", "main", may_fail=True)
        for request in (DefaultScope(), UncommittedScope(), StagedScope()):
            with pytest.raises(RepositoryBusy, match=r"conflicts in 4 file\(s\): 'a.py', 'b.py', 'c.py' …") as caught:
                _read(committed.path, request)
            assert "git merge --abort" in caught.value.hint
        assert len(_read(committed.path, RangeScope("main..feature")).files) == 4
        write("resolved\n")
        committed.git("add", "--all")
        assert (committed.path / ".git" / "MERGE_HEAD").exists()
        assert len(_read(committed.path, DefaultScope()).files) == 4

    def test_an_untracked_repository_is_named_and_not_entered(self, committed: GitRepository) -> None:
        inner = GitRepository(committed.path / "folder" / "inner")
        inner.commit_files({"x.py": "x\n"})
        GitRepository(committed.path / "without-commits").write("y.py", "y\n")
        committed.write("folder/beside.py", "x\n")
        assert _statuses(committed.path, UncommittedScope()) == {"folder/beside.py": "added"}
        nested = _read(committed.path, UncommittedScope()).nested_repositories
        assert set(nested) == {"folder/inner/", "without-commits/"}

    def test_a_submodule_that_moved_is_shown_and_its_own_changes_are_not(
        self, committed: GitRepository, tmp_path: Path
    ) -> None:
        library = GitRepository(tmp_path / "library")
        old = library.commit_files({"lib.py": "1\n"})
        committed.git("submodule", "--quiet", "add", str(library.path), "lib")
        committed.git("config", "-f", ".gitmodules", "submodule.lib.ignore", "all")
        committed.commit()
        committed.write("lib/lib.py", "dirty\n")
        committed.write("lib/new.py", "dirty\n")
        assert _read(committed.path, UncommittedScope()).files == ()
        new = library.commit_files({"lib.py": "2\n"})
        for words in (("checkout", "--quiet", "--", "."), ("fetch", "--quiet"), ("checkout", "--quiet", new)):
            committed.git("-C", "lib", *words)
        (file,) = _read(committed.path, UncommittedScope()).files
        assert (file.path, file.status.value, file.is_submodule) == ("lib", "modified", True)
        assert file.hunks[0].body.decode() == f"-Subproject commit {old}\n+Subproject commit {new}\n"

    @pytest.mark.program
    @each("way", ["autocrlf of the repository", "autocrlf of the user", "attribute"])
    def test_a_checkout_with_crlf_shows_only_what_changed(self, tmp_path: Path, way: str) -> None:
        repository = GitRepository(tmp_path / "repository")
        for name in ("a.txt", "b.txt"):
            repository.write(name, "one\ntwo\nthree\n")
        if way == "attribute":
            repository.write(".gitattributes", "*.txt eol=crlf\n")
        repository.commit()
        if way == "autocrlf of the repository":
            repository.git("config", "core.autocrlf", "true")
        if way == "autocrlf of the user":
            (Path(os.environ["HOME"]) / ".gitconfig").write_text("[core]\n\tautocrlf = true\n")
        repository.write("a.txt", b"one\r\nTWO\r\nthree\r\n")
        repository.write("b.txt", b"one\r\ntwo\r\nthree\r\n")
        assert _added(repository.path, UncommittedScope()) == {"a.txt": b"TWO"}

    def test_a_change_is_read_in_a_worktree_a_submodule_and_the_repository_of_another_user(
        self, committed: GitRepository, tmp_path: Path
    ) -> None:
        committed.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
        seen = _branch_off(committed, tmp_path / "linked")
        assert _added(tmp_path / "linked", DefaultScope()) == seen
        assert _added(committed.path, DefaultScope()) == {}
        outer = GitRepository(tmp_path / "outer")
        outer.git("submodule", "--quiet", "add", str(committed.path), "inner")
        seen = _branch_off(outer, outer.path / "inner")
        assert _added(outer.path / "inner", DefaultScope()) == seen
        if os.geteuid() == 0:
            for place in (outer.path, *outer.path.rglob("*")):
                os.chown(place, 12345, 12345, follow_symlinks=False)
        assert _added(outer.path / "inner", DefaultScope()) == seen


class TestEdges:
    def test_pipes_and_sockets_neither_hang_nor_break_the_review(
        self, committed: GitRepository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        os.mkfifo(committed.path / "pipe.py")
        committed.remove("a.py")
        os.mkfifo(committed.path / "a.py")
        committed.remove("b.py")
        # The path of a socket has a limit that a temporary directory may exceed.
        monkeypatch.chdir(committed.path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("b.py")
            committed.write("c.py", "changed\n")
            change = _read(committed.path, UncommittedScope())
        assert [file.path for file in change.files] == ["c.py"]
        assert dict(change.unreadable) == dict.fromkeys(("a.py", "b.py"), "a pipe, a socket or a device, not a file")

    def test_a_file_a_folder_and_a_link_in_the_place_of_each_other(
        self, committed: GitRepository, tmp_path: Path
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "d.py").write_text("host = 'secret'\n")
        committed.commit_files({"other/e.py": "e\n"})
        for name in ("folder/d.py", "other/e.py", "a.py"):
            committed.remove(name)
        (committed.path / "folder").rmdir()
        (committed.path / "folder").symlink_to(outside)
        (committed.path / "other").rmdir()
        committed.write("other", "now a file\n")
        committed.write("a.py/inner.py", "now below a folder\n")
        gone, new = ("a.py", "folder/d.py", "other/e.py"), ("a.py/inner.py", "folder", "other")
        expected = {**dict.fromkeys(gone, "deleted"), **dict.fromkeys(new, "added")}
        assert _statuses(committed.path, UncommittedScope()) == expected
        assert _added(committed.path, UncommittedScope())["folder"] == os.fsencode(outside)

    @pytest.mark.parametrize(
        "name",
        [b"../outside.py", b"/outside.py", b"folder/../../outside.py", b".git/config", b"a/.GIT/x", b"./x", b"a//b"],
    )
    def test_an_index_that_leads_out_of_the_tree_is_refused(self, committed: GitRepository, name: bytes) -> None:
        entries, blob = b"", hashlib.sha1(b"blob 0\0").digest()
        for each_name in sorted((b"a.py", name)):
            length = struct.pack(">H", len(each_name))
            entry = struct.pack(">10I", 0, 0, 0, 0, 0, 0, 0o100644, 0, 0, 0) + blob + length + each_name
            entries += entry + b"\0" * (8 - len(entry) % 8)
        data = b"DIRC" + struct.pack(">II", 2, 2) + entries
        (committed.path / ".git" / "index").write_bytes(data + hashlib.sha1(data).digest())
        for request in (UncommittedScope(), StagedScope(), DefaultScope()):
            with pytest.raises(NotARepository, match="damaged or forged") as caught:
                _read(committed.path, request)
            assert "git reset" in caught.value.hint

    def test_a_name_that_only_looks_forged_is_read(self, committed: GitRepository) -> None:
        names = ["tab\t.git", "tab\t../x", "...", ".gitignored", "x.git/y", "git~1", "a\\.git\\b"]
        for name in names:
            committed.write(name, "x\n")
        committed.git("-c", "core.protectNTFS=false", "add", "tab\t.git", "tab\t../x")
        assert _statuses(committed.path, UncommittedScope()) == dict.fromkeys(names, "added")

    def test_a_damaged_index_and_missing_objects_are_errors_and_no_empty_change(self, committed: GitRepository) -> None:
        blob = committed.git("rev-parse", "HEAD:a.py").decode().strip()
        committed.commit_files({"a.py": "a = 2\n"})
        (committed.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
        with pytest.raises(GitFailed) as caught:
            _read(committed.path, CommitScope("HEAD"))
        assert "git fetch" in caught.value.hint
        (committed.path / ".git" / "index").write_bytes(b"DIRC" + b"\xff" * 60)
        with pytest.raises(GitFailed):
            _read(committed.path, UncommittedScope())

    def test_a_file_too_large_to_compare_is_named_and_the_others_are_reviewed(self, committed: GitRepository) -> None:
        committed.write("a.py", "a = 2\n")
        with (committed.path / "image.bin").open("wb") as stream:
            stream.truncate(300 * 1024**2)
        change = _read(committed.path, UncommittedScope())
        assert [file.path for file in change.files] == ["a.py"]
        assert change.unreadable == (("image.bin", "314,572,800 bytes, too large to compare"),)

    @pytest.mark.parametrize("request_", [UncommittedScope(), StagedScope(), CommitScope("HEAD")])
    def test_when_the_whole_text_would_be_too_much_binary_files_are_named_instead_of_shown(
        self, committed: GitRepository, monkeypatch: pytest.MonkeyPatch, request_: ScopeRequest
    ) -> None:
        committed.write("a.py", "a = 2\n")
        committed.write("image.bin", b"\0" + os.urandom(200_000))
        committed.git("add", "--all")
        if isinstance(request_, CommitScope):
            committed.commit()
        # The real limit is 2 GiB.
        monkeypatch.setattr(command, "MAX_OUTPUT_BYTES", 100_000)
        change = _read(committed.path, request_)
        assert [file.path for file in change.files] == ["a.py"]
        assert change.unreadable == (("image.bin", "binary, and too large to inspect"),)

    def test_temporary_files_in_the_reviewed_tree_are_not_reviewed(
        self, committed: GitRepository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = committed.path / "temporary"
        place.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        committed.write("temporary/kept.py", "x\n")
        assert _statuses(committed.path, UncommittedScope()) == {"temporary/kept.py": "added"}


class TestTreeState:
    def state_of(self, path: Path) -> TreeState:
        async def go() -> TreeState:
            return await read_tree_state(await open_repository(path))

        return asyncio.run(go())

    def test_added_edited_and_removed_files_are_told_and_ignored_ones_are_not(self, committed: GitRepository) -> None:
        committed.write(".gitignore", "*.log\n")
        git_files = sorted((committed.path / ".git").rglob("*"))
        index = (committed.path / ".git" / "index").read_bytes()
        before = self.state_of(committed.path)
        assert sorted((committed.path / ".git").rglob("*")) == git_files
        assert (committed.path / ".git" / "index").read_bytes() == index
        assert identity(before) == identity(self.state_of(committed.copied_to(committed.path.with_name("copy")).path))
        committed.write("a.py", "edited\n")
        committed.write("new.py", "new\n")
        committed.write("x.log", "ignored\n")
        committed.remove("b.py")
        after = self.state_of(committed.path)
        assert changed_between(before, after) == ("a.py", "b.py", "new.py")
        assert identity(before) != identity(after)
