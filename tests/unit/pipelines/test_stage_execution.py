from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.errors import (
    AgentError,
    AgentExecutionError,
    ArtifactError,
    BudgetExhausted,
    NotLoggedIn,
    OutputInvalid,
    Overloaded,
    StoreError,
    TimedOut,
)
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode, TokenUsage, Usage
from codeloupe.model.pipeline import ArtifactRule, RecoveryStep, StageDefinition, StageRequest, StageResult
from codeloupe.pipelines import execution
from codeloupe.pipelines.execution import execute_stage, failure_usage
from codeloupe.pipelines.recovery import failed_try
from codeloupe.testing import Hang, Json, ScriptedAgent, Text
from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS
from tests.rows import each
from tests.stage_workspaces import fill

ANSWER = AgentResult(success=True, output="An answer.", agent="scripted")
DONE = Text("Done.")


class Bench:
    """A stage with its files and workspace, and an agent that acts by a script."""

    def __init__(self, directory: Path) -> None:
        fill(directory, {"step.md": "Write it.", "agent.md": "You write."})
        self.work = directory / "work"
        self.work.mkdir()
        self.step = directory / "step.md"
        self.definition = StageDefinition(name="write", step=self.step, timeout_seconds=2000.0)
        self.request = StageRequest(stage="write", step_file=self.step, agent_definition=directory / "agent.md")

    def run(self, agent: ScriptedAgent, **options: Any) -> StageResult:
        """Execute the stage, the agent being called as a pipeline calls it."""

        async def ask(asked: AgentRequest) -> AgentResult:
            caller = AgentCaller(CallerOptions(retry=RetryPolicy(attempts=1)))
            return await caller.call(asked, agent=agent, emit=lambda _event: None)

        return self.ask(ask, **options)

    def ask(self, ask: Any, **options: Any) -> StageResult:
        return asyncio.run(execute_stage(self.request, self.definition, workspace=self.work, ask=ask, **options))

    def act(self, act: Callable[[], object], answer: Text | Json | AgentResult = DONE) -> ScriptedAgent:
        """An agent that acts in the workspace and then answers."""

        def step(_request: AgentRequest) -> Text | Json | AgentResult:
            act()
            return answer

        return ScriptedAgent([step])

    def define(self, **fields: Any) -> None:
        self.definition = replace(self.definition, **fields)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def answering(result: AgentResult) -> Any:
    async def ask(_request: AgentRequest) -> AgentResult:
        return result

    return ask


def failing(error: BaseException) -> Any:
    async def ask(_request: AgentRequest) -> AgentResult:
        raise error

    return ask


