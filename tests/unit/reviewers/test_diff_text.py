import pytest

from codeloupe.model.change import FileChange, FileStatus, Hunk, UnitPart
from codeloupe.planning.units import MAX_LINE_BYTES
from codeloupe.reviewers.diff_text import light_diff, shown_line
from tests.unit.reviewers.prompt_samples import file_from, modified

ONE_LINE = (Hunk(0, 0, 1, 1, b"+x\n"),)


def light(*files: FileChange) -> str:
    text, _ = light_diff(UnitPart(file, file.hunks) for file in files)
    return text


def test_a_diff_has_a_header_per_file_and_hunk() -> None:
    file = file_from(
        "diff --git a/a.py b/a.py\nindex 1111111..2222222 100644\n--- a/a.py\n+++ b/a.py\n"
        "@@ -1,3 +1,3 @@ def f():\n one\n-two\n+TWO\n three\n"
    )
    assert light(file) == "=== a.py\n@@ -1,3 +1,3 @@ def f():\n one\n-two\n+TWO\n three"
    both = light(modified("+x\n", path="a.py"), modified("+y\n", path="b.py"))
    assert both == "=== a.py\n@@ -1,0 +1,1 @@\n+x\n=== b.py\n@@ -1,0 +1,1 @@\n+y"


def test_every_tenth_line_of_the_new_file_has_its_number() -> None:
    rows = light(modified("+x\n" * 24, start=8)).split("\n")
    # Line 10 is too near to the header, which says 8.
    assert [row for row in rows if row.startswith(":")] == [":20", ":30"]
    first = rows.index("@@ -8,0 +8,24 @@") + 1
    assert rows.index(":20") - first == 20 - 8


@pytest.mark.parametrize(
    ("file", "header"),
    [
        (FileChange(None, "a", FileStatus.ADDED, None, "100644", hunks=ONE_LINE), "a (added)"),
        (FileChange("a", None, FileStatus.DELETED, "100644", hunks=(Hunk(1, 1, 0, 0, b"-x\n"),)), "a (deleted)"),
        (FileChange("a", "b", FileStatus.RENAMED), "b (renamed from a; content not changed)"),
        (FileChange("a", "b", FileStatus.COPIED, hunks=ONE_LINE), "b (copied from a)"),
        (
            FileChange("a", "a", FileStatus.MODIFIED, "100644", "100755"),
            "a (mode 100644 to 100755; content not changed)",
        ),
        (
            FileChange("a", "a", FileStatus.TYPE_CHANGED, "100644", "120000", hunks=ONE_LINE),
            "a (type changed; mode 100644 to 120000; symbolic link)",
        ),
        (FileChange("a", "a", FileStatus.MODIFIED, binary=True), "a (content not shown)"),
        (
            FileChange("a\n+evil", "b\n=== c\udcff\u202e", FileStatus.RENAMED),
            "b<U+000A>=== c<0xFF><U+202E> (renamed from a<U+000A>+evil; content not changed)",
        ),
    ],
)
def test_the_header_of_a_file_says_what_happened_to_it(file: FileChange, header: str) -> None:
    assert light(file).split("\n")[0] == f"=== {header}"


def test_the_header_names_lines_that_another_unit_reviews() -> None:
    file = modified("+a\n+b\n")
    text, _ = light_diff([UnitPart(file, file.hunks, repeated_rows=1)])
    assert text.startswith("=== src/a.py (the first 1 lines are reviewed elsewhere)\n")


@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("-x\n\\ No newline at end of file\n+x\n", "\n-x\n\\ no newline at the end\n+x"),
        (" a\r\n-b\r\n+c\r\n", "=== src/a.py (lines end with CR LF)\n@@ -1,2 +1,2 @@\n a\n-b\n+c"),
        ("-a\n+a\r\n", "\n-a\n+a<U+000D>"),
        ("+if admin\u202e: # \u2066\n", "\n+if admin<U+202E>: # <U+2066>"),
        (b"+caf\xe9 \x00\n", "\n+caf<0xE9> <U+0000>"),
    ],
)
def test_line_ends_hidden_characters_and_other_bytes_are_visible(body: str | bytes, ending: str) -> None:
    assert light(modified(body)).endswith(ending)


def test_the_header_explains_hidden_characters() -> None:
    header = light(modified("+\u202e\n")).split("\n")[0]
    assert header == "=== src/a.py (hidden characters shown as <U+code>, other bytes as <0xcode>)"


def test_a_very_long_line_is_cut_with_a_note() -> None:
    file = modified("+" + "x" * (MAX_LINE_BYTES + 1_234) + "\n+short\n")
    text, notes = light_diff([UnitPart(file, file.hunks)])
    assert "x [cut: 1,234 more bytes]\n+short" in text
    assert len(text) < MAX_LINE_BYTES + 200
    assert notes == ["src/a.py: 1 line(s) longer than 8,000 bytes were sent truncated"]
    assert shown_line(b"x" * MAX_LINE_BYTES) == "x" * MAX_LINE_BYTES
