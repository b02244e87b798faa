"""How each program is started for a request: arguments, environment, input and files, compared with a record.

`python -m tests.unit.agents.test_commands` writes the record anew, for a person to compare.
"""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from codeloupe.agents.calls import program as module
from codeloupe.agents.codex.agent import CodexAgent, skill_files, toml
from codeloupe.errors import InvalidRequest, PromptTooLong
from codeloupe.model.agent import PermissionMode
from codeloupe.system.process import Command, Completed
from tests.rows import each
from tests.unit.agents.samples import AGENTS, FOLDER, capture, request, unheard

RECORD = FOLDER / "commands.json"
KEYS = {"claude": "ANTHROPIC_API_KEY", "codex": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
SESSION = json.loads(capture("codex", "answer").lines[0])["thread_id"]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
EVERYTHING: dict[str, Any] = {
    "prompt": "/x @app.route('/')\n@@ -1 +1 @@ a@b.example and @ alone",
    "model": "big",
    "system_prompt": "Be brief.",
    "append_system_prompt": 'Be "kind"\\.\n\x7f – ü',
    "permission_mode": PermissionMode.ACCEPT_EDITS,
    "idle_timeout_seconds": 30,
    "output_schema": {"$schema": "http://json-schema.org/draft-07/schema#", **SCHEMA},
    "context": {"@More": "text"},
}
MORE = {
    "claude": {"fallback_model": "small", "tools": ("Read", "Bash(git log:*)"), "max_turns": 3, "max_budget_usd": 0.5},
    "codex": {},
    "gemini": {"tools": ("glob",), "max_turns": 3},
}
CLOUD = {"AWS_SECRET_ACCESS_KEY": "made-up", "AWS_REGION": "r", "GOOGLE_APPLICATION_CREDENTIALS": "file", "USER": "me"}
PROJECT = {"GOOGLE_CLOUD_PROJECT": "shop"}
VERTEX = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_CLOUD_LOCATION": "europe-west1"}
URLS = {f"{name}_BASE_URL": "http://own.example" for name in ("ANTHROPIC", "OPENAI", "GOOGLE_GEMINI")}
# Of a row: the agents, the request, the variables, and how the agent is made. The key is set where it is not named.
ROWS: dict[str, tuple[str, dict[str, Any], dict[str, str], dict[str, Any]]] = {
    "plain": ("claude codex gemini", {}, {"GITHUB_TOKEN": "no", "CLAUDECODE": "1", "NO_PROXY": "here"}, {}),
    "everything": ("claude codex gemini", EVERYTHING, {}, {}),
    "edits": ("claude gemini", {"permission_mode": PermissionMode.ACCEPT_EDITS}, {}, {}),
    "plan": ("claude codex gemini", {"permission_mode": PermissionMode.PLAN}, {}, {}),
    "bypass": ("claude codex gemini", {"permission_mode": PermissionMode.BYPASS}, {}, {"allow_bypass": True}),
    "no tools": ("claude codex gemini", {"tools": ()}, {}, {}),
    "command": ("claude gemini", {"prompt": "/help me"}, {}, {}),
    "list": ("claude codex gemini", {"prompt": "\n- a list", "append_system_prompt": "Be kind."}, {}, {}),
    "plain signs": ("claude gemini", {"prompt": "see /etc @ here\n@"}, {}, {}),
    "schema of a list": ("claude codex gemini", {"output_schema": {"type": "array"}}, {}, {}),
    "own address": ("claude codex gemini", {}, URLS, {}),
    "given address": ("claude codex gemini", {}, URLS, {"base_url": "http://given.example/v1"}),
    "kept sessions": ("claude codex gemini", {}, {}, {"keep_sessions": True}),
    "resumed": ("claude codex gemini", {"resume_session": SESSION}, {}, {}),
    "forked": ("claude", {"resume_session": SESSION, "fork_session": True}, {}, {}),
    "login": ("claude codex gemini", {}, {**dict.fromkeys(KEYS.values(), ""), "USER": "me", **PROJECT}, {}),
    "login elsewhere": ("claude", {}, {"ANTHROPIC_API_KEY": "", "CLAUDE_CONFIG_DIR": "/c"}, {}),
    "token": ("claude", {}, {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "made-up"}, {}),
    "other key": ("codex", {}, {"CODEX_API_KEY": "made-up-too"}, {}),
    "unused cloud": ("claude gemini", {}, CLOUD, {}),
    "cloud": ("claude gemini", {}, {**CLOUD, **PROJECT, "CLAUDE_CODE_USE_BEDROCK": "1", **VERTEX}, {}),
    "cloud of gcloud": ("gemini", {}, {**PROJECT, **VERTEX, "CLOUDSDK_CONFIG": "GCLOUD"}, {}),
}  # fmt: skip


def started(agent: str, home: Path, fields: dict[str, Any], source: dict[str, str], made: dict[str, Any]) -> Any:
    """How the program is started; nothing of this machine is in it."""
    program = home / agent
    program.touch(mode=0o755)
    (home / "package.json").write_text('{"name": "@google/gemini-cli", "version": "0.99.0"}')
    found: dict[str, Any] = {}

    async def stream(command: Command, *, on_line: Callable[[bytes], None], **_: Any) -> Completed:
        root = Path(command.environment["TMPDIR"]).parent
        files = sorted(file for file in root.rglob("*") if file.is_file() or file.is_symlink())
        found.update(
            argv=command.argv[1:],
            environment=dict(command.environment),
            stdin=(command.stdin or b"").decode(),
            files={
                str(file.relative_to(root)): f"-> {file.readlink()}" if file.is_symlink() else file.read_text()
                for file in files
            },
        )
        found.update(json.loads(json.dumps(found).replace(str(root), "<call>").replace(str(home), "<home>")))
        for line in (stdout := capture(agent, "answer").stdout.encode()).splitlines():
            on_line(line)
        return Completed(0, stdout, "", 1.0)

    source = {"PATH": f".:{os.defpath}", "HOME": str(home), KEYS[agent]: "made-up", **source}
    if "CLOUDSDK_CONFIG" in source:
        source["CLOUDSDK_CONFIG"] = str(home)
        (home / "application_default_credentials.json").touch(mode=0o000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "stream", stream)
        patch.setattr("secrets.token_hex", lambda _count: "<random>")
        patch.setattr(sys, "platform", "linux")
        asked = request(**{"prompt": "Look.", "working_dir": Path("/"), **fields})
        asyncio.run(AGENTS[agent](str(program), source, **made).run(asked, unheard))
    found["environment"].pop("TZ", None)
    return found


def rows(home: Path) -> Iterator[tuple[str, Any]]:
    for folder, file in ((".claude", ".credentials.json"), (".codex", "auth.json"), (".gemini", "oauth_creds.json")):
        (home / folder).mkdir()
        (home / folder / file).touch(mode=0o000)
    kept = home / ".gemini" / "codeloupe" / "sessions" / f"{SESSION}.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text(f'{{"sessionId":"{SESSION}"}}\n')
    for name, (agents, fields, source, made) in ROWS.items():
        for agent in agents.split():
            more = MORE[agent] if name == "everything" else {}
            yield f"{agent}: {name}", started(agent, home, {**fields, **more}, source, made)


@pytest.mark.requirement("R5")
@pytest.mark.requirement("R9")
@pytest.mark.requirement("R15")
def test_everything_in_a_request_and_the_settings_reaches_the_program_as_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record, found = json.loads(RECORD.read_text(encoding="utf-8")), dict(rows(tmp_path))
    assert found.keys() == record.keys()
    assert caplog.text.count("bypasses all permissions") == len(AGENTS)
    for kept in (".claude/projects", ".codex/sessions"):
        assert (tmp_path / kept).stat().st_mode & 0o077 == 0, "others can read the sessions that were kept"
    wrong = {name: (found[name], record[name]) for name in record if found[name] != record[name]}
    assert wrong == {}


@pytest.mark.requirement("R2")
@pytest.mark.requirement("R3")
@pytest.mark.requirement("R4")
@pytest.mark.requirement("R6")
def test_every_program_is_read_only_and_closed_to_the_repository(tmp_path: Path) -> None:
    claude, codex, gemini = (started(agent, tmp_path, {}, {}, {}) for agent in AGENTS)
    assert set(claude["argv"]) == {
        "--print", "--verbose", "--output-format=stream-json", "--setting-sources=", "--strict-mcp-config",
        "--tools=Read,Grep,Glob", "--permission-mode=dontAsk", "--permission-prompts=none", "--disable-slash-commands",
        "--restricted", "--no-session-persistence",
    }  # fmt: skip
    for name in ("FILE_MENTIONS", "CLAUDE_MDS", "GIT_INSTRUCTIONS", "AUTO_MEMORY"):
        assert claude["environment"][f"CLAUDE_CODE_DISABLE_{name}"] == "1"

    for setting in (
        'sandbox_mode="read-only"', 'approval_policy="never"', "project_doc_max_bytes=0", "features.hooks=false",
        'shell_environment_policy.inherit="core"', 'projects={"/"={"trust_level"="untrusted"}}',
    ):  # fmt: skip
        assert f"--config={setting}" in codex["argv"]
    assert not any("made-up" in argument for argument in codex["argv"])

    settings, seen = json.loads(gemini["files"]["home/.gemini/settings.json"]), gemini["environment"]
    assert settings["security"] == {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}}
    assert settings["tools"]["core"] == ["read_file", "read_many_files", "list_directory", "glob", "grep_search"]
    assert settings["advanced"]["ignoreLocalEnv"] is True
    assert not any(settings[name]["enabled"] for name in ("hooksConfig", "telemetry", "skills"))
    assert (seen["GEMINI_RESTRICTED_MODE"], seen["GEMINI_CLI_TRUST_WORKSPACE"]) == ("true", "false")
    assert seen["GOOGLE_GEMINI_BASE_URL"] == "https://generativelanguage.googleapis.com"


