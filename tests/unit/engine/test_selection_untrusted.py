"""Of an untrusted change no name hides code: whoever wrote it chose the name as well."""

from __future__ import annotations

import pytest

from codeloupe.engine.selection import SelectionRules, select_by_diff
from tests.unit.engine.samples import change, changed


def is_reviewed(path: str, body: bytes = b"+x\n", *, trusted: bool) -> bool:
    return bool(select_by_diff(change(changed(path, body)), SelectionRules(believe_content=trusted)).files)


@pytest.mark.parametrize("path", ["payload_generated.py", "api_pb2.py", "vendor/lib.go", "app.min.js"])
def test_code_that_is_left_out_by_its_name_is_reviewed_when_the_change_is_not_trusted(path: str) -> None:
    assert not is_reviewed(path, trusted=True)
    assert is_reviewed(path, trusted=False)


def test_a_program_without_a_suffix_in_a_folder_of_others_is_reviewed_when_the_change_is_not_trusted() -> None:
    assert is_reviewed("vendor/bin/tool", b"+#!/bin/sh\n", trusted=False)


@pytest.mark.parametrize(
    "path", ["package-lock.json", "pnpm-lock.yaml", "go.sum", "page.snap", "app.js.map", "vendor/a.png"]
)
def test_what_is_no_code_is_left_out_either_way(path: str) -> None:
    assert not is_reviewed(path, trusted=False)
