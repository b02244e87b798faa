"""What every analyser must do, whatever is behind it."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from codeloupe.analysers import ast_grep
from codeloupe.analysers.ast_grep import AstGrepAnalyser
from codeloupe.analysers.interface import Analyser, AnalyserReport
from codeloupe.analysers.ruff import RuffAnalyser
from codeloupe.analysers.secrets import SecretsAnalyser
from codeloupe.errors import AnalyserFailed, ProcessError, ProcessTimedOut, ProgramNotFound
from codeloupe.model.finding import Severity
from tests.children import assert_all_gone, recorded_pids, until_recorded
from tests.endings import timed_out
from tests.rows import each
from tests.unit.analysers.written import Files, analyse, target

CANARY = "canary-of-the-host-" + "4711"
TYPED = (AnalyserFailed, ProcessError)


@dataclass(frozen=True)
class Case:
    """An analyser, how to make one with another program, and a defect that it finds on the first line of a file.

    `suppressed` is the same line with a comment that hides the defect, and `comment` is that comment.
    """

    make: Callable[[str | None], Analyser]
    suffix: str
    defect: str
    suppressed: str
    comment: str


SWALLOWS = "async function f() { try { await work(); } catch (error) {} }"
TOKEN = "token gh" + "p_" + "q8Zr3LwXn5Kd9VtYb2Hc7Mf4Sg6Jp1Ra0TeU"
CASES = {
    "ruff": Case(RuffAnalyser, ".py", "print(unknown)\n", "print(unknown)  # noqa\n", "# noqa"),
    "ast-grep": Case(AstGrepAnalyser, ".js", f"{SWALLOWS}\n", f"{SWALLOWS} // ast-grep-ignore\n", "// ast-grep-ignore"),
    "detect-secrets": Case(
        SecretsAnalyser,
        ".txt",
        f"{TOKEN}\n",
        f"{TOKEN} # pragma: allowlist secret\n",
        "# pragma: allowlist secret",
    ),
}
STARTS_PROGRAM = [CASES["ruff"], CASES["ast-grep"]]


def program(tmp_path: Path, script: str) -> str:
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def files(case: Case, *stems: str, text: str = "") -> Files:
    """Files with the defect of an analyser, or another text, below names without their ending."""
    return {stem + case.suffix: text or case.defect for stem in stems or ("a",)}


def hanging(tmp_path: Path) -> str:
    """A program that never ends, nor does its child; both tell their process numbers."""
    return program(tmp_path, f"sleep 60 &\ncd '{tmp_path}'; echo $! > child.pid; echo $$ > own.pid\nwait")


@each("case", CASES.values())
def test_a_defect_is_found_with_all_that_a_report_needs(case: Case, tmp_path: Path) -> None:
    report = analyse(case.make(None), tmp_path, files(case))
    assert report.failed == {}
    (issue,) = report.issues
    assert (issue.file, issue.line_start) == (f"a{case.suffix}", 1)
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
    assert analyser.accepts(f"a{case.suffix}")
    assert analyse(analyser, tmp_path, files(case, text="\n")) == AnalyserReport()
    assert analyse(case.make("/nonexistent/program"), tmp_path, {}) == AnalyserReport()


@each("case", STARTS_PROGRAM)
def test_a_missing_program_is_a_typed_error(case: Case, tmp_path: Path) -> None:
    analyser = case.make("/nonexistent/program")
    with pytest.raises((ProgramNotFound, AnalyserFailed)) as caught:
        analyse(analyser, tmp_path, files(case))
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
@each("case", STARTS_PROGRAM)
def test_a_program_that_breaks_is_never_a_clean_report(case: Case, tmp_path: Path, script: str) -> None:
    try:
        failed = set(analyse(case.make(program(tmp_path, script)), tmp_path / "snapshot", files(case)).failed)
    except TYPED:
        return
    assert failed == set(files(case))


@each("case", STARTS_PROGRAM)
def test_a_program_that_does_not_say_its_version_is_a_typed_error(case: Case, tmp_path: Path) -> None:
    for script in ("exit 3", "true", "echo; exit 1"):
        with pytest.raises(TYPED):
            asyncio.run(case.make(program(tmp_path, script)).version())


@each("case", STARTS_PROGRAM)
def test_a_program_that_hangs_is_ended_at_the_deadline_with_all_it_started(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanger = hanging(tmp_path)
    # Of its own accord it gives up a file before the time is over, and that is not what is shown here.
    monkeypatch.setattr(ast_grep, "_CALL_SECONDS", 60.0)
    timed_out(
        ProcessTimedOut,
        lambda seconds: analyse(case.make(hanger), tmp_path / "snapshot", files(case), timeout_seconds=seconds),
        ready=lambda _: len(recorded_pids(tmp_path)) == 2,
    )
    assert_all_gone(recorded_pids(tmp_path))


@each("case", STARTS_PROGRAM)
def test_cancellation_in_mid_run_leaves_no_process(case: Case, tmp_path: Path) -> None:
    hanger = hanging(tmp_path)

    async def cancel_when_running() -> None:
        running = asyncio.ensure_future(case.make(hanger).analyse(target(tmp_path / "snapshot", files(case))))
        await until_recorded(tmp_path, 2)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancel_when_running())
    assert_all_gone(recorded_pids(tmp_path))


@each("case", CASES.values())
def test_a_file_is_analysed_whatever_its_name(case: Case, tmp_path: Path) -> None:
    stems = (
        *("-rf", "--version", "@file", "with space", "line\nbreak", "tab\tand\\backslash", "quote'\"`$(touch x)"),
        *(".hidden", "glob[*?]", "node_modules/inside", ".venv/inside", "build/inside", "a:1:2", "n" * 200),
        os.fsdecode(b"not-utf8-\xff\xe9"),
    )
    report = analyse(case.make(None), tmp_path, files(case, *stems))
    assert report.failed == {}
    assert sorted(issue.file for issue in report.issues) == sorted(files(case, *stems))


def hostile_configuration(outside: Path) -> Files:
    """What a repository may hold to hide its defects, to write elsewhere or to read files of the host."""
    (outside / "host.toml").write_text(f'# {CANARY}\nselect = "{CANARY}"\n', encoding="utf-8")
    ruff = f'exclude = ["*"]\nextend = "{outside}/host.toml"\ncache-dir = "{outside}/cache"\nfix = true\n'
    ruff += '[lint]\nselect = []\n[lint.per-file-ignores]\n"*" = ["ALL"]\n'
    language = f"js: {{libraryPath: {outside}/evil.so, extensions: [js]}}"
    return {
        **dict.fromkeys(("ruff.toml", ".ruff.toml"), ruff),
        **dict.fromkeys((".gitignore", ".ignore", ".sgignore"), "*\n"),
        **dict.fromkeys(("detect_secrets.py", "codeloupe/__init__.py"), f"open('{outside}/executed', 'w')\n"),
        "pyproject.toml": '[tool.ruff]\nexclude = ["*"]\nforce-exclude = true\n',
        "sgconfig.yml": f"ruleDirs: [{outside}]\ncustomLanguages:\n  {language}\n",
        ".secrets.baseline": '{"version": "1.5.0", "plugins_used": [], "filters_used": [], "results": {}}',
    }


@each("case", CASES.values())
def test_no_configuration_of_the_repository_changes_anything(case: Case, tmp_path: Path) -> None:
    root = tmp_path / "snapshot"
    outside = tmp_path / "outside"
    outside.mkdir()
    faulty = files(case, "a", "inner/b")
    before = analyse(case.make(None), root, faulty)
    target(root, hostile_configuration(outside))
    content = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    after = analyse(case.make(None), root, faulty)
    assert len(before.issues) == 2
    assert after == before
    assert CANARY not in repr(after)
    assert {path.name for path in outside.iterdir()} == {"host.toml"}
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == content


@each("trusted", [True, False])
@each("case", CASES.values())
def test_a_comment_silences_an_issue_only_in_a_trusted_change(case: Case, tmp_path: Path, trusted: bool) -> None:
    report = analyse(case.make(None), tmp_path, files(case, text=case.suppressed), trusted=trusted)
    assert report.failed == {}
    (issue,) = report.issues
    assert issue.silenced_by == (case.comment if trusted else "")


@each("case", CASES.values())
def test_a_comment_changes_nothing_else_about_an_issue(case: Case, tmp_path: Path) -> None:
    (plain,) = analyse(case.make(None), tmp_path, files(case), trusted=True).issues
    (silenced,) = analyse(case.make(None), tmp_path, files(case, text=case.suppressed), trusted=True).issues
    assert plain.silenced_by == ""
    assert replace(silenced, silenced_by="") == plain


@each("case", CASES.values())
def test_one_bad_file_does_not_hide_the_others(case: Case, tmp_path: Path) -> None:
    good, bad = f"good{case.suffix}", f"bad{case.suffix}"
    (tmp_path / bad).mkdir()
    lines = dict.fromkeys((bad, good), frozenset({1}))
    report = analyse(case.make(None), tmp_path, files(case, "good"), files=(bad, good), added_lines=lines)
    assert [issue.file for issue in report.issues] == [good]
    assert set(report.failed) == {bad}
