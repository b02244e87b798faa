"""Severities, what makes a review complete, what lets a finding block, and the table of agents."""

import contextlib
import importlib
import pkgutil
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeloupe import model
from codeloupe.model.agent import AGENT_NAMES, REVIEWER_NAMES, AgentName, ReviewerName
from codeloupe.model.change import FileChange, FileStatus, Hunk
from codeloupe.model.finding import FindingStatus, Severity
from codeloupe.model.review import Check, Coverage, Diagnosis, FailedUnit, ReviewerInfo, SkippedFile, SkipReason
from tests.findings_material import make_finding
from tests.rows import each

SPELLINGS = {
    Severity.CRITICAL: ["P0", "p0", "0", 0, "[P0]", "critical", " CRITICAL "],
    Severity.HIGH: ["P1", "p 1", "1", 1, "[P1]", "[ p1 ]", "high", "error", "Error"],
    Severity.MEDIUM: ["P2", "2", 2, "medium", "warning", "\tWarning\n"],
    Severity.LOW: ["P3", "3", 3, "low", "suggestion", "info", "INFO"],
}
NONE = ["", "P4", "4", -1, 4, 1.0, True, None, "blocker!", "highest", "P1 high", "p", [], b"high", "\uff11"]


@pytest.mark.requirement("D5")
@pytest.mark.requirement("V7")
def test_every_accepted_spelling_of_a_severity_is_read_and_anything_else_is_refused() -> None:
    for priority, (severity, texts) in enumerate(SPELLINGS.items()):
        assert (severity.priority, severity.label) == (priority, severity.name.lower())
        assert {Severity.parse(text) for text in (*texts, severity, severity.label)} == {severity}
        assert [severity.at_least(other) for other in Severity] == [priority <= other.priority for other in Severity]
    for text in NONE:
        with pytest.raises(ValueError, match="not a severity"):
            Severity.parse(text)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.binary(), st.none(), st.booleans()))
def test_nothing_but_a_value_error_comes_out_of_a_severity(text: object) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(Severity.parse(text), Severity)


@each("reason", SkipReason)
def test_only_a_file_that_should_have_been_read_makes_a_gap(reason: SkipReason) -> None:
    gap = reason in (SkipReason.TOO_LARGE, SkipReason.UNREADABLE)
    assert Coverage(skipped=(SkippedFile("a", reason),)).complete is not gap
    assert [SkippedFile("a", reason, accepted=accepted).is_gap for accepted in (True, False)] == [False, True]
    assert SkippedFile("a", reason, "2 MB").describe() == f"{SkippedFile('a', reason).describe()}: 2 MB"


def test_a_failed_unit_makes_a_review_incomplete() -> None:
    assert Coverage().complete
    assert not Coverage(units_failed=(FailedUnit("ruff", ("a.py",), "timeout"),)).complete


@each("status", FindingStatus)
def test_a_finding_blocks_while_it_is_new_or_open_or_came_back_and_has_a_place(status: FindingStatus) -> None:
    counting = status in (FindingStatus.NEW, FindingStatus.OPEN, FindingStatus.REGRESSED)
    finding = make_finding(status=status)
    assert (finding.is_open, finding.can_block) == (counting, counting)
    # A finding whose claims do not count yet is open, and does not block.
    pending = make_finding(status=status, counts=False)
    assert (pending.is_open, pending.can_block) == (counting, False)


def test_a_diagnosis_is_healthy_when_all_that_is_needed_is_there() -> None:
    optional, git = (
        Check("agents", "claude", ok=False, detail="not found", needed=False),
        Check("git", "git", ok=True, detail=""),
    )
    assert Diagnosis((git, optional), ReviewerInfo("offline", "")).healthy
    assert not Diagnosis((Check("git", "git", ok=False, detail="gone"),), ReviewerInfo("offline", "")).healthy


