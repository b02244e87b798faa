"""A pointer of Git LFS is not the file: nobody who read it has reviewed what it points to."""

from __future__ import annotations

import pytest

from codeloupe.engine.selection import FileContent, SelectionRules, select_by_content, select_by_diff
from codeloupe.model.review import SkipReason
from tests.unit.engine.samples import change, changed

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 50000\n" % (b"5d" * 32)


def reason_for(path: str, content: bytes = POINTER, *, trusted: bool = True) -> SkipReason | None:
    rules = SelectionRules(believe_content=trusted)
    selection = select_by_diff(change(changed(path)), rules)
    narrowed = select_by_content(selection, {path: FileContent(len(content), content)}, rules)
    return narrowed.skipped[0].reason if narrowed.skipped else None


@pytest.mark.parametrize("path", ["model.dat", "data.json"])
def test_a_pointer_is_left_out_as_the_binary_it_stands_for(path: str) -> None:
    assert reason_for(path) is SkipReason.BINARY


def test_code_behind_a_pointer_of_an_untrusted_change_is_a_gap() -> None:
    assert reason_for("payload.py", trusted=False) is SkipReason.UNREADABLE
    assert reason_for("model.dat", trusted=False) is SkipReason.BINARY


@pytest.mark.parametrize("content", [POINTER + b"rm -rf /\n", POINTER.replace(b"oid", b"steal\noid"), POINTER[:-1]])
def test_what_only_begins_like_a_pointer_is_reviewed(content: bytes) -> None:
    assert reason_for("run.sh", content) is None
