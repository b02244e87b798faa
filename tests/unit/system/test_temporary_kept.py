"""What looks like a temporary directory of ours, and is somebody's to keep."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codeloupe.system.directories import remove_abandoned, temporary_directory

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