class TestSuccess:
    @pytest.mark.requirement("S3")
    @pytest.mark.requirement("S4")
    def test_a_stage_gives_its_artifacts_session_time_and_cost(self, bench: Bench) -> None:
        agent = bench.act(lambda: fill(bench.work, {"b.md": "1", "a.json": "{}", "code.py": "1"}))
        result = bench.run(agent)
        assert result.artifacts == (bench.work / "a.json", bench.work / "b.md")
        assert (result.session_id, result.output, result.agent, result.model) == (
            "scripted-1",
            "Done.",
            "scripted",
            "scripted",
        )
        assert result.duration_seconds >= 0
        assert replace(result.usage, duration_seconds=0.0) == Usage(requests=1, input_tokens=100, output_tokens=20)

    @pytest.mark.requirement("S3")
    def test_an_agent_gets_the_prompt_the_workspace_and_the_limits(self, bench: Bench) -> None:
        agent = ScriptedAgent([Json({"ok": True})])
        bench.define(
            tools=("Read",),
            max_turns=7,
            max_budget_usd=1.5,
            model="own",
            output_schema={"type": "object"},
            writes=False,
        )
        bench.run(agent, resume_session="earlier")
        (asked,) = agent.requests
        assert "Write it." in asked.prompt
        assert "You write." in asked.prompt
        assert asked.working_dir == bench.work
        assert (asked.model, asked.resume_session, asked.tools) == ("own", "earlier", ("Read",))
        assert (asked.max_turns, asked.max_budget_usd) == (7, 1.5)
        # What passed before the call is taken off.
        assert 2000 - PATIENCE_SECONDS < asked.timeout_seconds <= 2000
        assert asked.output_schema == {"type": "object"}
        assert asked.labels == {"stage": "write"}

    @each(
        ("writes", "mode"),
        [
            (True, PermissionMode.ACCEPT_EDITS),
            (False, PermissionMode.DONT_ASK),
        ],
    )
    def test_only_a_stage_that_writes_may_write(self, bench: Bench, writes: bool, mode: PermissionMode) -> None:
        agent = ScriptedAgent([Text("Done.")])
        bench.define(writes=writes, model="own")
        bench.run(agent)
        assert agent.requests[0].permission_mode is mode
        assert agent.requests[0].permission_mode.may_write is writes
        assert agent.requests[0].model == "own"

    @pytest.mark.requirement("S6")
    def test_a_session_that_is_not_told_is_empty(self, bench: Bench) -> None:
        assert bench.ask(answering(ANSWER)).session_id == ""

    @pytest.mark.requirement("S7")
    def test_an_answer_that_is_not_utf_8_does_no_harm(self, bench: Bench) -> None:
        output = b"caf\xe9 \xff\xfe".decode("utf-8", "surrogateescape")
        result = bench.ask(answering(replace(ANSWER, output=output)))
        (artifact,) = result.artifacts
        assert artifact.read_bytes() == b"caf\\udce9 \\udcff\\udcfe\n"

    @each(
        ("result", "usage"),
        [
            (replace(ANSWER, from_ledger=True, total_cost_usd=3.0), Usage(cached=1)),
            (
                replace(
                    ANSWER,
                    attempts=3,
                    total_cost_usd=0.25,
                    usage=TokenUsage(input_tokens=10, cached_tokens=4, output_tokens=5),
                ),
                Usage(requests=3, input_tokens=10, output_tokens=5, cost_usd=0.25),
            ),
            (replace(ANSWER, total_cost_usd=None), Usage(requests=1, unknown_costs=1)),
            (replace(ANSWER, total_cost_usd=float("nan"), attempts=0), Usage(requests=1, unknown_costs=1)),
        ],
    )
    def test_what_it_cost_is_told(self, bench: Bench, result: AgentResult, usage: Usage) -> None:
        assert replace(bench.ask(answering(result)).usage, duration_seconds=0.0) == usage

    def test_notes_of_the_call_and_denied_tools_are_told(self, bench: Bench) -> None:
        noted = replace(
            ANSWER,
            notes=("which files changed is not known: no repository", "another agent answered"),
            permission_denials=("Write ../../x", "Write ../../x", "Bash"),
        )
        assert bench.ask(answering(noted)).notes == (
            "another agent answered",
            "scripted was not allowed to use Write ../../x",
            "scripted was not allowed to use Bash",
        )


