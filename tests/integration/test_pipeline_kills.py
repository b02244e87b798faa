"""Runs whose process is killed at random moments, on both databases: no finished call is paid for twice.

A call is finished when its answer is recorded. If the next process is on another machine, or the directory of the run
is deleted, a call that changes files is finished when its files are recorded, too.
"""

import asyncio
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codeloupe.calls import AgentCalls
from codeloupe.git.workspaces import GitWorkspaceStore
from codeloupe.model.pipeline import RunRecord, StageState
from codeloupe.pipelines.engine import Engine
from codeloupe.pipelines.run import Pipeline, resume_run
from codeloupe.store import open_database
from codeloupe.store.interface import Database
from codeloupe.store.runs import DatabaseRunStore
from tests.endings import comes_to_pass
from tests.engine_pipelines import Cast, files_in, options, write_pipeline, writing
from tests.engine_standin import Child, background

STAGES = {"left": [], "right": [], "join": ["left", "right"]}
CALLS = {f"{who}{name} {number}" for name in STAGES for who in ("", "critic of ") for number in (1, 2)}
PROGRAM = """
import asyncio, sys
from pathlib import Path
from codeloupe.config.schema import Settings
from codeloupe.pipelines.run import Pipeline, RunOptions, open_run_store, resume_run
from codeloupe.testing import Delay, Json, ScriptedAgent, Text

file, calls, run_id = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def step(request):
    stage = request.labels["stage"]
    is_critic = "gate" in request.labels
    is_again = "once more" in request.prompt
    with calls.open("a") as notes:
        notes.write(f"{'critic of ' if is_critic else ''}{stage} {2 if is_again else 1}\\n")
    if is_critic:
        verdict, score, blockers = ("PASS", 90, []) if is_again else ("REWORK", 50, ["once more"])
        said = {"summary": "so", "verdict": verdict, "score": score, "blockers": blockers, "fixes": []}
        return Delay(0.02, Json(said))
    # Another text in each run, because the ledger returns answers about the same files.
    (request.working_dir / f"{stage}.md").write_text(f"{'two' if is_again else 'one'} of {run_id}")
    return Delay(0.02, Text("done"))

options = RunOptions(settings=Settings(), agents={"scripted": ScriptedAgent([step])}, agent="scripted")
print("ready", flush=True)
if open_run_store().matching(run_id):
    work = resume_run(run_id, options=options)
else:
    work = Pipeline.load(file).run(options=options, run_id=run_id)
print(asyncio.run(work).state.value, flush=True)
"""


@dataclass
class Killing:
    """A series of runs whose processes are killed. Each process has the next home of `homes`."""

    folder: Path
    url: str | None
    database: Database
    homes: tuple[str, ...]
    is_deleting: bool
    chance: random.Random
    kills: int = 0
    runs: int = 0
    calls: int = 0
    repeated: list[str] = field(default_factory=list)
    started: int = 0

    @property
    def is_moving(self) -> bool:
        """Whether the next process may lack the workspaces of the last one."""
        return self.is_deleting or len(self.homes) > 1

    def store(self, home: str = "") -> DatabaseRunStore:
        return DatabaseRunStore(self.database, self.folder / (home or self.homes[0]))

    def run_killed(self, most_kills: int) -> None:
        """Make one run, kill its process some times, let it end, and check its result."""
        self.runs += 1
        run_id = f"run-{self.runs}"
        file = write_pipeline(
            self.folder / "p", *({"name": name, "needs": needs, "gate": "critic"} for name, needs in STAGES.items())
        )
        notes = self.folder / f"{run_id}.calls"
        last = ""
        for number in range(most_kills + 1):
            last = self._home()
            self._one_process(file, notes, run_id, last, is_killed=number < most_kills)
        record = self.store().load(run_id)
        assert record.state is StageState.COMPLETED, record.reason
        result = self.store(last).directory(run_id) / "result"
        assert files_in(result) == {f"{name}.md": f"two of {run_id}" for name in STAGES}
        assert set(noted(notes)) == CALLS
        self.calls += noted(notes).total()

    def _home(self) -> str:
        self.started += 1
        return self.homes[self.started % len(self.homes)]

    def _one_process(self, file: Path, notes: Path, run_id: str, home: str, *, is_killed: bool) -> None:
        finished = self._finished(run_id)
        before = noted(notes)
        if self.is_deleting and self.store().matching(run_id):
            shutil.rmtree(self.store(home).directory(run_id), ignore_errors=True)
        variables = {"CODELOUPE_HOME": str(self.folder / home)}
        if self.url is not None:
            variables["CODELOUPE_DATABASE"] = self.url
        words = (sys.executable, "-c", PROGRAM, str(file), str(notes), run_id)
        with background(*words, temporary=self.folder / "tmp", variables=variables) as child:
            if is_killed:
                self._kill(child, notes, before.total())
            output, _ = child.communicate(timeout=100)
        if not is_killed:
            assert output.splitlines()[-1] == "completed"
        self.repeated += sorted(finished & (noted(notes) - before).keys())

    def _kill(self, child: Child, notes: Path, before: int) -> None:
        """Kill a process some time after it has made a random number of calls; any moment is good."""
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        wanted = before + self.chance.randint(0, 3)
        assert comes_to_pass(lambda: noted(notes).total() >= wanted or child.poll() is not None)
        time.sleep(self.chance.uniform(0.0, 0.15))
        self.kills += child.poll() is None
        child.kill()

    def _finished(self, run_id: str) -> set[str]:
        if not self.store().matching(run_id):
            return set()
        return finished_calls(self.store().load(run_id), is_moving=self.is_moving)


