"""The Agent SDK's part, with a program of ours in the place of claude, or with its messages as they were recorded."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest

from codeloupe.agents.claude.sdk import MARK, AgentSdkAgent, as_printed, converse, how_to_start, signal_marked
from codeloupe.errors import AgentError, Crashed, InvalidRequest, NotInstalled, NotLoggedIn, RateLimited, TurnsExhausted
from codeloupe.model.agent import AgentEvent, AgentResult, PermissionMode, ToolUsed, TurnTaken
from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS, ends_soon, with_enough_time
from tests.unit.agents.samples import FOLDER, FakeProgram, request, unheard

KEY = {"ANTHROPIC_API_KEY": "made-up"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def replayed(name: str, events: list[AgentEvent] | None = None) -> AgentResult:
    """A recorded conversation, read as the agent reads one; raises what it raises."""
    reading = AgentSdkAgent.reading(AgentSdkAgent.program, request(), unheard if events is None else events.append)
    for recorded in json.loads((FOLDER / "sdk" / f"{name}.json").read_text(encoding="utf-8"))["messages"]:
        reading.take(as_printed(claude_agent_sdk, _message(recorded["class"], recorded["data"])))
    assert reading.last is not None
    return reading.answer_in(reading.last, seconds=1, now=0)


def _message(kind: str, data: dict[str, Any]) -> Any:
    if kind == "AssistantMessage":
        blocks = [
            claude_agent_sdk.ToolUseBlock(**block) if "input" in block else claude_agent_sdk.TextBlock(**block)
            for block in data["content"]
        ]
        return claude_agent_sdk.AssistantMessage(**{**data, "content": blocks})
    return getattr(claude_agent_sdk, kind)(**data)


def test_a_recorded_answer_is_read_whole_and_a_failure_has_its_error() -> None:
    assert replayed("schema_as_text").structured is None
    found = replayed("schema")
    assert (found.structured, found.model, found.num_turns) == ({"answer": 42}, "claude-opus-5-5", 2)
    assert found.session_id == "bc730e12-e33d-4970-a466-af3e58f724e1"
    assert found.total_cost_usd
    assert found.usage.input_tokens > 1000
    events: list[AgentEvent] = []
    for name, kind in (("status_429", RateLimited), ("login_missing", NotLoggedIn), ("turns", TurnsExhausted)):
        with pytest.raises(AgentError) as raised:
            replayed(name, events)
        assert type(raised.value) is kind
        assert raised.value.session_id
    assert [event.turn for event in events if isinstance(event, TurnTaken)] == [1, 2]
    assert ToolUsed("agent_sdk", "Read", "<repo>/a.txt") in events
    info = claude_agent_sdk.RateLimitInfo(status="rejected", raw={"status": "rejected", "resetsAt": 50})
    event = claude_agent_sdk.RateLimitEvent(rate_limit_info=info, uuid="u", session_id="s")
    assert as_printed(claude_agent_sdk, event)["rate_limit_info"] == {"status": "rejected", "resetsAt": 50}


def result_message(**changes: Any) -> claude_agent_sdk.ResultMessage:
    fields = {"subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1}
    return claude_agent_sdk.ResultMessage(**{**fields, "session_id": "s1", "result": "hello", **changes})


@pytest.mark.defect("F8")
def test_anything_other_than_one_success_is_a_failure() -> None:
    good = result_message()
    broken = result_message(subtype="error_during_execution")
    for messages in ((broken,), (good, good), (good, broken), (broken, good)):
        with pytest.raises(Crashed):
            answer_to(*messages)
    assert answer_to(good).output == "hello"


def answer_to(*messages: claude_agent_sdk.ResultMessage) -> AgentResult:
    reading = AgentSdkAgent.reading(AgentSdkAgent.program, request(), unheard)
    for message in messages:
        reading.take(as_printed(claude_agent_sdk, message))
    assert reading.last is not None
    return reading.answer_in(reading.last, seconds=1, now=0)


@pytest.fixture
def started(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """How the SDK starts the program for a request with everything in it, in an environment with a secret."""
    monkeypatch.setenv("DATABASE_PASSWORD", "not-for-others")
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("WITH.DOT", "cannot be unset by a shell")
    program = FakeProgram(tmp_path, "sys.exit(7)", name="claude")
    asked = request(
        "Look.",
        working_dir=work,
        model="big",
        fallback_model="small",
        system_prompt="Be brief. " * 30_000,
        append_system_prompt="Be kind.",
        tools=("Read", "Bash(git log:*)"),
        max_turns=3,
        max_budget_usd=0.5,
        idle_timeout_seconds=30,
        output_schema={"type": "object"},
    )
    with pytest.raises(Crashed, match="exit code 7"):
        asyncio.run(AgentSdkAgent(program.path, {**KEY, "PATH": os.defpath}).run(asked, unheard))
    return program.started


@pytest.mark.program
@pytest.mark.requirement("R4")
@pytest.mark.requirement("R16")
def test_the_sdk_starts_the_program_read_only_closed_to_the_repository_and_without_our_environment(
    started: dict[str, Any], work: Path
) -> None:
    arguments, seen = started["argv"], started["environment"]
    assert {
        "--setting-sources=", "--strict-mcp-config", "--restricted", "--disable-slash-commands",
        "--no-session-persistence", "--include-partial-messages", "--system-prompt-file", "--append-system-prompt-file",
    } <= set(arguments)  # fmt: skip
    pairs = dict(itertools.pairwise(arguments))
    expected = {
        "--permission-mode": "dontAsk", "--permission-prompts": "none", "--tools": "Read,Bash", "--model": "big",
        "--allowedTools": "Bash(git log:*)", "--fallback-model": "small", "--max-turns": "3", "--max-budget-usd": "0.5",
        "--json-schema": '{"type": "object"}',
    }  # fmt: skip
    assert {name: pairs[name] for name in expected} == expected
    assert started["cwd"] == str(work)
    assert seen["ANTHROPIC_API_KEY"] == "made-up"
    gone = {"DATABASE_PASSWORD", "CLAUDECODE", "CODELOUPE_UNSET", "CODELOUPE_PROGRAM", "PYTEST_VERSION"}
    assert not gone & seen.keys()
    assert seen.get("WITH.DOT", "") == ""
    assert "not-for-others" not in json.dumps(started)
    assert not Path(seen["HOME"]).exists(), "the home that was thrown away is still there"
    assert started["leads"], "the program leads no session of its own"


def test_where_the_launcher_cannot_run_what_must_not_pass_is_blank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "not-for-others")
    monkeypatch.setenv("CLAUDECODE", "1")
    (tmp_path / "launcher.sh").touch(mode=0o644)
    source = {"HOME": "/home/someone"}
    program, variables = how_to_start("/bin/claude", source, token="nobody", launcher=tmp_path / "launcher.sh")
    assert program == "/bin/claude"
    assert (variables["DATABASE_PASSWORD"], variables["HOME"]) == ("", "/home/someone")
    assert "CLAUDECODE" not in variables


@pytest.mark.program
def test_a_run_without_a_result_has_its_error(tmp_path: Path, work: Path) -> None:
    cases = (
        ("os.write(2, b\"error: unknown option '--restricted'\\n\"); sys.exit(1)", NotInstalled, "too old"),
        ("print('plain words'); os.write(2, b'sorry'); sys.exit(2)", Crashed, "exit code 2; it said: sorry"),
    )
    for number, (body, kind, words) in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        agent = AgentSdkAgent(FakeProgram(folder, body).path, KEY)
        with pytest.raises(kind, match=words) as raised:
            asyncio.run(agent.run(request(working_dir=work), unheard))
        assert raised.value.__cause__ is not None
    bypass = request(working_dir=work, permission_mode=PermissionMode.BYPASS)
    with pytest.raises(InvalidRequest, match="could run any command"):
        asyncio.run(AgentSdkAgent(environment=KEY).run(bypass, unheard))


ANSWERING = """
asked = json.loads(sys.stdin.readline())
response = {"subtype": "success", "request_id": asked["request_id"], "response": {}}
print(json.dumps({"type": "control_response", "response": response}), flush=True)
sys.stdin.readline()
print(RESULT, flush=True)
sys.exit(CODE)
"""


@pytest.mark.program
@pytest.mark.defect("F8")
def test_a_program_that_fails_after_its_result_gave_no_exact_answer(tmp_path: Path, work: Path) -> None:
    result = {
        "type": "result", "subtype": "success", "is_error": False, "session_id": "s", "duration_ms": 1,
        "duration_api_ms": 1, "num_turns": 1, "result": "Done.",
    }  # fmt: skip
    for code, why in ((0, ""), (1, "agent_sdk failed after its result: ")):
        folder = tmp_path / str(code)
        folder.mkdir()
        body = ANSWERING.replace("RESULT", repr(json.dumps(result))).replace("CODE", str(code))
        agent = AgentSdkAgent(FakeProgram(folder, body, name="claude").path, KEY)
        answer = asyncio.run(agent.run(request(working_dir=work), unheard))
        assert answer.output == "Done."
        assert answer.inexact.startswith(why)
        assert bool(answer.inexact) is bool(why)


@pytest.mark.program
@pytest.mark.requirement("R11")
def test_packages_are_not_imported_before_they_are_needed_and_without_them_their_installation_is_the_hint(
    tmp_path: Path,
) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from codeloupe.agents.api.agent import ApiAgent
from codeloupe.agents.claude.sdk import AgentSdkAgent
from codeloupe.errors import NotInstalled
from codeloupe.model.agent import AgentRequest
print({"claude_agent_sdk", "pydantic_ai", "httpx2"} & sys.modules.keys())
sys.modules["claude_agent_sdk"] = sys.modules["pydantic_ai"] = None
for agent in (AgentSdkAgent(), ApiAgent("openai:gpt", environment={"OPENAI_API_KEY": "made-up"})):
    try:
        asyncio.run(agent.run(AgentRequest(prompt="x", working_dir=Path()), print))
    except NotInstalled as error:
        print(error.hint)
"""
    done = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=False, cwd=tmp_path)
    hints = [f"pip install '.[{extra}]' in a checkout of codeloupe" for extra in ("claude", "api")]
    assert (done.stdout.splitlines(), done.stderr) == (["set()", *hints], "")


