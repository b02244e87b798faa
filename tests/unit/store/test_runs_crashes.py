"""Kill -9 at any moment: what is loaded is always a whole state that was saved, and the journal goes on behind it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import pytest

from codeloupe.store.runs import DirectoryRunStore
from tests.unit.store.run_samples import run

pytestmark = pytest.mark.program

# Loads everything once; then each line of its input makes a process that works until it is killed.
_WORKER = """
import os, sys
from pathlib import Path
from codeloupe.model.pipeline import StageState
from codeloupe.store.runs import DirectoryRunStore
from tests.unit.store.run_samples import attempt, critique, event, run, stage

store = DirectoryRunStore(Path(sys.argv[1]))

def work(first):
{work}

for first in iter(sys.stdin.readline, ""):
    child = os.fork()
    if child == 0:
        print("process", os.getpid(), flush=True)
        work(int(first))
    os.waitpid(child, 0)
    print("killed", flush=True)
"""
_SAVE = """
    with store.lock("00000001"):
        for number in range(first, 10**9):
            # Ever another size, so that an old state cannot pass for a new one.
            attempts = (attempt(each, critique(summary="s" * 500)) for each in range(number % 7))
            state = run(1, stage("write", StageState.RUNNING, *attempts), reason=str(number))
            print(f"saves {number}", flush=True)
            store.save(state, event(str(number), facts={"n": number}))
            print(f"saved {number}", flush=True)
"""
_CREATE = """
    for number in range(first, 10**9):
        store.create(run(number))
        print(f"made {number}", flush=True)
        if number % 2:
            store.remove(f"{number:08x}")
            print(f"removed {number}", flush=True)
"""
ROUNDS = 12


class Worker:
    """A program that does something to a store of runs again and again, until it is killed, and then anew."""

    def __init__(self, work: str, root: Path) -> None:
        self._program = subprocess.Popen(
            (sys.executable, "-c", _WORKER.format(work=work), str(root)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(Path(__file__).parents[3])},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # At the end of its input it goes by itself.
        self._program.communicate()

    def line(self) -> str:
        assert self._program.stdout is not None
        line = self._program.stdout.readline()
        assert line.endswith("\n"), "it ended by itself"
        return line.rstrip("\n")

    def killed_at_some_moment(self, first: int, chance: random.Random) -> list[str]:
        """Let it work on from a number, and kill it some lines and an instant later; all that it had printed."""
        assert self._program.stdin is not None
        self._program.stdin.write(f"{first}\n")
        self._program.stdin.flush()
        process = int(self.line().removeprefix("process "))
        printed = [self.line() for _ in range(chance.randrange(2, 12))]
        time.sleep(chance.uniform(0, 0.005))
        os.kill(process, signal.SIGKILL)
        while (line := self.line()) != "killed":
            printed.append(line)
        return printed


def last(printed: list[str], word: str, default: int) -> int:
    numbers = [int(line.split()[1]) for line in printed if line.startswith(f"{word} ")]
    return numbers[-1] if numbers else default


@pytest.mark.requirement("S9")
def test_after_any_kill_the_last_state_that_was_saved_is_there_or_the_one_under_way(tmp_path: Path) -> None:
    chance = random.Random(6)
    store = DirectoryRunStore(tmp_path)
    store.create(run(1, reason="0"))
    told, interrupted = 0, set[int]()
    with Worker(_SAVE, tmp_path) as worker:
        for _ in range(ROUNDS):
            printed = worker.killed_at_some_moment(told + 1, chance)
            saved, begun = last(printed, "saved", told), last(printed, "saves", told)
            loaded = store.load("00000001")
            assert int(loaded.reason) in (saved, begun)
            numbers = [int(each.message) for each in store.journal("00000001")]
            # The state is written first: of what a kill cut off, at most the event may be missing.
            assert numbers == sorted(set(numbers))
            assert set(range(1, saved + 1)) - set(numbers) <= interrupted
            assert not set(numbers) - set(range(1, begun + 1))
            interrupted.add(begun)
            told = begun
            with store.lock("00000001"):
                store.save(loaded)
    assert told > ROUNDS  # it was killed at work, and not before it
    assert [path.name for path in store.directory("00000001").iterdir() if path.name.startswith(".")] == []


def test_after_any_kill_a_run_is_there_wholly_or_not_at_all(tmp_path: Path) -> None:
    chance = random.Random(7)
    root = tmp_path / "runs"
    store = DirectoryRunStore(root)
    first, kept, doubtful = 1, set[int](), set[int]()
    with Worker(_CREATE, root) as worker:
        for _ in range(ROUNDS):
            printed = worker.killed_at_some_moment(first, chance)
            made = {int(line.split()[1]) for line in printed if line.startswith("made ")}
            removed = {int(line.split()[1]) for line in printed if line.startswith("removed ")}
            newest = max(made, default=first - 1)
            kept |= {number for number in made if not number % 2}
            doubtful |= {newest, newest + 1} - kept - removed
            runs, problems = store.list()
            assert not problems
            assert kept <= {int(each.run_id, 16) for each in runs} <= kept | doubtful
            first = newest + 2
    assert len(kept) > ROUNDS
