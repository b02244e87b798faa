"""What people see while a review, a sweep or a first push runs: on a terminal, and in a log."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from codeloupe.testing import Json, RecordedRequest, Reply, StandInServer
from tests.agent_programs import agents_at
from tests.endings import comes_to_pass
from tests.program import PROGRAM
from tests.repository import GitRepository
from tests.sweep_history import make_commits, numbered_commits
from tests.unit.cli.run_terminal import Terminal
from tests.warm_program import codeloupe

FAULTY = "import subprocess\n\n\ndef run(name):\n    subprocess.call('ls ' + name, shell=True)\n"
OFFLINE = ("--reviewer", "offline")
ACCEPT_ALL = "codeloupe baseline add --all --reason WHY"
CLAUDE = ("--reviewer", "claude_cli", "--concurrency", "1")


def no_findings(_request: RecordedRequest) -> Reply:
    return Json({"findings": []})


@pytest.fixture
def server() -> Iterator[StandInServer]:
    with StandInServer(reply=no_findings) as server:
        yield server


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


@pytest.fixture
def commits(tmp_path: Path) -> Path:
    make_commits(tmp_path / "project", numbered_commits(5), first_seconds=int(time.time()) - 600)
    return tmp_path / "project"


@pytest.fixture
def old_code(repository: GitRepository, tmp_path: Path) -> GitRepository:
    """A repository with old code, an empty remote and our hook."""
    subprocess.run(("git", "init", "--quiet", "--bare", str(tmp_path / "remote.git")), check=True)
    repository.git("remote", "add", "origin", str(tmp_path / "remote.git"))
    repository.commit_files({"README.md": "a shop\n"})
    repository.commit_files({"shop.py": FAULTY})
    assert codeloupe("hook", "install", "pre-push", "--yes", *OFFLINE, cwd=repository.path).exit_code == 0
    return repository


def push(project: GitRepository, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **project._environment(), "HOME": os.environ["HOME"], "TERM": "xterm", "CI": ""}
    words = ("git", "push", "origin", "main")
    streams: Mapping[str, int] = {"stdout": subprocess.PIPE, "stderr": stderr}
    return subprocess.run(words, cwd=project.path, env=environment, check=False, text=True, **streams)  # type: ignore[call-overload,no-any-return]  # as named


def repeated(stdout: str, stderr: str) -> Sequence[str]:
    """The lines of the log that are in the report too."""
    report = " ".join(stdout.split())
    return [line for line in stderr.splitlines() if line.removeprefix("codeloupe: ") in report]


@pytest.mark.defect("E24")
def test_no_line_of_the_log_is_repeated_by_the_report(commits: Path) -> None:
    (commits / "shop.py").write_text(FAULTY)
    reviews = (("review",), ("review", "--uncommitted"), ("review", "--commit", "HEAD"), ("commits",))
    for words in (*((*words, *OFFLINE) for words in reviews), ("demo",)):
        ended = codeloupe(*words, cwd=commits)
        assert ended.stderr.startswith("codeloupe: Reviewer: offline\n")
        assert repeated(ended.stdout, ended.stderr) == []


@pytest.mark.defect("E24")
def test_the_log_has_cost_and_estimate_from_the_third_unit_on(server: StandInServer, commits: Path) -> None:
    words = ("review", "--commit", "HEAD", "--passes", "4", *CLAUDE)
    ended = codeloupe(*words, cwd=commits, environment=agents_at(server, "claude_cli"))
    first, second, third, last = [line for line in ended.stderr.splitlines() if "unit " in line]
    assert [line.endswith(" so far)") for line in (first, second, last)] == [True] * 3
    assert " so far, about " in third
    assert third.endswith(" left)")
    assert "$" in third.partition("about")[2]


@pytest.mark.defect("E24")
def test_answers_from_the_ledger_are_neither_cost_nor_work(server: StandInServer, commits: Path) -> None:
    def lines() -> list[str]:
        ended = codeloupe("commits", *CLAUDE, cwd=commits, environment=agents_at(server, "claude_cli"))
        return [line for line in ended.stderr.splitlines() if "commit " in line]

    first = lines()
    assert [" left)" in line for line in first] == [False, False, True, True, False]
    assert all("$" in line for line in first)
    again = lines()
    assert len(again) == 5
    assert not [line for line in again if "$" in line or "left" in line]


@pytest.mark.defect("E24")
def test_the_live_line_has_cost_and_estimate(commits: Path, terminal: Terminal) -> None:
    asked: list[int] = []

    def answer(_request: RecordedRequest) -> Reply:
        asked.append(1)
        if len(asked) == 4:
            comes_to_pass(lambda: " left" in terminal.so_far())
        return Json({"findings": []})

    with StandInServer(reply=answer) as server:
        variables = {**os.environ, **agents_at(server, "claude_cli"), "TERM": "xterm", "COLUMNS": "200", "CI": ""}
        words = (str(PROGRAM), "review", "--commit", "HEAD", "--passes", "4", *CLAUDE)
        done = subprocess.run(
            words, cwd=commits, env=variables, check=False, stdout=subprocess.PIPE, stderr=terminal.stream.fileno()
        )
    assert done.returncode == 0
    shown = next(line for line in terminal.text().split("\r") if " left" in line)
    assert "3/4 units" in shown
    assert "$" in shown.partition("units")[2].partition("about")[0]
    assert "$" in shown.partition("about")[2]


@pytest.mark.defect("E20")
def test_a_first_push_shows_progress_and_how_to_accept_old_code(old_code: GitRepository) -> None:
    blocked = push(old_code)
    assert blocked.returncode == 1
    assert "codeloupe: Searching 2 pushed commits for secrets\n" in blocked.stderr
    assert "codeloupe: ruff done in " in blocked.stderr
    assert ACCEPT_ALL in blocked.stdout
    accepted = codeloupe("baseline", "add", "--all", "--reason", "old code", cwd=old_code.path)
    assert accepted.exit_code == 0, accepted.stderr
    assert push(old_code).returncode == 0
    old_code.commit_files({"more.py": FAULTY})
    later = push(old_code)
    assert (later.returncode, ACCEPT_ALL in later.stdout) == (1, False)


@pytest.mark.defect("E20")
def test_a_push_at_a_terminal_shows_the_live_line(old_code: GitRepository, terminal: Terminal) -> None:
    assert push(old_code, stderr=terminal.stream.fileno()).returncode == 1
    text = terminal.text()
    assert "\x1b[?25l" in text
    assert "codeloupe: Reading" not in text


@pytest.mark.defect("E20")
def test_every_review_that_compares_with_nothing_points_at_the_baseline(repository: GitRepository) -> None:
    repository.write("shop.py", FAULTY)
    repository.git("add", "shop.py")
    for words in (("--staged",), ("--uncommitted",)):
        assert ACCEPT_ALL in codeloupe("review", *words, *OFFLINE, cwd=repository.path).stdout
    repository.commit()
    assert ACCEPT_ALL in codeloupe("review", "--commit", "HEAD", *OFFLINE, cwd=repository.path).stdout
    passing = ("--commit", "HEAD", "--fail-on", "critical")
    assert ACCEPT_ALL not in codeloupe("review", *passing, *OFFLINE, cwd=repository.path).stdout
    diff = repository.git("show", "--format=", "HEAD")
    by_diff = codeloupe("review", "--diff-file", "-", *OFFLINE, cwd=repository.path, stdin=diff)
    assert (by_diff.exit_code, ACCEPT_ALL in by_diff.stdout) == (1, False)
