"""The agent `claude_cli`: the claude program, and all of its settings that the Agent SDK shares with it.

Nothing of the reviewed repository shapes a run: no settings, hooks, MCP servers, CLAUDE.md, slash commands or file
mentions. The file tools stay inside the working directory. Nobody is there to be asked, so what would have to be asked
is denied.

Its configuration directory is thrown away after each call, since it writes to it in any mode. A login is read from
where the user keeps it, and sessions go to the user's own directory where they are kept. The home directory is thrown
away too, but for a login that needs it: the profile of a cloud, or the key ring of macOS. No credential is ever read.

The program asks git for the state of the directory, and git would run the filters that the repository configures. So
it finds a git that knows of no repository; the commands of the model find the real one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from codeloupe.agents.calls.failures import Program
from codeloupe.agents.calls.program import (
    PERSON_NAMES,
    Places,
    ProgramAgent,
    agent_environment,
    found_program,
    user_home,
)
from codeloupe.agents.claude.output import ClaudeReading
from codeloupe.errors import NotInstalled, install_command
from codeloupe.model.agent import AgentLimits, AgentRequest, PermissionMode, full_prompt
from codeloupe.system.process import find_program

# By experiment: a window of a million tokens is taken to be full at a little over 2.9 million characters, and more
# than 10 MB of input is refused whatever the model.
LIMITS = AgentLimits(
    max_prompt_bytes=10_000_000,
    max_prompt_characters=2_800_000,
    schema=True,
    turns=True,
    budget=True,
    resume=True,
    fork=True,
    tools=True,
    writes=True,
    fallback=True,
    confined=True,
    own_tokens=2_300,
)
READ_ONLY_TOOLS = ("Read", "Grep", "Glob")
_TOOLS = {
    PermissionMode.ACCEPT_EDITS: (*READ_ONLY_TOOLS, "Edit", "Write"),
    PermissionMode.BYPASS: (*READ_ONLY_TOOLS, "Edit", "Write", "Bash"),
}
# One argument of a program is at most 128 KiB on Linux.
_MAX_SCHEMA_BYTES = 120_000
_LOG_IN = "set ANTHROPIC_API_KEY, or start {program} in a terminal and log in with /login"
_KEY_NAMES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
# What the short names of models stand for.
_ALIAS_NAMES = ("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
_SERVICE_NAMES = (
    "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_BETAS", "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL", *_ALIAS_NAMES, "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
)  # fmt: skip
_CLOUD_NAMES = {
    "CLAUDE_CODE_USE_BEDROCK": (
        "ANTHROPIC_BEDROCK_BASE_URL", "CLAUDE_CODE_SKIP_BEDROCK_AUTH", "AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_CONFIG_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_REGION",
        "AWS_ROLE_ARN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ),
    "CLAUDE_CODE_USE_VERTEX": (
        "ANTHROPIC_VERTEX_BASE_URL", "ANTHROPIC_VERTEX_PROJECT_ID", "CLAUDE_CODE_SKIP_VERTEX_AUTH", "CLOUDSDK_CONFIG",
        "CLOUD_ML_REGION", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT",
    ),
    "CLAUDE_CODE_USE_FOUNDRY": (
        "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE", "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID",
    ),
}  # fmt: skip
_PLACE_ENDINGS = ("_BEDROCK", "_VERTEX", "_FOUNDRY", "_URL", "_REGION", "_PROFILE", "_PROJECT", "_ID", "_RESOURCE")
_SESSIONS = "projects"
_BEFORE_COMMANDS = "before-commands.sh"
_NO_GIT = "no-git"
_SETTINGS = {
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_BUG_COMMAND": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
    "MAX_STRUCTURED_OUTPUT_RETRIES": "2",
    # All tools are there from the start: without this the program adds one that stands for those to be loaded later.
    "ENABLE_TOOL_SEARCH": "false",
}


def bundled_program() -> Path | None:
    """The program inside the Agent SDK's package, which is not imported for this."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    found = find_program(str(Path(spec.origin).parent / "_bundled" / "claude"))
    return None if found is None else Path(found)


