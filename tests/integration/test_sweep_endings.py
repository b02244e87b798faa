"""Sweeps that end badly: an agent that is killed, an interrupt, a kill. Nothing is lost, nothing is bought twice."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from codeloupe.store.sqlite import SqliteDatabase, database_path
from codeloupe.testing import Hang, Json, RecordedRequest, Reply, StandInServer
from tests.agent_factories import assert_nothing_runs_in
from tests.agent_programs import find
from tests.endings import PATIENCE_SECONDS, comes_to_pass
from tests.engine_standin import KEY, Child, Running, at_work, background
from tests.engine_standin import environment as claude_environment
from tests.program import PROGRAM
from tests.sweep_history import make_commits, numbered_commits
from tests.warm_program import codeloupe

CLEAN = Json({"findings": []})
NUMBERS = range(4)


def environment(server: StandInServer, agent: str) -> dict[str, str]:
    codex = {"OPENAI_BASE_URL": f"{server.url}/v1", "CODELOUPE_CODEX_PATH": str(find("codex")), "OPENAI_API_KEY": KEY}
    return codex if agent == "codex" else claude_environment(server)


def sweeping(server: StandInServer, path: Path, *words: str, agent: str) -> AbstractContextManager[Running]:
    """A sweep in the background."""
    command = (str(PROGRAM), "commits", "--reviewer", agent, "--format", "json", *words)
    return at_work(path, *command, variables=environment(server, agent))


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
    with SqliteDatabase(path) as database, database.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM results").fetchone()[0])


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
        assert comes_to_pass(lambda: "commit 2/3" in sweep.told() and server.open_requests == 1)
        (program,) = claude_processes(sweep.child.pid)
        os.kill(program, signal.SIGKILL)
        exit_code, document = sweep.ended()
        assert exit_code == 3
        assert server.count(auxiliary=False) == 3
    assert [commit["sha"] for commit in document["commits"]] == names
    assert [commit["verdict"] for commit in document["commits"]] == ["LEAVE", "INCOMPLETE", "LEAVE"]
    failed = document["commits"][1]
    assert (failed["reviewed"], failed["findings"]) == (False, [])
    assert "crashed" in failed["failure"]
    assert "could not be reviewed" in sweep.told()
    assert_nothing_runs_in(tmp_path / "three")


@pytest.mark.defect("U7")
@pytest.mark.parametrize(("number", "agent"), [(signal.SIGINT, "codex"), (signal.SIGKILL, "claude_cli")])
def test_after_an_end_in_the_middle_only_the_missing_commits_are_bought(
    tmp_path: Path, number: signal.Signals, agent: str
) -> None:
    count, path = len(NUMBERS), tmp_path / "many"
    make_commits(path, numbered_commits(count))
    held = set(range(count // 2))
    words = ("--max", str(count), "--concurrency", str(count))
    with StandInServer(reply=hanging(held)) as server:
        with sweeping(server, path, *words, agent=agent) as sweep:
            bought = count - len(held)
            assert comes_to_pass(
                lambda: f"commit {bought}/{count}" in sweep.told() and server.open_requests == len(held)
            )
            sweep.child.send_signal(number)
            sweep.child.wait(PATIENCE_SECONDS)
            assert sweep.child.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
        if number == signal.SIGINT:
            kept = f"interrupted; {bought} of {count} commits are stored and not reviewed again; `codeloupe commits "
            assert kept in sweep.told()
        assert_nothing_runs_in(path)
        assert stored() == bought
        held.clear()
        server.clear()
        flags = ("commits", "--reviewer", agent, "--format", "json", *words)
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
from codeloupe.reviewers.choose import ChosenReviewer
from codeloupe.commits.sweep import review_commits
from codeloupe.testing import Delay, Json, ScriptedAgent

def step(request):
    with Path(sys.argv[2]).open("a") as calls:
        calls.write(re.search(r"\\+def part_(\\d+)", request.prompt)[1] + "\\n")
    return Delay(0.05, Json({"findings": []}))

def tell(event):
    if isinstance(event, CommitReviewed):
        print("reviewed", event.outcome.commit.subject.rpartition(" ")[2], event.outcome.verdict, flush=True)

seat = ChosenReviewer(ReviewerInfo("scripted", "for a test"), (ScriptedAgent([step]),))
print("ready", flush=True)
sys.stdin.readline()
asyncio.run(review_commits(repo=sys.argv[1], settings=Settings(concurrency=2), reviewers=[seat], emit=tell))
"""
COMMITS = 14


@contextlib.contextmanager
def scripted_sweep(path: Path, calls: Path) -> Iterator[Child]:
    """A sweep with the scripted agent, which notes what it is asked in a file; a process that waits for a line."""
    words = (sys.executable, "-c", SCRIPTED, str(path), str(calls))
    with background(*words, temporary=path.with_suffix(".tmp"), stdin=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child


def let_go(child: Child) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def told_before_its_end(child: Child, count: int, *, seconds: float) -> str:
    """What a sweep tells that is killed so long after it has told of so many commits."""
    assert child.stdout is not None
    let_go(child)
    told = "".join(child.stdout.readline() for _ in range(count))
    time.sleep(seconds)
    child.kill()
    # Not `communicate`: that does not know what `readline` has taken from the pipe already.
    return told + child.stdout.read()


def lines(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def reviewed(told: str) -> set[int]:
    return {int(line.split()[1]) for line in told.splitlines() if line.endswith(" LEAVE")}


@pytest.mark.soak
def test_kills_at_any_moment_lose_nothing_that_was_told_and_buy_nothing_twice(tmp_path: Path) -> None:
    path, calls = tmp_path / "many", tmp_path / "calls"
    make_commits(path, numbered_commits(COMMITS))
    chance = random.Random(5)
    told: set[int] = set()
    for before_kill in (0, 2, 4):
        before = len(lines(calls))
        with scripted_sweep(path, calls) as child:
            output = told_before_its_end(child, before_kill, seconds=chance.uniform(0, 0.2))
        assert told.isdisjoint(lines(calls)[before:])
        told |= reviewed(output)
        assert len(told) >= before_kill
        if calls.exists():
            assert stored() >= len(told)
    before = len(lines(calls))
    with scripted_sweep(path, calls) as child:
        let_go(child)
        output, _ = child.communicate(timeout=PATIENCE_SECONDS)
        assert child.returncode == 0
    assert told.isdisjoint(lines(calls)[before:])
    assert reviewed(output) == set(range(COMMITS))
    assert stored() == COMMITS
    # Of a call that a kill cut short nothing is left: at most two ran at a time.
    assert COMMITS <= len(lines(calls)) <= COMMITS + 3 * 2


def test_two_sweeps_at_once_buy_each_commit_once(tmp_path: Path) -> None:
    path, calls = tmp_path / "many", tmp_path / "calls"
    make_commits(path, numbered_commits(COMMITS))
    with scripted_sweep(path, calls) as one, scripted_sweep(path, calls) as two:
        let_go(one)
        let_go(two)
        outputs = [sweep.communicate(timeout=PATIENCE_SECONDS)[0] for sweep in (one, two)]
        assert (one.returncode, two.returncode) == (0, 0)
    assert [reviewed(output) for output in outputs] == [set(range(COMMITS))] * 2
    assert sorted(lines(calls)) == list(range(COMMITS))
    assert stored() == COMMITS
