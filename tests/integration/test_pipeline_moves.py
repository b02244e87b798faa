"""Runs that move: one machine starts a run and another completes it, and they share only the database.

A machine is a home of its own. The agents are the real claude program with the stand-in server, which counts the calls.
"""

import asyncio
import signal
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codeloupe.calls import AgentCalls
from codeloupe.errors import ConfigError, RunBusy, UsageError, WorkspaceError
from codeloupe.model.agent import AgentRequest
from codeloupe.model.pipeline import Decision, PipelineEvent, RunRecord
from codeloupe.model.pipeline import StageState as S
from codeloupe.pipelines.run import Pipeline, resume_run
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.store.runs import DatabaseRunStore
from codeloupe.system.postgres_server import PostgresServer
from codeloupe.testing import StandInServer, Text
from codeloupe.testing.agent import AgentStep
from tests.endings import comes_to_pass
from tests.engine_pipelines import Cast, Steps, critique, files_in, options, person, run, write_pipeline, writing
from tests.engine_standin import Deed, Running, Stage, Writes, at_work, environment
from tests.program import PROGRAM, Ended
from tests.repository import GitRepository
from tests.unit.pipelines.test_engine_resume import CALLS, EXPECTED, READING, cast_after
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
def opened(url: str, folder: Path) -> Iterator[DatabaseRunStore]:
    with PostgresDatabase(url) as database:
        yield DatabaseRunStore(database, folder)


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
        assert f"process {program.child.pid} continues with it" in said.stdout
        code, document = program.ended()
    assert (code, document["state"]) == (0, "completed"), program.told()
    assert "good" in document["stages"][0]["attempts"][0]["critiques"][0]["summary"]
    shown = c.says("status", "--json").json()
    assert files_in(Path(shown["result"])) == {"first.md": "one\n"}


@dataclass
class Site:
    """A machine within this process, whose agents are scripted."""

    folder: Path
    url: str

    def ends(self, work: Callable[[AgentCalls], Coroutine[Any, Any, RunRecord]]) -> RunRecord:
        with AgentCalls(state_directory=self.folder, database=self.url) as calls:
            return asyncio.run(work(calls))

    def begins(self, file: Path, cast: Cast, **more: Any) -> RunRecord:
        given = options(cast, self.folder, **more)
        return self.ends(lambda calls: Pipeline.load(file).run(options=given, run_id="r", calls=calls))

    def goes_on(self, cast: Cast, **more: Any) -> RunRecord:
        given = options(cast, self.folder, **more)
        return self.ends(lambda calls: resume_run("r", options=given, calls=calls))

    def result(self) -> dict[str, str]:
        with opened(self.url, self.folder) as store:
            return files_in(store.directory("r") / "result")


@pytest.fixture
def sites(tmp_path: Path, postgres_url: str) -> tuple[Site, Site]:
    return Site(tmp_path / "one", postgres_url), Site(tmp_path / "two", postgres_url)


class Killed(BaseException):
    """The process is gone: nothing is written after this."""


@contextmanager
def dying(after_saves: int) -> Iterator[None]:
    """A process whose last deed is a save of that number; what it does then reaches nobody."""
    made = 0
    save = DatabaseRunStore.save

    def counted(store: DatabaseRunStore, record: RunRecord, *events: PipelineEvent, **files: Any) -> None:
        nonlocal made
        if made < after_saves:
            made += 1
            save(store, record, *events, **files)
        if made >= after_saves:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseRunStore, "save", counted)
        try:
            yield
        except* Killed:
            pass


# One in each kind of place where there is a state; all of them take long.
_SOME = (1, 5, 9, 14, 19)


