"""Runs that are killed or interrupted: nothing that was finished is bought again.

The agents are the real claude program before the stand-in server, which counts what it is asked.
"""

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from codeloupe.model.pipeline import StageState as S
from codeloupe.pipelines.run import open_run_store
from codeloupe.store.sqlite import state_directory
from codeloupe.testing import StandInServer, Status, Text
from tests.agent_factories import assert_nothing_runs_in
from tests.endings import comes_to_pass
from tests.engine_pipelines import Ran, critique, write_pipeline
from tests.engine_standin import Child, Deed, Running, Stage, Writes, at_work, background, environment
from tests.program import PROGRAM
from tests.warm_program import codeloupe

FAILS = Status(400, "prompt is too long: 9 tokens > 1 maximum")
ONE, TWO = Writes("a.md", "one\n"), Writes("a.md", "two\n")
REWORK, PASS = critique("REWORK", 50, "once more"), critique("PASS", 90)


@dataclass(frozen=True)
class Case:
    """A state in which the process is killed, what the agents do, and which calls are finished by then.

    With `held` that call is under way, and without one the process kills itself right behind the write of the state.
    """

    state: S
    write: tuple[Deed, ...] = (TWO,)
    critic: tuple[Deed, ...] = (PASS,)
    held: str = ""
    finished: tuple[str, ...] = ()

    @property
    def deeds(self) -> dict[str, Sequence[Deed]]:
        return {"write": self.write, "critic of write": self.critic, "read": (Text("It was read."),)}


CASES = [
    Case(S.RUNNING, held="write"),
    Case(S.GATING, held="critic of write", finished=("write",)),
    Case(S.AWAITING_APPROVAL, finished=("write", "critic of write")),
]
# tests/unit/pipelines/test_engine_resume.py dies after every write of a state too, within a process.
MORE_CASES = [
    Case(S.PENDING),
    Case(S.RECOVERING, write=(FAILS, TWO), finished=("write",)),
    Case(S.REWORKING, write=(ONE, TWO), critic=(REWORK, PASS), finished=("write", "critic of write")),
]
# The installed program, but for the moment of its death: it kills itself right behind the write of a state.
DYING = """
import os, signal, sys
from codeloupe.cli.main import main
from codeloupe.store.runs import DatabaseRunStore

wanted = sys.argv.pop(1)

def dying(write):
    def written(store, run, *events):
        given = write(store, run, *events)
        if run.stage("write").state.value == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        return given
    return written

DatabaseRunStore.create = dying(DatabaseRunStore.create)
DatabaseRunStore.save = dying(DatabaseRunStore.save)
sys.exit(main(sys.argv[1:]))
"""


def running(
    server: StandInServer, folder: Path, *words: str, command: Sequence[str] = (str(PROGRAM),)
) -> AbstractContextManager[Running]:
    """The installed program with a pipeline under way."""
    words = (*command, "pipeline", *words, "--agent", "claude_cli", "--json")
    return at_work(folder / "here", *words, variables=environment(server))


def finished_calls() -> set[str]:
    """The calls whose outcome the run's record holds, each with its number."""
    runs, problems = open_run_store().list()
    assert problems == {}
    finished = Counter[str]()
    for stage in runs[0].stages if runs else ():
        finished[stage.name] = len(stage.attempts) + len(stage.failures)
        words = [word for attempt in stage.attempts for word in attempt.critiques]
        finished[f"critic of {stage.name}"] = sum(word.gate.value == "critic" for word in words)
    return {f"{name} {number}" for name, count in finished.items() for number in range(1, count + 1)}


def only_run() -> Ran:
    (record,), problems = open_run_store().list()
    assert problems == {}
    return Ran(record, state_directory(os.environ))


