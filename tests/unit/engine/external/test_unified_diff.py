from __future__ import annotations

import os
from pathlib import Path

from msgspec.structs import replace

from codeloupe.engine.external.command import quoted, unified_diff
from codeloupe.git.changes import parse_list, reconcile
from codeloupe.git.diff import parse_diff
from codeloupe.git.diff_text import unquote
from codeloupe.model.change import FileChange, FileStatus, Hunk
from tests.diff_checks import lists_of, patch_of
from tests.git_edge_cases import EDGE_CASES, EdgeCase
from tests.repository import GitRepository
from tests.rows import each


@each("case", EDGE_CASES)
def test_every_edge_case_is_written_as_git_writes_it(case: EdgeCase, tmp_path: Path) -> None:
    commits = case.build(tmp_path / "r")
    repository = GitRepository(tmp_path / "r")
    patch = patch_of(repository, commits)
    files = reconcile(parse_diff(patch), parse_list(lists_of(repository, commits))[0])
    rendered = unified_diff(files)
    assert _without_sections(rendered) == _without_sections(patch)
    assert parse_diff(rendered) == parse_diff(patch)


def _without_sections(patch: bytes) -> list[bytes]:
    """The lines of a diff, without what git cut off of a heading that is not UTF-8."""
    return [line.split(b" @@", 1)[0] if line.startswith(b"@@ ") else line for line in patch.split(b"\n")]


def test_git_can_apply_it(repository: GitRepository, tmp_path: Path) -> None:
    repository.write("old name.py", "a\nb\nc\nd\ne\nf\n")
    repository.write("gone.py", "x\n")
    base = repository.commit()
    repository.git("mv", "old name.py", "näw\tname.py")
    repository.write("näw\tname.py", "a\nb\nC\nd\ne\nf")
    repository.remove("gone.py")
    repository.write("empty.py", "")
    repository.write("tool.sh", "#!/bin/sh\n", executable=True)
    head = repository.commit()
    rendered = unified_diff(parse_diff(patch_of(repository, (base, head))))
    repository.checkout(base)
    repository.git("apply", "--index", "-", stdin=rendered)
    assert repository.git("write-tree") == repository.git("rev-parse", f"{head}^{{tree}}")


def test_what_a_plain_diff_leaves_out_is_written_as_git_would() -> None:
    binary = FileChange("a.bin", "a.bin", FileStatus.MODIFIED, binary=True)
    assert unified_diff([binary]) == b"diff --git a/a.bin b/a.bin\nBinary files a/a.bin and b/a.bin differ\n"
    files = parse_diff(b"--- /dev/null\n+++ b/x y.py\n@@ -0,0 +1 @@\n+1\n")
    assert unified_diff(files) == (
        b"diff --git a/x y.py b/x y.py\nnew file mode 100644\n--- /dev/null\n+++ b/x y.py\t\n@@ -0,0 +1 @@\n+1\n"
    )
    # A last line without its end does not run into the next file.
    file = FileChange("a", "a", FileStatus.MODIFIED, hunks=(Hunk(1, 1, 1, 1, b"-a\n+b", added=1, deleted=1),))
    assert unified_diff([file, replace(file, old_path="b", new_path="b")]).count(b"\ndiff --git ") == 1
    assert unified_diff([]) == b""


def test_names_are_quoted_and_one_that_is_not_utf_8_survives() -> None:
    for name in (b"plain.py", b"a b", b'q"uote', b"back\\slash", b"tab\t", b"\xff\x01", "é".encode()):
        assert unquote(quoted(name)) == name
    file = FileChange(None, os.fsdecode(b"\xff.py"), FileStatus.ADDED, hunks=(Hunk(0, 0, 1, 1, b"+x\n", added=1),))
    assert parse_diff(unified_diff([file]))[0].new_path == os.fsdecode(b"\xff.py")
