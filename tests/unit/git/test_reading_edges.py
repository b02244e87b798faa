"""Reading a change at the edges: sizes, forged indexes, files in the place of folders, and leaving no trace."""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
import tempfile
from functools import partial
from pathlib import Path

import pytest

from codeloupe.errors import GitFailed, NotARepository
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
from tests.repository import GitRepository

_EVERY_SCOPE = (
    DefaultScope(),
    UncommittedScope(),
    StagedScope(),
    BaseScope("main"),
    RangeScope("main..HEAD"),
    CommitScope("HEAD"),
)


def _read(path: Path, request: ScopeRequest) -> Change:
    async def go() -> Change:
        repository = await open_repository(path)
        return await read_change(repository, await resolve_scope(repository, request, base_branch=None))

    return asyncio.run(go())


def _statuses(change: Change) -> dict[str, str]:
    return {file.path: file.status.value for file in change.files}


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
def committed(repository: GitRepository) -> GitRepository:
    repository.write("a.py", "a = 1\n")
    repository.write("folder/b.py", "b = 1\n")
    repository.commit("root")
    return repository


def test_a_review_changes_nothing_in_the_repository(committed: GitRepository) -> None:
    committed.checkout("feature", new=True)
    committed.write("a.py", "a = 2\n")
    committed.commit()
    committed.write("folder/b.py", "b = 2\n")
    committed.write("new.py", "n = 1\n")
    committed.write("staged.py", "s = 1\n")
    committed.git("add", "staged.py")
    # Files that git would like to look at again, and to note that it did.
    os.utime(committed.path / "a.py", (1, 1))
    before = _state(committed.path)

    async def review(request: ScopeRequest) -> None:
        repository = await open_repository(committed.path)
        sides = await resolve_scope(repository, request, base_branch=None)
        change = await read_change(repository, sides)
        async with exported(repository, sides, paths=[file.path for file in change.files]) as snapshot:
            assert not snapshot.missing
        async with exported_tree(repository, sides, needed=()):
            pass

    for request in _EVERY_SCOPE:
        asyncio.run(review(request))
    assert _state(committed.path) == before


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
def test_a_change_is_read_wherever_the_repository_lies(committed: GitRepository, tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    committed.path.rename(place)
    committed.path = place
    _branch_off(committed, place)
    assert _see(place) == _see(place / "folder") == _SEEN


def test_a_change_is_read_in_a_linked_worktree(committed: GitRepository, tmp_path: Path) -> None:
    committed.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "linked"))
    _branch_off(committed, tmp_path / "linked")
    assert _see(tmp_path / "linked") == _SEEN
    assert _see(committed.path) == {}


def test_a_change_is_read_in_the_checkout_of_a_submodule(committed: GitRepository, tmp_path: Path) -> None:
    outer = GitRepository(tmp_path / "outer")
    outer.git("submodule", "--quiet", "add", str(committed.path), "inner")
    _branch_off(outer, outer.path / "inner")
    assert _see(outer.path / "inner") == _SEEN


def test_a_change_is_read_in_a_repository_of_another_user(committed: GitRepository) -> None:
    _branch_off(committed, committed.path)
    if os.geteuid() == 0:
        for place in (committed.path, *committed.path.rglob("*")):
            os.chown(place, 12345, 12345)
    assert _see(committed.path) == _SEEN


def test_a_file_in_the_place_of_a_folder_and_a_folder_in_the_place_of_a_file(committed: GitRepository) -> None:
    committed.remove("folder/b.py")
    (committed.path / "folder").rmdir()
    committed.write("folder", "now a file\n")
    committed.remove("a.py")
    committed.write("a.py/inner.py", "now below a folder\n")
    assert _statuses(_read(committed.path, UncommittedScope())) == {
        "a.py": "deleted",
        "a.py/inner.py": "added",
        "folder": "added",
        "folder/b.py": "deleted",
    }


