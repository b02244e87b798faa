"""The agent `codex`: the codex program, with the settings with which it reads, answers, and does nothing else.

Nothing of the reviewed repository shapes the run: no configuration, hooks, MCP servers, rules, AGENTS.md or skills.
Commands run in the program's own sandbox, without network, without our keys, and in the modes that only read without
a way to write. The program retries nothing by itself. No credential is ever read.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.agents.calls.failures import Program
from codeloupe.agents.calls.program import Places, ProgramAgent, agent_environment, found_program, message_on, user_home
from codeloupe.agents.calls.schemas import schema_words, strict_schema
from codeloupe.agents.codex.output import LOG_FILTER, SHELL, CodexReading
from codeloupe.errors import InvalidRequest
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, PermissionMode, full_prompt

CODEX = Program(
    agent="codex",
    command="codex",
    install="npm install -g @openai/codex",
    log_in="set OPENAI_API_KEY, or run `codex login`",
)
LIMITS = AgentLimits(
    max_prompt_characters=1_048_576,
    schema=True,
    resume=True,
    fork=True,
    tools=True,
    writes=True,
    own_tokens=5_000,
)
_KEY_NAMES = ("CODEX_API_KEY", "OPENAI_API_KEY")
_SERVICE_NAMES = ("OPENAI_ORGANIZATION", "OPENAI_PROJECT", "CODEX_CA_CERTIFICATE")
_LOGIN_FILE = "auth.json"
_SESSIONS = "sessions"
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
_OPENAI = "https://api.openai.com/v1"
_PROVIDER = "codeloupe"
_SANDBOXES = {PermissionMode.ACCEPT_EDITS: "workspace-write", PermissionMode.BYPASS: "danger-full-access"}
# One argument of a program is at most 128 KiB on Linux.
_MAX_ARGUMENT_BYTES = 120_000
_OFF = ("analytics", "agents", "skills.bundled", "tools.experimental_request_user_input")
_FEATURES_OFF = (
    "apps", "enable_request_compression", "goals", "hooks", "image_generation", "memories", "multi_agent", "plugins",
    "shell_snapshot", "skill_search", "sleep_tool", "tool_suggest", "unbounded_connection_retries", "view_image",
)  # fmt: skip
_SETTINGS: Mapping[str, Any] = {
    "approval_policy": "never",
    "check_for_update_on_startup": False,
    "history.persistence": "none",
    "include_collaboration_mode_instructions": False,
    "project_doc_max_bytes": 0,
    "project_root_markers": [],
    "sandbox_workspace_write.exclude_slash_tmp": True,
    "shell_environment_policy.inherit": "core",
    "skills.include_instructions": False,
    "web_search": "disabled",
    **{f"{name}.enabled": False for name in _OFF},
    **{f"features.{name}": False for name in _FEATURES_OFF},
}
_SKILL_FOLDERS = (Path(".agents", "skills"), Path(".codex", "skills"))
# The program itself looks six levels deep and into at most 2,000 directories.
_MAX_LEVELS = 8
_MAX_DIRECTORIES = 4000


class CodexAgent(ProgramAgent):
    """Runs `codex exec` once for each call, with a key or else the login in the user's directory of the program.

    `base_url` has its version, such as https://host/v1; without one, OPENAI_BASE_URL or OpenAI's own. A system prompt
    replaces the program's own; what is to be appended to it goes to the model as instructions. Limits of turns and of
    money are not known to the program.
    """

    name = CODEX.agent
    program = CODEX
    limits = LIMITS
    reading = CodexReading

    @property
    def key_name(self) -> str | None:
        """The variable that holds a key."""
        return next((name for name in _KEY_NAMES if self.source.get(name)), None)

    @property
    def user_folder(self) -> Path:
        """The user's own directory of the program, with the login and the sessions."""
        return Path(self.source.get("CODEX_HOME") or user_home(self.source) / ".codex").absolute()

    def service_of(self, _request: AgentRequest | None = None) -> str | None:
        """Where it asks, where that is another service than the program's own."""
        return self.base_url or self.source.get("OPENAI_BASE_URL") or None

    def find(self) -> Path:
        """The program. Raises NotInstalled.

        The one that npm puts on the PATH is a script for Node, which starts the real one; that is taken where it lies
        beside the script, since the way over Node takes longer than the program itself.
        """
        script = found_program(self.program, self.configured)
        try:
            package = script.resolve(strict=True).parent.parent
        except (OSError, RuntimeError):
            return script
        name = f"codex-{sys.platform}-{_MACHINES.get(platform.machine().lower(), '')}"
        places = (package.parent / name, package / "node_modules" / "@openai" / name, package)
        programs = (file for place in places for file in sorted(place.glob("vendor/*/bin/codex")))
        return next((file for file in programs if os.access(file, os.X_OK)), script)

    def has_login(self) -> bool | None:
        """Whether there is a key or a login: without one the program does not say so, but tries for a long time."""
        if self.key_name:
            return True
        try:
            return (self.user_folder / _LOGIN_FILE).is_file()
        except OSError:
            return None

    def problem_with_tools(self, request: AgentRequest) -> tuple[str, str] | None:
        """Whether one is named that there is not."""
        unknown = ", ".join(tool for tool in request.tools or () if tool != SHELL)
        problem = f"codex has one tool, {SHELL}, and knows no {unknown}"
        return (problem, f"leave tools out, or give {SHELL} or none") if unknown else None

    def prompt_input(self, request: AgentRequest) -> str:
        """The prompt, and in words a schema that the program cannot be given."""
        schema = request.output_schema
        tail = "" if schema is None or strict_schema(schema) is not None else schema_words(schema)
        return f"{full_prompt(request)}{tail}"

    def environment(self, _request: AgentRequest, places: Places) -> dict[str, str]:
        """The whole environment of the program. Its home and its own directory are thrown away after the call.

        It asks git for the state of the directory, and git would run the filters that the repository configures. So its
        git finds no repository; the commands of the model do, since they get none of these variables.
        """
        own = {"CODEX_HOME": str(_private_folder(places)), "RUST_LOG": LOG_FILTER, "GIT_DIR": os.devnull}
        return agent_environment(self.source, places, names=(*_KEY_NAMES, *_SERVICE_NAMES), settings=own)

    def arguments(self, request: AgentRequest, places: Places) -> tuple[str, ...]:
        """The arguments for a request; files for it are written to `places`. Raises InvalidRequest."""
        self._link_user_files(request, places)
        flags = ["--json", "--ignore-rules", "--skip-git-repo-check"]
        if request.append_system_prompt:
            # Text for the model goes into a file: arguments are seen by every user of the machine.
            instructions = f"developer_instructions = {toml(request.append_system_prompt)}\n"
            (_private_folder(places) / "config.toml").write_text(instructions, encoding="utf-8")
        if request.model is not None:
            flags.append(f"--model={request.model}")
        schema = None if request.output_schema is None else strict_schema(request.output_schema)
        if schema is not None:
            file = places.root / "schema.json"
            file.write_text(json.dumps(schema, default=dict), encoding="utf-8")
            flags.append(f"--output-schema={file}")
        flags += [f"--config={name}={toml(value)}" for name, value in self._settings(request, places).items()]
        if request.resume_session is None:
            return ("exec", *flags, "-")
        verb = "fork" if request.fork_session else "resume"
        return ("exec", verb, *flags, self.session_name(request.resume_session), "-")

    def finished(self, result: AgentResult, _request: AgentRequest, places: Places) -> AgentResult:
        """The result with the model that answered, by the record of the session: the program says it nowhere else."""
        model = None
        for file in (_private_folder(places) / _SESSIONS).glob(f"*/*/*/rollout-*{result.session_id}.jsonl"):
            with suppress(OSError), file.open("rb") as lines:
                for message in (message_on(line) for line in lines if b'"turn_context"' in line):
                    model = (message.part("payload").text("model") if message else "") or model
        return replace(result, model=model or result.model)

    def _link_user_files(self, request: AgentRequest, places: Places) -> None:
        """Let the program reach the user's login and sessions where a call needs them, and nothing else of the user's.

        The program writes more into its directory than it is asked to, such as that it trusts the directory it works
        in.
        """
        folder, users = _private_folder(places), self.user_folder
        if self.key_name is None:
            (folder / _LOGIN_FILE).symlink_to(users / _LOGIN_FILE)
        if self.keep_sessions:
            users.mkdir(mode=0o700, parents=True, exist_ok=True)
            (users / _SESSIONS).mkdir(mode=0o700, exist_ok=True)
        if self.keeps_session(request):
            (folder / _SESSIONS).symlink_to(users / _SESSIONS)

    def _settings(self, request: AgentRequest, places: Places) -> dict[str, Any]:
        chosen: dict[str, Any] = {
            **_SETTINGS,
            "sandbox_mode": _SANDBOXES.get(request.permission_mode, "read-only"),
            "model_provider": _PROVIDER,
            f"model_providers.{_PROVIDER}": self._provider(),
            "projects": _without_trust(request.working_dir),
        }
        if skills := skill_files(request.working_dir):
            rules = [{"path": str(file), "enabled": False} for file in skills]
            if len(toml(rules).encode("utf-8", "surrogateescape")) > _MAX_ARGUMENT_BYTES:
                raise _too_many_skills(f"there are {len(skills):,}")
            chosen["skills.config"] = rules
        if request.tools == ():
            chosen |= {"features.shell_tool": False, "features.unified_exec": False}
        if request.system_prompt is not None:
            file = places.root / "system-prompt.md"
            file.write_text(request.system_prompt, encoding="utf-8")
            chosen["model_instructions_file"] = str(file)
        return chosen

    def _provider(self) -> dict[str, Any]:
        """The service. A provider of our own, since the retries of a built-in one cannot be set."""
        common = {"wire_api": "responses", "request_max_retries": 0, "stream_max_retries": 0}
        address = self.service_of()
        if self.key_name is None:
            # By this name, and without an address, the program finds the service of the user's subscription.
            own = {"base_url": address} if address else {}
            return {"name": "OpenAI", "requires_openai_auth": True, **own, **common}
        return {
            "name": _PROVIDER,
            "base_url": address or _OPENAI,
            "env_key": self.key_name,
            "env_http_headers": {"OpenAI-Organization": "OPENAI_ORGANIZATION", "OpenAI-Project": "OPENAI_PROJECT"},
            **common,
        }


