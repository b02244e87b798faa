"""Any bytes are parsed or refused; what is parsed counts true, and where git takes it too, git counts the same."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from codeloupe.errors import DiffSyntaxError
from codeloupe.git.diff import parse_diff
from codeloupe.model.change import FileChange
from fuzz.target import Target, hold
from tests.diff_checks import patch_of
from tests.git_edge_cases import EDGE_CASES, commit_trees
from tests.repository import GitRepository

_DATED = b"""--- old/a.c\t2024-01-01 00:00:00.000000000 +0000
+++ new/a.c\t2024-01-02 00:00:00 +0000
@@ -1,2 +1,2 @@ f
 a
-b
+c
"""
_MAIL = b"""From 1 Mon Sep 17 00:00:00 2001
Subject: x
---
 a | 2 +-

diff --git a/a b/a
index 1234567..89abcde 100644
--- a/a
+++ b/a
@@ -1 +1 @@
-x
+y
--\x20
2.39.5
"""
_BINARY = b"""diff --git a/x b/x
new file mode 100644
index 0000000..1234567
GIT binary patch
literal 3
KcmZQ

literal 0
HcmV?d

"""
_PLAIN = (
    _DATED,
    _MAIL,
    _BINARY,
    b"Submodule x 1111111..2222222:\n  > words\n",
    b"Binary files a/x and b/x differ\n",
)
_WORDS = (
    *(b"diff --git a/x b/x\n", b"index 1234567..89abcde 100644\n", b"new file mode 100644\n", b"rename from x\n"),
    *(b"rename to y\n", b"copy from x\n", b"copy to y\n", b"similarity index 100%\n", b"old mode 100644\n"),
    *(b"new mode 100755\n", b"deleted file mode 100644\n", b"--- a/x\n", b"+++ b/x\n", b"--- /dev/null\n"),
    *(b"+++ /dev/null\n", b"@@ -1 +1 @@\n", b"@@ -1,2 +1,2 @@ f\n", b"@@ -0,0 +1 @@\n", b" context\n", b"+added\n"),
    *(b"-deleted\n", b"\\ No newline at end of file\n", b"-- \n", b"GIT binary patch\n", b"literal 3\nabc\n\n"),
    *(b"Binary files a/x and b/x differ\n", b"Submodule x 1111..2222:\n", b"diff --cc x\n", b"@@@ -1 -1 +1 @@@\n"),
    *(b'"a/\\303\\251"', b'"', b"\\t", b"a/", b"b/", b"../", b"/dev/null", b"120000", b"160000", b"0000000..", b","),
)
# Each call of git costs more than many parses.
_GIT_SHARE = 8


def _seeds() -> Sequence[bytes]:
    small = [case for case in EDGE_CASES if sum(len(entry.content) for entry in case.head.values()) < 1000]
    with tempfile.TemporaryDirectory() as folder:
        repository = GitRepository(Path(folder) / "repository")
        patches = [patch_of(repository, commit_trees(repository, case.base, case.head)) for case in small]
    return [*(patch for patch in patches if len(patch) < 3000), *_PLAIN]


def _search(data: bytes) -> None:
    parse_diff(data)


def _check(data: bytes) -> None:
    try:
        files = parse_diff(data)
    except DiffSyntaxError as error:
        hold(error.message.startswith("line ") and error.hint, "a refusal without its line or what to do")
        return
    for file in files:
        _check_file(file)
    if files and sum(data) % _GIT_SHARE == 0:
        _check_against_git(data, files)


def _check_file(file: FileChange) -> None:
    hold(file.path, "a file without a name")
    end = 0
    for hunk in file.hunks:
        lines = list(hunk.lines())
        hold(sum(line.kind != "added" for line in lines) == hunk.old_lines, "old lines are miscounted")
        hold(sum(line.kind != "deleted" for line in lines) == hunk.new_lines, "new lines are miscounted")
        hold(sum(line.kind == "added" for line in lines) == hunk.added, "added lines are miscounted")
        hold(sum(line.kind == "deleted" for line in lines) == hunk.deleted, "deleted lines are miscounted")
        numbers = [line.new_number for line in lines if line.new_number is not None]
        hold(numbers == list(range(hunk.new_start, hunk.new_start + hunk.new_lines)), "numbers have gaps")
        if file.status.value != "type-changed":
            hold(not numbers or numbers[0] > end, "hunks overlap")
            end = max([end, *numbers])


def _check_against_git(data: bytes, files: Sequence[FileChange]) -> None:
    """What adds or deletes lines is the same to git. Notes and changes of the mode alone it tells otherwise."""
    counts = _git_counts(data)
    if counts is not None:
        ours = [(file.added, file.deleted) for file in files if file.hunks]
        hold(_total(ours)[0] == _total(counts)[0], "git counts added lines otherwise")
        hold(_total(ours)[1] == _total(counts)[1], "git counts deleted lines otherwise")


def _total(counts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(added for added, _ in counts), sum(deleted for _, deleted in counts)


def _git_counts(data: bytes) -> list[tuple[int, int]] | None:
    """The counts of `git apply --numstat`, or None where git refuses."""
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            ("git", "apply", "--numstat", "-z", "-"),  # noqa: S607
            input=data,
            capture_output=True,
            check=False,
            cwd=folder,
            env={
                "PATH": os.environ["PATH"],
                "GIT_CONFIG_NOSYSTEM": "1",
                "GIT_CONFIG_GLOBAL": os.devnull,
                "LC_ALL": "C",
            },
            timeout=20,
        )
    # git may tell an error, take nothing, and end with 0.
    if result.returncode or result.stderr:
        return None
    rows = [row.split(b"\t")[:2] for row in result.stdout.split(b"\0") if row.count(b"\t") >= 2]
    return [(int(row[0]), int(row[1])) for row in rows if row[0] != b"-"]


TARGET = Target("diff", _seeds, _WORDS, search=_search, check=_check, most_bytes=1024 * 1024)