def test_a_folder_that_was_replaced_by_a_link_shows_the_link_and_nothing_behind_it(
    committed: GitRepository, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.py").write_text("host = 'secret'\n")
    (outside / "more.py").write_text("host = 'secret'\n")
    committed.remove("folder/b.py")
    (committed.path / "folder").rmdir()
    (committed.path / "folder").symlink_to(outside)
    change = _read(committed.path, UncommittedScope())
    assert _statuses(change) == {"folder": "added", "folder/b.py": "deleted"}
    assert not any(b"secret" in hunk.body for file in change.files for hunk in file.hunks)


@pytest.mark.parametrize(
    "name",
    [b"../outside.py", b"/outside.py", b"folder/../../outside.py", b".git/config", b"folder/.GIT/x", b"./x", b"a//b"],
)
def test_an_index_that_leads_out_of_the_tree_is_refused(committed: GitRepository, tmp_path: Path, name: bytes) -> None:
    (tmp_path / "outside.py").write_text("host = 'secret'\n")
    _forge_index(committed, b"a.py", name)
    for request in (UncommittedScope(), StagedScope(), DefaultScope()):
        with pytest.raises(NotARepository, match="damaged or forged") as caught:
            _read(committed.path, request)
        assert "git reset" in caught.value.hint


def test_a_name_that_only_looks_forged_is_read(committed: GitRepository) -> None:
    names = ["tab\t.git", "tab\t../x", "...", ".gitignored", "x.git/y", "git~1", "a\\.git\\b"]
    for name in names:
        committed.write(name, "x\n")
    committed.git("-c", "core.protectNTFS=false", "add", "tab\t.git", "tab\t../x")
    assert _statuses(_read(committed.path, UncommittedScope())) == dict.fromkeys(sorted(names), "added")


def test_a_damaged_index_is_an_error(committed: GitRepository) -> None:
    (committed.path / ".git" / "index").write_bytes(b"DIRC" + b"\xff" * 60)
    with pytest.raises(GitFailed):
        _read(committed.path, UncommittedScope())


def test_objects_that_are_missing_are_an_error_and_no_empty_change(committed: GitRepository) -> None:
    blob = committed.git("rev-parse", "HEAD:a.py").decode().strip()
    committed.write("a.py", "a = 2\n")
    committed.commit()
    (committed.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(GitFailed) as caught:
        _read(committed.path, CommitScope("HEAD"))
    assert "git fetch" in caught.value.hint


def test_five_thousand_untracked_files_are_read(committed: GitRepository) -> None:
    for folder in range(50):
        place = committed.path / f"new-{folder}"
        place.mkdir()
        for number in range(100):
            (place / f"{number}.py").write_bytes(b"x = 1\n")
    change = _read(committed.path, UncommittedScope())
    assert len(change.files) == 5_000


def test_a_file_too_large_to_compare_is_named_and_the_others_are_reviewed(committed: GitRepository) -> None:
    committed.write("a.py", "a = 2\n")
    with (committed.path / "image.bin").open("wb") as stream:
        stream.truncate(300 * 1024**2)
    change = _read(committed.path, UncommittedScope())
    assert _statuses(change) == {"a.py": "modified"}
    assert change.unreadable == (("image.bin", "314,572,800 bytes, more than can be compared"),)


@pytest.mark.parametrize("request_", [UncommittedScope(), StagedScope(), CommitScope("HEAD")])
def test_when_the_whole_text_would_be_too_much_binary_files_are_named_instead_of_shown(
    committed: GitRepository, monkeypatch: pytest.MonkeyPatch, request_: ScopeRequest
) -> None:
    committed.write("a.py", "a = 2\n")
    committed.write("image.bin", b"\0" + os.urandom(200_000))
    committed.git("add", "--all")
    if isinstance(request_, CommitScope):
        committed.commit()
    # The real limit is 2 GiB.
    monkeypatch.setattr(command, "_MAX_OUTPUT_BYTES", 100_000)
    change = _read(committed.path, request_)
    assert _statuses(change) == {"a.py": "modified"}
    assert change.unreadable == (("image.bin", "binary, and too large to look into"),)


def test_a_small_binary_file_is_in_the_change_with_its_bytes(committed: GitRepository) -> None:
    committed.write("hidden.py", b"\0\nimport os\n")
    (file,) = _read(committed.path, UncommittedScope()).files
    assert file.binary
    assert b"+import os\n" in file.hunks[0].body


def test_temporary_files_in_the_reviewed_tree_are_not_reviewed(
    committed: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = committed.path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    committed.write("temporary/kept.py", "x\n")
    assert _statuses(_read(committed.path, UncommittedScope())) == {"temporary/kept.py": "added"}
