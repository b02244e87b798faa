from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from codeloupe.errors import GitFailed, UsageError
from codeloupe.git.command import git
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    EXPORT_ATTRIBUTES,
    Entry,
    Sources,
    copy_index,
    in_engine,
    list_entries,
    object_name,
    open_repository,
    private_directory,
    read_blobs,
    read_file_at,
    temporary_engine,
)
from tests.repository import GitRepository
from tests.rows import each


def _sources(repository: GitRepository, object_format: str = "sha1") -> Sources:
    git_dir = repository.path / ".git"
    return Sources(git_dir / "objects", git_dir / "shallow", object_format)


def _ask(sources: Sources, *words: str, attributes: str = DIFF_ATTRIBUTES, index: Path | None = None) -> bytes:
    with temporary_engine(sources, attributes) as git_dir:
        if index is not None:
            copy_index(index, git_dir)
        return asyncio.run(git(in_engine(git_dir), *words))


def test_objects_are_read_and_nothing_of_the_configuration_is(repository: GitRepository) -> None:
    repository.write("a.txt", "content\n")
    sha = repository.commit()
    repository.git("config", "diff.external", "/bin/false")
    repository.git("config", "core.bare", "true")
    repository.git("tag", "known-there")

    assert _ask(_sources(repository), "cat-file", "blob", f"{sha}:a.txt") == b"content\n"
    settings = _ask(_sources(repository), "config", "--local", "--list").decode().splitlines()
    assert settings == ["core.repositoryformatversion=1", "core.bare=false"]
    assert _ask(_sources(repository), "for-each-ref") == b""


@pytest.mark.program
@each("relative", [True, False])
def test_objects_that_the_repository_borrows_itself_are_found(tmp_path: Path, *, relative: bool) -> None:
    lender = GitRepository(tmp_path / "lender")
    lender.write("a.txt", "content\n")
    sha = lender.commit()
    borrower = GitRepository(tmp_path / "borrower")
    lent = "../../../lender/.git/objects" if relative else str(lender.path / ".git" / "objects")
    info = borrower.path / ".git" / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_text(lent + "\n")
    assert _ask(_sources(borrower), "cat-file", "blob", f"{sha}:a.txt") == b"content\n"


@pytest.mark.parametrize(
    ("attributes", "overruled", "kept"),
    [
        (DIFF_ATTRIBUTES, "filter diff merge ident", "text eol working-tree-encoding"),
        (EXPORT_ATTRIBUTES, "filter diff merge ident text eol working-tree-encoding export-ignore export-subst", ""),
    ],
)
def test_attributes_of_the_reviewed_tree_are_overruled(
    repository: GitRepository, attributes: str, overruled: str, kept: str
) -> None:
    words = "-diff filter=evil merge=evil ident text eol=crlf working-tree-encoding=UTF-16 export-ignore export-subst"
    repository.write(".gitattributes", f"[attr]evil {words}\n*.py {words}\n*.c binary\n*.h evil\n")
    with temporary_engine(_sources(repository), attributes) as git_dir:
        place = in_engine(git_dir, work_tree=repository.path)
        names = ("a.py", ".b.py", "deep/er/c.py", "d.c", "e.h", "deep/-.h")
        output = asyncio.run(git(place, "check-attr", "-z", "--all", "--", *names)).decode()
    fields = output.split("\0")
    seen = set(fields[1::3])
    assert not seen & set(overruled.split())
    assert set(kept.split()) <= seen


def test_the_index_keeps_its_time_and_content(repository: GitRepository) -> None:
    repository.write("a.txt", "content\n")
    repository.commit()
    index = repository.path / ".git" / "index"
    os.utime(index, ns=(1_600_000_000_123_456_789, 1_600_000_000_987_654_321))
    with temporary_engine(_sources(repository), DIFF_ATTRIBUTES) as git_dir:
        copy = copy_index(index, git_dir)
        assert copy.read_bytes() == index.read_bytes()
        assert copy.stat().st_mtime_ns == index.stat().st_mtime_ns == 1_600_000_000_987_654_321


def test_both_parts_of_a_split_index_are_copied(repository: GitRepository) -> None:
    for name in ("a", "b", "c"):
        repository.write(name, name)
    repository.git("add", "--all")
    repository.git("update-index", "--split-index")
    repository.write("d", "d")
    repository.git("add", "d")
    git_dir = repository.path / ".git"
    assert list(git_dir.glob("sharedindex.*"))
    assert _ask(_sources(repository), "ls-files", index=git_dir / "index") == b"a\nb\nc\nd\n"


def test_without_a_place_for_temporary_files_the_error_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Set directly: the module falls back to the system's directories when a variable names none that exists.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not-there"))
    with pytest.raises(UsageError, match="no temporary directory can be made: No such file") as caught:
        private_directory().__enter__()
    assert "TMPDIR" in caught.value.hint


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
    with pytest.raises(GitFailed):
        _read(repository.path, "f" * 40, "codeloupe.yaml")


@pytest.mark.parametrize("name", ["gone.yaml", "folder", "link.yaml", "module", "*.yaml", "code", "CODELOUPE.YAML"])
def test_what_is_no_regular_file_of_that_name_counts_as_none(repository: GitRepository, name: str) -> None:
    sha = repository.commit()
    repository.write("codeloupe.yaml", "a: 1\n")
    repository.write("folder/codeloupe.yaml", "a: 1\n")
    (repository.path / "link.yaml").symlink_to("codeloupe.yaml")
    repository.git("add", "--all")
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{sha},module")
    assert _read(repository.path, repository.commit_staged(), name) is None


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


def test_blobs_are_read_byte_for_byte_as_many_as_have_room(repository: GitRepository) -> None:
    contents = {"a": b"x\n", "b": b"", "c": b"\0\n\xff" * 100, "d": b"y" * 50}
    for name, content in contents.items():
        repository.write(name, content)
    repository.commit()
    blobs = {name: repository.git("rev-parse", f"HEAD:{name}").decode().strip() for name in contents}
    tree = repository.git("rev-parse", "HEAD^{tree}").decode().strip()

    async def read(*names: str, max_bytes: int = 10_000) -> dict[str, bytes]:
        return await read_blobs(await open_repository(repository.path), names, max_bytes=max_bytes)

    everything = {blobs[name]: content for name, content in contents.items()}
    assert asyncio.run(read(*blobs.values(), *blobs.values())) == everything
    # What is not here, and what is no blob, is not there.
    assert asyncio.run(read("0" * 39 + "1", tree, blobs["a"])) == {blobs["a"]: b"x\n"}
    assert asyncio.run(read()) == {}
    few = asyncio.run(read(*blobs.values(), max_bytes=60))
    assert set(few) == {blobs["a"], blobs["b"], blobs["d"]}