@each(
    ("agent", "fields", "words"),
    [
        ("claude", {"output_schema": {"description": "x" * 130_000}}, "130,0.. bytes.*at most 120,000"),
        *((agent, {"permission_mode": PermissionMode.BYPASS}, "could run any command") for agent in AGENTS),
        ("claude", {"prompt": "x" * 2_800_001}, "accepts at most 2,800,000"),
        ("codex", {"prompt": "x" * 1_048_577}, "1,048,577 characters"),
        ("codex", {"prompt": "x" * 1_048_576, "output_schema": {"type": "array"}}, "accepts at most 1,048,576"),
        ("gemini", {"prompt": "x" * (2 * 1024 * 1024 + 1)}, "2,097,153 bytes"),
        ("gemini", {"prompt": "@x" * (1024 * 1024)}, "accepts at most 2,097,152"),
        *(("codex", {"resume_session": name}, "UUID") for name in ("last", "my-session", "01a1e194")),
        ("codex", {"tools": ("Read",)}, "codex has no Read"),
        ("gemini", {"tools": ("glob", "write_file")}, "gemini has no write_file in the permission mode dontAsk"),
        ("gemini", {"resume_session": SESSION}, "gemini does not know the session"),
    ],
)
def test_what_a_program_cannot_be_given_is_refused(
    tmp_path: Path, agent: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises((InvalidRequest, PromptTooLong), match=words) as raised:
        started(agent, tmp_path, fields, {}, {})
    assert raised.value.attempts == 0, "something was started"
    assert raised.value.hint


def test_codex_itself_is_started_where_it_lies_beside_its_script(tmp_path: Path) -> None:
    script, native = (tmp_path / "package" / name for name in ("bin/codex.js", "vendor/some-machine/bin/codex"))
    for file, mode in ((script, 0o755), (native, 0o644)):
        file.parent.mkdir(parents=True)
        file.touch(mode=mode)
    link = tmp_path / "codex"
    link.symlink_to(script)
    agent = CodexAgent(str(link), {})
    assert agent.find() == link, "it cannot be executed"
    native.chmod(0o755)
    assert agent.find() == native


class TestSkills:
    def skill(self, folder: Path, name: str = "SKILL.md") -> Path:
        folder.mkdir(parents=True)
        file = folder / name
        file.write_text("---\nname: x\n---\n")
        return file

    def test_skills_of_the_directory_and_of_all_above_are_found_and_turned_off(self, tmp_path: Path) -> None:
        self.skill(tmp_path / "skills" / "plain")
        assert skill_files(tmp_path) == ()
        files = [
            self.skill(tmp_path / "sub" / "dir" / ".agents" / "skills" / 'quo"ted', "skill.md"),
            self.skill(tmp_path / ".agents" / "skills" / "a"),
            self.skill(tmp_path / ".codex" / "skills" / "b" / "deep" / "er"),
        ]
        assert list(skill_files(tmp_path / "sub" / "dir")) == files
        found = started("codex", tmp_path, {"working_dir": tmp_path / "sub" / "dir"}, {}, {})
        rules = [{"path": str(file).replace(str(tmp_path), "<home>"), "enabled": False} for file in files]
        assert f"--config=skills.config={toml(rules)}" in found["argv"]

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

    def test_more_skills_or_directories_than_can_be_turned_off_are_refused(self, tmp_path: Path) -> None:
        for number in range(4001):
            (tmp_path / "a" / ".agents" / "skills" / str(number)).mkdir(parents=True)
        with pytest.raises(InvalidRequest, match=r"more than 4,000 directories") as raised:
            skill_files(tmp_path / "a")
        assert ".agents" in raised.value.hint
        for number in range(900):
            self.skill(tmp_path / "b" / ".agents" / "skills" / f"{number}{'x' * 100}")
        with pytest.raises(InvalidRequest, match="there are 900"):
            started("codex", tmp_path, {"working_dir": tmp_path / "b"}, {}, {})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        lines = (json.dumps({name: found}, ensure_ascii=False)[1:-1] for name, found in rows(Path(folder)))
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
