"""Sweeps that end badly: an agent that is killed, an interrupt, a kill. Nothing is lost, nothing is bought twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codeloupe.store.database import Database
from codeloupe.store.ledger import SqliteLedger
from codeloupe.store.location import database_path
from codeloupe.testing import Hang, Json, RecordedRequest, Reply, StandInServer
from tests.agent_factories import assert_nothing_runs_in
from tests.agent_programs import find
from tests.program import PROGRAM, codeloupe
from tests.sweep_history import make_commits, numbered_commits

KEY = "made-up-" + "for-tests"
CLEAN = Json({"findings": []})
NUMBERS = range(12)


@dataclass
class Running:
    """A sweep that runs, and what it has told so far."""

    child: subprocess.Popen[str]
    log: Path

    def told(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def ended(self) -> Any:
        """Its document; fails the test when it does not end in time."""
        stdout, _ = self.child.communicate(timeout=30)
        return json.loads(stdout)


def environment(server: StandInServer, agent: str) -> dict[str, str]:
    if agent == "api":
        address = {"CODELOUPE_API_MODEL": "anthropic:stand-in", "CODELOUPE_API_BASE_URL": server.url}
    else:
        address = {"ANTHROPIC_BASE_URL": server.url, "CODELOUPE_CLAUDE_PATH": str(find("claude"))}
    return {"ANTHROPIC_API_KEY": KEY, **address}


@contextlib.contextmanager
def sweeping(server: StandInServer, path: Path, *words: str, agent: str) -> Iterator[Running]:
    """A sweep in the background; it is gone at the end, whatever happens."""
    command = (str(PROGRAM), "commits", "--reviewer", agent, "--output", "json", *words)
    log = path.with_suffix(".log")
    # Who is killed cannot tidy up.
    temporary = path.with_suffix(".tmp")
    temporary.mkdir(exist_ok=True)
    with log.open("w", encoding="utf-8") as stderr:
        child = subprocess.Popen(
            command,
            cwd=path,
            env={**os.environ, **environment(server, agent), "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        yield Running(child, log)
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def number_of(request: RecordedRequest) -> int:
    return next(number for number in NUMBERS if request.mentions(f"+def part_{number}("))


def hanging(numbers: set[int]) -> Callable[[RecordedRequest], Reply]:
    """No answer about the commits of some numbers; the set may be emptied later."""

    def reply(request: RecordedRequest) -> Reply:
        return Hang() if number_of(request) in numbers else CLEAN

    return reply


def stored() -> int:
    """How many answers the ledger has; the database is whole."""
    path = database_path(os.environ)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with Database(path) as database:
        return SqliteLedger(database).stats().results


def until(condition: Callable[[], bool], *, seconds: float = 50.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)


def claude_processes(parent: int) -> list[int]:
    """The claude programs that run below a process."""
    program = find("claude").resolve()
    parents: dict[int, int] = {}
    programs: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end, or not be ours, at any moment
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (entry / "exe").readlink() == program:
                programs.add(int(entry.name))

    def is_below(pid: int) -> bool:
        while pid in parents and pid != parent:
            pid = parents[pid]
        return pid == parent

    return [pid for pid in programs if is_below(pid)]


@pytest.mark.requirement("D8")
def test_a_program_that_is_killed_in_mid_request_costs_its_commit_alone(tmp_path: Path) -> None:
    names = make_commits(tmp_path / "three", numbered_commits(3))
    with (
        StandInServer(reply=hanging({1})) as server,
        sweeping(server, tmp_path / "three", "--max", "3", agent="claude_cli") as sweep,
    ):
        until(lambda: "commit 2/3" in sweep.told() and server.open_requests == 1)
        (program,) = claude_processes(sweep.child.pid)
        os.kill(program, signal.SIGKILL)
        document = sweep.ended()
        assert sweep.child.returncode == 3
        assert server.count(auxiliary=False) == 3
    assert [commit["sha"] for commit in document["commits"]] == names
    assert [commit["verdict"] for commit in document["commits"]] == ["LEAVE", None, "LEAVE"]
    failed = document["commits"][1]
    assert (failed["reviewed"], failed["findings"]) == (False, [])
    assert "crashed" in failed["failure"]
    assert "could not be reviewed" in sweep.told()
    assert_nothing_runs_in(tmp_path / "three")


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("number", "agent"), [(signal.SIGINT, "claude_cli"), (signal.SIGKILL, "claude_cli"), (signal.SIGKILL, "api")]
)
def test_after_an_end_in_the_middle_only_the_missing_commits_are_bought(
    tmp_path: Path, number: signal.Signals, agent: str
) -> None:
    count = len(NUMBERS) if agent == "api" else 5
    path = tmp_path / "many"
    make_commits(path, numbered_commits(count))
    held = set(range(count // 2))
    words = ("--max", str(count), "--concurrency", str(count))
    with StandInServer(reply=hanging(held)) as server:
        with sweeping(server, path, *words, agent=agent) as sweep:
            bought = count - len(held)
            until(lambda: f"commit {bought}/{count}" in sweep.told() and server.open_requests == len(held))
            sweep.child.send_signal(number)
            sweep.child.wait(20)
            assert sweep.child.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
        if number == signal.SIGINT:
            assert "the same command again buys only the rest" in sweep.told()
        assert_nothing_runs_in(path)
        assert stored() == bought
        held.clear()
        server.clear()
        flags = ("commits", "--reviewer", agent, "--output", "json", *words)
        again = codeloupe(*flags, cwd=path, environment=environment(server, agent))
        assert sorted(number_of(request) for request in server.requests if not request.auxiliary) == list(
            range(count // 2)
        )
    document = again.json()
    assert (again.exit_code, len(document["commits"])) == (0, count), again.stderr
    assert (document["usage"]["requests"], document["usage"]["cached"]) == (count // 2, bought)
    assert stored() == count


SCRIPTED = """
import asyncio, re, sys
from pathlib import Path
from codeloupe.config.schema import Settings
from codeloupe.model.events import CommitReviewed
from codeloupe.model.review import ReviewerInfo
from codeloupe.panel import Seat
from codeloupe.sweeping import review_commits
from codeloupe.testing import Delay, Json, ScriptedAgent

