"""Runs that are killed, interrupted, or were saved by 0.1.0: nothing that was finished is bought again.

The agents are the real claude program before the stand-in server, which counts what it is asked.
"""

import random
import signal
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Approval, Decision, RunRecord, StageState
from codeloupe.pipelines.run import open_run_store
from codeloupe.testing import StandInServer, Status, Text
from codeloupe.testing.agent import AgentStep
from tests.agent_factories import assert_nothing_runs_in
from tests.engine_pipelines import Cast, Ran, resume, write_pipeline
from tests.engine_standin import Child, Deed, Running, Stage, Writes, background, critique, environment, until
from tests.program import PROGRAM
from tests.warm_program import codeloupe

S = StageState


FAILS = Status(400, "prompt is too long: 9 tokens > 1 maximum")


ONE, TWO = Writes("a.md", "one\n"), Writes("a.md", "two\n")


REWORK, PASS = critique("REWORK", 50, "once more"), critique("PASS", 90)


@dataclass(frozen=True)
class Case:
    """A state in which the process is killed, what the agents do, and which calls are finished by then.

    With `held` that call is under way, and without one the process kills itself right behind the write of the state.
    """

    state: StageState
    write: tuple[Deed, ...] = (TWO,)
    critic: tuple[Deed, ...] = (PASS,)
    held: str = ""
    finished: Counter[str] = field(default_factory=Counter)

    @property
    def deeds(self) -> dict[str, Sequence[Deed]]:
        return {"write": self.write, "critic of write": self.critic, "read": (Text("It was read."),)}

    @property
    def calls(self) -> Counter[str]:
        """What a run takes that nobody kills."""
        return Counter({name: len(deeds) for name, deeds in self.deeds.items()})


CASES = [
    Case(S.PENDING),
    Case(S.RUNNING, held="write"),
    Case(S.GATING, held="critic of write", finished=Counter({"write": 1})),
    Case(S.RECOVERING, write=(FAILS, TWO), finished=Counter({"write": 1})),
    Case(S.REWORKING, write=(ONE, TWO), critic=(REWORK, PASS), finished=Counter({"write": 1, "critic of write": 1})),
    Case(S.AWAITING_APPROVAL, finished=Counter({"write": 1, "critic of write": 1})),
]


# The installed program, but for the moment of its death: it kills itself right behind the write of a state.
DYING = """
import os, signal, sys
from codeloupe.cli.main import main
from codeloupe.store.runs import DirectoryRunStore

wanted = sys.argv.pop(1)

def dying(write):
    def written(store, run, *events):
        given = write(store, run, *events)
        if run.stage("write").state.value == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
        return given
    return written

DirectoryRunStore.create = dying(DirectoryRunStore.create)
DirectoryRunStore.save = dying(DirectoryRunStore.save)
sys.exit(main(sys.argv[1:]))
"""


def pipeline(folder: Path) -> Path:
    gates = ["critic", {"kind": "approval", "timeout": "10m"}]
    return write_pipeline(
        folder, {"name": "write", "gates": gates}, {"name": "read", "needs": ["write"], "writes": False}
    )


def finished_calls_of(record: RunRecord) -> Counter[str]:
    """The calls whose outcome a record holds."""
    finished = Counter[str]()
    for stage in record.stages:
        finished.update([stage.name] * (len(stage.attempts) + len(stage.failures)))
        words = [word for attempt in stage.attempts for word in attempt.critiques]
        finished.update(f"critic of {stage.name}" for word in words if word.gate.value == "critic")
    return finished


def only_run() -> Ran:
    (record,), problems = open_run_store().list()
    assert problems == {}
    return Ran(record, open_run_store()._root.parent)


def killed(case: Case, folder: Path) -> Ran:
    """A run whose process was killed in a state; no agent of it is left."""
    stage = Stage(case.deeds, held={f"{case.held} 1"})
    waits = case.held or case.state is S.AWAITING_APPROVAL
    command = (str(PROGRAM),) if waits else (sys.executable, "-c", DYING, case.state.value)

    def is_there() -> bool:
        # To read the store again and again would take most of the time that the run needs.
        is_told = case.held in stage.asked if case.held else "write: awaiting approval" in running.told()
        return is_told and only_run().record.stage("write").state is case.state

    with (
        StandInServer(reply=stage.reply) as server,
        Running(server, folder, "run", str(pipeline(folder / "p")), command=command) as running,
    ):
        if waits:
            until(is_there)
            running.child.kill()
        assert running.child.wait(120) == -signal.SIGKILL, running.told()
        assert_nothing_runs_in(only_run().directory)
    return only_run()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.state.value)
