"""Which code of a change agents have covered already."""

import random

import pytest
from msgspec.structs import replace

from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.planning.coverage import names_of, uncovered

HUNK = Hunk(1, 1, 1, 2, b" a\n+b\n", section="def f", added=1)
FILE = FileChange("a.py", "a.py", FileStatus.MODIFIED, "100644", "100644", hunks=(HUNK,))


def test_a_hunk_is_known_wherever_it_is_but_not_with_another_file_mode_section_or_line() -> None:
    moved = replace(FILE, hunks=(replace(HUNK, old_start=90, new_start=95),))
    assert uncovered([moved], names_of([FILE])) == ()
    others = [
        replace(FILE, old_path="b.py", new_path="b.py"),
        replace(FILE, new_mode="100755"),
        replace(FILE, old_path="was.py", status=FileStatus.RENAMED),
        replace(FILE, hunks=(replace(HUNK, section="def g"),)),
        replace(FILE, hunks=(replace(HUNK, body=b" a\n+c\n"),)),
    ]
    assert uncovered(others, names_of([FILE])) == tuple(others)
    # The same hunk again is not known by the first.
    again = replace(HUNK, old_start=50, new_start=51)
    [left] = uncovered([replace(FILE, hunks=(HUNK, again))], names_of([FILE]))
    assert left.hunks == (again,)


def _numbered(file: FileChange) -> set[tuple[str, int | None, int | None, bytes]]:
    return {(line.kind, line.old_number, line.new_number, line.text) for hunk in file.hunks for line in hunk.lines()}


@pytest.mark.defect("V1")
def test_of_a_long_hunk_the_parts_with_new_lines_are_left_with_the_right_numbers() -> None:
    chance = random.Random(7)
    failures: list[object] = []
    for case in range(300):
        rows = [
            chance.choice((b" ", b"+", b"+", b"-"))
            + chance.choice((b"", b"def f():", b"    x = %d" % chance.randrange(9)))
            for _ in range(chance.randrange(1, 160))
        ]
        before = _file_of(rows, ended=case % 3 > 0)
        changed = list(rows)
        places = [chance.randrange(len(rows)) for _ in range(chance.randrange(1, 3))]
        for place in places:
            changed[place] = rows[place][:1] + b"    new_%d = 1" % place
        now = _file_of(changed, ended=case % 3 > 0)
        left = uncovered([now], names_of([before]))
        shown = _numbered(left[0]) if left else set()
        if any(not any(b"new_%d " % place in line[3] for line in shown) for place in places):
            failures.append((case, "a new line is not shown"))
        if shown - _numbered(now):
            failures.append((case, "a line has another number"))
        # A stretch of at most 24 rows, its two neighbours, and a few rows around them.
        if len(shown) > 80 * len(places):
            failures.append((case, f"{len(shown)} of {len(rows)} rows are asked about again"))
    assert failures == []


def _file_of(rows: list[bytes], *, ended: bool) -> FileChange:
    """A file with one hunk of some rows; without an end its last row has git's marker behind it."""
    body = b"\n".join(rows) + (b"\n" if ended else b"\n\\ No newline at end of file\n")
    old, new = (sum(row[:1] in signs for row in rows) for signs in ((b" ", b"-"), (b" ", b"+")))
    hunk = Hunk(5 - (not old), old, 7 - (not new), new, body, added=sum(row[:1] == b"+" for row in rows))
    return FileChange("a.py", "a.py", FileStatus.MODIFIED, "100644", "100644", hunks=(hunk,))


@pytest.mark.defect("V1")
def test_lines_put_in_above_leave_the_rest_of_a_long_hunk_known() -> None:
    rows = [
        b"+def f_%d():" % (n // 7) if n % 7 == 0 else b"+" if n % 7 == 6 else b"+    x_%d = 1" % n for n in range(700)
    ]
    now = _file_of([b"+import os", b"+", *rows], ended=True)
    [left] = uncovered([now], names_of([_file_of(rows, ended=True)]))
    assert sum(hunk.new_lines for hunk in left.hunks) < 60