@pytest.mark.parametrize("kills", [_SOME, pytest.param(range(1, 100), marks=pytest.mark.soak)], ids=["some", "all"])
def test_a_run_that_died_after_a_save_ends_elsewhere_as_one_that_did_not(
    tmp_path: Path, sites: tuple[Site, Site], kills: Sequence[int]
) -> None:
    stages = ({"name": "write", "gates": ["critic", "approval"]}, {"name": "read", "needs": "write", "writes": False})
    file, (one, two) = write_pipeline(tmp_path / "p", *stages), sites
    left: RunRecord | None = None
    for saves in kills:
        with dying(saves):
            one.begins(file, cast_after(None), ask_person=person(Decision.APPROVE))
        left = only_run(one.url, tmp_path / "look")
        if left.state is not S.COMPLETED:
            cast = cast_after(left)
            finished = {name: cast.calls.count(name) for name in CALLS}
            (tmp_path / "p").rename(tmp_path / "gone")
            ended = two.goes_on(cast, ask_person=person(Decision.APPROVE))
            (tmp_path / "gone").rename(tmp_path / "p")
            assert (saves, ended.state, ended.reason) == (saves, S.COMPLETED, "")
            assert (saves, two.result()) == (saves, EXPECTED)
            for name, undisturbed in CALLS.items():
                # The other machine has an answer, but not the files that were not stored.
                wanted = undisturbed + _unstored(left, name)
                made = cast.calls.count(name)
                assert finished[name] <= made <= wanted, (saves, name)
                assert made == wanted or name in READING, (saves, name)
        with opened(one.url, one.folder) as store:
            store.remove("r")
        if left.state is S.COMPLETED:
            break
    assert left
    assert left.state is S.COMPLETED or kills is _SOME


def _unstored(record: RunRecord, name: str) -> int:
    """Return how many attempts of a stage were answered, and died before their files were stored."""
    attempts = [attempt for stage in record.stages if stage.name == name for attempt in stage.attempts]
    return sum(not attempt.tree for attempt in attempts)


def test_an_answer_whose_files_another_machine_has_is_recorded_as_failed_and_made_again(
    tmp_path: Path, sites: tuple[Site, Site]
) -> None:
    one, two = sites
    file = write_pipeline(tmp_path / "p", {"name": "write", "retries": 0})
    cast = Cast({"write": [writing({"a.md": "a"})]})
    with dying(_saves_until_answered(one, file)):
        one.begins(file, cast)
    (left,) = only_run(one.url, tmp_path / "look").stage("write").attempts
    assert (left.tree, left.usage.requests) == ("", 1)
    ended = two.goes_on(cast)
    assert (ended.state, two.result(), cast.calls) == (S.COMPLETED, {"a.md": "a"}, ["write", "write"])
    (failure,) = ended.stage("write").failures
    assert failure.kind == "workspace_lost"
    assert "were lost before they were stored, so the attempt is made again" in failure.message
    # Both calls were paid for.
    assert ended.usage.requests == 2


def _saves_until_answered(site: Site, file: Path) -> int:
    """Return the number of the save that records the answer, as counted in an undisturbed run, which is removed."""
    saves = 0
    answered = 0
    save = DatabaseRunStore.save

    def counted(store: DatabaseRunStore, record: RunRecord, *events: PipelineEvent, **files: Any) -> None:
        nonlocal saves, answered
        saves += 1
        if not answered and record.stage("write").attempts:
            answered = saves
        save(store, record, *events, **files)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatabaseRunStore, "save", counted)
        site.begins(file, Cast({"write": [writing({"a.md": "a"})]}))
    with opened(site.url, site.folder) as store:
        store.remove("r")
    return answered


def test_a_server_that_restarts_in_the_middle_of_a_run_is_waited_for(tmp_path: Path) -> None:
    file = write_pipeline(tmp_path / "p", *STAGES)
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as folder:
        server = PostgresServer(Path(folder) / "data", durable=False)
        server.start()
        try:

            def restarting(request: AgentRequest) -> AgentStep:
                server.stop()
                server.start()
                return writing({"second.md": "two\n"})(request)

            cast = Cast(
                {"first": [writing({"first.md": "one\n"})], "second": [restarting]}, {"second": [critique("PASS", 90)]}
            )
            site = Site(tmp_path / "one", server.url)
            record = site.begins(file, cast)
            assert (record.state, site.result()) == (S.COMPLETED, {"first.md": "one\n", "second.md": "two\n"})
        finally:
            server.stop()


def test_a_run_that_was_taken_over_stops_and_leaves_all_to_the_other(tmp_path: Path, sites: tuple[Site, Site]) -> None:
    file, (one, _) = write_pipeline(tmp_path / "p", *STAGES), sites

    def losing(request: AgentRequest) -> AgentStep:
        with PostgresDatabase(one.url) as database:
            database.change("UPDATE leases SET owner = 'elsewhere process 7 token x', host = 'there'")
        return writing({"first.md": "one\n"})(request)

    cast = Cast({"first": [losing]})
    with pytest.raises(RunBusy, match="this process no longer owns the run r: process 7 on there"):
        one.begins(file, cast)
    record = only_run(one.url, tmp_path / "look")
    assert (record.state, record.stage("first").state, cast.calls) == (S.RUNNING, S.RUNNING, ["first"])