def killed(case: Case, folder: Path) -> Ran:
    """A run whose process was killed in a state; no agent of it is left."""
    stage = Stage(case.deeds, held={f"{case.held} 1"})
    waits = case.held or case.state is S.AWAITING_APPROVAL
    gates = ["critic", {"kind": "approval", "timeout": "10m"}]
    reading = {"name": "read", "needs": ["write"], "writes": False}
    file = write_pipeline(folder / "p", {"name": "write", "gates": gates}, reading)
    command = (str(PROGRAM),) if waits else (sys.executable, "-c", DYING, case.state.value)

    def is_there() -> bool:
        # To read the store again and again would take most of the time that the run needs.
        is_told = case.held in stage.asked if case.held else "write: awaiting approval" in program.told()
        return is_told and only_run().record.stage("write").state is case.state

    with (
        StandInServer(reply=stage.reply) as server,
        running(server, folder, "run", str(file), command=command) as program,
    ):
        if waits:
            assert comes_to_pass(is_there)
            program.child.kill()
        assert program.child.wait(120) == -signal.SIGKILL, program.told()
        assert_nothing_runs_in(only_run().directory)
    return only_run()


@pytest.mark.parametrize(
    "case",
    [*CASES, *(pytest.param(case, marks=pytest.mark.soak) for case in MORE_CASES)],
    ids=lambda case: case.state.value,
)
def test_a_run_that_was_killed_ends_as_any_other_and_buys_nothing_again(tmp_path: Path, case: Case) -> None:
    left = killed(case, tmp_path).record
    assert left.stage("write").state is case.state
    assert finished_calls() == {f"{name} 1" for name in case.finished}
    # Each agent does what it would have done next.
    stage = Stage(case.deeds, asked=list(case.finished))
    with StandInServer(reply=stage.reply) as server:
        if case.state is not S.AWAITING_APPROVAL:
            with running(server, tmp_path, "resume", left.run_id, "--no-wait") as program:
                code, document = program.ended()
            assert (code, document["state"]) == (3, "awaiting_approval"), program.told()
        else:
            shown = codeloupe("pipeline", "status", "--json", cwd=tmp_path).json()
            assert (shown["state"], shown["busy"], shown["exit_code"]) == ("interrupted", False, 130)
        words = ("pipeline", "approve", left.run_id, "write", "--resume", "--json")
        said = codeloupe(*words, cwd=tmp_path, environment=environment(server))
        assert (said.exit_code, said.json()["state"]) == (0, "completed"), said.stderr
    # As often as in a run that nobody kills.
    assert stage.counts() == {name: len(deeds) for name, deeds in case.deeds.items()}
    ran = only_run()
    assert ran.result() == {"a.md": "two\n", "read-output.md": "It was read.\n"}
    assert len(ran.record.stage("write").attempts) == len(case.critic)
    assert_nothing_runs_in(ran.directory)


SCRIPTED = """
import asyncio, sys
from pathlib import Path
from codeloupe.config.schema import Settings
from codeloupe.pipelines.run import Pipeline, RunOptions, open_run_store, resume_run
from codeloupe.testing import Delay, Json, ScriptedAgent, Text

file, calls = Path(sys.argv[1]), Path(sys.argv[2])

def step(request):
    stage, is_critic = request.labels["stage"], "gate" in request.labels
    again = "once more" in request.prompt
    with calls.open("a") as notes:
        notes.write(f"{'critic of ' if is_critic else ''}{stage} {2 if again else 1}\\n")
    if is_critic:
        verdict, score, blockers = ("PASS", 90, []) if again else ("REWORK", 50, ["once more"])
        said = {"summary": "so", "verdict": verdict, "score": score, "blockers": blockers, "fixes": []}
        return Delay(0.05, Json(said))
    if request.permission_mode.may_write:
        (request.working_dir / f"{stage}.md").write_text("two" if again else "one")
    return Delay(0.05, Text("done"))

options = RunOptions(settings=Settings(), agents={"scripted": ScriptedAgent([step])}, agent="scripted")
print("ready", flush=True)
runs, _ = open_run_store().list()
work = resume_run("r", options=options) if runs else Pipeline.load(file).run(options=options, run_id="r")
print(asyncio.run(work).state.value, flush=True)
"""


def noted(calls: Path) -> Counter[str]:
    return Counter(calls.read_text().splitlines()) if calls.exists() else Counter()


