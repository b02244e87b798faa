"""What an agent tries to do outside of its workspace: contained and reported, by the real program where it can be."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.errors import AgentExecutionError, ArtifactError, Overloaded, TimedOut
from codeloupe.git.workspaces import GitWorkspaceStore, KeptTree
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.pipeline import ArtifactRule, AttemptRecord, StageDefinition, StageRequest
from codeloupe.model.ports import Agent
from codeloupe.pipelines.execution import Ask, execute_stage
from codeloupe.testing import Hang, Reply, ScriptedAgent, StandInServer, Status, Text, ToolUse
from tests.agent_factories import assert_nothing_runs_in, by_name, environment
from tests.endings import with_enough_time
from tests.stage_workspaces import fill, held, sparse

GIGABYTE = 1024**3


class Run:
    """One stage of a run in its own directory, with something precious beside it."""

    def __init__(self, directory: Path) -> None:
        self.outside = fill(directory / "outside", {"precious.md": "gold"})
        self.top = directory / "run"
        self.work = self.top / "stages" / "write" / "work"
        self.store = GitWorkspaceStore(self.top / "store.git", source=None)
        self.step = fill(directory, {"step.md": "Write a report."}) / "step.md"
        self.beginning = asyncio.run(self.store.beginning()).tree
        asyncio.run(self.store.put(self.beginning, self.work))
        self.directory = directory
        self.before = self.everything_else()

    def everything_else(self) -> dict[bytes, tuple[bytes, bool] | bytes]:
        """All that lies outside of the workspace, but for the run's own store."""
        own = (os.fsencode(self.work.relative_to(self.directory)), b"run/store.git")
        return {path: thing for path, thing in held(self.directory).items() if not path.startswith(own)}

    def execute(self, ask: Ask, **fields: Any) -> AttemptRecord:
        definition = replace(StageDefinition(name="write", step=self.step, timeout_seconds=50.0), **fields)
        request = StageRequest(stage="write", step_file=self.step)
        return asyncio.run(execute_stage(request, definition, workspace=self.work, ask=ask))[0]

    def keep(self) -> KeptTree:
        return asyncio.run(self.store.keep(self.work))

    def changed(self) -> tuple[str, ...]:
        return asyncio.run(self.store.changed(self.beginning, self.keep().tree))

    def assert_contained(self) -> None:
        assert self.everything_else() == self.before
        assert_nothing_runs_in(self.work)


def asking(agent: Agent) -> Ask:
    """An agent as a pipeline asks it."""

    async def ask(request: AgentRequest) -> AgentResult:
        caller = AgentCaller(CallerOptions(retry=RetryPolicy(attempts=1)))
        return await caller.call(request, agent=agent, emit=lambda _event: None)

    return ask


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def by_claude(server: StandInServer) -> Ask:
    factory = by_name("claude_cli")
    return asking(factory.make(server.url, environment(factory)))


def write(file: Path | str, text: str = "owned") -> ToolUse:
    return ToolUse("Write", {"file_path": str(file), "content": text})


def execute_by_claude(run: Run, *replies: Reply, **fields: Any) -> AttemptRecord:
    with StandInServer(replies) as server:
        return run.execute(by_claude(server), **fields)


class TestTheRealProgram:
    @pytest.mark.requirement("S3")
    @pytest.mark.requirement("S4")
    @pytest.mark.requirement("S6")
    @pytest.mark.requirement("S8")
    def test_what_it_writes_in_its_workspace_is_collected(self, run: Run) -> None:
        replies = (write(run.work / "report.md", "It is done.\n"), write(run.work / "sub" / "more.md"), Text("Done."))
        result = execute_by_claude(run, *replies)
        assert result.artifacts == ("report.md",)
        assert (run.work / result.artifacts[0]).read_text() == "It is done.\n"
        assert len(result.session_id) == len("99999999-2222-4333-8444-555555555555")
        assert result.duration_seconds > 0
        assert run.changed() == ("report.md", "sub/more.md")
        run.assert_contained()

    @pytest.mark.requirement("S8")
    @pytest.mark.parametrize("where", ["above", "absolute", "home"])
    def test_what_it_wants_to_write_elsewhere_is_refused_and_told(self, run: Run, where: str) -> None:
        target = {
            "above": "../../x.md",
            "absolute": str(run.outside / "new.md"),
            "home": str(Path(os.environ["HOME"]) / ".bashrc"),
        }[where]
        result = execute_by_claude(run, write(target), Text("I could not."))
        assert result.artifacts == ("write-output.md",)
        assert any(note.startswith("claude_cli was not allowed to use Write") for note in result.notes)
        assert not (Path(os.environ["HOME"]) / ".bashrc").exists()
        run.assert_contained()

    def test_a_link_that_leads_out_is_not_written_through(self, run: Run) -> None:
        (run.work / "out").symlink_to(run.outside)
        replies = (write(run.work / "out" / "x.md"), write(run.work / "report.md"), Text("Done."))
        assert execute_by_claude(run, *replies).artifacts == ("report.md",)
        assert run.keep().left_out == {"out": "a link that points outside the workspace"}
        run.assert_contained()

    def test_a_stage_that_may_not_write_has_nothing_to_write_with(self, run: Run) -> None:
        result = execute_by_claude(run, write(run.work / "x.md"), Text("All is well."), writes=False)
        assert result.artifacts == ("write-output.md",)
        assert (run.work / result.artifacts[0]).read_text() == "All is well.\n"
        assert run.changed() == ("write-output.md",)
        run.assert_contained()

    @pytest.mark.requirement("S5")
    def test_required_files_that_it_did_not_write_fail_the_stage(self, run: Run) -> None:
        replies = (write(run.work / "notes.md"), Text("Done."))
        with pytest.raises(ArtifactError, match="did not write report.md; it wrote notes.md"):
            execute_by_claude(run, *replies, artifacts=ArtifactRule(required=("report.md",)))

    @pytest.mark.requirement("S3")
    @pytest.mark.requirement("S5")
    def test_a_model_that_hangs_ends_with_the_stage_and_nothing_is_left_running(self, run: Run) -> None:
        with StandInServer([Hang()]) as server:

            def hang(seconds: float) -> AgentExecutionError:
                with pytest.raises(AgentExecutionError) as caught:
                    run.execute(by_claude(server), timeout_seconds=seconds)
                return caught.value

            error = with_enough_time(hang, ready=lambda _: bool(server.count(auxiliary=False)), seconds=(2.0, 15.0))
        assert isinstance(error.__cause__, TimedOut | TimeoutError)
        run.assert_contained()

    @pytest.mark.requirement("S5")
    @pytest.mark.requirement("S10")
    def test_a_service_that_fails_is_told_with_its_cause(self, run: Run) -> None:
        with pytest.raises(AgentExecutionError, match="the stage write got no answer") as caught:
            execute_by_claude(run, *([Status(529)] * 8))
        assert isinstance(caught.value.__cause__, Overloaded)
        run.assert_contained()


