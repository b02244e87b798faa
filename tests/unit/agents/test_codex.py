"""How the codex program is started, with a program of ours in its place."""

from __future__ import annotations

import asyncio
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls.program import throw_away_places
from codeloupe.agents.codex.agent import CodexAgent, skill_files, toml
from codeloupe.errors import InvalidRequest
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode
from tests.unit.agents.call_samples import request
from tests.unit.agents.captures import capture, unheard
from tests.unit.agents.fake_program import FakeProgram, printing

KEY = {"OPENAI_API_KEY": "made-up"}
ANSWER = printing(capture("codex", "answer").stdout)
SESSION = "01a1e194-efef-7572-9e0c-bae4611c8902"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def program(tmp_path: Path) -> FakeProgram:
    return FakeProgram(tmp_path, ANSWER)


def run(program: FakeProgram, asked: AgentRequest, source: dict[str, str] | None = None, **more: Any) -> AgentResult:
    agent = CodexAgent(program.path, {"PATH": os.defpath, **(KEY if source is None else source)}, **more)
    return asyncio.run(agent.run(asked, unheard))


def settings_of(program: FakeProgram) -> dict[str, Any]:
    """What the program was told by `--config`."""
    lines = [one.removeprefix("--config=") for one in program.started["argv"] if one.startswith("--config=")]
    return tomllib.loads("\n".join(lines))


def flags_of(program: FakeProgram) -> list[str]:
    return [one for one in program.started["argv"] if not one.startswith("--config=")]


@pytest.mark.program
@pytest.mark.requirement("R3")
@pytest.mark.requirement("R4")
@pytest.mark.requirement("R6")
def test_a_plain_request_is_started_read_only_and_closed_to_the_repository(program: FakeProgram, work: Path) -> None:
    assert run(program, request("Look.", working_dir=work)).output == "hello from the stand-in"
    assert flags_of(program) == ["exec", "--json", "--ignore-rules", "--skip-git-repo-check", "-"]
    settings = settings_of(program)
    expected = {
        "sandbox_mode": "read-only",
        "approval_policy": "never",
        "project_doc_max_bytes": 0,
        "shell_environment_policy": {"inherit": "core"},
        "web_search": "disabled",
        "skills": {"include_instructions": False, "bundled": {"enabled": False}},
        "analytics": {"enabled": False},
        "model_provider": "codeloupe",
    }
    assert {name: settings[name] for name in expected} == expected
    assert set(settings["features"].values()) == {False}
    assert settings["features"].keys() >= {"hooks", "plugins", "apps", "multi_agent", "unbounded_connection_retries"}
    assert settings["projects"][str(work)] == {"trust_level": "untrusted"}
    provider = settings["model_providers"]["codeloupe"]
    assert (provider["request_max_retries"], provider["stream_max_retries"]) == (0, 0)


@pytest.mark.program
def test_key_and_address_come_from_the_environment_and_the_settings(program: FakeProgram, work: Path) -> None:
    own = "https://api.openai.com/v1"
    cases: list[tuple[dict[str, str], dict[str, str], str, str]] = [
        (KEY, {}, own, "OPENAI_API_KEY"),
        ({**KEY, "OPENAI_BASE_URL": "http://own.example"}, {}, "http://own.example", "OPENAI_API_KEY"),
        ({**KEY, "CODEX_API_KEY": "made-up-too"}, {}, own, "CODEX_API_KEY"),
        (KEY, {"base_url": "http://host.example/v1"}, "http://host.example/v1", "OPENAI_API_KEY"),
    ]
    for source, more, address, key in cases:
        run(program, request(working_dir=work), source, **more)
        provider = settings_of(program)["model_providers"]["codeloupe"]
        assert (provider["base_url"], provider["env_key"]) == (address, key)


@pytest.mark.program
@pytest.mark.requirement("R5")
@pytest.mark.requirement("R15")
def test_everything_in_a_request_reaches_the_program(program: FakeProgram, work: Path) -> None:
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


@pytest.mark.program
def test_a_schema_that_strict_mode_cannot_say_is_said_in_words(program: FakeProgram, work: Path) -> None:
    run(program, request("Look.", working_dir=work, output_schema={"type": "array"}))
    assert not any("schema" in flag for flag in flags_of(program))
    assert program.started["stdin"].startswith("Look.\n\n## Form of the answer")
    assert program.started["stdin"].endswith('{"type": "array"}\n')


@pytest.mark.program
def test_no_tools_leave_no_shell_and_a_bypass_has_no_sandbox(program: FakeProgram, work: Path) -> None:
    run(program, request(working_dir=work, tools=()))
    features = settings_of(program)["features"]
    assert (features["shell_tool"], features["unified_exec"]) == (False, False)
    run(program, request(working_dir=work, permission_mode=PermissionMode.BYPASS), allow_bypass=True)
    assert settings_of(program)["sandbox_mode"] == "danger-full-access"


