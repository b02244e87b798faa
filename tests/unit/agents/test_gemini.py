"""How the gemini program is started and read, with a program of ours in its place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.gemini.agent import GeminiAgent
from codeloupe.agents.gemini.prompt import JOINER, prompt_input, restored
from codeloupe.agents.gemini.settings import READ_ONLY_TOOLS, tools_for
from codeloupe.errors import (
    AgentError,
    Crashed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    PromptTooLong,
    TimedOut,
)
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode
from tests.endings import before_its_limit
from tests.unit.agents.call_samples import ended_in_silence, every_limit_of_silence, request
from tests.unit.agents.fake_program import FakeProgram, printing
from tests.unit.agents.program_captures import capture, unheard

KEY = {"GEMINI_API_KEY": "made-up"}
ANSWER = printing(capture("gemini", "answer").stdout)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def login(tmp_path: Path) -> dict[str, str]:
    """An environment without a key, and a home with a login."""
    folder = tmp_path / "own" / ".gemini"
    folder.mkdir(parents=True)
    (folder / "oauth_creds.json").touch(mode=0o000)
    (folder / "settings.json").write_text('{"hooksConfig": {"enabled": true}}')
    return {"HOME": str(tmp_path / "own")}


def fake(folder: Path, body: str = ANSWER, **more: Any) -> FakeProgram:
    return FakeProgram(folder, body, name="gemini", **more)


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
def test_a_plain_request_is_started_read_only_and_closed_to_the_repository(tmp_path: Path, work: Path) -> None:
    program = fake(tmp_path)
    assert run(program, request("Look.", working_dir=work)).output == "hello from the stand-in"
    assert program.started["argv"] == ["--output-format=stream-json"]
    assert (program.started["cwd"], program.started["stdin"]) == (str(work), "Look.")
    settings, seen = settings_of(program), program.started["environment"]
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert settings["tools"]["core"] == list(READ_ONLY_TOOLS)
    assert settings["general"]["maxAttempts"] == 1
    assert settings["advanced"]["ignoreLocalEnv"] is True
    assert not settings["hooksConfig"]["enabled"]
    assert not settings["telemetry"]["enabled"]
    assert not settings["privacy"]["usageStatisticsEnabled"]
    assert (seen["GEMINI_RESTRICTED_MODE"], seen["GEMINI_CLI_TRUST_WORKSPACE"]) == ("true", "false")
    assert seen["GEMINI_CLI_NO_RELAUNCH"] == "true"


def test_no_two_calls_look_for_a_context_file_of_the_same_name(tmp_path: Path, work: Path) -> None:
    program = fake(tmp_path)
    looked_for = []
    for _ in range(2):
        run(program, request(working_dir=work))
        looked_for.append(settings_of(program)["context"]["fileName"])
    assert looked_for[0] != looked_for[1]


@pytest.mark.parametrize(
    ("more", "source", "address"),
    [
        ({}, KEY, "https://generativelanguage.googleapis.com"),
        ({}, {**KEY, "GOOGLE_GEMINI_BASE_URL": "http://own.example"}, "http://own.example"),
        ({"base_url": "http://given.example"}, {**KEY, "GOOGLE_GEMINI_BASE_URL": "no"}, "http://given.example"),
    ],
)
def test_the_addresses_are_always_set_so_that_no_file_can_name_others(
    tmp_path: Path, work: Path, more: dict[str, str], source: dict[str, str], address: str
) -> None:
    program = fake(tmp_path)
    run(program, request(working_dir=work), source, **more)
    seen = program.started["environment"]
    assert seen["GOOGLE_GEMINI_BASE_URL"] == address
    assert seen["CODE_ASSIST_ENDPOINT"] == "https://cloudcode-pa.googleapis.com"


@pytest.mark.requirement("R5")
@pytest.mark.requirement("R9")
@pytest.mark.requirement("R15")
def test_every_wish_of_a_request_reaches_the_program(tmp_path: Path, work: Path) -> None:
    program = fake(tmp_path)
    asked = request(
        "Look.",
        working_dir=work,
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


def test_no_tools_at_all_are_said_with_an_empty_list(tmp_path: Path, work: Path) -> None:
    program = fake(tmp_path)
    run(program, request(working_dir=work, tools=()))
    assert settings_of(program)["tools"]["core"] == []


def test_what_is_appended_to_the_own_system_prompt_stands_before_the_prompt() -> None:
    assert prompt_input(request("Look.", append_system_prompt="Be kind.")) == "Be kind.\n\nLook."


def test_tools_follow_the_permission_mode_and_those_it_does_not_allow_are_not_given() -> None:
    assert tools_for(request()) == tools_for(request(permission_mode=PermissionMode.PLAN)) == READ_ONLY_TOOLS
    assert tools_for(request(tools=())) == ()
    edits = PermissionMode.ACCEPT_EDITS
    assert "write_file" in tools_for(request(permission_mode=edits))
    assert "run_shell_command" not in tools_for(request(permission_mode=edits))
    assert tools_for(request(tools=("write_file", "glob", "run_shell_command", "Read"))) == ("glob",)
    assert tools_for(request(tools=("write_file", "run_shell_command"), permission_mode=edits)) == ("write_file",)
    assert "run_shell_command" in tools_for(request(permission_mode=PermissionMode.BYPASS))


@pytest.mark.parametrize("prompt", ["/init", "/help me"])
def test_a_prompt_that_looks_like_a_command_gets_a_line_before_it(prompt: str) -> None:
    assert prompt_input(request(prompt)) == f"\n{prompt}"


def test_a_mention_of_a_file_is_broken_and_the_model_is_told() -> None:
    sent = prompt_input(request("/x @app.route('/')\n@@ -1 +1 @@ a@b.example and @ alone", context={"@t": "@u"}))
    assert f"@{JOINER}app.route" in sent
    assert f"@{JOINER}@ -1 +1 @{JOINER}@ a@{JOINER}b.example and @ alone" in sent
    assert f"## @{JOINER}t\n\n@{JOINER}u" in sent
    assert sent.startswith("In this message an invisible character")
    assert restored(sent).endswith("@@ -1 +1 @@ a@b.example and @ alone\n\n## @t\n\n@u")


def test_a_prompt_without_mentions_is_sent_as_it_is() -> None:
    assert prompt_input(request("Plain @ text\n@")) == "Plain @ text\n@"


@pytest.mark.requirement("R16")
def test_the_program_sees_nothing_of_ours_but_its_key(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "not-for-others")
    program = fake(tmp_path)
    run(program, request(working_dir=work), {**KEY, "GITHUB_TOKEN": "nor-this", "GOOGLE_API_KEY": "nor-that"})
    seen = program.started["environment"]
    assert seen["GEMINI_API_KEY"] == "made-up"
    assert not {"DATABASE_PASSWORD", "GITHUB_TOKEN", "GOOGLE_API_KEY"} & seen.keys()
    assert not Path(seen["HOME"]).exists(), "the home that was thrown away is still there"


def test_without_a_key_the_login_of_the_program_is_reached_and_nothing_else_of_its_settings(
    tmp_path: Path, work: Path, login: dict[str, str]
) -> None:
    program = fake(tmp_path)
    run(program, request(working_dir=work), login)
    assert program.started["environment"]["HOME"] != login["HOME"]
    assert program.started["links"]["oauth_creds.json"] == f"{login['HOME']}/.gemini/oauth_creds.json"
    settings = settings_of(program)
    assert settings["security"]["auth"]["selectedType"] == "oauth-personal"
    assert not settings["hooksConfig"]["enabled"]
    assert (Path(login["HOME"]) / ".gemini" / "oauth_creds.json").exists(), "the login is gone"


def test_a_cloud_is_used_where_it_is_set_up(tmp_path: Path, work: Path) -> None:
    program = fake(tmp_path)
    run(program, request(working_dir=work), {**KEY, "GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_PROJECT": "p"})
    assert settings_of(program)["security"]["auth"]["selectedType"] == "vertex-ai"
    assert program.started["environment"]["GOOGLE_CLOUD_PROJECT"] == "p"
    assert "GEMINI_API_KEY" not in program.started["environment"]


@pytest.mark.requirement("R11")
def test_without_key_and_login_nothing_is_started(tmp_path: Path, work: Path) -> None:
    program = fake(tmp_path)
    with pytest.raises(NotLoggedIn, match="no key") as raised:
        run(program, request(working_dir=work), {"HOME": str(work), "GEMINI_API_KEY": ""})
    assert "GEMINI_API_KEY" in raised.value.hint
    assert not program.was_started


@pytest.mark.parametrize("version", ["0.60.9", "0.9.0", "nonsense"])
def test_a_program_that_would_trust_the_repository_is_refused(tmp_path: Path, work: Path, version: str) -> None:
    program = fake(tmp_path, f"print({version!r})", version=version)
    with pytest.raises(NotInstalled, match=r"only from 0\.61 on") as raised:
        run(program, request(working_dir=work))
    assert "npm install" in raised.value.hint
    assert not program.was_started
    assert not asyncio.run(GeminiAgent(program.path, KEY).check()).usable


@pytest.mark.parametrize(("version", "is_refused"), [("0.70.1", False), ("1.0.0", False), ("0.12.0", True)])
def test_a_program_without_its_package_is_asked_for_its_version(
    tmp_path: Path, work: Path, version: str, is_refused: bool
) -> None:
    told = f"sys.argv[1:] == ['--version'] and (print({version!r}), sys.exit())\n"
    program = fake(tmp_path, told + ANSWER)
    (tmp_path / "package.json").unlink()
    with pytest.raises(NotInstalled) if is_refused else contextlib.nullcontext():
        assert run(program, request(working_dir=work)).success


def test_bypassing_permissions_is_refused_in_words_before_anything_is_started(tmp_path: Path, work: Path) -> None:
    program = fake(tmp_path)
    with pytest.raises(InvalidRequest, match="could run any command"):
        run(program, request(working_dir=work, permission_mode=PermissionMode.BYPASS))
    assert not program.was_started


def test_a_bypass_that_is_allowed_is_logged_as_what_it_is(
    tmp_path: Path, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = fake(tmp_path)
    with caplog.at_level(logging.WARNING):
        run(program, request(working_dir=work, permission_mode=PermissionMode.BYPASS), allow_bypass=True)
    assert "runs commands without asking" in caplog.text
    assert "run_shell_command" in settings_of(program)["tools"]["core"]
    assert program.started["environment"]["GEMINI_RESTRICTED_MODE"] == "true"


def test_a_prompt_over_the_limit_is_refused_before_anything_is_started(tmp_path: Path, work: Path) -> None:
    program = fake(tmp_path)
    with pytest.raises(PromptTooLong, match="2,097,153 bytes"):
        run(program, request("x" * (2 * 1024 * 1024 + 1), working_dir=work))
    with pytest.raises(PromptTooLong, match="takes at most 2,097,152"):
        run(program, request("@x" * (1024 * 1024), working_dir=work))
    assert not program.was_started


@pytest.mark.requirement("R12")
@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("sys.exit(3)", Crashed, "exit code 3"),
        ("", Crashed, "exit code 0"),
        ("print('plain words'); sys.exit(1)", Crashed, "without a result"),
        ("os.write(2, b'out of memory'); os.abort()", Crashed, "exit code -6.*out of memory"),
        ("sys.stderr.write('Unknown argument: output-format'); sys.exit(1)", NotInstalled, "too old"),
        ("sys.stderr.write(\"env: 'node': No such file or directory\"); sys.exit(127)", NotInstalled, "Node.js"),
    ],
)
def test_a_run_without_a_result_is_never_an_answer(
    tmp_path: Path, work: Path, body: str, kind: type[AgentError], words: str
) -> None:
    with pytest.raises(AgentError, match=words) as raised:
        run(fake(tmp_path, body), request(working_dir=work))
    assert type(raised.value) is kind


def test_a_program_that_answers_and_does_not_end_has_answered(tmp_path: Path, work: Path) -> None:
    program = fake(tmp_path, f"{ANSWER}\ntime.sleep(60)")
    answered = before_its_limit(
        TimedOut, lambda seconds: run(program, request(working_dir=work, timeout_seconds=seconds))
    )
    assert answered.output == "hello from the stand-in"


@pytest.mark.requirement("R8")
@every_limit_of_silence
def test_a_silent_program_is_ended_and_what_it_said_is_kept(tmp_path: Path, work: Path, limit: str, words: str) -> None:
    first = capture("gemini", "answer").lines[0]
    program = fake(tmp_path, printing(first, then="time.sleep(60)"))
    error = ended_in_silence(lambda asked: run(program, asked), work, limit, words)
    assert error.session_id == json.loads(first)["session_id"]
    assert error.raw_output == first


@pytest.mark.requirement("R11")
def test_a_program_that_is_not_there_is_told_with_the_command_that_installs_it(tmp_path: Path, work: Path) -> None:
    agent = GeminiAgent(str(tmp_path / "nowhere"), KEY)
    with pytest.raises(NotInstalled, match="nowhere") as raised:
        asyncio.run(agent.run(request(working_dir=work), unheard))
    assert "npm install" in raised.value.hint
    assert not asyncio.run(agent.check()).usable


@pytest.mark.requirement("R11")
def test_the_check_tells_version_login_and_model(tmp_path: Path, login: dict[str, str]) -> None:
    program = fake(tmp_path, "print('9.8.7')")
    cases = ((KEY, True), (login, True), ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, True), ({"HOME": "/nowhere"}, False))
    for source, logged_in in cases:
        found = asyncio.run(GeminiAgent(program.path, {**source, "GEMINI_MODEL": "own"}).check())
        assert (found.found, found.version, found.logged_in) == (True, "9.8.7", logged_in)
        assert (found.path, found.default_model) == (program.path, "own")
        assert bool(found.how_to_fix) is not logged_in
    assert "GEMINI_API_KEY" not in program.started["environment"]