def test_the_check_tells_version_and_login(tmp_path: Path) -> None:
    found = asyncio.run(AgentSdkAgent(environment=KEY).check())
    assert found.usable
    assert found.version == claude_agent_sdk.__version__
    without = asyncio.run(AgentSdkAgent(environment={"HOME": str(tmp_path)}).check())
    assert without.logged_in is False
    assert "ANTHROPIC_API_KEY" in without.how_to_fix
    assert not asyncio.run(AgentSdkAgent(str(tmp_path / "nowhere"), KEY).check()).found


def hold(
    *messages: float,
    timeout: float = FAR_TOO_LONG_SECONDS,
    idle: float | None = None,
    take: Callable[[Any], None] = lambda _: None,
    cancellations: int = 0,
) -> str:
    """Which limit a conversation passed whose messages have these pauses before them; it is cleaned up in any case."""
    ended: list[str] = []

    async def talk() -> AsyncGenerator[Any, None]:
        try:
            for pause in messages:
                await asyncio.sleep(pause)
                yield pause
        finally:
            ended.append("cleaned up")

    async def held() -> str:
        work = converse(talk(), take, token="nobody", timeout_seconds=timeout, idle_timeout_seconds=idle)
        task = asyncio.ensure_future(work)
        for _ in range(cancellations):
            await asyncio.sleep(0.01)
            task.cancel()
        return await task

    try:
        with ends_soon():
            return asyncio.run(held())
    finally:
        assert ended == ["cleaned up"]


