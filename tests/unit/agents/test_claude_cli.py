"""How the claude program is started and read, with a program of ours in its place."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.claude.cli import LIMITS, READ_ONLY_TOOLS, ClaudeCliAgent, prompt_input, tools_for
from codeloupe.errors import AgentError, Crashed, InvalidRequest, NotInstalled, OutputInvalid, PromptTooLong, TimedOut
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult, PermissionMode
from codeloupe.system.streaming import stream
from tests.endings import FAR_TOO_LONG_SECONDS, before_its_limit, ends_soon
from tests.unit.agents.call_samples import ended_in_silence, every_limit_of_silence, request
from tests.unit.agents.claude_captures import capture, unheard
from tests.unit.agents.fake_claude import FakeClaude

KEY = {"ANTHROPIC_API_KEY": "made-up"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def printing(*lines: str, then: str = "") -> str:
    """A program body that prints these lines and goes on."""
    return f"for line in {list(lines)!r}:\n    print(line, flush=True)\n{then}"


ANSWER = printing(*capture("answer").stdout.splitlines())
RESULT: dict[str, Any] = json.loads(capture("answer").stdout.splitlines()[-1])


def run(program: FakeClaude, asked: AgentRequest, events: list[AgentEvent] | None = None, **more: Any) -> AgentResult:
    agent = ClaudeCliAgent(program.path, {**KEY, "PATH": os.defpath, **more.pop("environment", {})}, **more)
    return asyncio.run(agent.run(asked, unheard if events is None else events.append))


def flags_of(program: FakeClaude) -> dict[str, str | None]:
    pairs = (one.removeprefix("--").partition("=") for one in program.started["argv"])
    return {name: value if equals else None for name, equals, value in pairs}


@pytest.mark.requirement("R2")
@pytest.mark.requirement("R4")
def test_a_plain_request_is_started_read_only_and_closed_to_the_repository(tmp_path: Path, work: Path) -> None:
    program = FakeClaude(tmp_path, ANSWER)
    found = run(program, request(working_dir=work))
    assert found.output == "hello from fake"
    assert flags_of(program) == {
        "print": None,
        "verbose": None,
        "output-format": "stream-json",
        "setting-sources": "",
        "strict-mcp-config": None,
        "tools": "Read,Grep,Glob",
        "permission-mode": "dontAsk",
        "permission-prompts": "none",
        "disable-slash-commands": None,
        "restricted": None,
        "no-session-persistence": None,
    }
    assert program.started["cwd"] == str(work)
    assert program.started["leads"]


@pytest.mark.requirement("R5")
@pytest.mark.requirement("R9")
@pytest.mark.requirement("R15")
def test_every_wish_of_a_request_reaches_the_program(tmp_path: Path, work: Path) -> None:
    program = FakeClaude(tmp_path, ANSWER)
    asked = request(
        "Look.",
        working_dir=work,
        model="big",
        fallback_model="small",
        system_prompt="Be brief. " * 30_000,
        append_system_prompt="Be kind.",
        tools=("Read", "Bash(git log:*)"),
        permission_mode=PermissionMode.PLAN,
        max_turns=3,
        max_budget_usd=0.5,
        idle_timeout_seconds=30,
        output_schema={"type": "object"},
        resume_session="an-id",
        context={"More": "text"},
    )
    run(program, asked)
    flags = flags_of(program)
    assert flags["model"] == "big"
    assert flags["fallback-model"] == "small"
    assert flags["tools"] == "Read,Bash"
    assert flags["allowed-tools"] == "Bash(git log:*)"
    assert flags["permission-mode"] == "plan"
    assert flags["max-turns"] == "3"
    assert flags["max-budget-usd"] == "0.5"
    assert json.loads(flags["json-schema"] or "") == {"type": "object"}
    assert flags["resume"] == "an-id"
    assert "include-partial-messages" in flags
    assert "no-session-persistence" not in flags
    assert program.started["files"] == {
        "--system-prompt-file": "Be brief. " * 30_000,
        "--append-system-prompt-file": "Be kind.",
    }
    assert program.started["stdin"] == "Look.\n\n## More\n\ntext"


@pytest.mark.requirement("R16")
def test_the_program_sees_nothing_of_ours_but_its_credentials(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "not-for-others")
    program = FakeClaude(tmp_path, ANSWER)
    run(program, request(working_dir=work), environment={"GITHUB_TOKEN": "nor-this", "CLAUDECODE": "1"})
    seen = program.started["environment"]
    assert seen["ANTHROPIC_API_KEY"] == "made-up"
    assert not {"DATABASE_PASSWORD", "GITHUB_TOKEN", "CLAUDECODE"} & seen.keys()
    assert not Path(seen["HOME"]).exists(), "the home that was thrown away is still there"


def test_tools_follow_the_permission_mode_unless_they_are_named() -> None:
    assert tools_for(request()).names == READ_ONLY_TOOLS
    assert tools_for(request(permission_mode=PermissionMode.PLAN)).names == READ_ONLY_TOOLS
    assert "Write" in tools_for(request(permission_mode=PermissionMode.ACCEPT_EDITS)).names
    assert "Bash" not in tools_for(request(permission_mode=PermissionMode.ACCEPT_EDITS)).names
    assert tools_for(request(tools=())).names == ()


def test_no_tools_at_all_are_said_with_an_empty_list(tmp_path: Path, work: Path) -> None:
    program = FakeClaude(tmp_path, ANSWER)
    run(program, request(working_dir=work, tools=()))
    assert flags_of(program)["tools"] == ""


def test_bypassing_permissions_is_refused_in_words_before_anything_is_started(tmp_path: Path, work: Path) -> None:
    program = FakeClaude(tmp_path, ANSWER)
    with pytest.raises(InvalidRequest, match="could run any command") as raised:
        run(program, request(working_dir=work, permission_mode=PermissionMode.BYPASS))
    assert "sandbox" in raised.value.hint
    assert not (tmp_path / "started.json").exists()


def test_a_bypass_that_is_allowed_is_logged_as_what_it_is(
    tmp_path: Path, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = FakeClaude(tmp_path, ANSWER)
    with caplog.at_level(logging.WARNING):
        run(program, request(working_dir=work, permission_mode=PermissionMode.BYPASS), allow_bypass=True)
    assert "bypasses all permissions" in caplog.text
    flags = flags_of(program)
    assert flags["permission-mode"] == "bypassPermissions"
    assert flags["setting-sources"] == ""
    assert "restricted" not in flags


def test_kept_sessions_are_written_to_the_users_home(tmp_path: Path, work: Path) -> None:
    program = FakeClaude(tmp_path, ANSWER)
    home = tmp_path / "home"
    home.mkdir()
    run(program, request(working_dir=work), keep_sessions=True, environment={"HOME": str(home)})
    assert (home / ".claude" / "projects").is_dir()
    assert not Path(program.started["environment"]["CLAUDE_CONFIG_DIR"]).is_relative_to(home)
    assert "no-session-persistence" not in flags_of(program)


@pytest.mark.parametrize("prompt", ["/help", "-h", "  /clear", "\n- a list"])
def test_a_prompt_that_looks_like_a_command_gets_a_line_before_it(prompt: str) -> None:
    assert prompt_input(prompt) == f"The request:\n{prompt}"


@pytest.mark.parametrize("prompt", ["help", "see /etc", "# Title", "@file"])
def test_any_other_prompt_is_sent_as_it_is(prompt: str) -> None:
    assert prompt_input(prompt) == prompt


def test_a_schema_that_does_not_fit_into_an_argument_is_refused_in_words(tmp_path: Path, work: Path) -> None:
    schema = {"type": "object", "description": "x" * 130_000}
    with pytest.raises(InvalidRequest, match="130,0.. bytes.*at most 120,000"):
        run(FakeClaude(tmp_path), request(working_dir=work, output_schema=schema))


def test_a_prompt_over_the_limit_is_refused_before_anything_is_started(tmp_path: Path, work: Path) -> None:
    assert LIMITS.max_prompt_characters is not None
    with pytest.raises(PromptTooLong, match="takes at most 2,800,000"):
        run(FakeClaude(tmp_path), request("x" * (LIMITS.max_prompt_characters + 1), working_dir=work))


@pytest.mark.requirement("R12")
@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("sys.exit(3)", Crashed, "exit code 3"),
        ("", Crashed, "exit code 0"),
        ("print('{\"type\": \"resu', end='')", Crashed, "without a result"),
        ("print('plain words'); sys.exit(1)", Crashed, "without a result"),
        ("os.write(2, b'out of memory'); os.abort()", Crashed, "exit code -6.*out of memory"),
        ("sys.stderr.write(\"error: unknown option '--restricted'\"); sys.exit(1)", NotInstalled, "too old"),
    ],
)
def test_a_run_without_a_result_is_never_an_answer(
    tmp_path: Path, work: Path, body: str, kind: type[AgentError], words: str
) -> None:
    with pytest.raises(AgentError, match=words) as raised:
        run(FakeClaude(tmp_path, body), request(working_dir=work))
    assert type(raised.value) is kind


@pytest.mark.requirement("R12")
def test_a_bad_exit_code_after_an_answer_does_not_undo_it(tmp_path: Path, work: Path) -> None:
    program = FakeClaude(tmp_path, f"{ANSWER}\nsys.exit(1)")
    assert run(program, request(working_dir=work)).output == "hello from fake"


def test_a_program_that_answers_and_does_not_end_has_answered(tmp_path: Path, work: Path) -> None:
    program = FakeClaude(tmp_path, f"{ANSWER}\ntime.sleep(60)")
    answered = before_its_limit(
        TimedOut, lambda seconds: run(program, request(working_dir=work, timeout_seconds=seconds))
    )
    assert answered.output == "hello from fake"


def test_a_program_that_answers_and_does_not_end_is_not_waited_for_until_its_deadline(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the test need not wait as long as a real program may take.
    monkeypatch.setattr("codeloupe.system.streaming._END_SECONDS", 0.3)
    program = FakeClaude(tmp_path, f"{ANSWER}\ntime.sleep({FAR_TOO_LONG_SECONDS})")
    with ends_soon():
        asked = request(working_dir=work, timeout_seconds=FAR_TOO_LONG_SECONDS)
        assert run(program, asked).output == "hello from fake"


def test_an_answer_that_is_too_long_is_told_as_such(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the test need not print as much as a real program may.
    monkeypatch.setitem(stream.__kwdefaults__ or {}, "max_line_bytes", 10_000)
    long = json.dumps({**RESULT, "result": "x" * 20_000})
    with pytest.raises(OutputInvalid, match="too long to be read") as raised:
        run(FakeClaude(tmp_path, printing(long)), request(working_dir=work))
    assert raised.value.cut_off
    assert "xxx" in raised.value.raw_output


@pytest.mark.requirement("S7")
def test_bytes_that_are_no_utf_8_do_not_take_the_answer_with_them(tmp_path: Path, work: Path) -> None:
    line = json.dumps({**RESULT, "result": "caf@"}).replace("@", "\\xe9")
    program = FakeClaude(tmp_path, f"os.write(1, b'{line}\\n')")
    assert run(program, request(working_dir=work)).output == "caf\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("cost", [10**400, float("inf"), -1, "much", True])
def test_numbers_that_cannot_be_do_not_take_the_answer_with_them(tmp_path: Path, work: Path, cost: object) -> None:
    odd = {"total_cost_usd": cost, "num_turns": 10**400, "modelUsage": {}, "usage": {"input_tokens": 10**400}}
    found = run(FakeClaude(tmp_path, printing(json.dumps({**RESULT, **odd}))), request(working_dir=work))
    assert (found.output, found.total_cost_usd, found.num_turns) == ("hello from fake", None, 0)
    assert found.usage.input_tokens == 0


@pytest.mark.requirement("R8")
@every_limit_of_silence
def test_a_silent_program_is_ended_and_what_it_said_is_kept(tmp_path: Path, work: Path, limit: str, words: str) -> None:
    first = capture("retry_500").stdout.splitlines()[0]
    program = FakeClaude(tmp_path, printing(first, then="time.sleep(60)"))
    error = ended_in_silence(lambda asked: run(program, asked), work, limit, words)
    assert error.session_id == json.loads(first)["session_id"]
    assert first in error.raw_output
    assert error.__cause__ is not None


def test_a_retry_of_the_program_ends_it_at_once(tmp_path: Path, work: Path) -> None:
    lines = capture("retry_429_after_1").stdout.splitlines()
    program = FakeClaude(tmp_path, printing(*lines[:2], then="time.sleep(60)"))
    with pytest.raises(AgentError, match="429"):
        run(program, request(working_dir=work))


@pytest.mark.requirement("R11")
def test_a_program_that_is_not_there_is_told_with_the_command_that_installs_it(tmp_path: Path, work: Path) -> None:
    agent = ClaudeCliAgent(str(tmp_path / "nowhere"), KEY)
    with pytest.raises(NotInstalled, match="nowhere") as raised:
        asyncio.run(agent.run(request(working_dir=work), unheard))
    assert "npm install" in raised.value.hint
    availability = asyncio.run(agent.check())
    assert not availability.usable
    assert "npm install" in availability.how_to_fix


def test_a_file_that_cannot_run_is_told_as_not_installed(tmp_path: Path, work: Path) -> None:
    broken = tmp_path / "claude"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    with pytest.raises(NotInstalled):
        asyncio.run(ClaudeCliAgent(str(broken), KEY).run(request(working_dir=work), unheard))
    assert not asyncio.run(ClaudeCliAgent(str(broken), KEY).check()).found


@pytest.mark.requirement("R11")
@pytest.mark.parametrize(
    ("source", "logged_in"),
    [(KEY, True), ({"CLAUDE_CODE_USE_VERTEX": "1"}, True), ({"ANTHROPIC_API_KEY": ""}, False), ({}, False)],
)
def test_the_check_tells_version_and_login(tmp_path: Path, source: dict[str, str], logged_in: bool) -> None:
    program = FakeClaude(tmp_path, "print('9.8.7 (Claude Code)')")
    home = tmp_path / "home"
    home.mkdir()
    found = asyncio.run(ClaudeCliAgent(program.path, {"HOME": str(home), **source}).check())
    assert (found.found, found.version, found.logged_in, found.path) == (True, "9.8.7", logged_in, program.path)
    assert bool(found.how_to_fix) is not logged_in
    if not logged_in:
        # None is on the PATH of a test, so it has to be started by its path.
        assert f"start {program.path} in a terminal" in found.how_to_fix
    assert program.started["environment"]["HTTPS_PROXY"] == "http://127.0.0.1:9"
    assert "ANTHROPIC_API_KEY" not in program.started["environment"]


def test_a_login_in_the_users_configuration_counts(tmp_path: Path) -> None:
    program = FakeClaude(tmp_path, "print('9.8.7')")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / ".credentials.json").touch(mode=0o000)
    assert asyncio.run(ClaudeCliAgent(program.path, {"HOME": str(tmp_path)}).check()).logged_in
    moved = {"HOME": "/nowhere", "CLAUDE_CONFIG_DIR": str(tmp_path / ".claude")}
    assert asyncio.run(ClaudeCliAgent(program.path, moved).check()).logged_in


def test_a_version_that_cannot_be_read_means_not_found(tmp_path: Path) -> None:
    found = asyncio.run(ClaudeCliAgent(FakeClaude(tmp_path, "print('none')").path, KEY).check())
    assert not found.found
    assert "does not report its version" in found.how_to_fix
