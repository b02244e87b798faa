from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from codeloupe.git.repository import open_repository
from codeloupe.git.scopes import resolve_scope
from codeloupe.git.snapshot import exported_tree, read_regular_files
from codeloupe.model.scope import CommitScope, ScopeRequest, StagedScope, UncommittedScope
from tests.repository import GitRepository


def _tree(
    repository: GitRepository, request: ScopeRequest, needed: list[str]
) -> tuple[dict[str, bytes], dict[str, str]]:
    async def go() -> tuple[dict[str, bytes], dict[str, str]]:
        opened = await open_repository(repository.path)
        sides = await resolve_scope(opened, request, base_branch=None)
        async with exported_tree(opened, sides, needed=needed) as snapshot:
            files = [Path(folder, name) for folder, _, names in os.walk(snapshot.root) for name in names]
            assert not [file for file in files if file.is_symlink()]
            return {str(file.relative_to(snapshot.root)): file.read_bytes() for file in files}, snapshot.missing

    return asyncio.run(go())


@pytest.fixture
def mixed(repository: GitRepository, tmp_path: Path) -> GitRepository:
    """Tracked, staged, edited, untracked and ignored files, a link out of the tree and a nested repository."""
    (tmp_path / "secret").write_text("secret")
    repository.write(".gitignore", "ignored/\n")
    repository.write("a.py", "old\n")
    repository.write("sub/b.py", "b\n")
    (repository.path / "link").symlink_to(tmp_path / "secret")
    repository.commit()
    repository.write("a.py", "staged\n")
    repository.git("add", "a.py")
    repository.write("a.py", "edited\n")
    repository.write("new.py", "new\n")
    repository.write("ignored/c.py", "c\n")
    GitRepository(repository.path / "nested").write("d.py", "d\n")
    return repository


def test_a_working_tree_is_copied_without_what_is_ignored_and_with_links_as_text(
    mixed: GitRepository, tmp_path: Path
) -> None:
    files, missing = _tree(mixed, UncommittedScope(), ["a.py", "gone.py", "../secret"])
    assert files == {
        ".gitignore": b"ignored/\n",
        "a.py": b"edited\n",
        "sub/b.py": b"b\n",
        "new.py": b"new\n",
        "link": os.fsencode(tmp_path / "secret"),
    }
    assert set(missing) == {"gone.py", "../secret"}


@pytest.mark.parametrize(("request_", "content"), [(StagedScope(), b"staged\n"), (CommitScope("HEAD"), b"old\n")])
def test_an_index_or_a_commit_is_exported_whole(mixed: GitRepository, request_: ScopeRequest, content: bytes) -> None:
    files, missing = _tree(mixed, request_, ["a.py", "new.py"])
    assert sorted(files) == [".gitignore", "a.py", "link", "sub/b.py"]
    assert files["a.py"] == content
    assert missing == {"new.py": "not in the reviewed tree"}


def test_a_file_nobody_would_read_is_copied_only_when_it_is_needed(repository: GitRepository) -> None:
    repository.commit()
    for name in ("needed.bin", "other.bin"):
        with repository.write(name, b"").open("wb") as stream:
            stream.truncate(17 * 1024**2)
    files, missing = _tree(repository, UncommittedScope(), ["needed.bin"])
    assert (list(files), missing) == (["needed.bin"], {})


def test_only_needed_files_are_said_to_be_missing(repository: GitRepository) -> None:
    repository.write("a.py", "x\n")
    repository.write("b.py", "x\n")
    repository.commit()
    for name in ("a.py", "b.py"):
        repository.remove(name)
        os.mkfifo(repository.path / name)
    files, missing = _tree(repository, UncommittedScope(), ["a.py"])
    assert (files, missing) == ({}, {"a.py": "not a regular file"})


def test_our_own_temporary_directories_are_not_copied(mixed: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = mixed.path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    mixed.write("tmp/theirs.txt", "x")
    mixed.write("tmp/codeloupe-other/engine/HEAD", "x")
    files, _ = _tree(mixed, UncommittedScope(), [])
    assert sorted(files) == [".gitignore", "a.py", "link", "new.py", "sub/b.py", "tmp/theirs.txt"]


def test_regular_files_are_read_without_following_a_link(mixed: GitRepository) -> None:
    (mixed.path / "linked").symlink_to("sub")
    names = ["a.py", "link", "linked/b.py", "sub/b.py", "sub", "gone/x", "../secret", "a.py/x"]
    assert read_regular_files(mixed.path, names, max_bytes=3, max_files=9) == {"a.py": b"edi", "sub/b.py": b"b\n"}
    assert read_regular_files(mixed.path, names, max_bytes=3, max_files=1) == {"a.py": b"edi"}