class TestAnswerAsArtifact:
    def test_a_structured_answer_is_saved_as_json(self, bench: Bench) -> None:
        bench.define(output_schema={"type": "object"})
        result = bench.run(ScriptedAgent([Json({"score": 7})]))
        assert result.artifacts == (bench.work / "write-output.json",)
        assert json.loads(result.artifacts[0].read_text()) == {"score": 7}
        assert json.loads(result.output) == {"score": 7}

    def test_the_answer_of_the_attempt_before_gives_way(self, bench: Bench) -> None:
        bench.run(ScriptedAgent([Text("The first.")]))
        result = bench.run(ScriptedAgent([Text("The second.")]), built_on=("write-output.md",))
        assert result.artifacts == (bench.work / "write-output.md",)
        assert result.artifacts[0].read_text() == "The second.\n"

    def test_an_attempt_that_mends_one_file_keeps_the_others(self, bench: Bench) -> None:
        fill(bench.work, {"a.md": "1", "b.md": "1", "foreign.md": "1", "code.py": "1"})
        built_on = ("a.md", "b.md", "code.py", "gone.md")
        result = bench.run(bench.act(lambda: fill(bench.work, {"b.md": "2"})), built_on=built_on)
        assert result.artifacts == (bench.work / "a.md", bench.work / "b.md")

    def test_nothing_at_all_is_a_failure(self, bench: Bench) -> None:
        with pytest.raises(ArtifactError, match="wrote no file, and its answer is empty") as caught:
            bench.ask(answering(replace(ANSWER, output=" \n")))
        assert caught.value.stage == "write"
        assert list(bench.work.iterdir()) == []

    def test_code_and_an_empty_answer_are_a_result(self, bench: Bench) -> None:
        agent = bench.act(lambda: fill(bench.work, {"code.py": "1"}), replace(ANSWER, output=""))
        result = bench.ask(lambda request: agent.run(request, lambda _event: None))
        assert result.artifacts == ()

    def test_a_disk_that_takes_no_answer_is_told(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        real_open = os.open

        def full(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
            if flags & os.O_CREAT and "output" in str(path):
                raise OSError(28, "No space left on device")
            return real_open(path, flags, *arguments, **more)

        monkeypatch.setattr(os, "open", full)
        with pytest.raises(ArtifactError, match="cannot be saved as write-output.md: No space left") as caught:
            bench.run(ScriptedAgent([Text("The answer.")]))
        assert isinstance(caught.value.__cause__, OSError)


class TestArtifactRules:
    def test_an_answer_is_not_saved_when_it_is_not_what_was_required(self, bench: Bench) -> None:
        bench.define(artifacts=ArtifactRule(required=("report.md",)))
        with pytest.raises(ArtifactError):
            bench.run(ScriptedAgent([Text("I forgot.")]))
        assert list(bench.work.iterdir()) == []

    def test_the_saved_answer_may_be_what_is_required(self, bench: Bench) -> None:
        bench.define(artifacts=ArtifactRule(required=("write-output.md",)), writes=False)
        assert bench.run(ScriptedAgent([Text("Here.")])).artifacts == (bench.work / "write-output.md",)

    def test_a_file_that_does_not_fit_its_schema_fails_the_stage(self, bench: Bench) -> None:
        bench.define(artifacts=ArtifactRule(schemas={"meta.json": {"type": "object"}}))
        with pytest.raises(ArtifactError, match="meta.json of the stage write is not as its schema asks: at \\$"):
            bench.run(bench.act(lambda: fill(bench.work, {"meta.json": "[]"})))


class TestReading:
    def test_a_stage_that_may_not_write_and_did_fails(self, bench: Bench, subtests: pytest.Subtests) -> None:
        rows: list[str] = ["new", "changed", "hidden", "folder", "link", "mode", "removed"]
        old = bench.work / "old"
        fill(bench.work, {"old": "1"})
        for how in rows:
            with subtests.test(how=how):
                acts: dict[str, Callable[[], object]] = {
                    "new": lambda: fill(bench.work, {"x.py": "1"}),
                    "changed": lambda: fill(bench.work, {"old": "2"}),
                    "removed": old.unlink,
                    "hidden": lambda: fill(bench.work, {".x": "1"}),
                    "folder": (bench.work / "x").mkdir,
                    "link": lambda: (bench.work / "y").symlink_to("old"),
                    "mode": lambda: old.chmod(0o755),
                }
                bench.define(writes=False)
                with pytest.raises(
                    ArtifactError, match=r"may not write, but these changed while it ran: (x.py|old|.x|x|y)"
                ) as caught:
                    bench.run(bench.act(acts[how]))
                assert "writes: true" in caught.value.hint


class TestFailure:
    @pytest.mark.requirement("S5")
    @pytest.mark.requirement("S10")
    @each(
        "error",
        [
            Overloaded("it is overloaded", agent="scripted", hint="wait"),
            NotLoggedIn("no key", agent="scripted", hint="log in"),
            BudgetExhausted("all is spent", agent="scripted", hint="allow more"),
            TimedOut("no answer in time", agent="scripted", hint="more time"),
            StoreError("the ledger is damaged", hint="remove it"),
        ],
    )
    def test_a_failed_call_is_told_with_its_cause_and_hint(self, bench: Bench, error: AgentError | StoreError) -> None:
        with pytest.raises(AgentExecutionError) as caught:
            bench.ask(failing(error))
        assert caught.value.__cause__ is error
        assert caught.value.message == f"the stage write got no answer: {error.message}"
        assert (caught.value.stage, caught.value.hint) == ("write", error.hint)

    @pytest.mark.requirement("S5")
    @each("error", [KeyError("x"), OSError(5, "I/O error"), TimeoutError("inner"), RecursionError()])
    def test_a_defect_of_an_agent_is_told_with_its_cause(self, bench: Bench, error: Exception) -> None:
        with pytest.raises(AgentExecutionError, match=f"failed unexpectedly: {type(error).__name__}") as caught:
            bench.ask(failing(error))
        assert caught.value.__cause__ is error

    def test_a_result_without_success_is_a_failure(self, bench: Bench) -> None:
        failed = replace(ANSWER, success=False, error="the model gave up", session_id="s", total_cost_usd=0.5)
        with pytest.raises(AgentExecutionError, match="the model gave up") as caught:
            bench.ask(answering(failed))
        assert isinstance(caught.value.__cause__, OutputInvalid)
        assert failed_try(caught.value, step=RecoveryStep.FIRST, attempt=1).session_id == "s"
        assert failure_usage(caught.value).cost_usd == 0.5
        assert list(bench.work.iterdir()) == []

    @pytest.mark.requirement("S3")
    @pytest.mark.requirement("S5")
    def test_an_agent_that_hangs_ends_with_the_time_of_the_stage(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # However late the machine wakes us: the agent's own words come before the stage's.
        monkeypatch.setattr(execution, "_LAST_WORDS_SECONDS", FAR_TOO_LONG_SECONDS)
        bench.define(timeout_seconds=0.1)
        agent = ScriptedAgent([Hang()])
        with pytest.raises(AgentExecutionError) as caught:
            bench.run(agent)
        assert isinstance(caught.value.__cause__, TimedOut)
        assert agent.running == 0

    @pytest.mark.requirement("S3")
    @pytest.mark.requirement("S5")
    def test_whatever_hangs_around_the_agent_ends_too(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(execution, "_LAST_WORDS_SECONDS", 0.0)
        gone = False

        async def hang(_request: AgentRequest) -> AgentResult:
            nonlocal gone
            try:
                await asyncio.Event().wait()
            finally:
                gone = True
            return ANSWER

        bench.define(timeout_seconds=0.05)
        with pytest.raises(AgentExecutionError, match=r"got no answer within 0.05 s") as caught:
            bench.ask(hang)
        assert isinstance(caught.value.__cause__, TimeoutError)
        assert gone

    @pytest.mark.requirement("S10")
    def test_a_cancellation_is_raised_as_it_came(self, bench: Bench) -> None:
        began, gone = asyncio.Event(), False

        async def hang(_request: AgentRequest) -> AgentResult:
            nonlocal gone
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                gone = True
            return ANSWER

        async def cancelled() -> None:
            execution = asyncio.create_task(
                execute_stage(bench.request, bench.definition, workspace=bench.work, ask=hang)
            )
            await began.wait()
            execution.cancel("stop it")
            with pytest.raises(asyncio.CancelledError, match="stop it"):
                await execution
            assert gone

        asyncio.run(cancelled())

    @pytest.mark.requirement("S5")
    def test_without_its_step_file_no_agent_is_asked(self, bench: Bench) -> None:
        bench.step.unlink()
        agent = ScriptedAgent([Text("Done.")])
        with pytest.raises(AgentExecutionError, match="its step file .* no such file") as caught:
            bench.run(agent)
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        assert agent.requests == ()


class TestCostOfFailure:
    @each(
        ("error", "usage"),
        [
            (Overloaded("x", agent="a", attempts=3), Usage(requests=3)),
            (TimedOut("x", agent="a", attempts=2), Usage(requests=2, unknown_costs=1)),
            (OutputInvalid("x", agent="a", cost_usd=0.5), Usage(requests=1, cost_usd=0.5)),
            (TimedOut("x", agent="a", attempts=0), Usage()),
            (StoreError("x"), Usage()),
        ],
    )
    def test_it_is_known_from_the_cause(self, bench: Bench, error: AgentError | StoreError, usage: Usage) -> None:
        with pytest.raises(AgentExecutionError) as caught:
            bench.ask(failing(error))
        assert failure_usage(caught.value) == usage
        assert failed_try(caught.value, step=RecoveryStep.FIRST, attempt=1).session_id == ""
