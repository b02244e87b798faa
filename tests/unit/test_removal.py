from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.system.directories import remove_tree
from tests.stage_workspaces import fill, held, make_deep, make_socket, run_bound


@pytest.mark.program
def test_a_tree_goes_with_its_links_and_nothing_outside(tmp_path: Path) -> None:
    outside = fill(tmp_path / "outside", {"precious": "gold", "folder/too": "silver"})
    place = fill(tmp_path / "place", {"a": "1", "b/c/d": "2"})
    (place / "b" / "link").symlink_to(outside / "folder")
    make_socket(place / "socket")
    remove_tree(place)
    assert not place.exists()
    assert held(outside) == {b"precious": (b"gold", False), b"folder/too": (b"silver", False)}


def test_a_tree_that_is_not_there_is_gone_already(tmp_path: Path) -> None:
    remove_tree(tmp_path / "never")


def test_a_tree_deeper_than_any_recursion_goes(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    make_deep(place, 1_050, name="deep")
    remove_tree(place)
    assert not place.exists()


@pytest.mark.program
def test_folders_that_even_their_owner_may_not_enter_go(tmp_path: Path) -> None:
    place = fill(tmp_path / "place", {"a/b/c/d": "1", "a/e/f": "2"})
    for folder in ("a/b/c", "a/b", "a/e", "a", "."):
        (place / folder).chmod(0o000)
    code = """
import sys
from pathlib import Path
from codeloupe.system.directories import remove_tree
remove_tree(Path(sys.argv[1]))
"""
    run_bound(code, place)
    assert not place.exists()


def test_a_link_in_the_place_of_the_tree_is_refused_and_what_it_names_stays(tmp_path: Path) -> None:
    outside = fill(tmp_path / "outside", {"precious": "gold"})
    outside.chmod(0o755)
    (tmp_path / "place").symlink_to(outside)
    with pytest.raises(OSError, match="place"):
        remove_tree(tmp_path / "place")
    assert outside.stat().st_mode & 0o777 == 0o755
    assert held(outside) == {b"precious": (b"gold", False)}
