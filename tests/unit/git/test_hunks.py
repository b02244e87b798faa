"""Hunks that share lines, and parts of hunks: every line has one place and the right number."""

import pytest

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff import parse_diff
from codeloupe.git.hunks import stretches_of, without_repeated
from codeloupe.git.snapshot import apply_hunks
from codeloupe.model.change import Hunk
from tests.rows import each

_NAMES = b"--- a/x\n+++ b/x\n"
_FIRST = b"@@ -1,4 +1,5 @@\n a\n+b\n c\n d\n e\n"


def _parsed(*hunks: bytes) -> tuple[Hunk, ...]:
    (file,) = parse_diff(_NAMES + b"".join(hunks))
    return file.hunks


@pytest.mark.defect("N8")
@each(
    ("second", "expected"),
    [
        (b"@@ -3,3 +4,3 @@ f\n d\n e\n-f\n+g\n", Hunk(5, 1, 6, 1, b"-f\n+g\n", "f", 1, 1)),
        (b"@@ -4,2 +5,2 @@\n e\n-f\n+g\n", Hunk(5, 1, 6, 1, b"-f\n+g\n", "", 1, 1)),
        (b"@@ -2,4 +3,5 @@\n c\n d\n e\n f\n+g\n", Hunk(5, 1, 6, 2, b" f\n+g\n", "", 1, 0)),
        (b"@@ -4 +5,2 @@\n e\n+g\n", Hunk(4, 0, 6, 1, b"+g\n", "", 1, 0)),
        (b"@@ -4,2 +5 @@\n e\n-f\n", Hunk(5, 1, 5, 0, b"-f\n", "", 0, 1)),
        (b"@@ -5 +6 @@\n-f\n+g\n", Hunk(5, 1, 6, 1, b"-f\n+g\n", "", 1, 1)),
    ],
)
def test_a_hunk_loses_the_lines_that_the_one_before_shows(second: bytes, expected: Hunk) -> None:
    assert _parsed(_FIRST, second)[1] == expected


@pytest.mark.defect("N8")
def test_overlapping_hunks_apply_to_the_old_content() -> None:
    second = b"@@ -3,4 +4,4 @@\n d\n e\n-f\n+g\n h\n"
    third = b"@@ -6,2 +7,3 @@\n h\n i\n+j\n"
    (file,) = parse_diff(_NAMES + _FIRST + second + third)
    assert (file.added, file.deleted) == (3, 1)
    assert file.added_line_numbers() == {2, 6, 9}
    assert apply_hunks(b"a\nc\nd\ne\nf\nh\ni\n", file) == b"a\nb\nc\nd\ne\ng\nh\ni\nj\n"


def test_an_empty_line_that_lost_its_space_is_the_same_line() -> None:
    first = b"@@ -1,2 +1,3 @@\n+a\n \n b\n"
    assert _parsed(first, b"@@ -1,3 +2,4 @@\n\n b\n c\n+d\n")[1] == Hunk(3, 1, 4, 2, b" c\n+d\n", "", 1, 0)


@each(
    "second",
    [
        b"@@ -4,2 +5,2 @@\n x\n-f\n+g\n",  # other text
        b"@@ -4,2 +5,2 @@\n-e\n f\n+g\n",  # a shown line is changed
        b"@@ -1,5 +2,5 @@\n b\n c\n d\n e\n-f\n+g\n",  # an added line is shown as unchanged
        b"@@ -4,2 +6,2 @@\n e\n-f\n+g\n",  # the sides share different numbers of lines
        b"@@ -3,2 +4,2 @@\n d\n e\n",  # nothing is left
        b"@@ -1,4 +1,5 @@\n a\n+b\n c\n d\n e\n",  # the same hunk again
    ],
)
def test_hunks_that_contradict_each_other_are_refused(second: bytes) -> None:
    with pytest.raises(DiffSyntaxError, match="line 9: this hunk changes or contradicts"):
        _parsed(_FIRST, second)


def test_hunks_that_share_nothing_stay_as_they_are() -> None:
    first, second = _parsed(_FIRST, b"@@ -9,0 +11 @@\n+g\n")
    assert without_repeated(second, first) is second


def test_a_marker_of_a_missing_newline_stays_with_its_row() -> None:
    (hunk,) = _parsed(b"@@ -1,3 +1,2 @@\n a\n-b\n-c\n\\ No newline at end of file\n+d\n")
    assert list(stretches_of(hunk, [(0, 1), (2, 3), (4, 5)])) == [
        Hunk(1, 1, 1, 1, b" a\n", "", 0, 0),
        Hunk(3, 1, 1, 0, b"-c\n\\ No newline at end of file\n", "b", 0, 1),
        Hunk(3, 0, 2, 1, b"+d\n", "c", 1, 0),
    ]