class ClaudeAgent(ProgramAgent):
    """What both claude agents share. Without a configured program, the one in the Agent SDK's package will do too."""

    limits = LIMITS
    reading = ClaudeReading
    model_variable = "ANTHROPIC_MODEL"

    @property
    def default_model(self) -> str | None:
        """Which model is asked for when a request names none, or only a short name, as far as the environment tells."""
        aliases = (f"{name}={self.source[name]}" for name in _ALIAS_NAMES if self.source.get(name))
        return " ".join(filter(None, (self.source.get("ANTHROPIC_MODEL"), *aliases))) or None

    @property
    def user_folder(self) -> Path:
        """The user's own configuration directory, with the login and the sessions."""
        return Path(self.source.get("CLAUDE_CONFIG_DIR") or user_home(self.source) / ".claude").absolute()

    def service_of(self, _request: AgentRequest) -> str | None:
        """Which service is asked, as far as the settings and the environment tell."""
        told = {"ANTHROPIC_BASE_URL": self.base_url or self.source.get("ANTHROPIC_BASE_URL")}
        for cloud, names in _CLOUD_NAMES.items():
            if self.source.get(cloud):
                told |= {name: self.source.get(name) for name in (cloud, *names) if name.endswith(_PLACE_ENDINGS)}
        return " ".join(f"{name}={value}" for name, value in told.items() if value) or None

    def find(self) -> Path:
        """The configured program, else the one on the PATH or in the Agent SDK's package. Raises NotInstalled."""
        try:
            return found_program(self.program, self.configured)
        except NotInstalled:
            bundled = None if self.configured else bundled_program()
            if bundled is None:
                raise
            return bundled

    async def usable_program(self) -> Path:
        """The program, with or without a login that we know of: it tells at once when it has none."""
        return self.find()

    def has_login(self) -> bool | None:
        """Whether there are credentials: a variable, or a login in the user's configuration."""
        if any(self.source.get(name) for name in (*_KEY_NAMES, *_CLOUD_NAMES)):
            return True
        try:
            if (self.user_folder / ".credentials.json").is_file():
                return True
        except OSError:
            return None
        # There the login is in the system's key ring, which would ask the user.
        return None if sys.platform == "darwin" else False

    def how_to_log_in(self, path: Path) -> str:
        """Where the program is only in the Agent SDK's package, a person has to start it by its path."""
        return _LOG_IN.format(program="claude" if find_program("claude") is not None else path)

    def prompt_input(self, request: AgentRequest) -> str:
        """The prompt as text: one that begins with a slash would be a command of the program."""
        prompt = full_prompt(request)
        return f"The request:\n{prompt}" if prompt.lstrip()[:1] in ("/", "-") else prompt

    def environment(self, request: AgentRequest, places: Places) -> dict[str, str]:
        """The whole environment of the program."""
        source, home = self.source, places.home
        clouds = [name for name in _CLOUD_NAMES if source.get(name)]
        names = [*_KEY_NAMES, *_SERVICE_NAMES, *(name for cloud in clouds for name in (cloud, *_CLOUD_NAMES[cloud]))]
        own = {
            **_SETTINGS,
            "CLAUDE_CONFIG_DIR": str(places.home / ".claude"),
            "CLAUDE_ENV_FILE": str(places.root / _BEFORE_COMMANDS),
            # One that never retries does not tell how long the service wants us to wait; see ClaudeReading.take. It
            # switches to the fallback model after three refusals.
            "CLAUDE_CODE_MAX_RETRIES": "1" if request.fallback_model is None else "2",
        }
        if self.base_url:
            own["ANTHROPIC_BASE_URL"] = self.base_url
        if not any(source.get(name) for name in _KEY_NAMES):
            # Where it is not set and nothing else is, the key ring knows the login by a name of its own.
            is_in_key_ring = sys.platform == "darwin" and not source.get("CLAUDE_CONFIG_DIR")
            own["CLAUDE_SECURESTORAGE_CONFIG_DIR"] = "" if is_in_key_ring else str(self.user_folder)
            names += PERSON_NAMES
            home = user_home(source) if sys.platform == "darwin" else home
        if clouds:
            home = user_home(source)
            names += PERSON_NAMES
        made = agent_environment(source, places, names=names, settings=own, home=home)
        return {**made, "PATH": os.pathsep.join((str(places.root / _NO_GIT), made.get("PATH", os.defpath)))}

    def make_private_folder(self, request: AgentRequest, places: Places) -> None:
        """Make the configuration directory of one call, with a link to the user's sessions where it needs them."""
        folder = places.home / ".claude"
        folder.mkdir()
        no_git = places.root / _NO_GIT / "git"
        no_git.parent.mkdir()
        no_git.write_text("#!/bin/sh\nexit 128\n", encoding="utf-8")
        no_git.chmod(0o700)
        (places.root / _BEFORE_COMMANDS).write_text(f'export PATH="${{PATH#{no_git.parent}:}}"\n', encoding="utf-8")
        sessions = self.user_folder / _SESSIONS
        if self.keep_sessions:
            sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.keeps_session(request):
            (folder / _SESSIONS).symlink_to(sessions)

    def safe_flags(self, request: AgentRequest) -> dict[str, str | None]:
        """The flags that the Agent SDK has no option for. None stands for a flag without a value."""
        flags: dict[str, str | None] = {"permission-prompts": "none", "disable-slash-commands": None}
        if request.permission_mode is not PermissionMode.BYPASS:
            flags["restricted"] = None
        if not self.keeps_session(request):
            flags["no-session-persistence"] = None
        return flags

    def schema_text(self, request: AgentRequest) -> str | None:
        """The schema as one argument. Raises InvalidRequest when it is too large for one."""
        if request.output_schema is None:
            return None
        # Without the draft's name, since the program knows no other than its own.
        schema = {name: value for name, value in request.output_schema.items() if name != "$schema"}
        text = json.dumps(schema, default=dict)
        if len(text) > _MAX_SCHEMA_BYTES:
            message = f"the schema has {len(text):,} bytes; {self.name} takes at most {_MAX_SCHEMA_BYTES:,}"
            raise self.invalid(message, "use a smaller schema")
        return text


