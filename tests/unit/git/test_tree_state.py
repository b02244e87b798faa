from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codeloupe.errors import NotARepository
from codeloupe.git.changes import TreeState, changed_between, identity, read_tree_state
from codeloupe.git.repository import open_repository
from tests.repository import GitRepository


def state_of(path: Path) -> TreeState:
    async def read() -> TreeState:
        return await read_tree_state(await open_repository(path))

    return asyncio.run(read())


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.write("kept.py", "x = 1\n")
    repository.write("edited.py", "x = 1\n")
    repository.write("removed.py", "x = 1\n")
    repository.write(".gitignore", "*.log\n")
    repository.commit()
    return repository


def test_added_edited_and_removed_files_are_told_and_ignored_ones_are_not(project: GitRepository) -> None:
    before = state_of(project.path)
    project.write("edited.py", "x = 2\n")
    project.write("new file\n.py", "x = 1\n")
    project.write("noise.log", "x\n")
    project.remove("removed.py")
    after = state_of(project.path)
    assert changed_between(before, after) == ("edited.py", "new file\n.py", "removed.py")
    assert changed_between(after, after) == ()


def test_the_same_files_have_one_identity_wherever_they_lie(project: GitRepository, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    project.git("clone", "--quiet", str(project.path), str(copy))
    assert identity(state_of(project.path)) == identity(state_of(copy))
    project.write("kept.py", "x = 3\n")
    assert identity(state_of(project.path)) != identity(state_of(copy))


def test_neither_the_index_nor_the_objects_are_touched(project: GitRepository) -> None:
    project.write("new.py", "x = 1\n")
    index = (project.path / ".git" / "index").read_bytes()
    objects = sorted((project.path / ".git" / "objects").rglob("*"))
    state_of(project.path)
    assert (project.path / ".git" / "index").read_bytes() == index
    assert sorted((project.path / ".git" / "objects").rglob("*")) == objects


def test_a_folder_that_is_no_repository_has_no_state(tmp_path: Path) -> None:
    with pytest.raises(NotARepository):
        state_of(tmp_path)