def test_the_table_of_agents_has_every_name_that_a_type_checker_knows() -> None:
    assert get_args(AgentName) == AGENT_NAMES
    assert set(REVIEWER_NAMES) == {name for part in get_args(ReviewerName) for name in (get_args(part) or (part,))}


@pytest.mark.requirement("S1")
def test_all_data_of_the_model_is_frozen() -> None:
    modules = [importlib.import_module(f"codeloupe.model.{one.name}") for one in pkgutil.iter_modules(model.__path__)]
    kinds = {
        kind
        for module in modules
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
    }
    frozen = {kind: getattr(kind, "__dataclass_params__", getattr(kind, "__struct_config__", None)) for kind in kinds}
    data = {kind: parameters for kind, parameters in frozen.items() if parameters is not None}
    assert len(data) > 15
    assert [kind for kind, parameters in data.items() if not parameters.frozen] == []


NOTE = b"\\ No newline at end of file"
ODD = b"a\rb\x0cc\x85d\xe2\x80\xa8e\x00f\r"


def hunk(body: bytes, *, new_start: int = 20) -> Hunk:
    added, deleted, context = (sum(row[:1] == sign for row in body.split(b"\n")) for sign in (b"+", b"-", b" "))
    return Hunk(10, context + deleted, new_start, context + added, body, "", added, deleted)


def modified(**more: Any) -> FileChange:
    return FileChange("a", "a", FileStatus.MODIFIED, **more)


@each(
    ("body", "lines"),
    [
        (
            b" same\n-gone\n+new\n+newer\n same\n",
            [(10, 20, b"same"), (11, None, b"gone"), (None, 21, b"new"), (None, 22, b"newer"), (12, 23, b"same")],
        ),
        # Content that looks like a header, a line that begins with a backslash, and a blank that was stripped.
        (
            b"--- a/x\n+++ b/x\n-@@ -1 +1 @@\n",
            [(10, None, b"-- a/x"), (None, 20, b"++ b/x"), (11, None, b"@@ -1 +1 @@")],
        ),
        (b"+" + NOTE + b"\n", [(None, 20, NOTE)]),
        (b" a\n\n+b\n", [(10, 20, b"a"), (11, 21, b""), (None, 22, b"b")]),
        # Only a line feed ends a line.
        (b"+" + ODD + b"\n", [(None, 20, ODD)]),
        (b"", []),
    ],
)
def test_each_line_has_its_number_on_the_side_where_it_is(body: bytes, lines: list[tuple[object, ...]]) -> None:
    found = list(hunk(body).lines())
    assert [(line.old_number, line.new_number, line.text) for line in found] == lines
    assert all(line.ends_with_newline for line in found)


def test_a_missing_newline_is_a_flag_of_the_line_before_its_note() -> None:
    lines = hunk(b"-old\n" + NOTE + b"\n+new\n" + NOTE + b"\n").lines()
    assert [(line.text, line.ends_with_newline) for line in lines] == [(b"old", False), (b"new", False)]


def test_counts_and_added_lines_are_those_of_all_hunks() -> None:
    hunks = (hunk(b" x\n+a\n-b\n+c\n", new_start=1), hunk(b"-d\n"), hunk(b"+e\n", new_start=90))
    file = modified(hunks=hunks)
    assert (file.added, file.deleted) == (3, 2)
    assert file.added_line_numbers() == {2, 3, 90}


def test_names_and_modes() -> None:
    for old, new, path in (("a", "b", "b"), (None, "b", "b"), ("a", None, "a"), (None, None, "")):
        assert FileChange(old, new, FileStatus.MODIFIED).path == path
    modes = [("100644", "120000"), ("120000", "100644"), ("120000", None), (None, "160000"), ("160000", "100644")]
    files = [modified(old_mode=old, new_mode=new) for old, new in (*modes, (None, None))]
    assert [file.is_symlink for file in files] == [True, False, True, False, False, False]
    assert [file.is_submodule for file in files] == [False, False, False, True, True, False]
