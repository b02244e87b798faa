from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from codeloupe.errors import GitFailed
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    Entry,
    copy_index,
    in_engine,
    list_entries,
    object_name,
    open_repository,
    read_file_at,
    temporary_engine,
)
from tests.repository import GitRepository


def _read(path: Path, revision: str, name: str) -> bytes | None:
    async def go() -> bytes | None:
        return await read_file_at(await open_repository(path), revision, name)

    return asyncio.run(go())


def _list(path: Path, tree: str | None, paths: list[str] | None) -> list[Entry]:
    async def go() -> list[Entry]:
        repository = await open_repository(path)
        with temporary_engine(repository.sources, DIFF_ATTRIBUTES) as git_dir:
            copy_index(repository.index, git_dir)
            return await list_entries(in_engine(git_dir), tree, paths)

    return asyncio.run(go())


def test_a_file_is_read_as_it_was_in_a_revision(repository: GitRepository) -> None:
    repository.write(".gitattributes", "* filter=evil eol=crlf ident -diff\n")
    repository.write("codeloupe.yaml", b"a: 1\nid: $Id$\n")
    repository.write("folder/run.sh", b"\0\xff\n", executable=True)
    first = repository.commit()
    repository.git("config", "filter.evil.smudge", "false")
    repository.write("codeloupe.yaml", b"a: 2\n")
    repository.commit()
    assert _read(repository.path, first, "codeloupe.yaml") == b"a: 1\nid: $Id$\n"
    assert _read(repository.path, repository.head(), "codeloupe.yaml") == b"a: 2\n"
    assert _read(repository.path, first, "folder/run.sh") == b"\0\xff\n"


@pytest.mark.parametrize("name", ["gone.yaml", "folder", "link.yaml", "module", "*.yaml", "code", "CODELOUPE.YAML"])
def test_what_is_no_regular_file_of_that_name_counts_as_none(repository: GitRepository, name: str) -> None:
    sha = repository.commit()
    repository.write("codeloupe.yaml", "a: 1\n")
    repository.write("folder/codeloupe.yaml", "a: 1\n")
    (repository.path / "link.yaml").symlink_to("codeloupe.yaml")
    repository.git("add", "--all")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{sha},module")
    assert _read(repository.path, repository.commit_staged(), name) is None


def test_a_revision_that_is_not_there_is_an_error_and_not_a_missing_file(repository: GitRepository) -> None:
    repository.commit()
    with pytest.raises(GitFailed):
        _read(repository.path, "f" * 40, "codeloupe.yaml")


def test_the_files_of_a_tree_and_of_the_index_are_listed_alike(repository: GitRepository) -> None:
    names = ["a.py", "folder/b\t\n.py", os.fsdecode(b"caf\xe9"), "link"]
    for name in names[:-1]:
        repository.write(name, "x\n")
    (repository.path / "link").symlink_to("a.py")
    sha = repository.commit()
    blob = object_name("blob", b"x\n", "sha1")
    expected = [Entry("100644", blob, name) for name in names[:-1]]
    expected.append(Entry("120000", object_name("blob", b"a.py", "sha1"), "link"))
    for tree in (sha, None):
        assert sorted(_list(repository.path, tree, None), key=str) == sorted(expected, key=str)
        assert _list(repository.path, tree, ["a.py", "gone"]) == [Entry("100644", blob, "a.py")]
        assert _list(repository.path, tree, []) == []
