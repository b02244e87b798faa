from __future__ import annotations

import json
import os

from codeloupe.model.change import FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.review import Preview, PreviewFile, SkippedFile, SkipReason
from codeloupe.reports import Layout
from codeloupe.reports.preview import render_preview_json, render_preview_text

HUNK = Hunk(3, 2, 3, 4, b"-a\n-b\n+c\n+d\n+e\n+f\n", added=4, deleted=2)
SCOPE = Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "two commits of topic")


def preview(*files: PreviewFile) -> Preview:
    return Preview(scope=SCOPE, files=files, units=len(files), prompt_tokens_estimate=1234)


def modified(path: str) -> PreviewFile:
    return PreviewFile(FileChange(path, path, FileStatus.MODIFIED, hunks=(HUNK,)))


def skipped(path: str, reason: SkipReason, detail: str = "", *, binary: bool = False) -> PreviewFile:
    return PreviewFile(FileChange(None, path, FileStatus.ADDED, binary=binary), SkippedFile(path, reason, detail))


def test_the_json_keeps_a_path_that_is_not_utf_8() -> None:
    text = render_preview_json(preview(modified(os.fsdecode(b"\xff.py"))))
    assert os.fsencode(json.loads(text.encode())["files"][0]["new_path"]) == b"\xff.py"
    assert text.endswith("}\n")


def test_a_single_unit_needs_no_word_about_effort() -> None:
    assert "--effort" not in render_preview_text(preview(modified("a.py")), Layout(width=80, color=False))


def test_an_empty_change_is_told_in_one_line() -> None:
    text = render_preview_text(Preview(scope=SCOPE, files=()), Layout(width=80, color=False))
    assert text == "Preview: two commits of topic\n\nNo changes to review. Nothing was run or spent.\n"


def test_the_text_obeys_no_path_and_has_no_escapes_without_colour() -> None:
    hostile = preview(modified("\x1b[2Ja\u202eb\n::error::c.py"), skipped("日本.bin", SkipReason.BINARY, binary=True))
    text = render_preview_text(hostile, Layout(width=40, color=False))
    assert "\x1b" not in text
    assert "\\x1b[2Ja\\u202eb\\x0a::error" in text
    assert "日本.bin  binary" in text
    assert "\x1b[" in render_preview_text(hostile, Layout(width=40, color=True))
    assert render_preview_text(hostile, Layout(width=40, color=False, ascii_only=True)).isascii()
