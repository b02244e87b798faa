"""How the codex program is started and read, with a program of ours in its place."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.codex.agent import CodexAgent
from codeloupe.agents.codex.flags import LIMITS
from codeloupe.agents.codex.program import find_codex
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

KEY = {"OPENAI_API_KEY": "made-up"}
ANSWER = printing(capture("codex", "answer").stdout)
SESSION = "01a1e194-efef-7572-9e0c-bae4611c8902"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def login(tmp_path: Path) -> dict[str, str]:
    """An environment without a key, and a home with a login."""
    folder = tmp_path / "own" / ".codex"
    folder.mkdir(parents=True)
    (folder / "auth.json").touch(mode=0o000)
    return {"HOME": str(tmp_path / "own")}


def run(program: FakeProgram, asked: AgentRequest, source: dict[str, str] | None = None, **more: Any) -> AgentResult:
    agent = CodexAgent(program.path, {"PATH": os.defpath, **(KEY if source is None else source)}, **more)
    return asyncio.run(agent.run(asked, unheard))


def settings_of(program: FakeProgram) -> dict[str, Any]:
    """What the program was told by `--config`."""
    lines = [one.removeprefix("--config=") for one in program.started["argv"] if one.startswith("--config=")]
    return tomllib.loads("\n".join(lines))


def flags_of(program: FakeProgram) -> list[str]:
    return [one for one in program.started["argv"] if not one.startswith("--config=")]


@pytest.mark.requirement("R3")
@pytest.mark.requirement("R4")
@pytest.mark.requirement("R6")
def test_a_plain_request_is_started_read_only_and_closed_to_the_repository(tmp_path: Path, work: Path) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    assert run(program, request("Look.", working_dir=work)).output == "hello from the stand-in"
    assert flags_of(program) == ["exec", "--json", "--ignore-rules", "--skip-git-repo-check", "-"]
    settings = settings_of(program)
    assert settings["sandbox_mode"] == "read-only"
    assert settings["approval_policy"] == "never"
    assert settings["project_doc_max_bytes"] == 0
    assert settings["shell_environment_policy"] == {"inherit": "core"}
    assert settings["web_search"] == "disabled"
    assert settings["skills"] == {"include_instructions": False, "bundled": {"enabled": False}}
    assert settings["analytics"] == {"enabled": False}
    assert set(settings["features"].values()) == {False}
    assert settings["features"].keys() >= {"hooks", "plugins", "apps", "multi_agent", "unbounded_connection_retries"}
    assert (program.started["cwd"], program.started["stdin"]) == (str(work), "Look.")


def test_the_program_retries_nothing_and_asks_the_service_that_was_named(tmp_path: Path, work: Path) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    run(program, request(working_dir=work), base_url="http://host.example/v1")
    settings = settings_of(program)
    assert settings["model_provider"] == "codeloupe"
    provider = settings["model_providers"]["codeloupe"]
    assert (provider["base_url"], provider["env_key"]) == ("http://host.example/v1", "OPENAI_API_KEY")
    assert (provider["request_max_retries"], provider["stream_max_retries"]) == (0, 0)


@pytest.mark.parametrize(
    ("source", "address", "key"),
    [
        (KEY, "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ({**KEY, "OPENAI_BASE_URL": "http://own.example"}, "http://own.example", "OPENAI_API_KEY"),
        ({**KEY, "CODEX_API_KEY": "made-up-too"}, "https://api.openai.com/v1", "CODEX_API_KEY"),
    ],
)
def test_key_and_address_come_from_the_environment(
    tmp_path: Path, work: Path, source: dict[str, str], address: str, key: str
) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    run(program, request(working_dir=work), source)
    provider = settings_of(program)["model_providers"]["codeloupe"]
    assert (provider["base_url"], provider["env_key"]) == (address, key)


@pytest.mark.requirement("R5")
@pytest.mark.requirement("R15")
def test_every_wish_of_a_request_reaches_the_program(tmp_path: Path, work: Path) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    asked = request(
        "Look.",
        working_dir=work,
        model="big",
        system_prompt="Be brief. " * 30_000,
        append_system_prompt='Be "kind"\\.\n\x7f – ü',
        permission_mode=PermissionMode.ACCEPT_EDITS,
        output_schema={"type": "object", "properties": {"a": {"type": "string"}}},
        context={"More": "text"},
    )
    run(program, asked)
    assert "--model=big" in flags_of(program)
    settings, files = settings_of(program), program.started["files"]
    assert settings["sandbox_mode"] == "workspace-write"
    assert settings["sandbox_workspace_write"] == {"exclude_slash_tmp": True}
    assert files["system-prompt.md"] == "Be brief. " * 30_000
    assert tomllib.loads(files["config.toml"]) == {"developer_instructions": 'Be "kind"\\.\n\x7f – ü'}
    assert json.loads(files["schema.json"])["required"] == ["a"]
    assert program.started["stdin"] == "Look.\n\n## More\n\ntext"
    assert not any("kind" in argument for argument in program.started["argv"]), "arguments are seen by every user"


def test_a_schema_that_strict_mode_cannot_say_is_said_in_words(tmp_path: Path, work: Path) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    run(program, request("Look.", working_dir=work, output_schema={"type": "array"}))
    assert not any("schema" in flag for flag in flags_of(program))
    assert program.started["stdin"].startswith("Look.\n\n## Form of the answer")
    assert program.started["stdin"].endswith('{"type": "array"}\n')


def test_no_tools_at_all_leave_no_shell(tmp_path: Path, work: Path) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    run(program, request(working_dir=work, tools=()))
    features = settings_of(program)["features"]
    assert (features["shell_tool"], features["unified_exec"]) == (False, False)


@pytest.mark.requirement("R16")
def test_the_program_sees_nothing_of_ours_but_its_key(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "not-for-others")
    program = FakeProgram(tmp_path, ANSWER)
    run(program, request(working_dir=work), {**KEY, "GITHUB_TOKEN": "nor-this", "CODEX_HOME": "/nowhere"})
    seen = program.started["environment"]
    assert seen["OPENAI_API_KEY"] == "made-up"
    assert not {"DATABASE_PASSWORD", "GITHUB_TOKEN"} & seen.keys()
    assert Path(seen["CODEX_HOME"]).is_relative_to(seen["HOME"])
    assert not Path(seen["HOME"]).exists(), "the home that was thrown away is still there"
    assert not any("made-up" in argument for argument in program.started["argv"])


def test_without_a_key_the_login_of_the_program_is_used_and_nothing_else_of_its_settings(
    tmp_path: Path, work: Path, login: dict[str, str]
) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    run(program, request("Look.", working_dir=work, append_system_prompt="Be kind."), login)
    seen, settings = program.started["environment"], settings_of(program)
    assert Path(seen["CODEX_HOME"]).is_relative_to(seen["HOME"])
    assert seen["HOME"] != login["HOME"]
    assert settings["model_providers"]["codeloupe"]["requires_openai_auth"] is True
    assert "base_url" not in settings["model_providers"]["codeloupe"]
    assert program.started["stdin"] == "Look."


@pytest.mark.requirement("R11")
def test_without_key_and_login_nothing_is_started(tmp_path: Path, work: Path) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    with pytest.raises(NotLoggedIn, match="no key") as raised:
        run(program, request(working_dir=work), {"HOME": str(work), "OPENAI_API_KEY": ""})
    assert "codex login" in raised.value.hint
    assert not program.was_started


def test_sessions_are_kept_where_the_user_keeps_them(tmp_path: Path, work: Path) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    home = tmp_path / "own"
    run(program, request(working_dir=work), {**KEY, "HOME": str(home)}, keep_sessions=True)
    assert not Path(program.started["environment"]["CODEX_HOME"]).is_relative_to(home)
    assert (home / ".codex").stat().st_mode & 0o077 == 0
    assert [entry.name for entry in (home / ".codex").iterdir()] == ["sessions"]
    assert "--ephemeral" not in flags_of(program)


def test_a_session_is_resumed_by_its_name(tmp_path: Path, work: Path) -> None:
    whole = capture("codex", "answer")
    own = json.loads(whole.lines[0])["thread_id"]
    program = FakeProgram(tmp_path, printing(whole.stdout.replace(own, SESSION)))
    run(program, request(working_dir=work, resume_session=SESSION), {**KEY, "CODEX_HOME": str(tmp_path)})
    flags = flags_of(program)
    assert (flags[:2], flags[-2:]) == (["exec", "resume"], [SESSION, "-"])
    assert "--ephemeral" not in flags
    assert not Path(program.started["environment"]["CODEX_HOME"]).is_relative_to(tmp_path)


@pytest.mark.parametrize("name", ["last", "my-session", "01a1e194"])
def test_a_session_that_is_no_uuid_is_refused_since_a_new_one_would_begin(
    tmp_path: Path, work: Path, name: str
) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    with pytest.raises(InvalidRequest, match="UUID"):
        run(program, request(working_dir=work, resume_session=name), {**KEY, "CODEX_HOME": str(tmp_path)})
    assert not program.was_started


def test_bypassing_permissions_is_refused_in_words_before_anything_is_started(tmp_path: Path, work: Path) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    with pytest.raises(InvalidRequest, match="could run any command"):
        run(program, request(working_dir=work, permission_mode=PermissionMode.BYPASS))
    assert not program.was_started


def test_a_bypass_that_is_allowed_is_logged_as_what_it_is(
    tmp_path: Path, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = FakeProgram(tmp_path, ANSWER)
    with caplog.at_level(logging.WARNING):
        run(program, request(working_dir=work, permission_mode=PermissionMode.BYPASS), allow_bypass=True)
    assert "without its sandbox" in caplog.text
    assert settings_of(program)["sandbox_mode"] == "danger-full-access"


def test_a_prompt_over_the_limit_is_refused_before_anything_is_started(tmp_path: Path, work: Path) -> None:
    most = LIMITS.max_prompt_characters
    assert most == 1_048_576
    program = FakeProgram(tmp_path, ANSWER)
    with pytest.raises(PromptTooLong, match="1,048,577 characters"):
        run(program, request("x" * (most + 1), working_dir=work))
    with pytest.raises(PromptTooLong, match="takes at most 1,048,576"):
        run(program, request("x" * most, working_dir=work, output_schema={"type": "array"}))
    assert not program.was_started


@pytest.mark.requirement("R12")
@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("sys.exit(3)", Crashed, "exit code 3"),
        ("", Crashed, "exit code 0"),
        ("print('plain words'); sys.exit(1)", Crashed, "without a result"),
        ("os.write(2, b'out of memory'); os.abort()", Crashed, "exit code -6.*out of memory"),
        ("sys.stderr.write(\"error: unexpected argument '--json' found\"); sys.exit(2)", NotInstalled, "too old"),
        ("sys.stderr.write(\"env: 'node': No such file or directory\"); sys.exit(127)", NotInstalled, "Node.js"),
    ],
)
def test_a_run_without_a_result_is_never_an_answer(
    tmp_path: Path, work: Path, body: str, kind: type[AgentError], words: str
) -> None:
    with pytest.raises(AgentError, match=words) as raised:
        run(FakeProgram(tmp_path, body), request(working_dir=work))
    assert type(raised.value) is kind
    assert raised.value.hint


def test_a_program_that_answers_and_does_not_end_has_answered(tmp_path: Path, work: Path) -> None:
    program = FakeProgram(tmp_path, f"{ANSWER}\ntime.sleep(60)")
    answered = before_its_limit(
        TimedOut, lambda seconds: run(program, request(working_dir=work, timeout_seconds=seconds))
    )
    assert answered.output == "hello from the stand-in"


@pytest.mark.requirement("R8")
@every_limit_of_silence
def test_a_silent_program_is_ended_and_what_it_said_is_kept(tmp_path: Path, work: Path, limit: str, words: str) -> None:
    first = capture("codex", "answer").lines[0]
    program = FakeProgram(tmp_path, printing(first, then="time.sleep(60)"))
    error = ended_in_silence(lambda asked: run(program, asked), work, limit, words)
    assert error.session_id == json.loads(first)["thread_id"]
    assert error.raw_output == first
    assert error.__cause__ is not None


@pytest.mark.requirement("R11")
def test_a_program_that_is_not_there_is_told_with_the_command_that_installs_it(tmp_path: Path, work: Path) -> None:
    agent = CodexAgent(str(tmp_path / "nowhere"), KEY)
    with pytest.raises(NotInstalled, match="nowhere") as raised:
        asyncio.run(agent.run(request(working_dir=work), unheard))
    assert "npm install" in raised.value.hint
    availability = asyncio.run(agent.check())
    assert not availability.usable
    assert "npm install" in availability.how_to_fix


def test_a_file_that_cannot_run_is_told_as_not_installed(tmp_path: Path, work: Path) -> None:
    broken = tmp_path / "codex"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    with pytest.raises(NotInstalled):
        asyncio.run(CodexAgent(str(broken), KEY).run(request(working_dir=work), unheard))
    assert not asyncio.run(CodexAgent(str(broken), KEY).check()).found


@pytest.mark.requirement("R11")
def test_the_check_tells_version_and_login(tmp_path: Path, login: dict[str, str]) -> None:
    program = FakeProgram(tmp_path, "print('codex-cli 9.8.7')")
    for source, logged_in in ((KEY, True), (login, True), ({"HOME": "/nowhere"}, False)):
        found = asyncio.run(CodexAgent(program.path, source).check())
        assert (found.found, found.version, found.logged_in, found.path) == (True, "9.8.7", logged_in, program.path)
        assert ("codex login" in found.how_to_fix) is not logged_in
    assert program.started["environment"]["HTTPS_PROXY"] == "http://127.0.0.1:9"
    assert "OPENAI_API_KEY" not in program.started["environment"]


def test_a_version_that_cannot_be_read_means_not_found(tmp_path: Path) -> None:
    found = asyncio.run(CodexAgent(FakeProgram(tmp_path, "print('none')").path, KEY).check())
    assert not found.found
    assert "does not report its version" in found.how_to_fix


def test_the_native_program_beside_the_script_of_npm_is_taken(tmp_path: Path) -> None:
    script = tmp_path / "node_modules" / "@openai" / "codex" / "bin" / "codex.js"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    link = tmp_path / "codex"
    link.symlink_to(script)
    assert find_codex(str(link)) == link
    native = script.parents[1] / "vendor" / "some-machine" / "bin" / "codex"
    native.parent.mkdir(parents=True)
    native.touch(mode=0o644)
    assert find_codex(str(link)) == link, "it cannot be executed"
    native.chmod(0o755)
    assert find_codex(str(link)) == native