def test_a_run_that_was_killed_ends_as_any_other_and_buys_nothing_again(tmp_path: Path, case: Case) -> None:
    left = killed(case, tmp_path)
    assert left.record.stage("write").state is case.state
    assert finished_calls_of(left.record) == case.finished
    # Each agent does what it would have done next.
    stage = Stage(case.deeds, asked=list(case.finished.elements()))
    run_id = left.record.run_id
    with StandInServer(reply=stage.reply) as server:
        if case.state is not S.AWAITING_APPROVAL:
            with Running(server, tmp_path, "resume", run_id, "--no-wait") as running:
                code, document = running.ended()
            assert (code, document["state"]) == (3, "awaiting_approval"), running.told()
        else:
            shown = codeloupe("pipeline", "status", "--json", cwd=tmp_path).json()
            assert (shown["state"], shown["busy"], shown["exit_code"]) == ("interrupted", False, 130)
        words = ("pipeline", "approve", run_id, "write", "--resume", "--json")
        said = codeloupe(*words, cwd=tmp_path, environment=environment(server))
        assert (said.exit_code, said.json()["state"]) == (0, "completed"), said.stderr
    assert stage.counts() == case.calls
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
        verdict = {"verdict": "PASS", "score": 90, "blockers": []} if again else {
            "verdict": "REWORK", "score": 50, "blockers": ["once more"]}
        return Delay(0.05, Json({"summary": "so", "fixes": [], **verdict}))
    if request.permission_mode.may_write:
        (request.working_dir / f"{stage}.md").write_text("two" if again else "one")
    return Delay(0.05, Text("done"))

options = RunOptions(settings=Settings(), agents={"scripted": ScriptedAgent([step])}, agent="scripted")
print("ready", flush=True)
runs, _ = open_run_store().list()
work = resume_run("r", options=options) if runs else Pipeline.load(file).run(options=options, run_id="r")
print(asyncio.run(work).state.value, flush=True)
"""


def scripted_run(file: Path, calls: Path) -> AbstractContextManager[Child]:
    """The run in a process of its own with the scripted agent, which notes what it is asked in a file."""
    return background(sys.executable, "-c", SCRIPTED, str(file), str(calls), temporary=calls.with_suffix(".tmp"))


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_any_moment_lose_nothing_that_was_written_down(tmp_path: Path, seed: int) -> None:
    names = ("left", "right", "join")
    file = write_pipeline(
        tmp_path / "p",
        {"name": "left", "gate": "critic"},
        {"name": "right", "gate": "critic"},
        {"name": "join", "needs": ["left", "right"], "gate": "critic"},
    )
    calls, chance, kills = tmp_path / "calls", random.Random(seed), 0
    for _ in range(6):
        done = finished_calls()
        before = noted(calls)
        with scripted_run(file, calls) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            until_called(calls, before.total() + chance.randint(0, 2), child)
            time.sleep(chance.uniform(0.0, 0.1))
            kills += child.poll() is None
            child.kill()
        assert done.isdisjoint((noted(calls) - before).keys())
    done, before = finished_calls(), noted(calls)
    with scripted_run(file, calls) as child:
        output, _ = child.communicate(timeout=100)
    assert output.splitlines()[-1] == "completed"
    assert done.isdisjoint((noted(calls) - before).keys())
    assert only_run().result() == {f"{name}.md": "two" for name in names}
    wanted = {f"{who}{name} {number}" for name in names for who in ("", "critic of ") for number in (1, 2)}
    assert set(noted(calls)) == wanted
    # Of a call that a kill cut short nothing is left: at most two ran at a time.
    assert noted(calls).total() <= len(wanted) + 2 * kills


def until_called(calls: Path, count: int, child: Child) -> None:
    """Wait until so many calls were begun, or the run is over: how far it comes in a time depends on the machine."""
    until(lambda: noted(calls).total() >= count or child.poll() is not None)


def noted(calls: Path) -> Counter[str]:
    return Counter(calls.read_text().splitlines()) if calls.exists() else Counter()


def finished_calls() -> set[str]:
    """The calls that the run's record knows to be finished."""
    runs, problems = open_run_store().list()
    assert problems == {}
    done = set[str]()
    for stage in runs[0].stages if runs else ():
        for attempt in stage.attempts:
            done.add(f"{stage.name} {attempt.number}")
            done.update(f"critic of {stage.name} {attempt.number}" for _ in attempt.critiques)
    return done


def test_a_gate_that_fails_the_run_is_exit_code_1(tmp_path: Path) -> None:
    file = write_pipeline(
        tmp_path / "p",
        {"name": "left"},
        {"name": "right", "gate": "critic"},
        {"name": "join", "needs": ["left", "right"]},
    )
    stage = Stage(
        {
            "left": [Writes("left.md", "left\n")],
            "right": [Writes("right.md", "right\n")],
            "critic of right": [critique("FAIL", 5, "it cannot be")],
        }
    )
    with StandInServer(reply=stage.reply) as server, Running(server, tmp_path, "run", str(file)) as running:
        code, document = running.ended()
    assert (code, document["state"]) == (1, "failed"), running.told()
    states = {one.name: one.state for one in only_run().record.stages}
    assert states == {"left": S.COMPLETED, "right": S.FAILED, "join": S.CANCELLED}
    assert only_run().result() == {"left.md": "left\n"}