@pytest.mark.program
def test_without_a_key_the_login_of_the_program_is_used_and_nothing_else_of_its_settings(
    program: FakeProgram, tmp_path: Path, work: Path
) -> None:
    folder = tmp_path / "own" / ".codex"
    folder.mkdir(parents=True)
    (folder / "auth.json").touch(mode=0o000)
    asked = request("Look.", working_dir=work, append_system_prompt="Be kind.")
    run(program, asked, {"HOME": str(tmp_path / "own")})
    seen, settings = program.started["environment"], settings_of(program)
    assert Path(seen["CODEX_HOME"]).is_relative_to(seen["HOME"])
    assert seen["HOME"] != str(tmp_path / "own")
    assert program.started["links"] == {"auth.json": str(folder / "auth.json")}
    assert settings["model_providers"]["codeloupe"]["requires_openai_auth"] is True
    assert "base_url" not in settings["model_providers"]["codeloupe"]
    assert program.started["stdin"] == "Look."


@pytest.mark.program
def test_sessions_are_kept_where_the_user_keeps_them_and_resumed_by_their_name(tmp_path: Path, work: Path) -> None:
    whole, home = capture("codex", "answer"), tmp_path / "own"
    own = json.loads(whole.lines[0])["thread_id"]
    program = FakeProgram(tmp_path, printing(whole.stdout.replace(own, SESSION)))
    run(program, request(working_dir=work), {**KEY, "HOME": str(home)}, keep_sessions=True)
    assert not Path(program.started["environment"]["CODEX_HOME"]).is_relative_to(home)
    assert (home / ".codex").stat().st_mode & 0o077 == 0
    assert [entry.name for entry in (home / ".codex").iterdir()] == ["sessions"]
    assert "--ephemeral" not in flags_of(program)
    run(program, request(working_dir=work, resume_session=SESSION), {**KEY, "CODEX_HOME": str(tmp_path)})
    flags = flags_of(program)
    assert (flags[:2], flags[-2:]) == (["exec", "resume"], [SESSION, "-"])
    assert not Path(program.started["environment"]["CODEX_HOME"]).is_relative_to(tmp_path)


def test_a_session_that_is_no_uuid_is_refused_since_a_new_one_would_begin(program: FakeProgram, work: Path) -> None:
    for name in ("last", "my-session", "01a1e194"):
        with pytest.raises(InvalidRequest, match="UUID"):
            run(program, request(working_dir=work, resume_session=name), {**KEY, "CODEX_HOME": str(work)})
    assert not program.was_started


def test_the_program_itself_is_started_where_it_lies_beside_its_script(tmp_path: Path) -> None:
    script = tmp_path / "package" / "bin" / "codex.js"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    link = tmp_path / "codex"
    link.symlink_to(script)
    agent = CodexAgent(str(link), {})
    assert agent.find() == link
    native = script.parents[1] / "vendor" / "some-machine" / "bin" / "codex"
    native.parent.mkdir(parents=True)
    native.touch(mode=0o644)
    assert agent.find() == link, "it cannot be executed"
    native.chmod(0o755)
    assert agent.find() == native


class TestSkills:
    def skill(self, folder: Path, name: str = "SKILL.md") -> Path:
        folder.mkdir(parents=True)
        file = folder / name
        file.write_text("---\nname: x\n---\n")
        return file

    def arguments(self, folder: Path) -> tuple[str, ...]:
        with throw_away_places() as places:
            return CodexAgent(environment=KEY).arguments(request(working_dir=folder), places)

    def test_skills_of_the_directory_and_of_all_above_are_found(self, tmp_path: Path) -> None:
        self.skill(tmp_path / "skills" / "plain")
        assert skill_files(tmp_path) == ()
        files = {
            self.skill(tmp_path / ".agents" / "skills" / "a"),
            self.skill(tmp_path / ".codex" / "skills" / "b" / "deep" / "er"),
            self.skill(tmp_path / "sub" / "dir" / ".agents" / "skills" / "c", "skill.md"),
        }
        assert set(skill_files(tmp_path / "sub" / "dir")) == files
        assert set(skill_files(tmp_path)) < files

    def test_links_are_followed_and_their_ends_found_too(self, tmp_path: Path) -> None:
        elsewhere = self.skill(tmp_path / "elsewhere" / "s")
        folder = tmp_path / "work" / ".agents"
        folder.mkdir(parents=True)
        (folder / "skills").symlink_to(tmp_path / "elsewhere")
        (tmp_path / "elsewhere" / "s" / "loop").symlink_to(tmp_path / "elsewhere")
        assert {elsewhere, folder / "skills" / "s" / "SKILL.md"} <= set(skill_files(tmp_path / "work"))
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / ".agents").write_text("a file")
        (tmp_path / "other" / ".codex").symlink_to(tmp_path / "nowhere")
        assert skill_files(tmp_path / "other") == ()

    def test_each_skill_is_turned_off_by_its_path(self, tmp_path: Path) -> None:
        file = self.skill(tmp_path / ".agents" / "skills" / 'quo"ted')
        rules = [{"path": str(file), "enabled": False}]
        assert f"--config=skills.config={toml(rules)}" in self.arguments(tmp_path)

    def test_more_skills_or_directories_than_can_be_turned_off_are_refused(self, tmp_path: Path) -> None:
        for number in range(4001):
            (tmp_path / "a" / ".agents" / "skills" / str(number)).mkdir(parents=True)
        with pytest.raises(InvalidRequest, match=r"more than 4,000 directories") as raised:
            skill_files(tmp_path / "a")
        assert ".agents" in raised.value.hint
        for number in range(900):
            self.skill(tmp_path / "b" / ".agents" / "skills" / f"{number}{'x' * 100}")
        with pytest.raises(InvalidRequest, match="there are 900"):
            self.arguments(tmp_path / "b")
