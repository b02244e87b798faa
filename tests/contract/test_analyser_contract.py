"""What every analyser must do, whatever is behind it."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from codeloupe.analysers import ast_grep
from codeloupe.analysers.ast_grep import AstGrepAnalyser
from codeloupe.analysers.interface import Analyser, AnalyserReport, AnalysisTarget
from codeloupe.analysers.ruff import RuffAnalyser
from codeloupe.analysers.secrets import SecretsAnalyser
from codeloupe.errors import AnalyserFailed, ProcessError, ProcessTimedOut, ProgramNotFound
from codeloupe.model.finding import Severity
from tests.endings import comes_to_pass, timed_out
from tests.rows import each

CANARY = "canary-of-the-host-" + "4711"
TYPED = (AnalyserFailed, ProcessError)


@dataclass(frozen=True)
class Case:
    """An analyser, how to make one with another program, and a defect that it finds on the first line of a file."""

    make: Callable[[str | None], Analyser]
    suffix: str
    defect: str
    suppressed: str


CASES = {
    "ruff": Case(RuffAnalyser, ".py", "print(unknown)\n", "print(unknown)  # noqa\n"),
    "ast-grep": Case(
        AstGrepAnalyser,
        ".js",
        "async function f() { try { await work(); } catch (error) {} }\n",
        "async function f() { try { await work(); } catch (error) {} } // ast-grep-ignore\n",
    ),
    "detect-secrets": Case(
        SecretsAnalyser,
        ".txt",
        "token gh" + "p_" + "q8Zr3LwXn5Kd9VtYb2Hc7Mf4Sg6Jp1Ra0TeU\n",
        "token gh" + "p_" + "q8Zr3LwXn5Kd9VtYb2Hc7Mf4Sg6Jp1Ra0TeU # pragma: allowlist secret\n",
    ),
}


def target(root: Path, *names: str, trusted: bool = False, timeout_seconds: float = 30.0) -> AnalysisTarget:
    return AnalysisTarget(
        root=root,
        files=names,
        added_lines=dict.fromkeys(names, frozenset({1})),
        trusted=trusted,
        timeout_seconds=timeout_seconds,
    )


def write(root: Path, name: str, content: str) -> str:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return name


def program(tmp_path: Path, script: str) -> str:
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def analyse(analyser: Analyser, files: AnalysisTarget) -> AnalyserReport:
    return asyncio.run(analyser.analyse(files))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A process that has ended and was not yet collected by its new parent is gone for us.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def all_end(pids: Path) -> bool:
    """Whether all processes that wrote their numbers end."""
    numbers = [int(number) for number in pids.read_text(encoding="ascii").split()]
    assert len(numbers) == 2
    return comes_to_pass(lambda: not any(is_running(number) for number in numbers))


def is_written(path: Path) -> bool:
    return path.exists() and path.read_text(encoding="ascii").endswith("\n")


def hanging(tmp_path: Path) -> tuple[str, Path]:
    """A program that never ends, nor does its child; both tell their process numbers."""
    pids = tmp_path / "pids"
    return program(tmp_path, f"sleep 60 &\necho $! $$ > '{pids}'\nwait"), pids


@each("case", CASES.values())
def test_a_defect_is_found_with_all_that_a_report_needs(case: Case, tmp_path: Path) -> None:
    root = tmp_path / "snapshot"
    name = write(root, f"a{case.suffix}", case.defect)
    report = analyse(case.make(None), target(root, name))
    assert report.failed == {}
    (issue,) = report.issues
    assert (issue.file, issue.line_start) == (name, 1)
    assert issue.line_end >= issue.line_start
    assert isinstance(issue.severity, Severity)
    assert all((issue.rule, issue.category, issue.title, issue.body, issue.suggestion))
    assert "\n" not in issue.title


@each("case", CASES.values())
def test_it_has_a_version_a_clean_file_has_no_issues_and_for_no_file_nothing_is_started(
    case: Case, tmp_path: Path
) -> None:
    analyser = case.make(None)
    assert analyser.name in CASES
    assert asyncio.run(analyser.version())[0].isdigit()
    name = write(tmp_path, f"a{case.suffix}", "\n")
    assert analyser.accepts(name)
    assert analyse(analyser, target(tmp_path, name)) == AnalyserReport()
    assert analyse(case.make("/nonexistent/program"), target(tmp_path)) == AnalyserReport()


@each("case", CASES.values())
def test_a_missing_program_is_a_typed_error(case: Case, tmp_path: Path) -> None:
    root = tmp_path / "snapshot"
    name = write(root, f"a{case.suffix}", case.defect)
    analyser = case.make("/nonexistent/program")
    with pytest.raises((ProgramNotFound, AnalyserFailed)) as caught:
        analyse(analyser, target(root, name))
    assert caught.value.message
    assert caught.value.hint
    with pytest.raises((ProgramNotFound, AnalyserFailed)):
        asyncio.run(analyser.version())


@each(
    "script",
    [
        *("exit 3", "echo it broke >&2; exit 3", "echo this is no answer", "echo this is no answer; exit 1", "true"),
        *("echo '{\"hits\": 1}'", "echo '[{\"code\": 1}]'", "echo null", "head -c 100000 /dev/urandom", "kill -9 $$"),
        "cat >/dev/null; exit 2",
    ],
)
@each("case", CASES.values())
def test_a_program_that_breaks_is_never_a_clean_report(case: Case, tmp_path: Path, script: str) -> None:
    root = tmp_path / "snapshot"
    name = write(root, f"a{case.suffix}", case.defect)
    analyser = case.make(program(tmp_path, script))
    try:
        failed = set(analyse(analyser, target(root, name)).failed)
    except TYPED:
        failed = {name}
    assert failed == {name}


@each("case", CASES.values())
def test_a_program_that_does_not_say_its_version_is_a_typed_error(case: Case, tmp_path: Path) -> None:
    for script in ("exit 3", "true", "echo; exit 1"):
        with pytest.raises(TYPED):
            asyncio.run(case.make(program(tmp_path, script)).version())


@each("case", CASES.values())
def test_a_program_that_hangs_is_ended_at_the_deadline_with_all_it_started(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "snapshot"
    name = write(root, f"a{case.suffix}", case.defect)
    hanger, pids = hanging(tmp_path)
    # Of its own accord it gives up a file before the time is over, and that is not what is shown here.
    monkeypatch.setattr(ast_grep, "_CALL_SECONDS", 60.0)
    timed_out(
        ProcessTimedOut,
        lambda seconds: analyse(case.make(hanger), target(root, name, timeout_seconds=seconds)),
        ready=lambda _: is_written(pids),
    )
    assert all_end(pids)


@each("case", CASES.values())
def test_cancellation_in_mid_run_leaves_no_process(case: Case, tmp_path: Path) -> None:
    root = tmp_path / "snapshot"
    name = write(root, f"a{case.suffix}", case.defect)
    hanger, pids = hanging(tmp_path)

    async def cancel_when_running() -> None:
        running = asyncio.ensure_future(case.make(hanger).analyse(target(root, name)))
        while not is_written(pids):  # noqa: ASYNC110 - another program writes it
            await asyncio.sleep(0.01)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel_when_running())
    assert all_end(pids)


@each("case", CASES.values())
def test_a_file_is_analysed_whatever_its_name(case: Case, tmp_path: Path) -> None:
    root = tmp_path / "snapshot"
    stems = (
        *("-rf", "--version", "@file", "with space", "line\nbreak", "tab\tand\\backslash", "quote'\"`$(touch x)"),
        *(".hidden", "glob[*?]", "node_modules/inside", ".venv/inside", "build/inside", "a:1:2", "n" * 200),
        os.fsdecode(b"not-utf8-\xff\xe9"),
    )
    names = [write(root, stem + case.suffix, case.defect) for stem in stems]
    report = analyse(case.make(None), target(root, *names))
    assert report.failed == {}
    assert sorted(issue.file for issue in report.issues) == sorted(names)


def hostile_configuration(root: Path, outside: Path) -> None:
    """What a repository may hold to hide its defects, to write elsewhere or to read files of the host."""
    (outside / "host.toml").write_text(f'# {CANARY}\nselect = "{CANARY}"\n', encoding="utf-8")
    ruff = f'exclude = ["*"]\nextend = "{outside}/host.toml"\ncache-dir = "{outside}/cache"\nfix = true\n'
    for name in ("ruff.toml", ".ruff.toml"):
        write(root, name, ruff + '[lint]\nselect = []\n[lint.per-file-ignores]\n"*" = ["ALL"]\n')
    write(root, "pyproject.toml", '[tool.ruff]\nexclude = ["*"]\nforce-exclude = true\n')
    write(
        root,
        "sgconfig.yml",
        f"ruleDirs: [{outside}]\ncustomLanguages:\n  js: {{libraryPath: {outside}/evil.so, extensions: [js]}}\n",
    )
    write(root, ".secrets.baseline", '{"version": "1.5.0", "plugins_used": [], "filters_used": [], "results": {}}')
    for name in (".gitignore", ".ignore", ".sgignore"):
        write(root, name, "*\n")
    write(root, "detect_secrets.py", f"open('{outside}/executed', 'w')\n")
    write(root, "codeloupe/__init__.py", f"open('{outside}/executed', 'w')\n")


@each("case", CASES.values())
def test_no_configuration_of_the_repository_changes_anything(case: Case, tmp_path: Path) -> None:
    root = tmp_path / "snapshot"
    outside = tmp_path / "outside"
    outside.mkdir()
    names = [write(root, f"{stem}{case.suffix}", case.defect) for stem in ("a", "inner/b")]
    before = analyse(case.make(None), target(root, *names))
    hostile_configuration(root, outside)
    content = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    after = analyse(case.make(None), target(root, *names))
    assert len(before.issues) == 2
    assert after == before
    assert CANARY not in repr(after)
    assert {path.name for path in outside.iterdir()} == {"host.toml"}
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == content


@each("trusted", [True, False])
@each("case", CASES.values())
def test_a_suppression_in_the_code_counts_only_in_a_trusted_change(case: Case, tmp_path: Path, trusted: bool) -> None:
    root = tmp_path / "snapshot"
    name = write(root, f"a{case.suffix}", case.suppressed)
    assert len(analyse(case.make(None), target(root, name, trusted=trusted)).issues) == (0 if trusted else 1)


@each("case", CASES.values())
def test_one_bad_file_does_not_hide_the_others(case: Case, tmp_path: Path) -> None:
    root = tmp_path / "snapshot"
    good = write(root, f"good{case.suffix}", case.defect)
    bad = f"bad{case.suffix}"
    (root / bad).mkdir()
    report = analyse(case.make(None), target(root, bad, good))
    assert [issue.file for issue in report.issues] == [good]
    assert set(report.failed) == {bad}
