from __future__ import annotations

from typing import Any

from codeloupe.forges.comments import DiffPlaces, Place, hunks_of
from codeloupe.model.publication import ChangedFile
from tests.publish_material import finding
from tests.rows import each

TWO_HUNKS = "@@ -1,3 +1,4 @@\n a\n+b\n c\n d\n@@ -20,4 +21,3 @@ def f():\n x\n-y\n z\n w\n\\ No newline at end of file"


def spans_of(patch: str) -> tuple[tuple[int, int], ...]:
    return tuple((hunk.first, hunk.last) for hunk in hunks_of(patch))


def test_the_lines_of_each_hunk_are_known() -> None:
    assert spans_of(TWO_HUNKS) == ((1, 4), (21, 23))


@each(
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
    assert spans_of(patch) == spans


PLACES = DiffPlaces(
    [ChangedFile("app.py", TWO_HUNKS), ChangedFile("image.png", None), ChangedFile("gone.py", "@@ -1 +0,0 @@\n-gone")]
)


@each(
    ("lines", "place"),
    [
        ((2, 2), Place("app.py", 2, 2, takes_edit=True)),
        ((1, 4), Place("app.py", 1, 4, takes_edit=True)),
        ((23, 23), Place("app.py", 23, 23, takes_edit=True)),
        ((3, 9), Place("app.py", 3, 4, takes_edit=False)),
        ((10, 22), Place("app.py", 21, 22, takes_edit=False)),
        ((3, 22), Place("app.py", 3, 4, takes_edit=False)),
        # Between lines 21 and 22 one is deleted.
        ((21, 22), Place("app.py", 21, 22, takes_edit=False)),
        ((22, 23), Place("app.py", 22, 23, takes_edit=True)),
        ((21, 21), Place("app.py", 21, 21, takes_edit=True)),
        ((2, 1), Place("app.py", 2, 2, takes_edit=True)),
    ],
)
def test_a_finding_stands_on_its_lines_within_one_hunk(lines: tuple[int, int], place: Place) -> None:
    assert PLACES.find(finding(lines[0], line_end=lines[1])) == place


@each(
    ("rows", "lines"),
    [
        (["-a", "-b", "+A", "+B", " c"], ()),
        ([" a", "-b", "+B", " c"], (2,)),
        ([" a", "-b", "\\ No newline at end of file", "+B"], (2,)),
        (["+A", "-b", "-c", " d", "-e", "+E\r"], (2, 3)),
        (["+a", "", "-b"], ()),
    ],
)
def test_the_lines_below_deleted_ones_are_known(rows: list[str], lines: tuple[int, ...]) -> None:
    old = sum(row[:1] in ("-", " ", "") for row in rows)
    new = sum(row[:1] in ("+", " ", "") for row in rows)
    [hunk] = hunks_of("\n".join([f"@@ -1,{old} +1,{new} @@", *rows]))
    assert tuple(line for line in hunk.below_deleted if line > 1) == lines


@each(
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
    assert isinstance(found, str)
    assert words in found