def step(request):
    with Path(sys.argv[2]).open("a") as calls:
        calls.write(re.search(r"\\+def part_(\\d+)", request.prompt)[1] + "\\n")
    return Delay(0.05, Json({"findings": []}))

def tell(event):
    if isinstance(event, CommitReviewed):
        print("reviewed", event.outcome.commit.subject.rpartition(" ")[2], event.outcome.verdict, flush=True)

seat = Seat(ReviewerInfo("scripted", "for a test"), (ScriptedAgent([step]),))
print("ready", flush=True)
asyncio.run(review_commits(repo=sys.argv[1], settings=Settings(concurrency=2), seats=[seat], emit=tell))
"""


@contextlib.contextmanager
def scripted_sweep(path: Path, calls: Path) -> Iterator[subprocess.Popen[str]]:
    """A sweep in a process of its own with the scripted agent, which notes what it is asked in a file."""
    temporary = path.with_suffix(".tmp")
    temporary.mkdir(exist_ok=True)
    words = (sys.executable, "-c", SCRIPTED, str(path), str(calls))
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)})
    assert child.stdout is not None
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def lines(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def reviewed(told: str) -> set[int]:
    return {int(line.split()[1]) for line in told.splitlines() if line.endswith(" LEAVE")}


def test_kills_at_any_moment_lose_nothing_that_was_told_and_buy_nothing_twice(tmp_path: Path) -> None:
    count = 40
    path, calls = tmp_path / "many", tmp_path / "calls"
    make_commits(path, numbered_commits(count))
    chance = random.Random(5)
    told: set[int] = set()
    for _ in range(4):
        before = len(lines(calls))
        with scripted_sweep(path, calls) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.1, 0.9))
            child.kill()
            output = child.stdout.read()
        assert told.isdisjoint(lines(calls)[before:])
        told |= reviewed(output)
        if calls.exists():
            assert stored() >= len(told)
    before = len(lines(calls))
    with scripted_sweep(path, calls) as child:
        output, _ = child.communicate(timeout=30)
        assert child.returncode == 0
    assert told.isdisjoint(lines(calls)[before:])
    assert reviewed(output) == set(range(count))
    assert stored() == count
    # Of a call that a kill cut short nothing is left: at most two ran at a time.
    assert count <= len(lines(calls)) <= count + 4 * 2


def test_two_sweeps_at_once_buy_each_commit_once(tmp_path: Path) -> None:
    count = 40
    path, calls = tmp_path / "many", tmp_path / "calls"
    make_commits(path, numbered_commits(count))
    with scripted_sweep(path, calls) as one, scripted_sweep(path, calls) as two:
        outputs = [sweep.communicate(timeout=40)[0] for sweep in (one, two)]
        assert (one.returncode, two.returncode) == (0, 0)
    assert [reviewed(output) for output in outputs] == [set(range(count))] * 2
    assert sorted(lines(calls)) == list(range(count))
    assert stored() == count
