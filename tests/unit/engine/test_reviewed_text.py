from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.engine.reviewed_file import TextReader
from codeloupe.model.change import FileChange, FileStatus
from tests.review_factories import make_task
from tests.rows import each


@pytest.fixture
def text(tmp_path: Path) -> TextReader:
    """A snapshot with one reviewed file, and a tree around it with traps."""
    task = make_task(tmp_path, {"src/a.py": "new\n"})
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / "src" / "a.py").write_text("from the tree\n")
    (tree / "other.py").write_text("other\n")
    (tree / ".git").mkdir()
    (tree / ".git" / "config").write_text("url = with-a-password\n")
    (tmp_path / "outside.txt").write_text("secret\n")
    (tree / "link.py").symlink_to(tmp_path / "outside.txt")
    (tree / "folder").symlink_to(tmp_path)
    os.mkfifo(tree / "pipe")
    return TextReader(replace(task, tree=tree))


def test_a_reviewed_file_comes_from_the_snapshot_and_another_one_from_the_tree(text: TextReader) -> None:
    assert text.read("src/a.py") == b"new\n"
    assert text.read("other.py") == b"other\n"


@each(
    "path",
    [
        "link.py",
        "folder/outside.txt",
        "../outside.txt",
        "src/../other.py",
        "/etc/hostname",
        ".git/config",
        ".GIT/config",
        "src",
        "pipe",
        "missing.py",
        "",
        "src//a.py",
        "nul\0byte",
        "half\ud800character",
        "x" * 5_000,
    ],
)
def test_nothing_else_is_read(text: TextReader, path: str) -> None:
    assert text.read(path) is None


def test_without_a_tree_only_the_reviewed_files_are_known(tmp_path: Path) -> None:
    task = make_task(tmp_path, {"a.py": "x\n", "b.py": "y\n"})
    (task.snapshot / "stray.py").write_text("z\n")
    text = TextReader(replace(task, without_content=frozenset({"b.py"})))
    assert (text.read("a.py"), text.read("b.py"), text.read("stray.py")) == (b"x\n", None, None)


def test_a_deleted_file_has_no_text_even_when_the_tree_has_one_of_its_name(tmp_path: Path) -> None:
    gone = FileChange("gone.py", None, FileStatus.DELETED)
    (tmp_path / "gone.py").write_text("still here\n")
    task = replace(make_task(tmp_path, {}), files=(gone,), tree=tmp_path)
    assert TextReader(task).read("gone.py") is None


def test_no_descriptor_is_left_open(text: TextReader, tmp_path: Path) -> None:
    for path in ("src/a.py", "link.py", "folder/outside.txt", "missing/deeper/file.py", "pipe"):
        text.read(path)
    assert [place for place in map(_place_of, Path("/dev/fd").iterdir()) if place.startswith(str(tmp_path))] == []


def _place_of(descriptor: Path) -> str:
    """Where an open file lies; nothing for one that another thread has closed meanwhile."""
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""
