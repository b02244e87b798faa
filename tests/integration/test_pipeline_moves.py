"""Runs that move: what one machine began another ends, with a shared database between them and nothing else.

A machine is a home of its own. The agents are the real claude program before the stand-in server, which counts.
"""

import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from codeloupe.model.pipeline import RunRecord
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.shared_runs import SharedRunStore
from codeloupe.testing import StandInServer
from tests.endings import comes_to_pass
from tests.engine_pipelines import Cast, Steps, critique, files_in, run, write_pipeline, writing
from tests.engine_standin import Deed, Running, Stage, Writes, at_work, environment
from tests.program import PROGRAM, Ended
from tests.repository import GitRepository
from tests.warm_program import codeloupe

DEEDS: dict[str, Sequence[Deed]] = {
    "first": [Writes("first.md", "one\n")],
    "second": [Writes("second.md", "two\n")],
    "critic of second": [critique("PASS", 90)],
}
STAGES = ({"name": "first"}, {"name": "second", "needs": ["first"], "gate": "critic"})


@dataclass
class Machine:
    """A home of its own, which shares nothing but the database with others."""

    folder: Path
    url: str

    @property
    def variables(self) -> dict[str, str]:
        return {"CODELOUPE_HOME": str(self.folder / "home"), "CODELOUPE_DATABASE": self.url}

    def runs(self, server: StandInServer, *words: str) -> AbstractContextManager[Running]:
        """The program with a pipeline under way."""
        command = (str(PROGRAM), "pipeline", *words, "--agent", "claude_cli", "--json")
        return at_work(self.folder, *command, variables={**environment(server), **self.variables})

    def says(self, *words: str) -> Ended:
        """What a verb of `pipeline` says."""
        self.folder.mkdir(exist_ok=True)
        return codeloupe("pipeline", *words, cwd=self.folder, environment=self.variables)


@contextmanager
def opened(url: str, folder: Path) -> Iterator[SharedRunStore]:
    with PostgresDatabase(url) as database:
        yield SharedRunStore(database, folder)


def only_run(url: str, folder: Path) -> RunRecord:
    with opened(url, folder) as store:
        (record,), problems = store.list()
    assert problems == {}
    return record


@pytest.fixture
def machines(tmp_path: Path, postgres_url: str) -> tuple[Machine, Machine, Machine]:
    a, b, c = (Machine(tmp_path / name, postgres_url) for name in "abc")
    return a, b, c


Machines = tuple[Machine, Machine, Machine]


def test_a_run_whose_machine_died_goes_on_at_another_and_nothing_finished_is_asked_again(
    tmp_path: Path, machines: Machines, repository: GitRepository
) -> None:
    a, b, c = machines
    repository.write("kept.txt", "as it was\n")
    repository.commit("first")
    outside = tmp_path / "shared.md"
    outside.write_text("You are careful.\n")
    first = {**STAGES[0], "agent_definition": "../shared.md"}
    file = write_pipeline(tmp_path / "p", first, STAGES[1], workspace="worktree")
    # The same by a scripted agent, which nobody kills, in a directory of one machine.
    steps: dict[str, Steps] = {
        name: [writing({f"{name}.md": text})] for name, text in (("first", "one\n"), ("second", "two\n"))
    }
    cast = Cast(steps, {"second": [critique("PASS", 90)]})
    undisturbed = run(file, cast, tmp_path / "z" / "state", repo=repository.path)
    wanted = (undisturbed.directory / "result.patch").read_text()
    assert "+one" in wanted

    stage = Stage(DEEDS, held={"second 1"})
    with StandInServer(reply=stage.reply) as server:
        with a.runs(server, "run", str(file), "--repo", str(repository.path)) as program:
            assert comes_to_pass(lambda: "second" in stage.asked and server.open_requests == 1)
            busy = b.says("resume", "last")
            assert (busy.exit_code, "is busy: process" in busy.stderr) == (2, True), busy.stderr
            program.child.kill()
            assert program.child.wait(120) == -signal.SIGKILL
        run_id = only_run(a.url, tmp_path / "look").run_id
        for left in (a.folder, tmp_path / "p", repository.path, outside):
            left.rename(left.with_name(f"{left.name}-is-gone"))
        with b.runs(server, "resume", run_id) as program:
            code, document = program.ended()
    assert (code, document["state"]) == (0, "completed"), program.told()
    assert stage.counts() == {"first": 1, "second": 2, "critic of second": 1}
    assert Path(document["patch"]).read_text() == wanted
    assert files_in(Path(document["result"])) == undisturbed.result()
    # A third machine has only to ask.
    shown = c.says("status", run_id, "--json").json()
    assert Path(shown["patch"]).read_text() == wanted
    made = [[each["artifacts"] for each in one["attempts"]] for one in shown["stages"]]
    assert made == [[list(each.artifacts) for each in one.attempts] for one in undisturbed.record.stages]


def test_an_approval_given_on_any_host_reaches_the_run_that_waits(tmp_path: Path, machines: Machines) -> None:
    a, _, c = machines
    gate = {"kind": "approval", "timeout": "10m"}
    file = write_pipeline(tmp_path / "p", {"name": "first", "gate": gate})
    stage = Stage(DEEDS)
    with StandInServer(reply=stage.reply) as server, a.runs(server, "run", str(file)) as program:
        assert comes_to_pass(lambda: "first: awaiting approval" in program.told())
        said = c.says("approve", "last", "first", "--note", "good")
        assert said.exit_code == 0, said.stderr
        assert f"process {program.child.pid} on " in said.stdout
        code, document = program.ended()
    assert (code, document["state"]) == (0, "completed"), program.told()
    assert "good" in document["stages"][0]["attempts"][0]["critiques"][0]["summary"]
    shown = c.says("status", "--json").json()
    assert files_in(Path(shown["result"])) == {"first.md": "one\n"}
