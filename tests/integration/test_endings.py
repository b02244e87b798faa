"""Crashes at bad moments: interrupts, internal errors, a reader that leaves."""

import os
import pty
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import warm_program
from tests.endings import PATIENCE_SECONDS, comes_to_pass
from tests.program import PROGRAM, codeloupe
from tests.repository import GitRepository

SLOW_GIT = """#!/bin/sh
case "$*" in
  *--patch*) echo $$ > "{marker}"; exec sleep 600 ;;
esac
exec {git} "$@"
"""


@pytest.fixture
def slow_path(tmp_path: Path) -> Path:
    """A folder for the PATH whose git hangs when asked for a patch, and says so in a file."""
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "git"
    script.write_text(SLOW_GIT.format(marker=tmp_path / "started", git=real))
    script.chmod(0o755)
    return folder


@pytest.fixture
def project(repository: GitRepository) -> GitRepository:
    repository.commit_files({"a.py": "x = 1\n"})
    repository.write("a.py", "x = 2\n")
    return repository


def wait_for(path: Path) -> int:
    """The process id that a script leaves in a file."""
    assert comes_to_pass(lambda: path.exists() and path.read_text().endswith("\n")), f"{path} was never written"
    return int(path.read_text())


@contextmanager
def running(words: Sequence[str], **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is gone at the end, whatever happens: else another test would be blamed for it."""
    with subprocess.Popen(words, **how) as process:
        try:
            yield process
        finally:
            process.kill()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.requirement("C8")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_the_children_and_exits_130(
    project: GitRepository, slow_path: Path, tmp_path: Path, number: signal.Signals
) -> None:
    environment = {**os.environ, "PATH": f"{slow_path}:{os.environ['PATH']}"}
    # Whoever runs these tests may ignore the signal (nohup), and the program would do so too.
    listening = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [sys.executable, "-c", listening, str(PROGRAM), "review"]
    with running(words, cwd=project.path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        child = wait_for(tmp_path / "started")
        process.send_signal(number)
        _, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert b"codeloupe: interrupted; no answer is stored yet; `codeloupe review --resume` continues\n" in stderr
    assert b"Traceback" not in stderr
    assert not is_running(child)


def test_an_interrupt_on_a_terminal_restores_the_cursor(
    project: GitRepository, slow_path: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "PATH": f"{slow_path}:{os.environ['PATH']}", "TERM": "xterm-256color"}
    leader, follower = pty.openpty()
    words = [str(PROGRAM), "review"]
    with running(words, cwd=project.path, env=environment, stdout=follower, stderr=follower) as process:
        os.close(follower)
        wait_for(tmp_path / "started")
        process.send_signal(signal.SIGINT)
        shown = read_until_closed(leader)
        assert process.wait(timeout=PATIENCE_SECONDS) == 130
    assert b"\x1b[?25h" in shown
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")


def read_until_closed(leader: int) -> bytes:
    shown = b""
    while select.select([leader], [], [], PATIENCE_SECONDS)[0]:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # Linux reports a closed terminal as an input/output error
            break
        if not piece:
            break
        shown += piece
    os.close(leader)
    return shown


CRASH = """
import sys
from codeloupe.cli.main import main
from codeloupe.runtime import Runtime

async def broken(*_words, **_names):
    raise RuntimeError("lost the plot with " + "ghp_" + "a1B2" * 9)

Runtime.review = broken
sys.exit(main(["review"]))
"""


def crashed(project: GitRepository, code: str = CRASH, **variables: str) -> str:
    """What the program says at an internal error."""
    words, environment = (sys.executable, "-c", code), {**os.environ, **variables}
    completed = subprocess.run(words, cwd=project.path, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 4
    return completed.stderr


def test_an_internal_error_is_exit_4_with_a_log_that_holds_no_secret(project: GitRepository, tmp_path: Path) -> None:
    home = tmp_path / "state"
    password = "hunter2-" + "but-longer"
    code = CRASH.replace("lost the plot", f"lost the plot {password}")
    said = crashed(project, code, CODELOUPE_HOME=str(home), MY_API_TOKEN=password)
    assert "internal error: RuntimeError: lost the plot" in said
    assert "Traceback" not in said
    (log,) = (home / "logs").iterdir()
    assert str(log) in said
    text = log.read_text()
    assert "Traceback" in text
    assert not [secret for secret in (password, "ghp_" + "a1B2") if secret in text + said]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    said = crashed(project, CODELOUPE_HOME="/dev/null/nowhere")
    assert "the log could not be written" in said
    assert "RuntimeError" in said


def test_a_reader_that_leaves_early_is_no_error(project: GitRepository) -> None:
    command = f"'{PROGRAM}' review --format json -q | head -c 1"
    completed = subprocess.run(["sh", "-c", command], cwd=project.path, capture_output=True, text=True, check=False)
    assert completed.stdout == "{"
    assert completed.stderr == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_from_the_start_is_no_crash(project: GitRepository, closed: str) -> None:
    script = f'exec "$@" {closed}'
    words = ["sh", "-c", script, "sh", str(PROGRAM), "review", "--reviewer", "offline", "--uncommitted"]
    ended = subprocess.run(words, cwd=project.path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "internal error" not in ended.stderr
    # What went to the closed streams went nowhere, and not into a file that got their number.
    listed = warm_program.codeloupe("history", "list", "--json", cwd=project.path)
    assert listed.exit_code == 0, listed
    assert len(listed.json()["entries"]) == 1


# A thread that is left, as some clients leave one, makes the interpreter itself write out what is buffered.
WITH_A_THREAD = (
    "import sys, threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    "from codeloupe.cli.main import main; sys.exit(main())"
)


@pytest.mark.defect("U9")
def test_a_full_disk_behind_standard_output_is_told_in_words(project: GitRepository) -> None:
    offline = "--uncommitted --reviewer offline -q"
    verbs = ["", "--version", "config schema", f"review {offline}", f"review -o /dev/stdout {offline}", "history list"]
    wrong: list[str] = []
    for words in map(str.split, verbs):
        with Path("/dev/full").open("wb") as full:
            ended = subprocess.run((str(PROGRAM), *words), cwd=project.path, stdout=full, stderr=-1, check=False)
            threaded = (sys.executable, "-c", WITH_A_THREAD, *words)
            deaf = subprocess.run(threaded, cwd=project.path, stdout=full, stderr=full, check=False)
        said = ended.stderr.decode()
        told = said.startswith("codeloupe: cannot write") and said.count("\n") == 2 and "hint: " in said
        if not told or (ended.returncode, deaf.returncode) != (2, 2):
            wrong.append(f"{words}: {ended.returncode} {deaf.returncode} {said}")
    assert wrong == []


def test_progress_on_a_terminal_without_unicode_has_no_escapes_for_our_own_signs(project: GitRepository) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    words = ("review", "--reviewer", "offline", "--uncommitted")
    ended = codeloupe(*words, cwd=project.path, environment=plain)
    assert ended.exit_code == 0
    assert "codeloupe: Reviewer: offline" in ended.stderr
    assert "\\u" not in ended.stderr + ended.stdout
