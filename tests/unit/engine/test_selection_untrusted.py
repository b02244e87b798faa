"""Of an untrusted change no name hides code: whoever wrote it chose the name as well."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from codeloupe.engine.prepare import shown_whole, to_be_read
from codeloupe.engine.selection import SelectionRules, select_by_diff
from codeloupe.git.diff import parse_diff
from codeloupe.model.change import FileChange, FileStatus
from codeloupe.model.review import SkipReason
from tests.unit.engine.samples import change, changed


def is_reviewed(path: str, body: bytes = b"+x\n", *, trusted: bool) -> bool:
    return bool(select_by_diff(change(changed(path, body)), SelectionRules(believe_content=trusted)).files)


@pytest.mark.parametrize("path", ["payload_generated.py", "api_pb2.py", "vendor/lib.go", "app.min.js"])
def test_code_that_is_left_out_by_its_name_is_reviewed_when_the_change_is_not_trusted(path: str) -> None:
    assert not is_reviewed(path, trusted=True)
    assert is_reviewed(path, trusted=False)


def test_a_program_without_a_suffix_in_a_folder_of_others_is_reviewed_when_the_change_is_not_trusted() -> None:
    assert is_reviewed("vendor/bin/tool", b"+#!/bin/sh\n", trusted=False)


@pytest.mark.parametrize("path", ["page.snap", "app.js.map", "vendor/a.png", "node_modules/b.coffee", "bun.lock"])
def test_no_name_keeps_a_text_of_a_stranger_from_being_read(path: str) -> None:
    assert not is_reviewed(path, trusted=True)
    assert is_reviewed(path, trusted=False)


def test_a_class_that_the_settings_accept_by_name_is_left_out_either_way() -> None:
    rules = SelectionRules(believe_content=False, accept=frozenset((SkipReason.VENDORED,)))
    (skip,) = select_by_diff(change(changed("vendor/lib.go", b"+x\n")), rules).skipped
    assert (skip.reason, skip.is_gap) == (SkipReason.VENDORED, False)


def test_what_a_stranger_moves_or_makes_executable_is_read_whole() -> None:
    rules = SelectionRules(believe_content=False)
    moved = FileChange("src/a.py", "lib/a.py", FileStatus.RENAMED, old_mode="100644", new_mode="100644")
    without_the_right = FileChange("a", "a", FileStatus.MODIFIED, old_mode="100755", new_mode="100644")
    with_the_right = replace(without_the_right, old_mode="100644", new_mode="100755")
    assert to_be_read([moved, with_the_right], SelectionRules()) == frozenset()
    assert to_be_read([moved, with_the_right], rules) == {"lib/a.py", "a"}
    assert to_be_read([without_the_right], rules) == frozenset()


def test_a_file_that_is_shown_whole_keeps_what_was_deleted_where_it_was() -> None:
    def shown(text: bytes, *bodies: bytes) -> tuple[bytes, int, int]:
        files = parse_diff(b"--- a/x\n+++ b/x\n" + b"".join(bodies)) if bodies else (changed("x", b""),)
        file = shown_whole(replace(files[0], hunks=files[0].hunks if bodies else ()), text)
        return b"".join(hunk.body for hunk in file.hunks), file.added, file.deleted

    assert shown(b"a\nb\n") == (b"+a\n+b\n", 2, 0)
    assert shown(b"") == (b"", 0, 0)
    assert shown(b"a\nb") == (b"+a\n+b\n\\ No newline at end of file\n", 2, 0)
    edited = b"@@ -2,3 +2,2 @@\n b\n-old\n-older\n+c\n"
    assert shown(b"a\nb\nc\nd\n", edited) == (b"+a\n+b\n-old\n-older\n+c\n+d\n", 4, 2)
    assert shown(b"a\nb\n", b"@@ -2 +1,0 @@\n-gone\n") == (b"+a\n-gone\n+b\n", 2, 1)
    assert shown(b"a\nb\n", b"@@ -1 +0,0 @@\n-gone\n") == (b"-gone\n+a\n+b\n", 2, 1)
