"""The Agent SDK's part, with a program of ours in the place of claude, or with its messages as they were recorded."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest

from codeloupe.agents.claude.sdk import (
    MARK,
    AgentSdkAgent,
    Conversation,
    PassedLimit,
    as_printed,
    how_to_start,
    signal_marked,
)
from codeloupe.errors import AgentError, Crashed, InvalidRequest, NotInstalled, NotLoggedIn, RateLimited, TurnsExhausted
from codeloupe.model.agent import AgentEvent, AgentResult, PermissionMode, ToolUsed, TurnTaken
from tests.endings import FAR_TOO_LONG_SECONDS, PATIENCE_SECONDS, ends_soon, with_enough_time
from tests.unit.agents.call_samples import request
from tests.unit.agents.captures import FOLDER, unheard
from tests.unit.agents.fake_program import FakeProgram

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
    assert reading.result is not None
    return reading.answer_in(reading.result, duration_ms=1, now=0)


def _message(kind: str, data: dict[str, Any]) -> Any:
    if kind == "AssistantMessage":
        blocks = [
            claude_agent_sdk.ToolUseBlock(**block) if "input" in block else claude_agent_sdk.TextBlock(**block)
            for block in data["content"]
        ]
        return claude_agent_sdk.AssistantMessage(**{**data, "content": blocks})
    return getattr(claude_agent_sdk, kind)(**data)


def test_a_recorded_answer_is_read_whole() -> None:
    assert replayed("schema_as_text").structured is None
    found = replayed("schema")
    assert found.structured == {"answer": 42}
    assert found.session_id == "bc730e12-e33d-4970-a466-af3e58f724e1"
    assert found.model == "claude-opus-5-5"
    assert found.total_cost_usd
    assert found.usage.input_tokens > 1000
    assert found.num_turns == 2


def test_a_recorded_failure_has_its_error() -> None:
    failures = (("turns", TurnsExhausted), ("status_429", RateLimited), ("login_missing", NotLoggedIn))
    for name, kind in failures:
        with pytest.raises(AgentError) as raised:
            replayed(name)
        assert type(raised.value) is kind
        assert raised.value.session_id


def test_turns_and_tools_of_a_recorded_conversation_are_told() -> None:
    events: list[AgentEvent] = []
    with pytest.raises(TurnsExhausted):
        replayed("turns", events)
    assert [event.turn for event in events if isinstance(event, TurnTaken)] == [1, 2]
    assert ToolUsed("agent_sdk", "Read", "<repo>/a.txt") in events


def test_a_quota_is_read_from_the_message_of_the_sdk() -> None:
    info = claude_agent_sdk.RateLimitInfo(status="rejected", raw={"status": "rejected", "resetsAt": 50})
    event = claude_agent_sdk.RateLimitEvent(rate_limit_info=info, uuid="u", session_id="s")
    assert as_printed(claude_agent_sdk, event)["rate_limit_info"] == {"status": "rejected", "resetsAt": 50}


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
def test_the_sdk_starts_the_program_read_only_and_closed_to_the_repository(started: dict[str, Any], work: Path) -> None:
    arguments = started["argv"]
    assert "--setting-sources=" in arguments
    for flag in ("--strict-mcp-config", "--restricted", "--disable-slash-commands", "--no-session-persistence"):
        assert flag in arguments
    pairs = dict(itertools.pairwise(arguments))
    assert pairs["--permission-mode"] == "dontAsk"
    assert pairs["--permission-prompts"] == "none"
    assert pairs["--tools"] == "Read,Bash"
    assert pairs["--allowedTools"] == "Bash(git log:*)"
    assert (pairs["--model"], pairs["--fallback-model"]) == ("big", "small")
    assert (pairs["--max-turns"], pairs["--max-budget-usd"]) == ("3", "0.5")
    assert json.loads(pairs["--json-schema"]) == {"type": "object"}
    assert "--include-partial-messages" in arguments
    assert "--system-prompt-file" in arguments
    assert "--append-system-prompt-file" in arguments
    assert started["cwd"] == str(work)


@pytest.mark.program
@pytest.mark.requirement("R16")
def test_what_must_not_pass_is_gone_from_the_environment(started: dict[str, Any]) -> None:
    seen = started["environment"]
    assert seen["ANTHROPIC_API_KEY"] == "made-up"
    assert (
        not {"DATABASE_PASSWORD", "CLAUDECODE", "CODELOUPE_UNSET", "CODELOUPE_PROGRAM", "PYTEST_VERSION"} & seen.keys()
    )
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


@pytest.mark.program
@pytest.mark.requirement("R11")
def test_without_the_package_its_installation_is_told(tmp_path: Path) -> None:
    script = f"""
