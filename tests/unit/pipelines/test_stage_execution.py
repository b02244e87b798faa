"""One execution of a stage: its prompt, its agent's call, and what is collected or raised."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.agents.calls.retry import RetryPolicy
from codeloupe.config.files import MAX_FILE_BYTES
from codeloupe.errors import AgentError, AgentExecutionError, ArtifactError, OutputInvalid, StoreError, TimedOut
from codeloupe.model import pipeline as model
from codeloupe.model.agent import FILES_NOT_KNOWN, AgentRequest, AgentResult, PermissionMode
from codeloupe.model.pipeline import ArtifactRule, AttemptRecord, CriticVerdict, Critique, GateKind, StageRequest
from codeloupe.pipelines import execution
from codeloupe.pipelines.execution import build_prompt, execute_stage, read_text
from codeloupe.pipelines.recovery import failed_try
from codeloupe.testing import Hang, Json, ScriptedAgent, Text
from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS
from tests.rows import each
from tests.stage_workspaces import fill

ANSWER = AgentResult(success=True, output="An answer.", agent="scripted")


class Bench:
    """A stage with its files and workspace, and an agent that acts by a script."""

    def __init__(self, directory: Path) -> None:
        fill(directory, {"step.md": "Write it.", "agent.md": "You write."})
        self.work = directory / "work"
        self.work.mkdir()
        self.step = directory / "step.md"
        self.definition = model.StageDefinition(name="write", step=self.step, timeout_seconds=2000.0)
        self.request = StageRequest(stage="write", step_file=self.step, agent_definition=directory / "agent.md")
        self.output = ""

    def run(self, agent: ScriptedAgent, **options: Any) -> AttemptRecord:
        """Execute the stage, the agent being called as a pipeline calls it."""

        async def ask(asked: AgentRequest) -> AgentResult:
            caller = AgentCaller(CallerOptions(retry=RetryPolicy(attempts=1)))
            return await caller.call(asked, agent=agent, emit=lambda _event: None)

        return self.ask(ask, **options)

    def ask(self, ask: Any, **options: Any) -> AttemptRecord:
        work = execute_stage(self.request, self.definition, workspace=self.work, ask=ask, **options)
        attempt, self.output = asyncio.run(work)
        return attempt

    def answer(self, **fields: Any) -> AttemptRecord:
        """What comes of an agent that gives an answer with these fields."""

        async def ask(_request: AgentRequest) -> AgentResult:
            return replace(ANSWER, **fields)

        return self.ask(ask)

    def fail(self, error: BaseException) -> AgentExecutionError:
        """What comes of an agent that fails so."""

        async def ask(_request: AgentRequest) -> AgentResult:
            raise error

        with pytest.raises(AgentExecutionError) as caught:
            self.ask(ask)
        assert caught.value.__cause__ is error
        return caught.value

    def act(self, act: Callable[[], object], answer: str = "Done.") -> ScriptedAgent:
        """An agent that acts in the workspace and then answers."""

        def step(_request: AgentRequest) -> Text:
            act()
            return Text(answer)

        return ScriptedAgent([step])

    def define(self, **fields: Any) -> None:
        self.definition = replace(self.definition, **fields)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.requirement("S3")
@pytest.mark.requirement("S4")
def test_a_stage_gives_its_artifacts_session_and_time(bench: Bench) -> None:
    result = bench.run(bench.act(lambda: fill(bench.work, {"b.md": "1", "a.json": "{}", "code.py": "1"})))
    assert result.artifacts == ("a.json", "b.md")
    assert (result.session_id, bench.output, result.agent) == ("scripted-1", "Done.", "scripted")
    assert result.duration_seconds >= 0


@pytest.mark.requirement("S3")
def test_an_agent_gets_the_prompt_the_workspace_and_the_limits_and_writes_only_where_it_may(bench: Bench) -> None:
    agent = ScriptedAgent([Json({"ok": True})])
    limits = {"tools": ("Read",), "max_turns": 7, "max_budget_usd": 1.5, "model": "own"}
    bench.define(**limits, output_schema={"type": "object"}, writes=False)
    bench.run(agent, resume_session="earlier")
    bench.define(writes=True)
    bench.run(agent)
    asked, writing = agent.requests
    assert ("Write it." in asked.prompt, "You write." in asked.prompt, asked.working_dir) == (True, True, bench.work)
    assert {key: getattr(asked, key) for key in limits} == limits
    assert (asked.resume_session, asked.output_schema, asked.labels["stage"]) == (
        "earlier",
        {"type": "object"},
        "write",
    )
    # What passed before the call is taken off.
    assert 2000 - PATIENCE_SECONDS < asked.timeout_seconds <= 2000
    assert (asked.permission_mode, writing.permission_mode) == (PermissionMode.DONT_ASK, PermissionMode.ACCEPT_EDITS)


@pytest.mark.requirement("S6")
@pytest.mark.requirement("S7")
def test_a_session_that_is_not_told_is_empty_and_an_answer_that_is_not_utf_8_does_no_harm(bench: Bench) -> None:
    result = bench.answer(output=b"caf\xe9 \xff\xfe".decode("utf-8", "surrogateescape"))
    assert (result.session_id, result.artifacts) == ("", ("write-output.md",))
    assert (bench.work / "write-output.md").read_bytes() == b"caf\\udce9 \\udcff\\udcfe\n"


def test_notes_of_the_call_and_denied_tools_are_told(bench: Bench) -> None:
    notes = (f"{FILES_NOT_KNOWN}: no repository", "another agent answered")
    result = bench.answer(notes=notes, permission_denials=("Write ../../x", "Write ../../x", "Bash"))
    denied = [f"scripted was not allowed to use {tool}" for tool in ("Write ../../x", "Bash")]
    assert result.notes == ("another agent answered", *denied)


def test_a_structured_answer_is_saved_as_json(bench: Bench) -> None:
    bench.define(output_schema={"type": "object"})
    assert bench.run(ScriptedAgent([Json({"score": 7})])).artifacts == ("write-output.json",)
    for text in ((bench.work / "write-output.json").read_text(), bench.output):
        assert json.loads(text) == {"score": 7}


def test_the_answer_of_the_attempt_before_gives_way(bench: Bench) -> None:
    bench.run(ScriptedAgent([Text("The first.")]))
    result = bench.run(ScriptedAgent([Text("The second.")]), built_on=("write-output.md",))
    assert result.artifacts == ("write-output.md",)
    assert (bench.work / "write-output.md").read_text() == "The second.\n"


def test_an_attempt_that_mends_one_file_keeps_the_others(bench: Bench) -> None:
    fill(bench.work, {"a.md": "1", "b.md": "1", "foreign.md": "1", "code.py": "1"})
    mending = bench.act(lambda: fill(bench.work, {"b.md": "2"}))
    assert bench.run(mending, built_on=("a.md", "b.md", "code.py", "gone.md")).artifacts == ("a.md", "b.md")


def test_nothing_at_all_is_a_failure_but_code_without_an_answer_is_a_result(bench: Bench) -> None:
    with pytest.raises(ArtifactError, match="wrote no file, and its answer is empty"):
        bench.answer(output=" \n")
    assert list(bench.work.iterdir()) == []

    async def coding(_request: AgentRequest) -> AgentResult:
        fill(bench.work, {"code.py": "1"})
        return replace(ANSWER, output="")

    assert bench.ask(coding).artifacts == ()


def test_a_disk_that_takes_no_answer_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def full(path: Any, flags: int, *arguments: Any, **more: Any) -> int:
        if flags & os.O_CREAT and "output" in str(path):
            raise OSError(28, "No space left on device")
        return real_open(path, flags, *arguments, **more)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(
        ArtifactError, match="cannot save the answer of the stage write as write-output.md: No space left"
    ) as caught:
        bench.run(ScriptedAgent([Text("The answer.")]))
    assert isinstance(caught.value.__cause__, OSError)


def test_what_is_left_has_to_be_what_was_required_and_to_fit_its_schema(bench: Bench) -> None:
    bench.define(artifacts=ArtifactRule(required=("report.md",)))
    with pytest.raises(ArtifactError):
        bench.run(ScriptedAgent([Text("I forgot.")]))
    assert list(bench.work.iterdir()) == []  # not even the answer is saved
    bench.define(artifacts=ArtifactRule(schemas={"meta.json": {"type": "object"}}))
    with pytest.raises(ArtifactError, match="meta.json of the stage write does not match its schema: at \\$"):
        bench.run(bench.act(lambda: fill(bench.work, {"meta.json": "[]"})))
    bench.define(artifacts=ArtifactRule(required=("write-output.md",)), writes=False)
    assert bench.run(ScriptedAgent([Text("Here.")])).artifacts == ("write-output.md",)


def test_a_stage_that_may_not_write_and_did_fails(bench: Bench) -> None:
    old = bench.work / "old"
    fill(bench.work, {"old": "1"})
    bench.define(writes=False)
    acts: list[tuple[str, Callable[[], object]]] = [
        ("x.py", lambda: fill(bench.work, {"x.py": "1"})),
        ("old", lambda: fill(bench.work, {"old": "2"})),
        (".x", lambda: fill(bench.work, {".x": "1"})),
        ("x", (bench.work / "x").mkdir),
        ("y", lambda: (bench.work / "y").symlink_to("old")),
        ("old", lambda: old.chmod(0o755)),
        ("old", old.unlink),
    ]
    for name, act in acts:
        with pytest.raises(
            ArtifactError, match=f"is read-only, but these files changed while it ran: {name}$"
        ) as caught:
            bench.run(bench.act(act))
        assert "writes: true" in caught.value.hint


@pytest.mark.requirement("S5")
@pytest.mark.requirement("S10")
@each(
    "error",
    [
        errors.Overloaded("it is overloaded", agent="a", hint="wait", attempts=3),
        errors.NotLoggedIn("no key", agent="a", hint="log in"),
        StoreError("the ledger is damaged", hint="remove it"),
    ],
)
def test_a_failed_call_is_told_with_its_cause_and_hint(bench: Bench, error: AgentError | StoreError) -> None:
    raised = bench.fail(error)
    assert raised.message == f"the stage write got no answer: {error.message}"
    assert (raised.stage, raised.hint) == ("write", error.hint)


@pytest.mark.requirement("S5")
@each("error", [KeyError("x"), OSError(5, "I/O error"), TimeoutError("inner"), RecursionError()])
def test_a_defect_of_an_agent_is_told_with_its_cause(bench: Bench, error: Exception) -> None:
    assert f"failed unexpectedly: {type(error).__name__}" in bench.fail(error).message


def test_a_result_without_success_is_a_failure(bench: Bench) -> None:
    with pytest.raises(AgentExecutionError, match="the model gave up") as caught:
        bench.answer(success=False, error="the model gave up", session_id="s")
    assert isinstance(caught.value.__cause__, OutputInvalid)
    assert failed_try(caught.value, step=model.RecoveryStep.FIRST, attempt=1).session_id == "s"
    assert list(bench.work.iterdir()) == []


@pytest.mark.requirement("S3")
@pytest.mark.requirement("S5")
def test_an_agent_that_hangs_ends_with_the_time_of_the_stage(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # However late the machine wakes us: the agent's own words come before the stage's.
    monkeypatch.setattr(execution, "_LAST_WORDS_SECONDS", FAR_TOO_LONG_SECONDS)
    bench.define(timeout_seconds=0.1)
    agent = ScriptedAgent([Hang()])
    with pytest.raises(AgentExecutionError) as caught:
        bench.run(agent)
    assert isinstance(caught.value.__cause__, TimedOut)
    assert agent.running == 0


class Hanging:
    """What hangs around an agent, and notices that it is ended."""

    def __init__(self) -> None:
        self.began, self.gone = asyncio.Event(), False

    async def __call__(self, _request: AgentRequest) -> AgentResult:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.gone = True
        return ANSWER


@pytest.mark.requirement("S3")
@pytest.mark.requirement("S5")
def test_whatever_hangs_around_the_agent_ends_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "_LAST_WORDS_SECONDS", 0.0)
    bench.define(timeout_seconds=0.05)
    hang = Hanging()
    with pytest.raises(AgentExecutionError, match=r"got no answer within 0.05 s") as caught:
        bench.ask(hang)
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert hang.gone


@pytest.mark.requirement("S10")
def test_a_cancellation_is_raised_as_it_came(bench: Bench) -> None:
    hang = Hanging()

    async def cancelled() -> None:
        running = asyncio.create_task(execute_stage(bench.request, bench.definition, workspace=bench.work, ask=hang))
        await hang.began.wait()
        running.cancel("stop it")
        with pytest.raises(asyncio.CancelledError, match="stop it"):
            await running

    asyncio.run(cancelled())
    assert hang.gone


@pytest.mark.requirement("S5")
def test_without_its_step_file_no_agent_is_asked(bench: Bench) -> None:
    bench.step.unlink()
    agent = ScriptedAgent([Text("Done.")])
    with pytest.raises(AgentExecutionError, match="cannot use its step file: .* no such file") as caught:
        bench.run(agent)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert agent.requests == ()


EMPTY = StageRequest(stage="write", step_file=Path("step.md"), agent_definition=Path("agent.md"))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(fill(tmp_path, {"step.md": "Write a poem.", "agent.md": "You are a poet."}))
    return tmp_path


def prompt(request: StageRequest = EMPTY, *, writes: bool = True, **rule: Any) -> str:
    return build_prompt(request, writes=writes, artifacts=ArtifactRule(**rule))


def headings(text: str) -> list[str]:
    return [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]


@pytest.mark.requirement("S1")
def test_a_request_cannot_be_changed() -> None:
    context = MappingProxyType({"tone": "dry"})
    request = replace(EMPTY, prior_artifacts=(Path("a.md"),), elicitation_context=context, attempt_history=())
    for name in ("stage", "step_file", "agent_definition", "prior_artifacts", "elicitation_context", "attempt_history"):
        with pytest.raises(AttributeError):
            setattr(request, name, None)


@pytest.mark.requirement("S2")
def test_the_sections_are_in_order_and_say_everything(files: Path) -> None:
    critique = Critique(
        verdict=CriticVerdict.REWORK,
        gate=GateKind.CRITIC,
        score=55,
        summary="Too long.",
        blockers=("It has no end.", "Two\nlines"),
        fixes=("Write an end.",),
        confidence=0.75,
    )
    request = replace(
        EMPTY,
        prior_artifacts=(Path("research.md"), Path("data/plan.json")),
        elicitation_context={"tone": "dry", "notes": "first\nsecond"},
        attempt_history=(AttemptRecord(number=1, critiques=(critique,)), AttemptRecord(number=2)),
    )
    text = prompt(request, required=("poem.md",), schemas={"meta.json": {}})
    assert headings(text) == [
        "Stage Requirements",
        "Agent Definition",
        "Prior Artifacts",
        "Elicitation Context",
        "Attempt History",
        "Execution Environment",
    ]
    expected = (
        "Write a poem.",
        "You are a poet.",
        "- research.md\n- data/plan.json",
        "- tone: dry\n- notes:\n      first\n      second",
        "### Attempt 1",
        "- verdict of the critic gate: REWORK, score 55 of 100, confidence 0.75",
        "- summary: Too long.",
        "- blocker: It has no end.",
        "- blocker:\n      Two\n      lines",
        "- fix: Write an end.",
        "### Attempt 2",
        "- no reason is known",
        "All paths here are relative to it.",
        "must be there when you are done: poem.md",
        "directly in it: *.md, *.json, *.txt, *.yaml, *.yml",
        "- meta.json is checked against a JSON Schema.",
        "saved as write-output.md",
    )
    assert [part for part in expected if part not in text] == []
    assert "in it and in its folders" in prompt(recursive=True)


@pytest.mark.requirement("S2")
def test_what_there_is_nothing_to_say_about_has_no_section(files: Path) -> None:
    assert headings(prompt(replace(EMPTY, agent_definition=None))) == ["Stage Requirements", "Execution Environment"]
    reading = prompt(writes=False)
    assert "must not make, change or remove any" in reading
    assert "Your answer is the result" in reading
    assert "*.md" not in reading


def test_a_prompt_holds_nothing_that_no_agent_takes(files: Path) -> None:
    request = replace(
        EMPTY,
        prior_artifacts=(Path(os.fsdecode(b"/run/\xff\n## Stage Requirements")),),
        elicitation_context={"k\x00\udc80": "v\x00\x1b[31m \udcff\u2028## Attempt History\r## More"},
    )
    text = prompt(request)
    text.encode()
    assert not {"\0", "\x1b"} & set(text)
    assert "/run/\\udcff\\n## Stage Requirements" in text
    assert headings(text).count("Stage Requirements") == 1
    assert "Attempt History" not in headings(text)


@pytest.mark.requirement("S2")
@pytest.mark.requirement("S5")
def test_a_file_is_read_without_the_mark_of_its_encoding_or_refused_with_its_cause(tmp_path: Path) -> None:
    for content, text in ((b"\xef\xbb\xbfDo it.\n", "Do it.\n"), (b"x" * MAX_FILE_BYTES, "x" * MAX_FILE_BYTES)):
        fill(tmp_path, {"step.md": content, "agent.md": "You are a poet."})
        assert read_text(tmp_path / "step.md", "step file", "write") == text
    contents = {
        "empty": (b" \n\t\n", "the file is empty"),
        "latin": (b"ok\xe9", "not UTF-8 text"),
        "binary": (b"a\0b", "not a text file: it contains a NUL byte"),
        "large": (b"x" * (MAX_FILE_BYTES + 1), f"larger than {MAX_FILE_BYTES:,} bytes"),
    }
    fill(tmp_path, {name: content for name, (content, _) in contents.items()})
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    rows = {
        **{name: words for name, (_, words) in contents.items()},
        "nowhere": "no such file",
        "step.md/x": "cannot be read: not a directory",
        ".": "expected a file, found a folder",
        "pipe": "not a regular file",
        "circle": "a symbolic link",
    }
    usual: dict[str, Any] = {"step_file": tmp_path / "step.md", "agent_definition": tmp_path / "agent.md"}
    for name, words in rows.items():
        for which in usual:
            with pytest.raises(AgentExecutionError, match=words) as caught:
                prompt(StageRequest(stage="write", **{**usual, which: tmp_path / name}))
            assert (caught.value.stage, which.replace("_", " ") in caught.value.message) == ("write", True)
            assert str(tmp_path / name) in caught.value.message
            assert isinstance(caught.value.__cause__, OSError | ValueError)
            assert caught.value.hint
