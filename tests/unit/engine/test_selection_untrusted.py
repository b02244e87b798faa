"""Of an untrusted change no name hides code: whoever wrote it chose the name as well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codeloupe.engine.selection import SelectionRules, select_by_diff
from codeloupe.model.change import FileStatus
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


def test_what_is_moved_out_of_a_place_that_nobody_reads_is_a_gap() -> None:
    rules = SelectionRules(believe_content=False, exclude=("old/**",))
    moved = replace(changed("src/a.py", b""), old_path="old/a.py", status=FileStatus.RENAMED, hunks=())
    (skip,) = select_by_diff(change(moved), rules).skipped
    assert skip.is_gap
    assert "renamed from old/a.py" in skip.in_words()