def finished_calls(record: RunRecord, *, is_moving: bool) -> set[str]:
    """Return the calls that must not be made again, each with its number."""
    finished: set[str] = set()
    for stage in record.stages:
        for number, attempt in enumerate(stage.attempts, start=1):
            if attempt.tree or not is_moving:
                finished.add(f"{stage.name} {number}")
            finished.update(f"critic of {stage.name} {number}" for _ in attempt.critiques)
    return finished


def noted(notes: Path) -> Counter[str]:
    return Counter(notes.read_text().splitlines()) if notes.exists() else Counter()


@pytest.fixture(params=["sqlite", "sqlite, deleted", "postgres", "postgres, deleted", "postgres, moving"])
def killing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killing]:
    name, _, way = request.param.partition(", ")
    url = str(request.getfixturevalue("postgres_url")) if name == "postgres" else None
    with open_database(url, tmp_path / "one") as database:
        yield Killing(
            folder=tmp_path,
            url=url,
            database=database,
            homes=("one", "two") if way == "moving" else ("one",),
            is_deleting=way == "deleted",
            chance=random.Random(os.environ.get("KILL_SEED", "7")),
        )


@pytest.mark.defect("W10")
def test_a_killed_run_completes_and_pays_for_no_finished_call_twice(killing: Killing) -> None:
    killing.run_killed(most_kills=3)
    assert killing.repeated == []


@pytest.mark.soak
@pytest.mark.defect("W10")
def test_kills_at_random_moments_repeat_no_finished_call(
    killing: Killing, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    while killing.kills < 30:
        killing.run_killed(most_kills=6)
    in_flight = killing.calls - killing.runs * len(CALLS)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{request.node.name}: {killing.kills} kills, {killing.runs} runs, all completed; {killing.calls} calls,"
            f" {in_flight} repeated in flight, {len(killing.repeated)} finished calls repeated\n"
        )
    assert killing.repeated == []


class Killed(BaseException):
    """The process is gone: nothing is written after this."""


@pytest.mark.defect("W10")
@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_an_answer_is_recorded_before_its_files_are_stored(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(request.getfixturevalue("postgres_url")) if name == "postgres" else None
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    cast = Cast({"write": [writing({"a.md": "a"})]})
    given = options(cast, tmp_path / "state")

    async def dying(_store: GitWorkspaceStore, _directory: Path, *, artifacts: Collection[str]) -> None:
        assert artifacts == ("a.md",)
        raise Killed

    with AgentCalls(state_directory=tmp_path / "state", database=url) as calls:
        monkeypatch.setattr(GitWorkspaceStore, "keep", dying)
        # A process that was killed records nothing about its end.
        monkeypatch.setattr(Engine, "_record_stop", lambda _engine, _error: None)
        with pytest.raises(Killed):
            asyncio.run(Pipeline.load(file).run(options=given, run_id="r", calls=calls))
        monkeypatch.undo()
        ended = asyncio.run(resume_run("r", options=given, calls=calls))
    assert (ended.state, cast.calls) == (StageState.COMPLETED, ["write"])
    assert ended.stage("write").attempts[0].files_changed == ("a.md",)


def test_an_answered_attempt_is_found_under_another_address_of_its_database(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_pipeline(tmp_path / "p", {"name": "write"})
    cast = Cast({"write": [writing({"a.md": "a"})]})
    given = options(cast, tmp_path / "state")

    async def dying(_store: GitWorkspaceStore, _directory: Path, **_more: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(GitWorkspaceStore, "keep", dying)
        # A process that was killed records nothing about its end.
        patch.setattr(Engine, "_record_stop", lambda _engine, _error: None)
        with AgentCalls(state_directory=tmp_path / "state", database=postgres_url) as calls, pytest.raises(Killed):
            asyncio.run(Pipeline.load(file).run(options=given, run_id="r", calls=calls))
    another = postgres_url.replace("postgresql://", "postgres://")
    with AgentCalls(state_directory=tmp_path / "state", database=another) as calls:
        ended = asyncio.run(resume_run("r", options=given, calls=calls))
    assert (ended.state, cast.calls) == (StageState.COMPLETED, ["write"])
