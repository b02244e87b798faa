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


def test_a_reviewed_file_comes_from_the_snapshot_and_another_one_from_the_tree_if_there_is_one(
    text: TextReader, tmp_path: Path
) -> None:
    assert (text.read("src/a.py"), text.read("other.py")) == (b"new\n", b"other\n")
    task = make_task(tmp_path, {"a.py": "x\n", "b.py": "y\n"})
    (task.snapshot / "stray.py").write_text("z\n")
    alone = TextReader(replace(task, without_content=frozenset({"b.py"})))
    assert (alone.read("a.py"), alone.read("b.py"), alone.read("stray.py")) == (b"x\n", None, None)
    # A deleted file has no text, even when the tree has one of its name.
    gone = FileChange("stray.py", None, FileStatus.DELETED)
    assert TextReader(replace(task, files=(gone,), tree=task.snapshot)).read("stray.py") is None


@each(
    "path",
    [
        *("link.py", "folder/outside.txt", "../outside.txt", "src/../other.py", "/etc/hostname", ".git/config"),
        *(".GIT/config", "src", "pipe", "missing.py", "", "src//a.py", "nul\0byte", "half\ud800character", "x" * 5_000),
    ],
)
def test_nothing_else_is_read(text: TextReader, path: str) -> None:
    assert text.read(path) is None
