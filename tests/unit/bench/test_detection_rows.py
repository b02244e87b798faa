"""How reports become scores, and scores become rows with limits."""

from pathlib import Path

import pytest

from bench import detection
from bench.detection import Program, Report, Score, ToolResult

KNOWN = [
    Program("one", "one.py", 89, is_weak=True, code=b""),
    Program("two", "two.py", 89, is_weak=False, code=b""),
    Program("three", "three.py", 22, is_weak=True, code=b""),
]


def test_by_cwe_only_a_report_of_the_own_weakness_flags_a_program() -> None:
    reports = [Report("one.py", 89), Report("two.py", 79), Report("three.py", None)]
    assert detection.score(KNOWN, reports) == Score(missed=(), false_alarms=("two",), weak=2)
    assert detection.score(KNOWN, reports, by_cwe=True) == Score(missed=("three",), false_alarms=(), weak=2)


def test_cases_and_labels_are_read_from_a_checkout(tmp_path: Path) -> None:
    (tmp_path / "testcode").mkdir()
    (tmp_path / "testcode" / "Case1.py").write_bytes(b"x = 1\n")
    (tmp_path / "expectedresults-0.1.csv").write_text("# test name, category\nCase1,sqli,true,89\n", encoding="utf-8")
    assert detection.owasp_programs(tmp_path) == [
        Program("Case1 (sqli)", "Case1.py", 89, is_weak=True, code=b"x = 1\n")
    ]


@pytest.mark.parametrize(("fall", "is_ok"), [(0.0, True), (0.009, True), (0.011, False)])
def test_a_fall_of_more_than_a_hundredth_breaks_the_limit(
    fall: float, is_ok: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    perfect = Score(missed=(), false_alarms=(), weak=2)
    monkeypatch.setattr(detection, "scores", lambda: {"codeloupe, offline": perfect, "bandit": perfect})
    monkeypatch.setattr(detection, "RECORDED_OWN_F1", 1.0 + fall)
    monkeypatch.delenv(detection.OWASP, raising=False)
    rows = list(detection.rows())
    assert all(row.ok for row in rows) is is_ok
    assert rows[-1].measured == "not measured: CODELOUPE_BENCH_OWASP is not set"


def test_cases_that_a_tool_cannot_parse_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = (Report("one.py", 89), Report("three.py", 22))
    results = {"codeloupe, offline": ToolResult(found), "bandit": ToolResult(found, unparsed=3)}
    monkeypatch.setattr(detection, "results", lambda _: results)
    monkeypatch.setattr(detection, "programs", lambda: KNOWN)
    monkeypatch.setattr(detection, "owasp_programs", lambda _: KNOWN)
    monkeypatch.setenv(detection.OWASP, str(tmp_path))
    details = {row.name: row.measured for row in detection.rows()}
    assert "3 of which it cannot parse" in details["F1 of bandit on the OWASP benchmark / ours"]
