"""How the claude program is started, with a program of ours in its place."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls.program import Places
from codeloupe.agents.claude.cli import READ_ONLY_TOOLS, ClaudeCliAgent, tools_for
from codeloupe.errors import InvalidRequest
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode
from tests.unit.agents.call_samples import request
from tests.unit.agents.captures import capture, unheard
from tests.unit.agents.fake_program import FakeProgram, printing

KEY = {"ANTHROPIC_API_KEY": "made-up"}
ANSWER = printing(capture("claude", "answer").stdout)
PLACES = Places(Path("/away"), Path("/away/home"), Path("/away/tmp"))


@pytest.fixture
def program(tmp_path: Path) -> FakeProgram:
    return FakeProgram(tmp_path, ANSWER, name="claude")


def run(program: FakeProgram, asked: AgentRequest, source: dict[str, str] | None = None, **more: Any) -> AgentResult:
    agent = ClaudeCliAgent(program.path, {**KEY, "PATH": os.defpath, **(source or {})}, **more)
    return asyncio.run(agent.run(asked, unheard))


def flags_of(program: FakeProgram) -> dict[str, str | None]:
    pairs = (one.removeprefix("--").partition("=") for one in program.started["argv"])
    return {name: value if equals else None for name, equals, value in pairs}


def environment(source: dict[str, str], asked: AgentRequest | None = None, **more: Any) -> dict[str, str]:
    return ClaudeCliAgent(environment=source, **more).environment(asked or request(), PLACES)


@pytest.mark.program
@pytest.mark.requirement("R2")
@pytest.mark.requirement("R4")
def test_a_plain_request_is_started_read_only_and_closed_to_the_repository(
    program: FakeProgram, tmp_path: Path
) -> None:
    assert run(program, request(working_dir=tmp_path)).output == "hello from fake"
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


@pytest.mark.program
@pytest.mark.requirement("R5")
@pytest.mark.requirement("R9")
@pytest.mark.requirement("R15")
def test_everything_in_a_request_reaches_the_program(program: FakeProgram, tmp_path: Path) -> None:
    asked = request(
        "Look.",
        working_dir=tmp_path,
        model="big",
        fallback_model="small",
        system_prompt="Be brief. " * 30_000,
        append_system_prompt="Be kind.",
        tools=("Read", "Bash(git log:*)"),
        permission_mode=PermissionMode.PLAN,
        max_turns=3,
        max_budget_usd=0.5,
        idle_timeout_seconds=30,
        output_schema={"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        resume_session="an-id",
        context={"More": "text"},
    )
    run(program, asked)
    flags = flags_of(program)
    expected = {
        "model": "big",
        "fallback-model": "small",
        "tools": "Read,Bash",
        "allowed-tools": "Bash(git log:*)",
        "permission-mode": "plan",
        "max-turns": "3",
        "max-budget-usd": "0.5",
        "resume": "an-id",
        "include-partial-messages": None,
    }
    assert {name: flags[name] for name in expected} == expected
    assert json.loads(flags["json-schema"] or "") == {"type": "object"}
    assert not {"no-session-persistence", "fork-session"} & flags.keys()
    files = program.started["files"]
    assert files["system-prompt-file.txt"] == "Be brief. " * 30_000
    assert files["append-system-prompt-file.txt"] == "Be kind."
    assert program.started["stdin"] == "Look.\n\n## More\n\ntext"


@pytest.mark.program
def test_tools_follow_the_permission_mode_unless_they_are_named(program: FakeProgram, tmp_path: Path) -> None:
    edits = tools_for(request(permission_mode=PermissionMode.ACCEPT_EDITS))[0]
    assert tools_for(request())[0] == tools_for(request(permission_mode=PermissionMode.PLAN))[0] == READ_ONLY_TOOLS
    assert "Write" in edits
    assert "Bash" not in edits
    run(program, request(working_dir=tmp_path, tools=()))
    assert flags_of(program)["tools"] == ""


def test_a_bypass_that_is_allowed_still_loads_no_settings(program: FakeProgram, tmp_path: Path) -> None:
    run(program, request(working_dir=tmp_path, permission_mode=PermissionMode.BYPASS), allow_bypass=True)
    flags = flags_of(program)
    assert flags["permission-mode"] == "bypassPermissions"
    assert flags["setting-sources"] == ""
    assert "restricted" not in flags


@pytest.mark.program
def test_kept_sessions_are_written_to_the_users_home(program: FakeProgram, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    run(program, request(working_dir=tmp_path), {"HOME": str(home)}, keep_sessions=True)
    assert (home / ".claude" / "projects").is_dir()
    assert not Path(program.started["environment"]["CLAUDE_CONFIG_DIR"]).is_relative_to(home)
    assert "no-session-persistence" not in flags_of(program)


def test_only_a_prompt_that_looks_like_a_command_gets_a_line_before_it() -> None:
    agent = ClaudeCliAgent(environment={})
    for prompt in ("/help", "-h", "  /clear", "\n- a list"):
        assert agent.prompt_input(request(prompt)) == f"The request:\n{prompt}"
    for prompt in ("help", "see /etc", "# Title", "@file"):
        assert agent.prompt_input(request(prompt)) == prompt


def test_a_schema_that_does_not_fit_into_an_argument_is_refused(program: FakeProgram, tmp_path: Path) -> None:
    schema = {"type": "object", "description": "x" * 130_000}
    with pytest.raises(InvalidRequest, match=r"130,0.. bytes.*at most 120,000"):
        run(program, request(working_dir=tmp_path, output_schema=schema))


def test_it_runs_in_the_users_home_only_where_it_must_and_never_writes_its_configuration_there() -> None:
    cases: list[tuple[dict[str, str], str | None, bool, str]] = [
        (KEY, None, False, "/away/home"),
        ({"CLAUDE_CODE_OAUTH_TOKEN": "made-up"}, None, False, "/away/home"),
        ({}, None, False, "/away/home"),
        ({"ANTHROPIC_API_KEY": ""}, None, False, "/away/home"),
        (KEY, "a-session", False, "/away/home"),
        (KEY, None, True, "/away/home"),
        (KEY | {"CLAUDE_CODE_USE_BEDROCK": "1"}, None, False, "/home/someone"),
    ]
    for source, resume, keep, home in cases:
        made = environment({"HOME": "/home/someone", **source}, request(resume_session=resume), keep_sessions=keep)
        assert (made["HOME"], made["CLAUDE_CONFIG_DIR"]) == (home, "/away/home/.claude"), source


def test_a_login_is_read_from_the_users_configuration_directory_where_there_is_no_key() -> None:
    source = {"HOME": "/home/someone", "CLAUDE_CONFIG_DIR": "/home/someone/claude", "USER": "someone"}
    assert environment(source)["CLAUDE_SECURESTORAGE_CONFIG_DIR"] == "/home/someone/claude"
    assert not {"CLAUDE_SECURESTORAGE_CONFIG_DIR", "USER"} & environment(source | KEY).keys()


def test_credentials_of_a_cloud_pass_only_when_that_cloud_is_used() -> None:
    source = {"AWS_SECRET_ACCESS_KEY": "made-up", "AWS_REGION": "r", "GOOGLE_APPLICATION_CREDENTIALS": "file"}
    assert not source.keys() & environment(source | KEY).keys()
    bedrock = environment(source | {"CLAUDE_CODE_USE_BEDROCK": "1"})
    assert bedrock["AWS_SECRET_ACCESS_KEY"] == "made-up"
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in bedrock


def test_it_is_told_to_read_no_files_and_to_keep_its_retries_to_itself() -> None:
    source = {**KEY, "CLAUDECODE": "1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    found = environment(source, base_url="http://127.0.0.1:2")
    assert found["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] == found["CLAUDE_CODE_DISABLE_CLAUDE_MDS"] == "1"
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:2"
    assert found["CLAUDE_CODE_MAX_RETRIES"] == "1"
    assert "CLAUDECODE" not in found