@pytest.mark.requirement("R1")
def test_a_conversation_ends_by_itself_at_its_limits_or_cancelled_however_often_and_is_cleaned_up() -> None:
    assert hold(0.01, 0.01) == ""
    assert hold(0.01, FAR_TOO_LONG_SECONDS, timeout=0.2) == "did not finish within 0.2 s"
    assert hold(0.01, FAR_TOO_LONG_SECONDS, idle=0.2) == "said nothing for 0.2 s"

    def refuse(message: float) -> None:
        raise KeyError(message)

    with pytest.raises(KeyError):
        hold(0.01, FAR_TOO_LONG_SECONDS, take=refuse)
    with pytest.raises(asyncio.CancelledError):
        hold(FAR_TOO_LONG_SECONDS, cancellations=4)

    def talked(silence_seconds: float) -> str:
        # Every message begins the silence anew.
        return hold(*[silence_seconds / 4] * 6, idle=silence_seconds)

    assert with_enough_time(talked, ready=lambda passed: not passed, seconds=(0.4, 2.0, 8.0)) == ""


SLEEP = "import time; print('up', flush=True); time.sleep(60)"


def start(token: str, script: str = SLEEP) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        (sys.executable, "-I", "-S", "-c", script),
        env={**os.environ, MARK: token},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.program
def test_only_processes_with_the_very_mark_are_signalled() -> None:
    # Every process of the machine is looked at, and another one may run these tests too.
    token = str(uuid.uuid4())
    assert signal_marked(token, signal.SIGKILL) == 0
    with start(token) as marked, start(f"{token}-more") as other:
        assert signal_marked(token, signal.SIGKILL) == 1
        assert marked.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        assert other.poll() is None
        assert signal_marked(token, signal.SIGKILL) == 0
        other.kill()
    # A descendant in a session of its own is found too; its end closes the pipe that it had inherited.
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    print('up', flush=True)\n    time.sleep(60)\n"
    with start(token, script) as parent:
        assert parent.wait(PATIENCE_SECONDS) == 0
        assert signal_marked(token, signal.SIGKILL) == 1
        assert parent.stdout is not None
        assert parent.stdout.read() == b""