def tools_for(request: AgentRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tools that exist for the model, and rules such as `Bash(git log:*)` for what is allowed without asking.

    Without any named, those that its permission mode makes sense of.
    """
    if request.tools is None:
        return _TOOLS.get(request.permission_mode, READ_ONLY_TOOLS), ()
    names = dict.fromkeys(tool.partition("(")[0] for tool in request.tools)
    return tuple(names), tuple(tool for tool in request.tools if "(" in tool)


def prompt_files(request: AgentRequest, folder: Path) -> dict[str, str]:
    """System prompts as files: they can be longer than an argument, and arguments are seen by every user."""
    texts = {"system-prompt-file": request.system_prompt, "append-system-prompt-file": request.append_system_prompt}
    flags = {}
    for flag, text in texts.items():
        if text is not None:
            file = folder / f"{flag}.txt"
            file.write_text(text, encoding="utf-8")
            flags[flag] = str(file)
    return flags


class ClaudeCliAgent(ClaudeAgent):
    """Runs `claude` once for each call."""

    name = "claude_cli"
    program = Program(
        agent=name,
        command="claude",
        install=f"npm install -g @anthropic-ai/claude-code, or {install_command('claude')}",
        log_in=_LOG_IN.format(program="claude"),
    )

    def arguments(self, request: AgentRequest, places: Places) -> tuple[str, ...]:
        """Each value is bound to its flag by "=", so that none can be taken for another flag or swallow one."""
        self.make_private_folder(request, places)
        names, rules = tools_for(request)
        given: dict[str, Any] = {
            "allowed-tools": ",".join(rules) or None,
            "model": request.model,
            "fallback-model": request.fallback_model,
            "max-turns": request.max_turns,
            "max-budget-usd": request.max_budget_usd,
            "json-schema": self.schema_text(request),
            "resume": request.resume_session,
        }
        flags: dict[str, Any] = {
            "print": None,
            "verbose": None,
            "output-format": "stream-json",
            "setting-sources": "",
            "strict-mcp-config": None,
            "tools": ",".join(names),
            "permission-mode": request.permission_mode.value,
            **self.safe_flags(request),
            **prompt_files(request, places.root),
            **{name: value for name, value in given.items() if value is not None},
        }
        if request.resume_session is not None and request.fork_session:
            flags["fork-session"] = None
        if request.idle_timeout_seconds is not None:
            # With the pieces of an answer as signs of life, silence means that nothing happens.
            flags["include-partial-messages"] = None
        return tuple(f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items())
