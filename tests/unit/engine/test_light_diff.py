from __future__ import annotations

import pytest

from codeloupe.engine.prompt import MAX_LINE_BYTES, LightDiff, light_diff, shown_line
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.unit import UnitPart
from tests.unit.engine.prompt_samples import file_from, modified
from tests.unit.engine.samples import each_row


def _light(*files: FileChange) -> LightDiff:
    return light_diff(UnitPart(file, file.hunks) for file in files)


def test_a_change_is_shown_as_git_does_with_less_around_it() -> None:
    file = file_from(
        "diff --git a/a.py b/a.py\nindex 1111111..2222222 100644\n--- a/a.py\n+++ b/a.py\n"
        "@@ -1,3 +1,3 @@ def f():\n one\n-two\n+TWO\n three\n"
    )
    assert _light(file) == LightDiff("=== a.py\n@@ -1,3 +1,3 @@ def f():\n one\n-two\n+TWO\n three")


def test_files_follow_each_other() -> None:
    light = _light(modified("+x\n", path="a.py"), modified("+y\n", path="b.py"))
    assert light.text == "=== a.py\n@@ -1,0 +1,1 @@\n+x\n=== b.py\n@@ -1,0 +1,1 @@\n+y"


def test_every_tenth_line_of_the_new_file_has_its_number_before_it() -> None:
    body = (
        "".join(f" {number}\n" for number in range(7, 22)) + "-gone\n" * 9 + "".join(f"+{n}\n" for n in range(22, 32))
    )
    rows = _light(modified(body, start=7)).text.split("\n")
    numbered = [(row, rows[place + 1]) for place, row in enumerate(rows) if row.startswith(":")]
    assert numbered == [(":20", " 20"), (":30", "+30")]


def test_a_number_is_not_repeated_right_behind_the_head_of_a_hunk() -> None:
    rows = _light(modified("".join(f"+{n}\n" for n in range(6, 22)), start=6)).text.split("\n")
    assert [row for row in rows if row.startswith(":")] == [":20"]


def test_the_head_of_a_file_says_what_happened_to_it() -> None:
    def check(file: FileChange, header: str) -> None:
        assert _light(file).text.split("\n")[0] == f"=== {header}"

    each_row(
        [
            (FileChange(None, "a", FileStatus.ADDED, None, "100644", hunks=(Hunk(0, 0, 1, 1, b"+x\n"),)), "a (added)"),
            (FileChange("a", None, FileStatus.DELETED, "100644", hunks=(Hunk(1, 1, 0, 0, b"-x\n"),)), "a (deleted)"),
            (FileChange("a", "b", FileStatus.RENAMED), "b (renamed from a; content not changed)"),
            (
                FileChange("a", "a", FileStatus.MODIFIED, "100644", "100755"),
                "a (mode 100644 to 100755; content not changed)",
            ),
            (
                FileChange("a", "a", FileStatus.TYPE_CHANGED, "100644", "120000", hunks=(Hunk(0, 0, 1, 1, b"+x\n"),)),
                "a (type changed; mode 100644 to 120000; symbolic link)",
            ),
            (FileChange("a", "a", FileStatus.MODIFIED, binary=True), "a (content not shown)"),
        ],
        check,
    )


def test_rows_that_are_there_for_context_are_named() -> None:
    file = modified("+a\n+b\n")
    light = light_diff([UnitPart(file, file.hunks, repeated_rows=1)])
    assert light.text.startswith("=== src/a.py (the first 1 lines are reviewed elsewhere)\n")


def test_a_path_cannot_write_lines_of_its_own() -> None:
    light = _light(FileChange("a\n+evil", "b\n=== c\udcff\u202e", FileStatus.RENAMED))
    assert light.text == ("=== b<U+000A>=== c<0xFF><U+202E> (renamed from a<U+000A>+evil; content not changed)")


def test_a_missing_newline_at_the_end_is_said() -> None:
    light = _light(modified("-x\n\\ No newline at end of file\n+x\n"))
    assert light.text.endswith("\n-x\n\\ no newline at the end\n+x")


def test_lines_that_all_end_with_cr_lf_say_so_once() -> None:
    light = _light(modified(" a\r\n-b\r\n+c\r\n"))
    assert light.text == "=== src/a.py (lines end with CR LF)\n@@ -1,2 +1,2 @@\n a\n-b\n+c"


def test_a_change_of_line_ends_is_seen() -> None:
    light = _light(modified("-a\n+a\r\n"))
    assert light.text.endswith("\n-a\n+a<U+000D>")


def test_hidden_characters_are_shown_and_their_form_is_explained() -> None:
    light = _light(modified("+if admin\u202e: # \u2066\n"))
    assert light.text.startswith("=== src/a.py (hidden characters shown as <U+code>, other bytes as <0xcode>)\n")
    assert "+if admin<U+202E>: # <U+2066>" in light.text


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert _light(modified(b"+caf\xe9 \x00\n")).text.endswith("\n+caf<0xE9> <U+0000>")


def test_an_endless_line_is_cut_and_that_is_told() -> None:
    light = _light(modified("+" + "x" * (MAX_LINE_BYTES + 1_234) + "\n+short\n"))
    assert "x [cut: 1,234 more bytes]\n+short" in light.text
    assert len(light.text) < MAX_LINE_BYTES + 200
    assert light.notes == ("src/a.py: 1 line(s) longer than 8,000 bytes were sent without their ends",)


def test_a_line_of_the_greatest_length_is_whole() -> None:
    assert shown_line(b"x" * MAX_LINE_BYTES) == "x" * MAX_LINE_BYTES


def test_lines_of_code_that_look_like_ours_keep_their_sign() -> None:
    rows = _light(modified("+:120\n+=== b.py\n+@@ -1 +1 @@\n+\\ no newline\n")).text.split("\n")
    assert rows[2:] == ["+:120", "+=== b.py", "+@@ -1 +1 @@", "+\\ no newline"]


@pytest.mark.no_cover  # counting lines would take several times as long as running them
def test_a_great_diff_has_every_line() -> None:
    file = modified("+value = compute(1)\n\tpass\n".replace("\n\t", "\n+\t") * 50_000)
    light = _light(file)
    assert light.text.count("\n+") == 100_000
