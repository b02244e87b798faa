from __future__ import annotations

from typing import Any

import pytest

from codeloupe.forge.diff_places import DiffPlaces, Nowhere, Place, new_side
from codeloupe.model.publication import ChangedFile
from tests.publish_material import finding

TWO_HUNKS = "@@ -1,3 +1,4 @@\n a\n+b\n c\n d\n@@ -20,4 +21,3 @@ def f():\n x\n-y\n z\n w\n\\ No newline at end of file"


def test_the_lines_of_each_hunk_are_known() -> None:
    assert new_side(TWO_HUNKS) == ((1, 4), (21, 23))


@pytest.mark.parametrize(
    ("patch", "spans"),
    [
        ("@@ -0,0 +1 @@\n+only", ((1, 1),)),
        ("@@ -1 +0,0 @@\n-gone", ()),
        ("@@ -1,2 +1,2 @@\n-@@ -1,9 +1,900 @@\n+@@ -5,9 +5,900 @@\n x", ((1, 2),)),
        ("", ()),
        ("no patch at all", ()),
        ("@@ nonsense @@", ()),
    ],
)
def test_only_the_header_of_a_hunk_counts(patch: str, spans: tuple[tuple[int, int], ...]) -> None:
    assert new_side(patch) == spans


PLACES = DiffPlaces(
    [ChangedFile("app.py", TWO_HUNKS), ChangedFile("image.png", None), ChangedFile("gone.py", "@@ -1 +0,0 @@\n-gone")]
)


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ((2, 2), Place("app.py", 2, 2, is_whole=True)),
        ((1, 4), Place("app.py", 1, 4, is_whole=True)),
        ((23, 23), Place("app.py", 23, 23, is_whole=True)),
        ((3, 9), Place("app.py", 3, 4, is_whole=False)),
        ((10, 22), Place("app.py", 21, 22, is_whole=False)),
        ((3, 22), Place("app.py", 3, 4, is_whole=False)),
        ((2, 1), Place("app.py", 2, 2, is_whole=True)),
    ],
)
def test_a_finding_stands_on_its_lines_within_one_hunk(lines: tuple[int, int], place: Place) -> None:
    assert PLACES.find(finding(lines[0], line_end=lines[1])) == place


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"line_start": 10, "line_end": 12}, "its lines are not"),
        ({"line_start": 900, "line_end": 900}, "its lines are not"),
        ({"file": "other.py"}, "its file is not"),
        ({"file": "image.png"}, "shows no diff"),
        ({"file": "gone.py"}, "its lines are not"),
        ({"anchored": False}, "no place"),
        ({"line_start": 0, "line_end": 0}, "no place"),
    ],
)
def test_one_outside_of_the_diff_has_no_place_and_says_why(changes: dict[str, Any], words: str) -> None:
    found = PLACES.find(finding(2, **changes))
    assert isinstance(found, Nowhere)
    assert words in found.reason
