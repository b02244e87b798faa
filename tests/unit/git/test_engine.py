from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from codeloupe.errors import UsageError
from codeloupe.git.command import git
from codeloupe.git.repository import (
    DIFF_ATTRIBUTES,
    EXPORT_ATTRIBUTES,
    Sources,
    copy_index,
    in_engine,
    private_directory,
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
        (DIFF_ATTRIBUTES, {"filter", "diff", "merge", "ident"}, {"text", "eol", "working-tree-encoding"}),
        (
            EXPORT_ATTRIBUTES,
            {
                "filter",
                "diff",
                "merge",
                "ident",
                "text",
                "eol",
                "working-tree-encoding",
                "export-ignore",
                "export-subst",
            },
            set(),
        ),
    ],
)
def test_attributes_of_the_reviewed_tree_are_overruled(
    repository: GitRepository, attributes: str, overruled: set[str], kept: set[str]
) -> None:
    words = "-diff filter=evil merge=evil ident text eol=crlf working-tree-encoding=UTF-16 export-ignore export-subst"
    repository.write(".gitattributes", f"[attr]evil {words}\n*.py {words}\n*.c binary\n*.h evil\n")
    with temporary_engine(_sources(repository), attributes) as git_dir:
        place = in_engine(git_dir, work_tree=repository.path)
        names = ("a.py", ".b.py", "deep/er/c.py", "d.c", "e.h", "deep/-.h")
        output = asyncio.run(git(place, "check-attr", "-z", "--all", "--", *names)).decode()
    fields = output.split("\0")
    seen = set(fields[1::3])
    assert not seen & overruled
    assert kept <= seen


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


def test_the_engine_is_gone_after_an_error(repository: GitRepository) -> None:
    places: list[Path] = []

    def interrupt() -> None:
        with temporary_engine(_sources(repository), DIFF_ATTRIBUTES) as git_dir:
            places.append(git_dir)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert not places[0].parent.exists()


def test_without_a_place_for_temporary_files_the_error_names_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Set directly: the module falls back to the system's directories when a variable names none that exists.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not-there"))
    with pytest.raises(UsageError, match="no temporary directory can be made: No such file") as caught:
        private_directory().__enter__()
    assert "TMPDIR" in caught.value.hint
