"""Hunks and files of a change: line numbers, counts, names and modes."""

from typing import Any

from codeloupe.model.change import FileChange, FileStatus, Hunk
from tests.rows import each

NOTE = b"\\ No newline at end of file"
ODD = b"a\rb\x0cc\x85d\xe2\x80\xa8e\x00f\r"


def hunk(body: bytes, *, new_start: int = 20) -> Hunk:
    added, deleted, context = (sum(row[:1] == sign for row in body.split(b"\n")) for sign in (b"+", b"-", b" "))
    return Hunk(10, context + deleted, new_start, context + added, body, "", added, deleted)


def modified(**more: Any) -> FileChange:
    return FileChange("a", "a", FileStatus.MODIFIED, **more)


@each(
    ("body", "lines"),
    [
        (
            b" same\n-gone\n+new\n+newer\n same\n",
            [(10, 20, b"same"), (11, None, b"gone"), (None, 21, b"new"), (None, 22, b"newer"), (12, 23, b"same")],
        ),
        # Content that looks like a header, a line that begins with a backslash, and a blank that was stripped.
        (
            b"--- a/x\n+++ b/x\n-@@ -1 +1 @@\n",
            [(10, None, b"-- a/x"), (None, 20, b"++ b/x"), (11, None, b"@@ -1 +1 @@")],
        ),
        (b"+" + NOTE + b"\n", [(None, 20, NOTE)]),
        (b" a\n\n+b\n", [(10, 20, b"a"), (11, 21, b""), (None, 22, b"b")]),
        # Only a line feed ends a line.
        (b"+" + ODD + b"\n", [(None, 20, ODD)]),
        (b"", []),
    ],
)
def test_each_line_has_its_number_on_the_side_where_it_is(body: bytes, lines: list[tuple[object, ...]]) -> None:
    found = list(hunk(body).lines())
    assert [(line.old_number, line.new_number, line.text) for line in found] == lines
    assert all(line.ends_with_newline for line in found)


def test_a_missing_newline_is_a_flag_of_the_line_before_its_note() -> None:
    lines = hunk(b"-old\n" + NOTE + b"\n+new\n" + NOTE + b"\n").lines()
    assert [(line.text, line.ends_with_newline) for line in lines] == [(b"old", False), (b"new", False)]


def test_counts_and_added_lines_are_those_of_all_hunks() -> None:
    hunks = (hunk(b" x\n+a\n-b\n+c\n", new_start=1), hunk(b"-d\n"), hunk(b"+e\n", new_start=90))
    file = modified(hunks=hunks)
    assert (file.added, file.deleted) == (3, 2)
    assert file.added_line_numbers() == {2, 3, 90}


def test_names_and_modes() -> None:
    for old, new, path in (("a", "b", "b"), (None, "b", "b"), ("a", None, "a"), (None, None, "")):
        assert FileChange(old, new, FileStatus.MODIFIED).path == path
    modes = [("100644", "120000"), ("120000", "100644"), ("120000", None), (None, "160000"), ("160000", "100644")]
    files = [modified(old_mode=old, new_mode=new) for old, new in (*modes, (None, None))]
    assert [file.is_symlink for file in files] == [True, False, True, False, False, False]
    assert [file.is_submodule for file in files] == [False, False, False, True, True, False]