class TestPlaces:
    def test_a_checkout_is_of_one_machine(
        self, tmp_path: Path, sites: tuple[Site, Site], repository: GitRepository
    ) -> None:
        repository.write("a.txt", "a\n")
        repository.commit("first")
        gate = {"name": "first", "gate": {"kind": "approval", "timeout": "1s"}}
        file, (one, two) = write_pipeline(tmp_path / "p", gate, workspace="checkout"), sites
        cast = Cast({"first": [writing({"first.md": "one\n"})]})
        assert one.begins(file, cast, repo=repository.path).state is S.AWAITING_APPROVAL
        with pytest.raises(
            UsageError, match=f"the run r works in the checkout {repository.path} on .* and cannot use another one"
        ):
            two.goes_on(cast)
        with pytest.raises(UsageError, match="cannot use another one"):
            one.goes_on(cast, clone=repository.path)
        assert one.goes_on(cast, ask_person=person(Decision.APPROVE)).state is S.COMPLETED

    def test_what_was_too_large_to_be_kept_comes_from_a_clone(
        self, tmp_path: Path, sites: tuple[Site, Site], repository: GitRepository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("codeloupe.pipelines.opening.MOST_KEPT_BYTES", 15)
        repository.write("a.txt", "more than fifteen bytes\n")
        repository.commit("first")
        stage = {"name": "first", "writes": False, "gate": {"kind": "approval", "timeout": "1s"}}
        file, (one, two) = write_pipeline(tmp_path / "p", stage, workspace="worktree"), sites
        cast = Cast({"first": [Text("It was read.")]})
        record = one.begins(file, cast, repo=repository.path)
        repository.path.rename(clone := tmp_path / "clone")
        with pytest.raises(WorkspaceError, match=f"did not store the files of the commit {record.base_commit}") as lost:
            two.goes_on(cast)
        assert lost.value.hint == "give a clone that has it: RunOptions(clone=DIR)"
        with pytest.raises(ConfigError, match="cannot continue: .* is not inside a git repository") as wrong:
            two.goes_on(cast, clone=tmp_path)
        assert wrong.value.hint == "give a clone of its repository"
        ended = two.goes_on(cast, clone=clone, ask_person=person(Decision.APPROVE))
        assert (ended.state, cast.calls) == (S.COMPLETED, ["first"])
        with opened(one.url, tmp_path) as store:
            assert any("too large to store with the run" in each.message for each in store.journal("r"))

    def test_the_settings_of_the_repository_where_it_began_count(
        self, tmp_path: Path, sites: tuple[Site, Site]
    ) -> None:
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "codeloupe.yaml").write_text("model: large\n")
        stage = {"name": "first", "writes": False, "gate": {"kind": "approval", "timeout": "1s"}}
        file, (one, two) = write_pipeline(tmp_path / "p", stage), sites
        cast = Cast({"first": [Text("It was read.")]})
        one.begins(file, cast, settings=None, repo=tmp_path / "here")
        two.goes_on(cast, settings=None, ask_person=person(Decision.RETRY, Decision.APPROVE))
        assert [request.model for request in cast.agent.requests] == ["large", "large"]

    def test_changed_files_are_noticed_where_the_run_began_and_go_with_it_once_accepted(
        self, tmp_path: Path, sites: tuple[Site, Site]
    ) -> None:
        stages = (
            {"name": "first", "gate": {"kind": "approval", "timeout": "1s"}},
            {"name": "second", "needs": "first"},
        )
        file, (one, two) = write_pipeline(tmp_path / "p", *stages), sites
        cast = Cast({name: [writing({f"{name}.md": name})] for name in ("first", "second")})
        one.begins(file, cast)
        (tmp_path / "p" / "second.md").write_text("Do other work of second.\n")
        with pytest.raises(UsageError, match="has changed since the run r started"):
            one.goes_on(cast)
        # The other machine goes by what the run has kept, whatever is at that path there.
        assert two.goes_on(cast).state is S.AWAITING_APPROVAL
        assert one.goes_on(cast, accept_changes=True).state is S.AWAITING_APPROVAL
        assert two.goes_on(cast, ask_person=person(Decision.APPROVE)).state is S.COMPLETED
        assert "Do other work of second." in cast.agent.requests[-1].prompt
        assert cast.calls == ["first", "second"]