import asyncio, sys
sys.modules["claude_agent_sdk"] = None
from pathlib import Path
from codeloupe.agents.claude.sdk import AgentSdkAgent
from codeloupe.errors import NotInstalled
from codeloupe.model.agent import AgentRequest
try:
    asyncio.run(AgentSdkAgent().run(AgentRequest(prompt="x", working_dir=Path({str(tmp_path)!r})), print))
except NotInstalled as error:
    print(error.hint)
"""
    completed = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert completed.stdout == "pip install 'codeloupe[claude]'\n"


@pytest.mark.program
def test_the_package_is_not_imported_before_it_is_needed() -> None:
    script = "import sys, codeloupe.agents.claude.sdk; print('claude_agent_sdk' in sys.modules)"
    completed = subprocess.run((sys.executable, "-c", script), capture_output=True, text=True, check=True)
    assert completed.stdout == "False\n"


def test_the_check_tells_version_and_login(tmp_path: Path) -> None:
    found = asyncio.run(AgentSdkAgent(environment=KEY).check())
    assert found.usable
    assert found.version == claude_agent_sdk.__version__
    without = asyncio.run(AgentSdkAgent(environment={"HOME": str(tmp_path)}).check())
    assert without.logged_in is False
    assert "ANTHROPIC_API_KEY" in without.how_to_fix
    assert not asyncio.run(AgentSdkAgent(str(tmp_path / "nowhere"), KEY).check()).found


async def _talk(*messages: float, ended: list[str]) -> AsyncGenerator[Any, None]:
    """Messages with pauses before them, in seconds."""
    try:
        for pause in messages:
            await asyncio.sleep(pause)
            yield pause
    finally:
        ended.append("cleaned up")


def hold(*messages: float, timeout: float = FAR_TOO_LONG_SECONDS, idle: float | None = None) -> PassedLimit | None:
    """Which limit a conversation passed; fails unless it was cleaned up."""
    ended: list[str] = []

    async def held() -> PassedLimit | None:
        conversation = Conversation(_talk(*messages, ended=ended), lambda _: None, token="nobody")
        return await conversation.hold(timeout_seconds=timeout, idle_timeout_seconds=idle)

    passed = asyncio.run(held())
    assert ended == ["cleaned up"]
    return passed


def test_a_conversation_ends_by_itself_or_at_its_limits_and_is_cleaned_up() -> None:
    assert hold(0.01, 0.01) is None
    assert hold(0.01, FAR_TOO_LONG_SECONDS, timeout=0.2) == PassedLimit(0.2, silent=False)
    assert hold(0.01, FAR_TOO_LONG_SECONDS, idle=0.2) == PassedLimit(0.2, silent=True)


def test_every_message_begins_the_silence_anew() -> None:
    def talked(silence_seconds: float) -> PassedLimit | None:
        return hold(*[silence_seconds / 4] * 6, idle=silence_seconds)

    assert with_enough_time(talked, ready=lambda passed: passed is None, seconds=(0.4, 2.0, 8.0)) is None


def test_what_the_taker_raises_is_raised_after_the_end_of_the_conversation() -> None:
    ended: list[str] = []

    async def held() -> None:
        def refuse(message: float) -> None:
            raise KeyError(message)

        await Conversation(_talk(0.01, 30, ended=ended), refuse, token="nobody").hold(
            timeout_seconds=40, idle_timeout_seconds=None
        )

    with pytest.raises(KeyError):
        asyncio.run(held())
    assert ended == ["cleaned up"]


@pytest.mark.requirement("R1")
def test_a_cancellation_is_raised_when_the_conversation_has_ended_however_often_it_comes() -> None:
    ended: list[str] = []

    async def held() -> None:
        conversation = Conversation(_talk(FAR_TOO_LONG_SECONDS, ended=ended), lambda _: None, token="nobody")
        task = asyncio.ensure_future(conversation.hold(timeout_seconds=FAR_TOO_LONG_SECONDS, idle_timeout_seconds=None))
        for _ in range(4):
            await asyncio.sleep(0.01)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with ends_soon():
        asyncio.run(held())
    assert ended == ["cleaned up"]


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


@pytest.mark.program
def test_a_descendant_in_a_session_of_its_own_is_found() -> None:
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    print('up', flush=True)\n    time.sleep(60)\n"
    token = str(uuid.uuid4())
    with start(token, script) as parent:
        assert parent.wait(PATIENCE_SECONDS) == 0
        assert signal_marked(token, signal.SIGKILL) == 1
        # Its end closes the pipe that it had inherited.
        assert parent.stdout is not None
        assert parent.stdout.read() == b""
