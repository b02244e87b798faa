from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from codeloupe.system.directories import remove_abandoned, temporary_directory
from tests.rows import each
from tests.stage_workspaces import make_deep

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


def end(maker: subprocess.Popen[str]) -> int:
    with maker:
        maker.kill()
    return maker.returncode


def test_it_is_empty_for_this_user_alone_and_gone_afterwards() -> None:
    with temporary_directory() as directory:
        assert names_in(directory) == []
        assert [folder.stat().st_mode & 0o777 for folder in (directory, directory.parent)] == [0o700, 0o700]
        (directory / "file").write_text("x")
    assert names_in(place()) == []


def test_it_is_gone_after_an_error_whatever_was_left_in_it() -> None:
    with pytest.raises(KeyboardInterrupt), temporary_directory() as directory:  # noqa: PT012 - the block is the case
        make_deep(directory, 1_050, name="deep")
        raise KeyboardInterrupt
    assert names_in(place()) == []


def test_what_a_killed_process_left_goes_with_the_next_run() -> None:
    maker, directory = start_maker()
    assert end(maker) == -signal.SIGKILL
    assert names_in(directory) == ["half"]
    again, other = start_maker()
    try:
        assert not directory.parent.exists()
        assert names_in(other) == ["half"]
    finally:
        again.communicate()
    assert names_in(place()) == []


def test_a_directory_in_which_somebody_works_stays() -> None:
    maker, directory = start_maker()
    try:
        remove_abandoned(place())
        assert names_in(directory) == ["half"]
    finally:
        maker.communicate()
    assert maker.returncode == 0


@each("owner", [None, "", "somebody else's words\n", "link", "pipe", "folder"])
def test_what_only_looks_like_ours_stays(tmp_path: Path, owner: str | None) -> None:
    theirs = tmp_path / "codeloupe-checkout"
    (theirs / "work").mkdir(parents=True)
    (theirs / "work" / "precious").write_text("gold")
    match owner:
        case None:
            pass
        case "link":
            maker, directory = start_maker()
            end(maker)
            (theirs / "owner").symlink_to(directory.parent / "owner")
        case "pipe":
            os.mkfifo(theirs / "owner")
        case "folder":
            (theirs / "owner").mkdir()
        case _:
            (theirs / "owner").write_text(owner)
    remove_abandoned(tmp_path)
    assert (theirs / "work" / "precious").read_text() == "gold"
    remove_abandoned(place())


def test_a_place_that_cannot_be_looked_at_is_left_alone(tmp_path: Path) -> None:
    remove_abandoned(tmp_path / "never")


def test_where_files_cannot_be_locked_it_is_made_and_never_taken_for_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int, _operation: int) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    with temporary_directory() as directory:
        monkeypatch.undo()
        remove_abandoned(directory.parent.parent)
        assert directory.exists()


KILLED = """
import os
from codeloupe.system.directories import temporary_directory
with temporary_directory() as directory:
    (directory / "half").write_text("done")
    print(directory.parent, flush=True)
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def abandoned(tmp_path: Path) -> Path:
    """A directory whose maker was killed."""
    place = tmp_path / "place"
    place.mkdir()
    told = subprocess.run(
        (sys.executable, "-c", KILLED), env={**os.environ, "TMPDIR": str(place)}, capture_output=True, check=False
    )
    return Path(os.fsdecode(told.stdout.strip()))


def test_a_copy_that_somebody_made_to_look_at_it_stays(abandoned: Path) -> None:
    copy = abandoned.with_name("codeloupe-to-look-at")
    shutil.copytree(abandoned, copy)
    remove_abandoned(abandoned.parent)
    assert not abandoned.exists()
    assert (copy / "work" / "half").read_text() == "done"


def test_one_that_somebody_renamed_to_keep_it_stays(abandoned: Path) -> None:
    kept = abandoned.rename(abandoned.with_name("codeloupe-kept"))
    remove_abandoned(kept.parent)
    assert (kept / "work" / "half").read_text() == "done"


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
    assert not directory.parent.exists()
