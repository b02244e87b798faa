from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from codeloupe.git.workspace_removal import make_empty
from tests.stage_workspaces import fill, held, make_deep, make_socket, run_bound


def test_a_directory_that_is_not_there_is_made_for_this_user_alone(tmp_path: Path) -> None:
    asyncio.run(make_empty(tmp_path / "a" / "b" / "c"))
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


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
    asyncio.run(make_empty(place))
    assert list(place.iterdir()) == []
    assert held(outside) == {b"precious": (b"gold", False), b"folder/too": (b"silver", False)}


def test_folders_that_even_their_owner_may_not_enter_go_too(tmp_path: Path) -> None:
    place = fill(tmp_path / "place", {"a/b/c/d": "1", "a/e/f": "2"})
    for folder in ("a/b/c", "a/b", "a/e", "a", "."):
        (place / folder).chmod(0o000)
    code = """
import asyncio, sys
from pathlib import Path
from codeloupe.git.workspace_removal import make_empty
asyncio.run(make_empty(Path(sys.argv[1])))
"""
    run_bound(code, place)
    assert list(place.iterdir()) == []


def test_folders_deeper_than_any_recursion_go_too(tmp_path: Path) -> None:
    # Python gives up at a thousand levels, and the system to be told a path at four thousand bytes.
    make_deep(tmp_path, 1_050, name="deep")
    asyncio.run(make_empty(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_what_stands_in_the_place_of_the_directory_goes(tmp_path: Path, kind: str) -> None:
    outside = fill(tmp_path / "outside", {"precious": "gold"})
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("1")
    elif kind == "link":
        place.symlink_to(outside)
    else:
        os.mkfifo(place)
    asyncio.run(make_empty(place))
    assert place.is_dir()
    assert not place.is_symlink()
    assert held(outside) == {b"precious": (b"gold", False)}


def test_names_of_any_bytes_go(tmp_path: Path) -> None:
    for name in (b"\xff", b"a\nb", b"-rf", b"..x"):
        (tmp_path / os.fsdecode(name)).mkdir()
        (tmp_path / os.fsdecode(name) / os.fsdecode(name)).write_text("1")
    asyncio.run(make_empty(tmp_path))
    assert list(tmp_path.iterdir()) == []
