"""Whatever ends a process in the middle of its work, the next one goes on with the same store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path

import pytest

from codeloupe.errors import WorkspaceError
from codeloupe.git import workspaces
from codeloupe.git.workspaces import GitWorkspaceStore, _remove_all_but
from codeloupe.system.process import Completed
from tests.endings import comes_to_pass
from tests.stage_workspaces import fill, held, make_socket

# Keeps and fills a workspace for ever; says when it has begun.
WORKER = """
import asyncio, sys
from pathlib import Path
from codeloupe.git.workspaces import GitWorkspaceStore

async def main():
    top = Path(sys.argv[1])
    store = GitWorkspaceStore(top / "store.git", source=None)
    first = (await store.keep(top / "first")).tree
    print(first, flush=True)
    number = 0
    while True:
        number += 1
        await store.put(first, top / "work")
        for name in range(40):
            (top / "work" / f"new{name}").write_text(f"{number} {name} " * 200)
        await store.keep(top / "work")

asyncio.run(main())
"""


def works_in(directory: Path) -> bool:
    """Whether a process has the directory among its words or variables; a git call outlives who began it by a bit."""
    name = os.fsencode(directory)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone, or another user's
            if name in (process / "cmdline").read_bytes() or name in (process / "environ").read_bytes():
                return True
    return False


def test_a_process_that_is_killed_at_any_moment_leaves_a_store_that_works(tmp_path: Path) -> None:
    first = fill(tmp_path / "first", {f"folder{number % 7}/{number}": f"{number}\n" * 50 for number in range(60)})
    chance = random.Random(7)
    for _ in range(3):
        # What it was killed too early to remove is the next one's to remove, and no business of other tests.
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        words = (sys.executable, "-c", WORKER, str(tmp_path))
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as worker:
            assert worker.stdout is not None
            tree = worker.stdout.readline().decode().strip()
            time.sleep(chance.uniform(0.0, 0.15))
            os.kill(worker.pid, signal.SIGKILL)
        assert comes_to_pass(lambda: not works_in(tmp_path))
        store = GitWorkspaceStore(tmp_path / "store.git", source=None)
        asyncio.run(store.put(tree, tmp_path / "work"))
        assert held(tmp_path / "work") == held(first)
        fill(tmp_path / "work", {"more": "1"})
        kept = asyncio.run(store.keep(tmp_path / "work"))
        assert asyncio.run(store.changed(tree, kept.tree)) == ("more",)


def test_a_store_that_was_only_begun_is_completed(tmp_path: Path, subtests: pytest.Subtests) -> None:
    rows: list[str] = ["HEAD", "config", "info/attributes", "objects/info", "looks"]
    for number, missing in enumerate(rows):
        place = tmp_path / f"{number}"
        place.mkdir()
        with subtests.test(missing=missing):
            work = fill(place / "work", {"a": "1"})
            tree = asyncio.run(GitWorkspaceStore(place / "store.git", source=None).keep(work)).tree
            part = place / "store.git" / missing
            if part.is_dir():
                for file in part.iterdir():
                    file.unlink()
                part.rmdir()
            else:
                part.unlink()
            asyncio.run(GitWorkspaceStore(place / "store.git", source=None).put(tree, place / "other"))
            assert held(place / "other") == held(work)


def test_a_cancelled_put_is_done_again_by_the_next(tmp_path: Path) -> None:
    store = GitWorkspaceStore(tmp_path / "store.git", source=None)
    work = fill(tmp_path / "work", {f"{folder}/{number}": "x" for folder in range(20) for number in range(5)})
    tree = asyncio.run(store.keep(work)).tree

    async def cancelled_after(seconds: float) -> bool:
        filling = asyncio.create_task(store.put(tree, tmp_path / "other"))
        await asyncio.sleep(seconds)
        filling.cancel()
        await asyncio.wait((filling,))
        await store.put(tree, tmp_path / "other")
        return filling.cancelled()

    assert asyncio.run(cancelled_after(0.0))
    assert held(tmp_path / "other") == held(work)
    for seconds in (0.002, 0.006):  # by then it may have ended
        asyncio.run(cancelled_after(seconds))
        assert held(tmp_path / "other") == held(work)


def test_everything_goes_and_nothing_outside(tmp_path: Path) -> None:
    outside = fill(tmp_path / "outside", {"precious": "gold", "folder/too": "silver"})
    place = fill(tmp_path / "place", {"a": "1", "b/c/d/e": "2", "b/f": "3"})
    (place / "b" / "link").symlink_to(outside / "folder")
    (place / "file-link").symlink_to(outside / "precious")
    os.link(outside / "precious", place / "hard-link")
    os.mkfifo(place / "b" / "c" / "pipe")
    make_socket(place / "socket")
    for folder in ("b/c/d", "b/c", "b"):
        (place / folder).chmod(0o000)
    place.chmod(0o500)
    _remove_all_but(place, {})
    assert list(place.iterdir()) == []
    assert held(outside) == {b"precious": (b"gold", False), b"folder/too": (b"silver", False)}


def test_what_stands_in_the_place_of_the_directory_goes(tmp_path: Path, subtests: pytest.Subtests) -> None:
    rows: list[str] = ["file", "link", "pipe"]
    for number, kind in enumerate(rows):
        place = tmp_path / f"{number}"
        place.mkdir()
        with subtests.test(kind=kind):
            outside = fill(place / "outside", {"precious": "gold"})
            place = place / "place"
            if kind == "file":
                place.write_text("1")
            elif kind == "link":
                place.symlink_to(outside)
            else:
                os.mkfifo(place)
            _remove_all_but(place, {})
            assert place.is_dir()
            assert not place.is_symlink()
            assert held(outside) == {b"precious": (b"gold", False)}


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
        (merged,) = {self._joined(order) for order in permutations(trees)}
        asyncio.run(self.store.put(merged, self._directory / "merged"))
        return held(self._directory / "merged")

    def _joined(self, trees: Sequence[str]) -> str:
        joined = self.base
        for tree in trees:
            joined = asyncio.run(self.store.joined(self.base, joined, tree))
        return joined

    def conflict(self, *trees: str) -> WorkspaceError:
        with pytest.raises(WorkspaceError) as caught:
            self._joined(trees)
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


def test_one_tree_or_none_is_itself(tmp_path: Path) -> None:
    stages = Stages(tmp_path, {"a": "0"})
    one = stages.left({"a": "1"})
    pairs = ((stages.base, stages.base), (one, stages.base), (stages.base, one), (one, one))
    joined = [asyncio.run(stages.store.joined(stages.base, *pair)) for pair in pairs]
    assert joined == [stages.base, one, one, one]


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


def test_what_does_not_go_together_is_named(tmp_path: Path, subtests: pytest.Subtests) -> None:
    rows: list[tuple[Files, Files, Files, str]] = [
        ({"a": "0"}, {"a": "1"}, {"a": "2"}, "a"),
        ({"a": "0"}, {"a": "1"}, {"a": None}, "a"),
        ({}, {"new.md": "1"}, {"new.md": "2"}, "new.md"),
        ({"a": b"\0" + LINES.encode()}, {"a": b"\0\0"}, {"a": b"\0\1"}, "a"),
        ({}, {"a": "a file"}, {"a/b": "in a folder"}, "a"),
        ({"a/x": "0"}, {"a/x": None, "a": "a file"}, {"a/y": "1"}, "a"),
        ({}, {os.fsdecode(b"\xff\n"): "1"}, {os.fsdecode(b"\xff\n"): "2"}, "\\udcff\\n"),
    ]
    for number, (base, one, two, named) in enumerate(rows):
        place = tmp_path / f"{number}"
        place.mkdir()
        with subtests.test(base=base, one=one):
            stages = Stages(place, {"other": "0", **base})
            error = stages.conflict(stages.left(one), stages.left({**two, "unrelated": "1"}))
            assert error.message.endswith(f"in different ways: {named}")
            assert "need the other" in error.hint


def test_a_git_that_cannot_join_says_which_one_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = Stages(tmp_path, {"a": "0"})
    one, two = stages.left({"a": "1"}), stages.left({"b": "2"})

    async def old_git(_place: object, *_words: str, stdin: bytes = b"") -> Completed:
        return Completed(exit_code=129, stdout=b"", stderr="usage: git merge-tree", seconds=0.0)

    monkeypatch.setattr(workspaces, "try_git", old_git)
    error = stages.conflict(one, two)
    assert error.message == "this git cannot join the work of parallel stages"
    assert "git 2.38 or newer" in error.hint


def test_many_conflicts_are_counted(tmp_path: Path) -> None:
    stages = Stages(tmp_path, {})
    error = stages.conflict(*(stages.left({f"{name:02}": word for name in range(30)}) for word in ("1", "2")))
    assert error.message.endswith("00, 01, 02, 03, 04, 05, 06, 07, 08, 09 and 20 more")