@pytest.mark.defect("U7")
def test_an_interrupt_leaves_no_agent_and_a_run_that_goes_on(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "first"}, {"name": "second", "needs": ["first"]})
    stage = Stage({"first": [Writes("a.md", "a\n")], "second": [Writes("b.md", "b\n")]}, held={"second 1"})
    with StandInServer(reply=stage.reply) as server:
        with Running(server, tmp_path, "run", str(file)) as running:
            until(lambda: "second" in stage.asked and server.open_requests == 1)
            running.child.send_signal(signal.SIGINT)
            code, _ = running.ended()
        assert code == 130, running.told()
        ran = only_run()
        kept = "interrupted; 1 of 2 stages are finished and kept; "
        assert f"{kept}`codeloupe pipeline resume {ran.record.run_id}` continues\n" in running.told()
        assert_nothing_runs_in(ran.directory)
        assert [one.state for one in ran.record.stages] == [S.COMPLETED, S.INTERRUPTED]
        assert ran.record.state is S.INTERRUPTED
        with Running(server, tmp_path, "resume", ran.record.run_id) as running:
            code, document = running.ended()
    assert (code, document["state"]) == (0, "completed"), running.told()
    assert only_run().result() == {"a.md": "a\n", "b.md": "b\n"}
    assert stage.counts() == {"first": 1, "second": 2}


SAVED = Path(__file__).parents[1] / "captures" / "pipeline-run-0.1.0.tar.gz"


NAME = "saved-by-0.1.0"


def step(request: AgentRequest) -> AgentStep:
    name = request.labels["stage"]
    found = sorted(file.stem for file in request.working_dir.glob("*.md") if file.stem != name)
    (request.working_dir / f"{name}.md").write_text(f"{name} after {' '.join(found)}\n", encoding="utf-8")
    return Text("done")


@pytest.fixture
def cast() -> Cast:
    return Cast({name: [step] for name in ("left", "right", "join")})


@pytest.fixture
def saved(tmp_path: Path) -> Ran:
    """The run, waiting for a person at its last stage, and its pipeline's files."""
    with tarfile.open(SAVED) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    runs = tmp_path / "state" / "pipelines"
    runs.mkdir(parents=True)
    (tmp_path / "unpacked" / "run").rename(runs / NAME)
    state = runs / NAME / "run.json"
    state.write_text(state.read_text(encoding="utf-8").replace("@PIPELINE@", str(tmp_path / "unpacked" / "pipeline")))
    store = open_run_store(tmp_path / "state")
    store.put_approval(NAME, Approval(stage="join", decision=Decision.APPROVE))
    return Ran(store.load(NAME), tmp_path / "state")


def edit(saved: Ran, before: str, after: str) -> None:
    text = saved.record.file.read_text(encoding="utf-8")
    assert before in text
    saved.record.file.write_text(text.replace(before, after), encoding="utf-8")


def test_it_is_listed_and_goes_on_without_another_call(saved: Ran, cast: Cast) -> None:
    (record,), problems = open_run_store(saved.state).list()
    assert (record.state, dict(problems)) == (S.AWAITING_APPROVAL, {})
    again = resume(saved, cast)
    assert (again.record.state, cast.calls) == (S.COMPLETED, [])
    assert again.result() == {"join.md": "join\n", "left.md": "left\n", "right.md": "right\n"}
    assert again.record.usage.requests == 3


@pytest.mark.defect("P1")
def test_a_stage_that_needs_another_now_runs_again(saved: Ran, cast: Cast) -> None:
    edit(saved, "step: right.md,", "step: right.md, needs: [left],")
    again = resume(saved, cast, accept_changes=True)
    # The approval was of what the stage had made before.
    assert again.record.state is S.AWAITING_APPROVAL
    assert any("you will be asked again" in event.message for event in again.events("note", "join"))
    open_run_store(saved.state).put_approval(NAME, Approval(stage="join", decision=Decision.APPROVE))
    again = resume(again, cast)
    assert (again.record.state, cast.calls) == (S.COMPLETED, ["right", "join"])
    assert again.result() == {
        "join.md": "join after left right\n",
        "left.md": "left\n",
        "right.md": "right after left\n",
    }


@pytest.mark.defect("P6")
def test_a_new_gate_judges_it_and_what_is_not_known_is_said(saved: Ran, cast: Cast) -> None:
    edit(saved, "step: left.md}", 'step: left.md, on_failure: fail, gate: {command: "false", max_attempts: 1}}')
    edit(saved, "default: plain", "default: loud")
    again = resume(saved, cast, accept_changes=True)
    assert (again.record.state, again.record.stage("left").state, cast.calls) == (S.FAILED, S.FAILED, [])
    notes = [event.message for event in again.events("note")]
    assert any("the input tone keeps its value" in note for note in notes)
    assert any("an older version did not note what it was asked" in note for note in notes)
