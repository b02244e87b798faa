"""The unified diff that external reviewers get, against git's own."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.git.changes import parse_list, reconcile
from codeloupe.git.diff import parse_diff
from codeloupe.git.unified_diff import unified_diff
from codeloupe.model.change import FileChange, FileStatus, Hunk
from tests.diff_checks import lists_of, patch_of
from tests.git_edge_cases import EDGE_CASES, EdgeCase
from tests.repository import GitRepository
from tests.rows import each

pytestmark = pytest.mark.program


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
