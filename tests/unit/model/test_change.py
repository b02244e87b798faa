"""Hunks and files of a change: line numbers, counts, names and modes."""

from __future__ import annotations

from codeloupe.model.change import DiffLine, FileChange, FileStatus, Hunk
from tests.rows import each


def hunk(body: bytes, *, old_start: int = 10, new_start: int = 20) -> Hunk:
    rows = [row for row in body.split(b"\n") if row]
    added = sum(row.startswith(b"+") for row in rows)
    deleted = sum(row.startswith(b"-") for row in rows)
    context = sum(row.startswith(b" ") for row in rows)
    return Hunk(old_start, context + deleted, new_start, context + added, body, "", added, deleted)


class TestHunkLines:
    def test_each_line_has_its_number_on_the_side_where_it_is(self) -> None:
        lines = list(hunk(b" same\n-gone\n+new\n+newer\n same\n").lines())
        assert [(line.kind, line.old_number, line.new_number, line.text) for line in lines] == [
            ("context", 10, 20, b"same"),
            ("deleted", 11, None, b"gone"),
            ("added", None, 21, b"new"),
            ("added", None, 22, b"newer"),
            ("context", 12, 23, b"same"),
        ]

    def test_a_missing_newline_is_a_flag_of_the_line_before_its_note(self) -> None:
        body = b"-old\n\\ No newline at end of file\n+new\n\\ No newline at end of file\n"
        assert [(line.text, line.ends_with_newline) for line in hunk(body).lines()] == [
            (b"old", False),
            (b"new", False),
        ]

    def test_a_line_that_itself_starts_with_a_backslash_is_a_line(self) -> None:
        lines = list(hunk(b"+\\ No newline at end of file\n+b\n").lines())
        assert [(line.text, line.ends_with_newline) for line in lines] == [
            (b"\\ No newline at end of file", True),
            (b"b", True),
        ]

    def test_only_a_line_feed_ends_a_line(self) -> None:
        text = b"a\rb\x0cc\x85d\xe2\x80\xa8e\x00f\r"
        assert [line.text for line in hunk(b"+" + text + b"\n").lines()] == [text]

    def test_content_that_looks_like_a_header_is_content(self) -> None:
        lines = list(hunk(b"--- a/x\n+++ b/x\n-@@ -1 +1 @@\n").lines())
        assert [(line.kind, line.text) for line in lines] == [
            ("deleted", b"-- a/x"),
            ("added", b"++ b/x"),
            ("deleted", b"@@ -1 +1 @@"),
        ]

    def test_a_context_line_whose_blank_was_stripped_is_an_empty_line(self) -> None:
        lines = list(hunk(b" a\n\n+b\n").lines())
        assert lines[1] == DiffLine("context", 11, 21, b"")
        assert lines[2].new_number == 22

    def test_an_empty_body_has_no_lines(self) -> None:
        assert list(hunk(b"").lines()) == []


class TestFileChange:
    def test_counts_are_the_sums_over_its_hunks(self) -> None:
        file = FileChange("a", "a", FileStatus.MODIFIED, hunks=(hunk(b"+x\n-y\n"), hunk(b"+z\n")))
        assert (file.added, file.deleted) == (2, 1)

    def test_added_line_numbers_are_those_of_the_new_file(self) -> None:
        hunks = (hunk(b" x\n+a\n-b\n+c\n", new_start=1), hunk(b"-d\n"), hunk(b"+e\n", new_start=90))
        assert FileChange("a", "a", FileStatus.MODIFIED, hunks=hunks).added_line_numbers() == {2, 3, 90}

    @each(("old", "new", "path"), [("a", "b", "b"), (None, "b", "b"), ("a", None, "a"), (None, None, "")])
    def test_it_is_known_by_its_new_name_or_else_its_old_one(self, old: str | None, new: str | None, path: str) -> None:
        assert FileChange(old, new, FileStatus.MODIFIED).path == path

    @each(
        ("old_mode", "new_mode", "is_symlink", "is_submodule"),
        [
            ("100644", "100644", False, False),
            ("100644", "120000", True, False),
            ("120000", "100644", False, False),
            ("120000", None, True, False),
            (None, "160000", False, True),
            ("160000", None, False, True),
            ("160000", "100644", False, True),
            (None, None, False, False),
        ],
    )
    def test_modes_tell_links_and_submodules(
        self, old_mode: str | None, new_mode: str | None, is_symlink: bool, is_submodule: bool
    ) -> None:
        file = FileChange("a", "a", FileStatus.MODIFIED, old_mode=old_mode, new_mode=new_mode)
        assert (file.is_symlink, file.is_submodule) == (is_symlink, is_submodule)
