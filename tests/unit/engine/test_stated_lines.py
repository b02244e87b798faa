"""Claims that name a line and quote nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from codeloupe.engine.anchor import Anchorer, Origin
from codeloupe.engine.reviewed_file import TextReader
from codeloupe.engine.stated_lines import StatedLines
from codeloupe.model.answer import ClaimedFinding
from codeloupe.model.change import Change, FileChange, FileStatus, Hunk, Scope, ScopeKind
from codeloupe.model.finding import Finding
from codeloupe.model.ports import ReviewTask
from codeloupe.model.severity import Severity

SCOPE = Scope(ScopeKind.RANGE, "a" * 40, "b" * 40, "a..b")
HUNK = Hunk(5, 2, 5, 4, b" five\n+six\n+seven\n eight\n", added=2)
CHANGED = FileChange("a.py", "a.py", FileStatus.MODIFIED, hunks=(HUNK,))


def believed(root: Path, *, only_shown: bool, line: int, evidence: str = "") -> Finding:
    (root / "a.py").write_bytes(b"one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")
    task = ReviewTask(Change(SCOPE, (CHANGED,)), (CHANGED,), root, trusted=True, timeout_seconds=1.0)
    text = TextReader(task)
    claim = ClaimedFinding(severity=Severity.HIGH, title="t", file="a.py", line_start=line, evidence=evidence)
    placed = Anchorer(task.files, text.read).place(claim, Origin(reviewer="r"))
    return StatedLines(task, text, mask=str.upper, only_shown=only_shown).believe(claim, placed)


@pytest.mark.parametrize(("line", "anchored"), [(4, False), (5, True), (6, True), (8, True), (9, False)])
def test_of_a_model_only_lines_that_the_diff_shows_are_believed(tmp_path: Path, line: int, anchored: bool) -> None:
    found = believed(tmp_path, only_shown=True, line=line)
    assert (found.line_start, found.anchored, found.outside_change) == (line if anchored else None, anchored, False)


def test_of_others_every_line_of_the_file_is_believed(tmp_path: Path) -> None:
    found = believed(tmp_path, only_shown=False, line=9)
    assert (found.evidence, found.anchored, found.outside_change) == ("NINE", True, True)


def test_a_quote_that_is_not_there_is_no_missing_quote(tmp_path: Path) -> None:
    assert not believed(tmp_path, only_shown=False, line=6, evidence="invented = 1").anchored
