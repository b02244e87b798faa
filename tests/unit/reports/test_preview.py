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


def test_the_json_has_files_hunks_and_reasons() -> None:
    document = json.loads(
        render_preview_json(preview(modified("a.py"), skipped("x.bin", SkipReason.TOO_LARGE, "3 MB", binary=True)))
    )
    assert document == {
        "files": [
            {
                "old_path": "a.py",
                "new_path": "a.py",
                "status": "modified",
                "binary": False,
                "added": 4,
                "deleted": 2,
                "hunks": [{"old_start": 3, "old_lines": 2, "new_start": 3, "new_lines": 4}],
                "reviewed": True,
                "reason": None,
                "detail": "",
            },
            {
                "old_path": None,
                "new_path": "x.bin",
                "status": "added",
                "binary": True,
                "added": 0,
                "deleted": 0,
                "hunks": [],
                "reviewed": False,
                "reason": "too large",
                "detail": "3 MB",
            },
        ],
        "out_of_reach": [],
        "units": 2,
        "prompt_tokens_estimate": 1234,
    }


def test_what_is_out_of_reach_is_told_and_is_not_an_empty_change() -> None:
    closed = SkippedFile("closed\x1b.py", SkipReason.UNREADABLE, "permission denied")
    unknown = Preview(scope=SCOPE, files=(), out_of_reach=(closed,))
    text = render_preview_text(unknown, Layout(width=80, color=False))
    assert "Would be left out  1 file\n  ? closed\\x1b.py  unreadable: permission denied\n" in text
    assert "0 of 1 file would be reviewed" in text
    assert json.loads(render_preview_json(unknown))["out_of_reach"] == [
        {"file": "closed\x1b.py", "reason": "unreadable", "detail": "permission denied"}
    ]


def test_the_json_keeps_a_path_that_is_not_utf_8() -> None:
    text = render_preview_json(preview(modified(os.fsdecode(b"\xff.py"))))
    assert os.fsencode(json.loads(text.encode())["files"][0]["new_path"]) == b"\xff.py"
    assert text.endswith("}\n")


def test_the_text_says_what_would_be_reviewed_what_not_and_why() -> None:
    renamed = PreviewFile(FileChange("old.py", "new.py", FileStatus.RENAMED, hunks=(HUNK,)))
    text = render_preview_text(
        preview(modified("a.py"), renamed, skipped("poetry.lock", SkipReason.LOCK_FILE)), Layout(width=80, color=False)
    )
    assert text.split("\n") == [
        "Preview: two commits of topic",
        "",
        "Would be reviewed  2 files",
        "  M a.py  +4 -2",
        "  R new.py from old.py  +4 -2",
        "",
        "Would be left out  1 file",
        "  A poetry.lock  +0 -0  lock file",
        "",
        "2 of 3 files would be reviewed, +8 -4 lines, 3 units, about 1,234 prompt tokens.",
        "Nothing was run or spent.",
        "An agent is asked once a unit; --effort low makes fewer units, high more, which",
        "find and cost more.",
        "",
    ]


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
