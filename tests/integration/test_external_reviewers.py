"""Other programs as reviewers, through the whole of a review: their output in, verdict and exit code out."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from codeloupe import engine as run
from codeloupe.config.schema import ReviewFormat, Settings
from codeloupe.integrations import CodeReviewer
from codeloupe.model.finding import Severity
from codeloupe.model.review import Review, Verdict
from codeloupe.model.scope import RangeScope, ScopeRequest, UncommittedScope
from tests.program import PYTHON_HEADER
from tests.repository import GitRepository
from tests.rows import each
from tests.unit.reviewers.fake_gate import FakeGate, ending
from tests.warm_program import codeloupe

RANGE = RangeScope("HEAD~1..HEAD")
FORM = {"file_path": "a.py", "line_start": 2, "line_end": 2, "priority": 1, "title": "[P1] Division by zero"}
FORM |= {"body": "It always fails."}
ISSUE = {"file": "a.py", "line": 2, "severity": "error", "message": "Division by zero", "suggestion": "Do not."}
QUOTED = {"severity": "HIGH", "category": "bug", "description": "Division by zero", "evidence": "a.py:2"}
REGION = {"artifactLocation": {"uri": "a.py"}, "region": {"startLine": 2, "endLine": 2}}
RESULT: dict[str, Any] = {"ruleId": "X1", "level": "error", "message": {"text": "Division by zero"}}
RESULT |= {"locations": [{"physicalLocation": REGION}]}
DIAGNOSTIC: dict[str, Any] = {"message": "Division by zero", "severity": "ERROR"}
DIAGNOSTIC |= {"location": {"path": "a.py", "range": {"start": {"line": 2}}}}
GATE = {"status": "complete", "consensus_verdict": "FAIL", "aggregated_findings": [FORM], "parse_errors": []}
LINES = "a.py:2:5: error: Division by zero\n"
OUTPUTS: dict[str, tuple[ReviewFormat, str]] = {
    "verdict and findings": ("findings", json.dumps({"verdict": "FAIL", "findings": [FORM]})),
    "passed and issues": ("findings", json.dumps({"passed": False, "issues": [ISSUE]})),
    "categories and evidence": ("findings", json.dumps({"findings": [QUOTED]})),
    "a fence": ("findings", f"```json\n{json.dumps({'findings': [QUOTED]})}\n```\n"),
    "review-gate": ("review-gate", json.dumps(GATE)),
    "SARIF": ("sarif", json.dumps({"runs": [{"tool": {"driver": {"name": "linter"}}, "results": [RESULT]}]})),
    "rdjson": ("rdjson", json.dumps({"diagnostics": [DIAGNOSTIC]})),
    "rdjsonl": ("rdjsonl", json.dumps(DIAGNOSTIC)),
    "lines of a linter": ("lines", LINES),
}
# Their findings are read, but the review is not complete.
INEXACT = {
    "prose around": f"I looked.\n\n{json.dumps({'findings': [QUOTED]})}\nThat is all.",
    "a key that was not asked for": json.dumps({"findings": [QUOTED], "files_skipped": ["b.py"]}),
    "lines of a list": "- HIGH bug: Division by zero (a.py:2)",
}
# Nothing is read from output in another format than the declared one.
UNDECLARED: dict[str, tuple[ReviewFormat, str]] = {
    "SARIF as findings": ("findings", OUTPUTS["SARIF"][1]),
    "lines as findings": ("findings", LINES),
    "findings as lines": ("lines", OUTPUTS["verdict and findings"][1]),
    "Markdown": ("findings", "- **Severity:** HIGH\n  **Evidence:** a.py:2 - y = x / 0\n"),
}


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> GitRepository:
    """Two commits; the second adds a line to `a.py`. Nobody changes it."""
    repository = GitRepository(tmp_path_factory.mktemp("committed"))
    repository.commit_files({"a.py": "x = 1\n"})
    repository.commit_files({"a.py": "x = 1\ny = x / 0\n"})
    return repository


def printing(folder: Path, text: str, exit_code: int = 0, output_format: ReviewFormat = "findings") -> Settings:
    """Settings with a program that reads the diff and prints a text."""
    program = folder / "my reviewer"
    body = f"import sys\nassert '+y = x / 0' in sys.stdin.read()\nsys.stdout.write({text!r})\nsys.exit({exit_code})\n"
    program.write_text(PYTHON_HEADER + body)
    program.chmod(0o755)
    return Settings(reviewer_type="command", review_command=(str(program),), review_command_format=output_format)


def gated(gate: FakeGate, **more: Any) -> Settings:
    return Settings(reviewer_type="cerberus", review_gate_path=gate.path, **more)


def review(repository: GitRepository, settings: Settings, scope: ScopeRequest = RANGE) -> Review:
    return asyncio.run(run.review(scope, repo=repository.path, settings=settings))


@each("name", OUTPUTS)
def test_every_format_becomes_the_same_finding(committed: GitRepository, tmp_path: Path, name: str) -> None:
    output_format, text = OUTPUTS[name]
    result = review(committed, printing(tmp_path, text, exit_code=1, output_format=output_format))
    [finding] = result.findings
    assert (finding.file, finding.line_start, finding.line_end) == ("a.py", 2, 2)
    assert (finding.severity, finding.anchored, finding.outside_change) == (Severity.HIGH, True, False)
    assert "Division by zero" in f"{finding.title} {finding.body}"
    assert "y = x / 0" in finding.evidence
    assert (result.verdict, result.complete, result.exit_code) == (Verdict.FAIL, True, 1)
    assert result.reviewer.type == "command"


@each("name", INEXACT)
def test_findings_of_inexact_output_are_kept_and_the_review_is_incomplete(
    committed: GitRepository, tmp_path: Path, name: str
) -> None:
    result = review(committed, printing(tmp_path, INEXACT[name], exit_code=1))
    assert [finding.line_start for finding in result.findings] == [2]
    assert (result.complete, result.exit_code) == (False, 1)


@each("name", UNDECLARED)
def test_output_in_another_format_than_declared_is_a_failure(
    committed: GitRepository, tmp_path: Path, name: str
) -> None:
    output_format, text = UNDECLARED[name]
    result = review(committed, printing(tmp_path, text, output_format=output_format))
    assert (result.findings, result.verdict, result.exit_code) == ((), Verdict.INCOMPLETE, 3)
    assert [unit.unit for unit in result.coverage.units_failed] == ["command"]


def test_only_a_whole_output_without_a_blocking_finding_passes(committed: GitRepository, tmp_path: Path) -> None:
    clean = review(committed, printing(tmp_path, '{"verdict": "PASS", "findings": []}'))
    assert (clean.verdict, clean.complete, clean.exit_code) == (Verdict.PASS, True, 0)
    silent = review(committed, printing(tmp_path, ""))
    assert (silent.complete, silent.exit_code) == (False, 3)
    assert [unit.reason for unit in silent.coverage.units_failed] == ["empty output"]
    answer = {"verdict": "PASS", "findings": [FORM]}
    assert review(committed, printing(tmp_path, json.dumps(answer))).exit_code == 1
    cut = review(committed, printing(tmp_path, f'{{"verdict": "FAIL", "findings": [{json.dumps(FORM)}, {{"file_pa'))
    assert [found.line_start for found in cut.findings] == [2]
    assert (cut.complete, cut.exit_code) == (False, 1)


@each("exit_code", [2, 139])
def test_a_program_that_crashed_after_a_lesser_finding_is_incomplete(
    committed: GitRepository, tmp_path: Path, exit_code: int
) -> None:
    result = review(committed, printing(tmp_path, "a.py:2: warning: Odd\n", exit_code, output_format="lines"))
    assert [finding.line_start for finding in result.findings] == [2]
    assert (result.verdict, result.exit_code) == (Verdict.INCOMPLETE, 3)


def test_the_program_can_be_run_from_the_command_line(committed: GitRepository, tmp_path: Path) -> None:
    settings = printing(tmp_path, LINES, exit_code=1, output_format="lines")
    home = tmp_path / "config" / "codeloupe"
    home.mkdir(parents=True)
    names = ("reviewer_type", "review_command", "review_command_format")
    (home / "config.yaml").write_text(json.dumps({name: getattr(settings, name) for name in names}))
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    words = ("review", "HEAD~1..HEAD", "--format", "json", "-q")
    ended = codeloupe(*words, cwd=committed.path, environment=environment)
    assert ended.exit_code == 1
    assert [finding["line_start"] for finding in ended.json()["findings"]] == [2]


FINDING = {"reviewer": "codex", **FORM}


def test_the_gate_decides_over_a_range(committed: GitRepository, tmp_path: Path) -> None:
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"), ending(1, "FAIL", FINDING), ending(0, "FAIL", FINDING))
    passed = review(committed, gated(gate))
    assert (passed.verdict, passed.complete, passed.exit_code) == (Verdict.PASS, True, 0)
    failed = review(committed, gated(gate))
    assert (failed.verdict, failed.complete, failed.exit_code) == (Verdict.FAIL, True, 1)
    assert [finding.reviewer for finding in failed.findings] == ["cerberus/codex"]
    disagreed = review(committed, gated(gate))
    assert (disagreed.complete, disagreed.exit_code) == (False, 1)


def test_a_review_is_incomplete_if_a_reviewer_of_the_gate_failed(committed: GitRepository, tmp_path: Path) -> None:
    failed = ending(0, "PASS", parse_errors=["claude: not logged in"])
    result = review(committed, gated(FakeGate(tmp_path / "gate", failed)))
    assert (result.verdict, result.exit_code) == (Verdict.INCOMPLETE, 3)


def test_the_gate_is_told_why_it_gets_nothing_uncommitted(committed: GitRepository, tmp_path: Path) -> None:
    changed = committed.copied_to(tmp_path / "changed")
    changed.write("a.py", "x = 2\n")
    result = review(changed, gated(FakeGate(tmp_path / "gate")), UncommittedScope())
    assert result.exit_code == 3
    assert "reviews commits only" in result.coverage.units_failed[0].reason


def test_an_orchestrator_gets_the_endings_of_the_gate(committed: GitRepository, tmp_path: Path) -> None:
    late = ending(3, None, status="timeout")
    gate = FakeGate(tmp_path / "gate", ending(1, "FAIL", FINDING), {"exit": 4, "stdout": ""}, late, late)
    reviewer = CodeReviewer(committed.path, settings=gated(gate))
    failed = asyncio.run(reviewer("HEAD~1..HEAD", claude_session_id="session-7"))
    assert (failed.passed, [issue.title for issue in failed.issues]) == (False, ["[P1] Division by zero"])
    assert gate.calls[-1]["environment"]["CLAUDE_SESSION_ID"] == "session-7"
    nobody = asyncio.run(reviewer("", commit_shas=["HEAD"]))
    assert (nobody.passed, nobody.fatal_error) == (False, True)
    assert "no reviewers" in (nobody.parse_error or "")
    slow = asyncio.run(reviewer("HEAD~1..HEAD"))
    assert (slow.passed, slow.parse_error, slow.fatal_error) == (False, "timeout", False)


@pytest.mark.defect("T17")
def test_a_review_that_another_caller_left_active_is_resolved_and_its_verdict_is_not_ours(
    committed: GitRepository, tmp_path: Path
) -> None:
    gate = FakeGate(tmp_path / "gate", ending(1, "FAIL", FINDING))
    gate.activate("session-7")
    reviewer = CodeReviewer(committed.path, settings=gated(gate))
    result = asyncio.run(reviewer("HEAD~1..HEAD", timeout=450, claude_session_id="session-7"))
    assert gate.verbs == ["spawn-code-review", "resolve", "spawn-code-review", "wait"]
    assert (result.passed, len(result.issues)) == (False, 1)
    assert 300 < int(gate.calls[-1]["argv"][-1]) <= 450, "the gate is to wait as long as the caller does"


def test_the_context_of_an_orchestrator_reaches_the_gate(committed: GitRepository, tmp_path: Path) -> None:
    (tmp_path / "context.md").write_text("Adds a division.")
    gate = FakeGate(tmp_path / "gate", ending(0, "PASS"))
    reviewer = CodeReviewer(committed.path, settings=gated(gate))
    assert asyncio.run(reviewer("HEAD~1..HEAD", tmp_path / "context.md")).passed
    assert gate.calls[0]["context"] == "Adds a division."
