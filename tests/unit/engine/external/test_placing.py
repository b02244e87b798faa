from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.engine.external.command import place
from codeloupe.model.change import Change, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.finding import ClaimedFinding, Finding, Severity
from codeloupe.model.ports import ReviewTask
from tests.rows import each

SCOPE = Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "a..b")
BODY = b" five\n+six\r\n+seven\n eight\n"
CHANGED = FileChange("src/a.py", "src/a.py", FileStatus.MODIFIED, hunks=(Hunk(5, 2, 5, 4, BODY, added=2),))
GONE = FileChange("gone.py", None, FileStatus.DELETED, hunks=(Hunk(1, 1, 0, 0, b"-x\n", deleted=1),))
TEXT = b"one\ntwo\nthree\nfour\nfive\nsix\r\nseven\neight\nnine"


@pytest.fixture
def task(tmp_path: Path) -> ReviewTask:
    """A change of lines 6 and 7 of `src/a.py`, and a file that is gone; `other.py` is in the tree."""
    snapshot, tree = tmp_path / "snapshot", tmp_path / "tree"
    for root in (snapshot, tree):
        (root / "src").mkdir(parents=True)
        (root / "src" / "a.py").write_bytes(TEXT)
    (tree / "other.py").write_bytes(b"x\ny\n")
    files = (CHANGED, GONE)
    return ReviewTask(Change(SCOPE, files), files, snapshot, trusted=True, timeout_seconds=1.0, tree=tree)


def placed(task: ReviewTask, **claim: Any) -> Finding:
    [finding] = place([ClaimedFinding(severity=Severity.HIGH, title="t", **claim)], task, reviewer="linter")
    return finding


@each("file", ["src/a.py", "./src/a.py", "a.py", "b/src/a.py", "/checkout/src/a.py"])
def test_a_line_that_is_named_becomes_the_evidence(task: ReviewTask, file: str) -> None:
    finding = placed(task, file=file, line_start=6)
    assert (finding.file, finding.line_start, finding.line_end, finding.evidence) == ("src/a.py", 6, 6, "six")
    assert (finding.anchored, finding.outside_change, finding.reviewer) == (True, False, "linter")


@each(
    ("start", "end", "place_of_it", "evidence"),
    [
        (6, 7, (6, 7), "six\nseven"),
        (8, 700, (8, 9), "eight\nnine"),
        (7, 2, (7, 7), "seven"),
        (1, 9, (1, 9), "\n".join(TEXT.decode().replace("\r", "").split("\n"))),
    ],
)
def test_a_range_ends_where_the_file_does(
    task: ReviewTask, start: int, end: int, place_of_it: tuple[int, int], evidence: str
) -> None:
    finding = placed(task, file="src/a.py", line_start=start, line_end=end)
    assert ((finding.line_start, finding.line_end), finding.evidence) == (place_of_it, evidence)


def test_a_line_that_the_change_does_not_show_is_outside_of_it(task: ReviewTask) -> None:
    assert placed(task, file="src/a.py", line_start=2).outside_change
    other = placed(task, file="other.py", line_start=2)
    assert (other.anchored, other.outside_change, other.evidence) == (True, True, "y")


@each(
    "claim",
    [
        *[{"file": "src/a.py", "line_start": line} for line in (None, 10, 0, -3)],
        *[{"file": name, "line_start": 1} for name in ("gone.py", "nowhere.py", "../tree/other.py", "/etc/hosts")],
        *[{"file": "src/a.py\0", "line_start": 1, "evidence": "not there"}, {"line_start": 6}],
        {"file": "src/a.py", "line_start": 6, "evidence": "this stands nowhere"},
    ],
)
def test_what_has_no_place_is_kept_without_one(task: ReviewTask, claim: dict[str, Any]) -> None:
    finding = placed(task, **claim)
    assert (finding.title, finding.anchored) == ("t", False)


def test_lines_of_a_file_are_taken_from_its_diff_where_only_that_is_known(task: ReviewTask, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    bare = replace(task, snapshot=tmp_path / "nothing", tree=None, without_content=frozenset({"src/a.py"}))
    assert placed(bare, file="src/a.py", line_start=7).evidence == "seven"
    assert not placed(bare, file="src/a.py", line_start=2).anchored


def test_secrets_are_masked_a_quote_counts_more_than_a_line_and_who_saw_it_is_told(task: ReviewTask) -> None:
    finding = placed(task, file="src/a.py", line_start=2, evidence="seven", reviewer="codex")
    assert (finding.line_start, finding.reviewer) == (7, "linter/codex")
    token = "ghp_" + "a1B2" * 9
    (task.snapshot / "src" / "a.py").write_text(f"key = '{token}'\n")
    assert placed(task, file="src/a.py", line_start=1).evidence == "key = '[redacted]'"
