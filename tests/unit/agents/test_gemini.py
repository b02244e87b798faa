"""How the gemini program is started, with a program of ours in its place."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.gemini.agent import READ_ONLY_TOOLS, GeminiAgent, tools_for
from codeloupe.agents.gemini.output import JOINER, prompt_input, restored
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode
from tests.unit.agents.call_samples import request
from tests.unit.agents.captures import capture, unheard
from tests.unit.agents.fake_program import FakeProgram, printing

pytestmark = pytest.mark.program

KEY = {"GEMINI_API_KEY": "made-up"}
ANSWER = printing(capture("gemini", "answer").stdout)


@pytest.fixture
def program(tmp_path: Path) -> FakeProgram:
    return FakeProgram(tmp_path, ANSWER, name="gemini")


def run(program: FakeProgram, asked: AgentRequest, source: dict[str, str] | None = None, **more: Any) -> AgentResult:
    agent = GeminiAgent(program.path, {"PATH": os.defpath, **(KEY if source is None else source)}, **more)
    return asyncio.run(agent.run(asked, unheard))


def settings_of(program: FakeProgram) -> dict[str, Any]:
    found = json.loads(program.started["files"]["settings.json"])
    assert isinstance(found, dict)
    return found


@pytest.mark.requirement("R3")
@pytest.mark.requirement("R4")
@pytest.mark.requirement("R6")
def test_a_plain_request_is_started_read_only_and_closed_to_the_repository(
    program: FakeProgram, tmp_path: Path
) -> None:
    looked_for = set()
    for _ in range(2):
        assert run(program, request("Look.", working_dir=tmp_path)).output == "hello from the stand-in"
        looked_for.add(settings_of(program)["context"]["fileName"])
    assert len(looked_for) == 2, "two calls look for a context file of the same name"
    assert program.started["argv"] == ["--output-format=stream-json"]
    settings, seen = settings_of(program), program.started["environment"]
    assert settings["security"] == {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}}
    assert settings["tools"]["core"] == list(READ_ONLY_TOOLS)
    assert settings["general"]["maxAttempts"] == 1
    assert settings["advanced"]["ignoreLocalEnv"] is True
    for name in ("hooksConfig", "telemetry", "skills"):
        assert not settings[name]["enabled"]
    assert not settings["privacy"]["usageStatisticsEnabled"]
    assert (seen["GEMINI_RESTRICTED_MODE"], seen["GEMINI_CLI_TRUST_WORKSPACE"]) == ("true", "false")
    assert seen["GEMINI_CLI_NO_RELAUNCH"] == "true"


def test_the_addresses_are_always_set_so_that_no_file_can_name_others(program: FakeProgram, tmp_path: Path) -> None:
    cases: list[tuple[dict[str, str], dict[str, str], str]] = [
        ({}, KEY, "https://generativelanguage.googleapis.com"),
        ({}, {**KEY, "GOOGLE_GEMINI_BASE_URL": "http://own.example"}, "http://own.example"),
        ({"base_url": "http://given.example"}, {**KEY, "GOOGLE_GEMINI_BASE_URL": "no"}, "http://given.example"),
    ]
    for more, source, address in cases:
        run(program, request(working_dir=tmp_path), source, **more)
        seen = program.started["environment"]
        assert seen["GOOGLE_GEMINI_BASE_URL"] == address
        assert seen["CODE_ASSIST_ENDPOINT"] == "https://cloudcode-pa.googleapis.com"


@pytest.mark.requirement("R5")
@pytest.mark.requirement("R9")
@pytest.mark.requirement("R15")
def test_everything_in_a_request_reaches_the_program(program: FakeProgram, tmp_path: Path) -> None:
    asked = request(
        "Look.",
        working_dir=tmp_path,
        model="big",
        system_prompt="Be brief.",
        append_system_prompt="Be kind.",
        max_turns=3,
        tools=("glob",),
        output_schema={"type": "object"},
        context={"More": "text"},
    )
    run(program, asked)
    assert program.started["argv"] == ["--output-format=stream-json", "--model=big"]
    assert program.started["files"]["system-prompt.md"] == "Be brief.\n\nBe kind."
    assert settings_of(program)["model"]["maxSessionTurns"] == 3
    assert settings_of(program)["tools"]["core"] == ["glob"]
    assert program.started["stdin"].startswith("Look.\n\n## More\n\ntext\n\n## Form of the answer")
    assert '{"type": "object"}' in program.started["stdin"]
    run(program, request(working_dir=tmp_path, tools=()))
    assert settings_of(program)["tools"]["core"] == []


def test_tools_follow_the_permission_mode_and_those_it_does_not_allow_are_not_given(
    program: FakeProgram, tmp_path: Path
) -> None:
    assert tools_for(request()) == tools_for(request(permission_mode=PermissionMode.PLAN)) == READ_ONLY_TOOLS
    assert tools_for(request(tools=())) == ()
    edits = PermissionMode.ACCEPT_EDITS
    assert "write_file" in tools_for(request(permission_mode=edits))
    assert "run_shell_command" not in tools_for(request(permission_mode=edits))
    assert tools_for(request(tools=("write_file", "glob", "run_shell_command", "Read"))) == ("glob",)
    assert tools_for(request(tools=("write_file", "run_shell_command"), permission_mode=edits)) == ("write_file",)
    run(program, request(working_dir=tmp_path, permission_mode=PermissionMode.BYPASS), allow_bypass=True)
    assert "run_shell_command" in settings_of(program)["tools"]["core"]
    assert program.started["environment"]["GEMINI_RESTRICTED_MODE"] == "true"


def test_a_prompt_is_text_and_neither_a_command_nor_the_mention_of_a_file() -> None:
    for prompt in ("/init", "/help me"):
        assert prompt_input(request(prompt)) == f"\n{prompt}"
    assert prompt_input(request("Plain @ text\n@")) == "Plain @ text\n@"
    assert prompt_input(request("Look.", append_system_prompt="Be kind.")) == "Be kind.\n\nLook."
    sent = prompt_input(request("/x @app.route('/')\n@@ -1 +1 @@ a@b.example and @ alone", context={"@t": "@u"}))
    assert f"@{JOINER}app.route" in sent
    assert f"@{JOINER}@ -1 +1 @{JOINER}@ a@{JOINER}b.example and @ alone" in sent
    assert f"## @{JOINER}t\n\n@{JOINER}u" in sent
    assert sent.startswith("In this message an invisible character")
    assert restored(sent).endswith("@@ -1 +1 @@ a@b.example and @ alone\n\n## @t\n\n@u")


def test_without_a_key_the_login_of_the_program_is_reached_and_nothing_else_of_its_settings(
    program: FakeProgram, tmp_path: Path
) -> None:
    folder = tmp_path / "own" / ".gemini"
    folder.mkdir(parents=True)
    (folder / "oauth_creds.json").touch(mode=0o000)
    (folder / "settings.json").write_text('{"hooksConfig": {"enabled": true}}')
    run(program, request(working_dir=tmp_path), {"HOME": str(tmp_path / "own")})
    assert program.started["environment"]["HOME"] != str(tmp_path / "own")
    assert program.started["links"]["oauth_creds.json"] == str(folder / "oauth_creds.json")
    settings = settings_of(program)
    assert settings["security"]["auth"]["selectedType"] == "oauth-personal"
    assert not settings["hooksConfig"]["enabled"]
    assert (folder / "oauth_creds.json").exists(), "the login is gone"


def test_a_cloud_is_used_where_it_is_set_up(program: FakeProgram, tmp_path: Path) -> None:
    source = {**KEY, "GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_PROJECT": "p"}
    run(program, request(working_dir=tmp_path), source)
    assert settings_of(program)["security"]["auth"]["selectedType"] == "vertex-ai"
    assert program.started["environment"]["GOOGLE_CLOUD_PROJECT"] == "p"
    assert "GEMINI_API_KEY" not in program.started["environment"]