def until_called(calls: Path, count: int, child: Child) -> None:
    """Wait until so many calls were begun, or the run is over: how far it comes in a time depends on the machine."""
    assert comes_to_pass(lambda: noted(calls).total() >= count or child.poll() is not None)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_any_moment_lose_nothing_that_was_written_down(tmp_path: Path, seed: int) -> None:
    stages = {"left": [], "right": [], "join": ["left", "right"]}
    listed = ({"name": name, "needs": needs, "gate": "critic"} for name, needs in stages.items())
    file = write_pipeline(tmp_path / "p", *listed)
    words = (sys.executable, "-c", SCRIPTED, str(file), str(tmp_path / "calls"))
    calls, chance, kills, output = tmp_path / "calls", random.Random(seed), 0, ""
    for is_last in (*[False] * 6, True):
        done, before = finished_calls(), noted(calls)
        with background(*words, temporary=tmp_path / "tmp") as child:
            if not is_last:
                assert child.stdout is not None
                assert child.stdout.readline() == "ready\n"
                until_called(calls, before.total() + chance.randint(0, 2), child)
                time.sleep(chance.uniform(0.0, 0.1))
                kills += child.poll() is None
                child.kill()
            output, _ = child.communicate(timeout=100)
        assert done.isdisjoint((noted(calls) - before).keys())
    assert output.splitlines()[-1] == "completed"
    assert only_run().result() == {f"{name}.md": "two" for name in stages}
    wanted = {f"{who}{name} {number}" for name in stages for who in ("", "critic of ") for number in (1, 2)}
    assert set(noted(calls)) == wanted
    # Of a call that a kill cut short nothing is left: at most two ran at a time.
    assert noted(calls).total() <= len(wanted) + 2 * kills


def test_a_gate_that_fails_the_run_is_exit_code_1(tmp_path: Path) -> None:
    join = {"name": "join", "needs": ["left", "right"]}
    file = write_pipeline(tmp_path / "p", {"name": "left"}, {"name": "right", "gate": "critic"}, join)
    deeds: dict[str, Sequence[Deed]] = {name: [Writes(f"{name}.md", f"{name}\n")] for name in ("left", "right")}
    stage = Stage({**deeds, "critic of right": [critique("FAIL", 5, "it cannot be")]})
    with StandInServer(reply=stage.reply) as server, running(server, tmp_path, "run", str(file)) as program:
        code, document = program.ended()
    assert (code, document["state"]) == (1, "failed"), program.told()
    states = {one.name: one.state for one in only_run().record.stages}
    assert states == {"left": S.COMPLETED, "right": S.FAILED, "join": S.CANCELLED}
    assert only_run().result() == {"left.md": "left\n"}


@pytest.mark.defect("U7")
def test_an_interrupt_leaves_no_agent_and_a_run_that_goes_on(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "first"}, {"name": "second", "needs": ["first"]})
    stage = Stage({"first": [Writes("a.md", "a\n")], "second": [Writes("b.md", "b\n")]}, held={"second 1"})
    with StandInServer(reply=stage.reply) as server:
        with running(server, tmp_path, "run", str(file)) as program:
            assert comes_to_pass(lambda: "second" in stage.asked and server.open_requests == 1)
            program.child.send_signal(signal.SIGINT)
            code, _ = program.ended()
        assert code == 130, program.told()
        ran = only_run()
        kept = "interrupted; 1 of 2 stages are finished and stored; "
        assert f"{kept}`codeloupe pipeline resume {ran.record.run_id}` continues\n" in program.told()
        assert_nothing_runs_in(ran.directory)
        states = [one.state for one in ran.record.stages]
        assert (ran.record.state, states) == (S.INTERRUPTED, [S.COMPLETED, S.INTERRUPTED])
        with running(server, tmp_path, "resume", ran.record.run_id) as program:
            code, document = program.ended()
    assert (code, document["state"]) == (0, "completed"), program.told()
    assert only_run().result() == {"a.md": "a\n", "b.md": "b\n"}
    assert stage.counts() == {"first": 1, "second": 2}
