"""Directories for the time of one piece of work, and the removal of trees, whatever is in them."""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path

import pytest

from codeloupe.errors import UsageError
from codeloupe.system import directories
from codeloupe.system.directories import (
    locked_folder,
    numbered_folder,
    remove_abandoned,
    remove_tree,
    temporary_directory,
    temporary_folder,
)
from tests.rows import each
from tests.stage_workspaces import fill, held, make_deep, make_socket, run_bound

pytestmark = pytest.mark.program

MAKER = """
import sys
from codeloupe.system.directories import temporary_directory
with temporary_directory() as directory:
    (directory / "half").write_text("done")
    print(directory, flush=True)
    sys.stdin.read()
"""


def place() -> Path:
    return Path(tempfile.gettempdir())


def names_in(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def start_maker() -> tuple[subprocess.Popen[str], Path]:
    """A process that has made a directory and works in it until its input ends."""
    maker = subprocess.Popen((sys.executable, "-c", MAKER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    return maker, Path(maker.stdout.readline().strip())


def abandoned() -> Path:
    """A directory whose maker was killed."""
    maker, directory = start_maker()
    with maker:
        maker.kill()
    assert names_in(directory) == ["half"]
    return directory


def test_it_is_empty_for_this_user_alone_and_gone_afterwards_whatever_was_left_in_it() -> None:
    with temporary_directory() as directory:
        assert names_in(directory) == []
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "file").write_text("x")
    with pytest.raises(KeyboardInterrupt), temporary_directory() as directory:  # noqa: PT012 - the block is the case
        make_deep(directory, 1_050, name="deep")
        raise KeyboardInterrupt
    assert names_in(place()) == []


def test_a_folder_is_removed_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[tuple[str, bool]] = []

    def remove(directory: Path) -> None:
        removed.append((directory.name, threading.current_thread() is threading.main_thread()))
        remove_tree(directory)

    monkeypatch.setattr(directories, "remove_tree", remove)

    async def go() -> list[str]:
        async with temporary_folder() as folder:
            async with numbered_folder(folder) as inner, numbered_folder(folder) as other:
                (inner / "file").write_text("x")
                assert names_in(folder) == sorted([inner.name, other.name])
            return [other.name, inner.name, folder.name]

    names = asyncio.run(go())
    assert removed == [(name, False) for name in names]
    assert names_in(place()) == []


@each("failure", [ValueError, KeyboardInterrupt, asyncio.CancelledError])
def test_a_folder_is_removed_after_a_failure(failure: type[BaseException]) -> None:
    async def go() -> None:
        async with temporary_folder() as folder, numbered_folder(folder) as inner:
            (inner / "file").write_text("x")
            raise failure

    with pytest.raises(failure):
        asyncio.run(go())
    assert names_in(place()) == []


def test_a_folder_is_removed_if_its_maker_is_cancelled_at_any_moment() -> None:
    async def work() -> None:
        async with temporary_folder() as folder, numbered_folder(folder):
            for _ in range(3):
                await asyncio.sleep(0)

    async def go() -> None:
        for steps in range(12):
            task = asyncio.create_task(work())
            for _ in range(steps):
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert names_in(place()) == []

    asyncio.run(go())


def test_what_a_killed_process_left_goes_with_the_next_run_and_what_somebody_works_in_stays() -> None:
    left = abandoned()
    maker, directory = start_maker()
    try:
        assert not left.exists()
        remove_abandoned(place())
        assert names_in(directory) == ["half"]
    finally:
        maker.communicate()
    assert maker.returncode == 0
    assert names_in(place()) == []


def test_what_only_looks_like_ours_stays(tmp_path: Path) -> None:
    for name in ("codeloupe-checkout", "codeloupe-new-half", "x-codeloupe-temporary-half"):
        fill(tmp_path / name, {"half": "done"})
    (tmp_path / "codeloupe-temporary-link").symlink_to(tmp_path / "codeloupe-checkout")
    (tmp_path / "codeloupe-temporary-file").touch()
    (tmp_path / "codeloupe-new-empty").mkdir()
    os.utime(tmp_path / "codeloupe-new-half", (1, 1))
    before = names_in(tmp_path), held(tmp_path)
    remove_abandoned(tmp_path)
    remove_abandoned(tmp_path / "never")
    assert (names_in(tmp_path), held(tmp_path)) == before
    # One whose maker was killed before it was locked.
    os.utime(tmp_path / "codeloupe-new-empty", (1, 1))
    remove_abandoned(tmp_path)
    assert set(before[0]) - set(names_in(tmp_path)) == {"codeloupe-new-empty"}


def test_where_files_cannot_be_locked_it_is_made_and_never_taken_for_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int, _operation: int) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    with temporary_directory() as directory:
        monkeypatch.undo()
        remove_abandoned(directory.parent)
        assert directory.exists()


def test_a_process_that_is_forked_off_leaves_the_directory_to_its_maker() -> None:
    maker = os.getpid()
    try:
        with temporary_directory() as directory:
            (directory / "half").write_text("done")
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                assert (directory / "half").read_text() == "done"
    finally:
        if os.getpid() != maker:
            os._exit(0)
    assert not directory.exists()


def test_a_tree_goes_with_its_links_and_nothing_outside(tmp_path: Path) -> None:
    outside = fill(tmp_path / "outside", {"precious": "gold"})
    outside.chmod(0o755)
    tree = fill(tmp_path / "tree", {"a": "1", "b/c/d": "2"})
    (tree / "b" / "link").symlink_to(outside)
    make_socket(tree / "socket")
    make_deep(tree, 1_050, name="deep")
    remove_tree(tree)
    remove_tree(tree)
    assert not tree.exists()
    tree.symlink_to(outside)
    with pytest.raises(OSError, match="tree"):
        remove_tree(tree)
    assert outside.stat().st_mode & 0o777 == 0o755
    assert held(outside) == {b"precious": (b"gold", False)}


def test_folders_that_even_their_owner_may_not_enter_go(tmp_path: Path) -> None:
    tree = fill(tmp_path / "tree", {"a/b/c/d": "1", "a/e/f": "2"})
    for folder in ("a/b/c", "a/b", "a/e", "a", "."):
        (tree / folder).chmod(0o000)
    code = "import sys\nfrom pathlib import Path\nfrom codeloupe.system.directories import remove_tree\n"
    run_bound(f"{code}remove_tree(Path(sys.argv[1]))\n", tree)
    assert not tree.exists()


def test_a_lock_on_a_directory_is_shared_or_had_alone_and_not_had_where_it_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shared = partial(locked_folder, folder, shared=True)
    with shared() as one, shared() as other, locked_folder(folder) as alone:
        assert (one, other, alone) == (True, True, False)
    with locked_folder(folder) as alone, shared() as other:
        assert (alone, other) == (True, False)
    with locked_folder(tmp_path / "nowhere") as alone:
        assert not alone

    def locked_too_late(_descriptor: int, *, shared: bool) -> bool:
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        return True

    monkeypatch.setattr(directories, "try_lock", locked_too_late)
    with locked_folder(folder) as alone:
        assert not alone
    (tmp_path / "moved").rmdir()


def test_it_can_be_made_elsewhere_and_says_where_it_cannot(tmp_path: Path) -> None:
    with temporary_directory(tmp_path) as directory:
        assert directory.parent == tmp_path
    assert names_in(tmp_path) == []
    with (
        pytest.raises(UsageError, match=f"in {tmp_path}/nowhere: ") as caught,
        temporary_directory(tmp_path / "nowhere"),
    ):
        pass
    assert "TMPDIR" not in caught.value.hint
