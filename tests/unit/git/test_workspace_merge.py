from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

import pytest

from codeloupe.errors import WorkspaceError
from codeloupe.git.workspace_store import GitWorkspaceStore
from tests.stage_workspaces import fill, held

LINES = "".join(f"line {number}\n" for number in range(30))
Files = Mapping[str, str | bytes | None]


class Stages:
    """Stages that work side by side from one base."""

    def __init__(self, directory: Path, base: Files) -> None:
        self._directory = directory
        self.store = GitWorkspaceStore(directory / "store.git", source=None)
        self.base = self.left(base, start=asyncio.run(self.store.beginning()))

    def left(self, files: Files, *, start: str | None = None) -> str:
        """The tree that a stage leaves which writes some files, and removes those with None for a content."""
        place = self._directory / "work"
        asyncio.run(self.store.put(start or self.base, place))
        for name, content in files.items():
            if content is None:
                (place / name).unlink()
                if "/" in name:
                    (place / name).parent.rmdir()
        fill(place, {name: content for name, content in files.items() if content is not None})
        return asyncio.run(self.store.keep(place)).tree

    def together(self, *trees: str) -> dict[bytes, tuple[bytes, bool] | bytes]:
        """What they left, put together; the same whatever the order."""
        orders = {asyncio.run(self.store.merged(self.base, order)) for order in permutations(trees)}
        (merged,) = orders
        asyncio.run(self.store.put(merged, self._directory / "merged"))
        return held(self._directory / "merged")

    def conflict(self, *trees: str) -> WorkspaceError:
        with pytest.raises(WorkspaceError) as caught:
            asyncio.run(self.store.merged(self.base, trees))
        return caught.value


def test_what_stages_did_to_different_files_goes_together(tmp_path: Path) -> None:
    stages = Stages(tmp_path, {"kept": "0", "gone": "0", "a": "0", "b": "0", "folder/x": "0"})
    one = stages.left({"a": "1", "new/one": "1", "gone": None})
    two = stages.left({"b": "2", "new/two": "2", "gone": None})
    three = stages.left({"folder/x": None, "folder": "a file now"})
    assert stages.together(one, two, three) == {
        b"kept": (b"0", False),
        b"a": (b"1", False),
        b"b": (b"2", False),
        b"new/one": (b"1", False),
        b"new/two": (b"2", False),
        b"folder": (b"a file now", False),
    }


def test_the_same_change_by_two_stages_is_one(tmp_path: Path) -> None:
    stages = Stages(tmp_path, {"a": "0"})
    one, two = stages.left({"a": "1", "b": "same", "c": "1"}), stages.left({"a": "1", "b": "same", "d": "2"})
    assert stages.together(one, two).keys() == {b"a", b"b", b"c", b"d"}


def test_one_tree_or_none_is_itself(tmp_path: Path) -> None:
    stages = Stages(tmp_path, {"a": "0"})
    one = stages.left({"a": "1"})
    merged = [asyncio.run(stages.store.merged(stages.base, trees)) for trees in ([], [one], [one, one, stages.base])]
    assert merged == [stages.base, one, one]


def test_changes_in_different_places_of_one_text_go_together(tmp_path: Path) -> None:
    stages = Stages(tmp_path, {"text": LINES})
    changes = ((2, "second"), (15, "middle"), (28, "last"))
    trees = [stages.left({"text": LINES.replace(f"line {number}\n", f"{word}\n")}) for number, word in changes]
    expected = LINES
    for number, word in changes:
        expected = expected.replace(f"line {number}\n", f"{word}\n")
    assert stages.together(*trees) == {b"text": (expected.encode(), False)}


def test_a_text_and_its_mode_may_be_changed_by_two(tmp_path: Path) -> None:
    stages = Stages(tmp_path, {"run": LINES})
    one = stages.left({"run": LINES.replace("line 3\n", "three\n")})
    place = tmp_path / "work"
    asyncio.run(stages.store.put(stages.base, place))
    (place / "run").chmod(0o755)
    two = asyncio.run(stages.store.keep(place)).tree
    assert stages.together(one, two) == {b"run": (LINES.replace("line 3\n", "three\n").encode(), True)}


@pytest.mark.parametrize(
    ("base", "one", "two", "named"),
    [
        ({"a": "0"}, {"a": "1"}, {"a": "2"}, "a"),
        ({"a": "0"}, {"a": "1"}, {"a": None}, "a"),
        ({}, {"new.md": "1"}, {"new.md": "2"}, "new.md"),
        ({"a": b"\0" + LINES.encode()}, {"a": b"\0\0"}, {"a": b"\0\1"}, "a"),
        ({}, {"a": "a file"}, {"a/b": "in a folder"}, "a"),
        ({"a/x": "0"}, {"a/x": None, "a": "a file"}, {"a/y": "1"}, "a"),
        ({}, {os.fsdecode(b"\xff\n"): "1"}, {os.fsdecode(b"\xff\n"): "2"}, "\\udcff\\n"),
    ],
)
def test_what_does_not_go_together_is_named(tmp_path: Path, base: Files, one: Files, two: Files, named: str) -> None:
    stages = Stages(tmp_path, {"other": "0", **base})
    error = stages.conflict(stages.left(one), stages.left({**two, "unrelated": "1"}))
    assert error.message.endswith(f"in different ways: {named}")
    assert "need the other" in error.hint


def test_very_long_texts_are_not_merged_by_lines(tmp_path: Path) -> None:
    long = LINES + "x" * 100 + "\n" + "y" * (2 * 1024**2)
    stages = Stages(tmp_path, {"a": long})
    one, two = stages.left({"a": f"first\n{long}"}), stages.left({"a": f"{long}\nlast"})
    assert stages.conflict(one, two).message.endswith("in different ways: a")


def test_many_conflicts_are_counted(tmp_path: Path) -> None:
    stages = Stages(tmp_path, {})
    error = stages.conflict(*(stages.left({f"{name:02}": word for name in range(30)}) for word in ("1", "2")))
    assert error.message.endswith("00, 01, 02, 03, 04, 05, 06, 07, 08, 09 and 20 more")