def _private_folder(places: Places) -> Path:
    """The directory of the program for one call."""
    folder = places.home / ".codex"
    folder.mkdir(exist_ok=True)
    return folder


def toml(value: Any) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{toml(name)}={toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(toml, value)) + "]"
    # As in JSON, but for the one character that TOML wants to be escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _without_trust(working_dir: Path) -> dict[str, Any]:
    """No trust for the directory and for every one above it, of which any may be the project's root.

    Where it may write, the program takes a directory of which it knows nothing for trusted, and starts what the
    configuration in it names.
    """
    start = working_dir.absolute()
    try:
        str(start.resolve()).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"codex cannot be kept from trusting {str(start)!r}: the path is not UTF-8",
            agent=CODEX.agent,
            hint="use another agent, or another directory",
        ) from error
    places = (place for name in (start, start.resolve()) for place in (name, *name.parents))
    return {str(place): {"trust_level": "untrusted"} for place in places}


def skill_files(working_dir: Path) -> tuple[Path, ...]:
    """Every skill that a run in this directory could load, by both names where a link leads to it.

    The program takes `$name` anywhere in a prompt for a mention of a skill, and loads that skill's text from the
    repository, trusted or not; a diff is full of `$name`. No setting turns this off, but each skill can be turned off
    by its path. The skills of every directory above are among them, since a project's root may be any. Raises
    InvalidRequest when there are more directories than can be looked into, since some skill could stay on.
    """
    start = working_dir.absolute()
    found: dict[Path, None] = {}
    for root in (folder / skills for folder in (start, *start.parents) for skills in _SKILL_FOLDERS):
        for file in _skills_below(root):
            found[file] = None
            with suppress(OSError, RuntimeError):
                found[file.resolve()] = None
    return tuple(found)


def _skills_below(root: Path) -> Iterator[Path]:
    level, seen, looked_into = [root], {_real_directory(root)}, 0
    for _ in range(_MAX_LEVELS):
        below: list[Path] = []
        for folder in level:
            looked_into += 1
            if looked_into > _MAX_DIRECTORIES:
                raise _too_many_skills(f"{root} has more than {_MAX_DIRECTORIES:,} directories")
            entries: list[Path] = []
            with suppress(OSError):  # what we cannot read, a program of the same user cannot read either
                entries = sorted(folder.iterdir())
            for entry in entries:
                if entry.name.lower() == "skill.md":
                    yield entry
                elif (real := _real_directory(entry)) and real not in seen:
                    seen.add(real)
                    below.append(entry)
        level = below


def _real_directory(entry: Path) -> Path | None:
    try:
        return entry.resolve() if entry.is_dir() else None
    except (OSError, RuntimeError):
        return None


def _too_many_skills(what: str) -> InvalidRequest:
    return InvalidRequest(
        f"codex would load skills of the repository that cannot be turned off: {what}",
        agent=CODEX.agent,
        hint="use another agent, or a copy of the files without .agents and .codex",
    )
