from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from codeloupe.errors import ProgramNotFound
from codeloupe.model.pipeline import CriticVerdict, Critique, GateDefinition, GateKind
from codeloupe.pipelines.gates import GateTask, command_gate, last_output
from tests.endings import comes_to_pass, with_enough_time
from tests.rows import each


def task(workspace: Path) -> GateTask:
    return GateTask(
        stage="tests",
        attempt=1,
        workspace=workspace,
        requirements="",
        artifacts=(),
        files_changed=(),
        diff="",
        output="",
    )


def judged(workspace: Path, *command: str, seconds: float = 20.0) -> Critique:
    gate = GateDefinition(kind=GateKind.COMMAND, command=command, timeout_seconds=seconds)
    return asyncio.run(command_gate(gate, task(workspace)))


def python(workspace: Path, code: str, *words: str, seconds: float = 20.0) -> Critique:
    return judged(workspace, sys.executable, "-c", code, *words, seconds=seconds)


@pytest.mark.program
def test_exit_code_0_passes(tmp_path: Path) -> None:
    critique = python(tmp_path, "print('all well')")
    assert (critique.verdict, critique.gate, critique.score, critique.blockers) == (
        CriticVerdict.PASS,
        GateKind.COMMAND,
        None,
        (),
    )


@pytest.mark.program
def test_any_other_exit_code_is_rework_with_the_last_output_of_both_outputs(tmp_path: Path) -> None:
    critique = python(tmp_path, "import sys; print('2 tests failed'); print('oh', file=sys.stderr); sys.exit(3)")
    assert critique.verdict is CriticVerdict.REWORK
    assert critique.summary.endswith("ended with exit code 3")
    assert [blocker.rpartition("\n")[2] for blocker in critique.blockers] == ["2 tests failed", "oh"]
    assert critique.fixes


@pytest.mark.program
def test_it_works_in_the_workspace_and_no_shell_reads_its_words(tmp_path: Path) -> None:
    code = "import os, sys; open('seen', 'w').write(os.getcwd() + sys.argv[1]); sys.exit(1)"
    python(tmp_path, code, "$(touch evil); *")
    assert (tmp_path / "seen").read_text() == f"{tmp_path}$(touch evil); *"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["seen"]


@pytest.mark.program
def test_one_that_takes_too_long_is_rework_and_gone_with_all_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True);"
        "print('child', child.pid, flush=True); time.sleep(600)"
    )
    critique = with_enough_time(
        lambda seconds: python(tmp_path, code, seconds=seconds),
        ready=lambda critique: "\nchild " in critique.blockers[0],
    )
    assert critique.verdict is CriticVerdict.REWORK
    assert "did not finish within " in critique.summary
    pid = int(critique.blockers[0].rpartition(" ")[2])
    assert comes_to_pass(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.program
def test_one_that_is_killed_is_rework(tmp_path: Path) -> None:
    critique = python(tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert (critique.verdict, critique.blockers) == (
        CriticVerdict.REWORK,
        (f"{critique.summary}, without a word",),
    )
    assert critique.summary.endswith("was ended by signal 9")


@each("command", ["no-such-program-at-all", "./missing.sh", "/nowhere/at/all"])
def test_one_that_cannot_be_started_decides_nothing(tmp_path: Path, command: str) -> None:
    with pytest.raises(ProgramNotFound, match="there is no program"):
        judged(tmp_path, command)


@pytest.mark.program
def test_it_sees_none_of_our_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "made-up-" + "for-tests")
    monkeypatch.setenv("SOME_TOKEN", "made-up-" + "token-too")
    monkeypatch.setenv("CODELOUPE_MODEL", "x")
    critique = python(tmp_path, "import os; print(sorted(os.environ)); raise SystemExit(1)")
    assert "'HOME'" in critique.blockers[0]
    assert "'PATH'" in critique.blockers[0]
    for name in ("ANTHROPIC_API_KEY", "SOME_TOKEN", "CODELOUPE_MODEL"):
        assert name not in critique.blockers[0]


@pytest.mark.program
def test_a_cancellation_ends_the_program(tmp_path: Path) -> None:
    gate = GateDefinition(
        kind=GateKind.COMMAND,
        command=(
            sys.executable,
            "-c",
            "open('pid', 'w').write(str(__import__('os').getpid())); __import__('time').sleep(99)",
        ),
    )

    async def cancelled() -> None:
        work = asyncio.create_task(command_gate(gate, task(tmp_path)))
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(cancelled())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_what_a_terminal_would_obey_is_gone_or_shown() -> None:
    assert last_output(b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07 plain \x1b(B \xff") == "red  plain \\x1b(B \ufffd"


def test_of_a_line_that_was_written_over_the_last_state_counts() -> None:
    assert last_output("10 %\r50 %\r100 %\r\ndone\r\n") == "100 %\ndone"


def test_the_last_lines_are_kept_and_long_ones_are_cut() -> None:
    words = last_output("\n".join(f"line {number}" for number in range(500)))
    assert words.startswith("line 440\n")
    assert last_output("x" * 9_000) == f"{'x' * 500} ..."
    assert len(last_output("\n".join(["y" * 400] * 60))) <= 6_004


def test_a_secret_is_masked_before_anything_is_cut() -> None:
    secret = "ghp_" + "a1B2" * 9
    assert "a1B2" not in last_output("x" * 480 + " " + secret)


@each("piece", ["\x1b[", "\x1b]", "\x1b[0;0;", "\r", "\x1b]x\x1b"])
def test_the_end_of_hostile_output_is_told(piece: str) -> None:
    assert last_output(piece * (400_000 // len(piece)) + "\nthe end").endswith("the end")