class TestWhatTheRealProgramWillNotDo:
    """A scripted agent does it: what a command that an agent runs could do."""

    def execute(self, run: Run, act: Callable[[], object], answer: str = "Done.") -> AttemptRecord:
        def step(_request: AgentRequest) -> Text:
            act()
            return Text(answer)

        return run.execute(asking(ScriptedAgent([step])))

    def test_links_that_lead_out_are_neither_artifacts_nor_kept(self, run: Run) -> None:
        def act() -> None:
            (run.work / "direct.md").symlink_to(run.outside / "precious.md")
            (run.work / "folder").symlink_to("../../../../outside")
            (run.work / "hop.md").symlink_to("folder/precious.md")
            fill(run.work, {"good.md": "1"})

        result = self.execute(run, act)
        assert result.artifacts == ("good.md",)
        leaves = "was skipped: it is a link that points outside the workspace"
        assert result.notes == (f"direct.md {leaves}", f"folder {leaves}", f"hop.md {leaves}")
        assert set(run.keep().left_out) == {"direct.md", "folder", "hop.md"}
        assert run.changed() == ("good.md",)
        run.assert_contained()

    @pytest.mark.parametrize("name", ["huge.md", "huge.bin"])
    def test_a_file_of_a_gigabyte_is_told_and_not_read(self, run: Run, name: str) -> None:
        result = self.execute(run, lambda: sparse(run.work / name, GIGABYTE))
        assert result.artifacts == ("write-output.md",)
        assert result.notes[0].startswith(f"{name} was skipped: it is a file of 1,073,741,824 bytes")
        assert run.keep().left_out[name].startswith("a file of 1,073,741,824 bytes")
        assert run.changed() == ("write-output.md",)

    @pytest.mark.parametrize("how", ["link", "link to itself", "folder", "gone"])
    def test_another_directory_in_the_place_of_the_workspace_is_not_taken_for_it(self, run: Run, how: str) -> None:
        def act() -> None:
            run.work.rename(run.top / "moved-away")
            if how == "link":
                run.work.symlink_to(run.outside)
            elif how == "link to itself":
                run.work.symlink_to(run.top / "moved-away")
            elif how == "folder":
                fill(run.work, {"report.md": "1"})

        words = "cannot read the workspace .*: no such file" if how == "gone" else "was replaced during the run"
        with pytest.raises(ArtifactError, match=words):
            self.execute(run, act)
        assert held(run.outside) == {b"precious.md": (b"gold", False)}
        asyncio.run(run.store.put(run.beginning, run.work))
        assert list(run.work.iterdir()) == []
        assert held(run.outside) == {b"precious.md": (b"gold", False)}

    def test_the_next_attempt_begins_without_any_of_it(self, run: Run) -> None:
        def act() -> None:
            (run.work / "out").symlink_to(run.outside)
            (run.work / "closed").mkdir(mode=0)
            os.mkfifo(run.work / "pipe")
            sparse(run.work / "huge", GIGABYTE)
            fill(run.work, {"report.md": "1"})

        self.execute(run, act)
        asyncio.run(run.store.put(run.keep().tree, run.work))
        assert [entry.name for entry in run.work.iterdir()] == ["report.md"]
        run.assert_contained()

    def test_nothing_but_an_answer_is_an_artifact_of_its_own(self, run: Run) -> None:
        assert self.execute(run, lambda: None, answer="Only words.").artifacts == ("write-output.md",)
        assert run.changed() == ("write-output.md",)
