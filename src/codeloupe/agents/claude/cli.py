"""What the claude program finds in its environment, and in which home directory it runs.

Its configuration directory is thrown away after each call, since it writes to it in any mode. A login is read from
where the user keeps it, and sessions go to the user's own where they are kept. The home directory is thrown away too,
but for a login that needs it: the profile of a cloud, or the key ring of macOS.

The program asks git for the state of the directory, and git would run the filters that the repository configures. So
it finds a git that knows of no repository; the commands of the model find the real one.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from codeloupe.agents.calls.program import (
    KEPT_OUTPUT_BYTES,
    PERSON_NAMES,
    Failure,
    Places,
    Program,
    agent_environment,
    found_program,
    refuse_bypass,
    run_program,
    throw_away_places,
    user_home,
    version_of,
)
from codeloupe.agents.calls.validation import validate
from codeloupe.agents.claude.output import Progress, answer_in, ended_without_result
from codeloupe.errors import InvalidRequest, NotInstalled, install_command
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability, PermissionMode, full_prompt
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.command import Command, Completed, find_program

KEY_NAMES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
# What the short names of models stand for.
_ALIAS_NAMES = ("ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
_SERVICE_NAMES = (
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_BETAS",
    "ANTHROPIC_MODEL",
    "ANTHROPIC_SMALL_FAST_MODEL",
    *_ALIAS_NAMES,
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
)
_CLOUD_NAMES = {
    "CLAUDE_CODE_USE_BEDROCK": (
        "ANTHROPIC_BEDROCK_BASE_URL",
        "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
        "AWS_ACCESS_KEY_ID",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_CONFIG_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_DEFAULT_REGION",
        "AWS_PROFILE",
        "AWS_REGION",
        "AWS_ROLE_ARN",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
    ),
    "CLAUDE_CODE_USE_VERTEX": (
        "ANTHROPIC_VERTEX_BASE_URL",
        "ANTHROPIC_VERTEX_PROJECT_ID",
        "CLAUDE_CODE_SKIP_VERTEX_AUTH",
        "CLOUDSDK_CONFIG",
        "CLOUD_ML_REGION",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_PROJECT",
    ),
    "CLAUDE_CODE_USE_FOUNDRY": (
        "ANTHROPIC_FOUNDRY_API_KEY",
        "ANTHROPIC_FOUNDRY_BASE_URL",
        "ANTHROPIC_FOUNDRY_RESOURCE",
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_TENANT_ID",
    ),
}
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


class ClaudeSettings(Struct, frozen=True, kw_only=True):
    """How a claude agent was set up. `environment` is what it may take variables from."""

    environment: Mapping[str, str]
    base_url: str | None = None
    allow_bypass: bool = False
    keep_sessions: bool = False


def keeps_session(request: AgentRequest, settings: ClaudeSettings) -> bool:
    """Whether the session is written to the user's own configuration directory, so that it can be resumed."""
    return settings.keep_sessions or request.resume_session is not None


def user_folder(source: Mapping[str, str]) -> Path:
    """The user's own configuration directory, with the login and the sessions."""
    return Path(source.get("CLAUDE_CONFIG_DIR") or user_home(source) / ".claude").absolute()


def claude_environment(request: AgentRequest, settings: ClaudeSettings, places: Places) -> dict[str, str]:
    """The whole environment of the program."""
    source = settings.environment
    clouds = [name for name in _CLOUD_NAMES if source.get(name)]
    names = [*KEY_NAMES, *_SERVICE_NAMES, *(name for cloud in clouds for name in (cloud, *_CLOUD_NAMES[cloud]))]
    home, folders = places.home, {"CLAUDE_CONFIG_DIR": str(_private_folder(places))}
    if not any(source.get(name) for name in KEY_NAMES):
        # Where it is not set and nothing else is, the key ring knows the login by a name of its own.
        is_in_key_ring = sys.platform == "darwin" and not source.get("CLAUDE_CONFIG_DIR")
        folders["CLAUDE_SECURESTORAGE_CONFIG_DIR"] = "" if is_in_key_ring else str(user_folder(source))
        names += PERSON_NAMES
        home = user_home(source) if sys.platform == "darwin" else home
    if clouds:
        home = user_home(source)
        names += PERSON_NAMES
    # One that never retries does not tell how long the service wants us to wait; see Progress.take. It switches to
    # the fallback model after three refusals.
    retries = {"CLAUDE_CODE_MAX_RETRIES": "1" if request.fallback_model is None else "2"}
    address = {"ANTHROPIC_BASE_URL": settings.base_url} if settings.base_url else {}
    own = {**_SETTINGS, **retries, **address, **folders, "CLAUDE_ENV_FILE": str(places.root / _BEFORE_COMMANDS)}
    made = agent_environment(source, home=home, temporary=places.temporary, names=names, settings=own)
    return {**made, "PATH": os.pathsep.join((str(places.root / _NO_GIT), made.get("PATH", os.defpath)))}


def make_private_folder(request: AgentRequest, settings: ClaudeSettings, places: Places) -> None:
    """Make the configuration directory of one call, with a link to the user's sessions where it needs them."""
    folder = _private_folder(places)
    folder.mkdir()
    no_git = places.root / _NO_GIT / "git"
    no_git.parent.mkdir()
    no_git.write_text("#!/bin/sh\nexit 128\n", encoding="utf-8")
    no_git.chmod(0o700)
    (places.root / _BEFORE_COMMANDS).write_text(f'export PATH="${{PATH#{no_git.parent}:}}"\n', encoding="utf-8")
    sessions = user_folder(settings.environment) / _SESSIONS
    if settings.keep_sessions:
        sessions.mkdir(mode=0o700, parents=True, exist_ok=True)
    if keeps_session(request, settings):
        (folder / _SESSIONS).symlink_to(sessions)


def _private_folder(places: Places) -> Path:
    return places.home / ".claude"


def has_cloud(source: Mapping[str, str]) -> bool:
    """Whether a cloud provider is set to be used instead of Anthropic's own service."""
    return any(source.get(name) for name in _CLOUD_NAMES)


def model_by_default(environment: Mapping[str, str]) -> str | None:
    """Which model is asked for when a request names none, or only a short name, as far as the environment tells."""
    aliases = (f"{name}={environment[name]}" for name in _ALIAS_NAMES if environment.get(name))
    return " ".join(filter(None, (environment.get("ANTHROPIC_MODEL"), *aliases))) or None


def service_of(settings: ClaudeSettings) -> str | None:
    """Which service is asked, as far as the settings and the environment tell."""
    source = settings.environment
    told = {"ANTHROPIC_BASE_URL": settings.base_url or source.get("ANTHROPIC_BASE_URL")}
    for cloud, names in _CLOUD_NAMES.items():
        if source.get(cloud):
            told |= {name: source.get(name) for name in (cloud, *names) if name.endswith(_PLACE_ENDINGS)}
    return " ".join(f"{name}={value}" for name, value in told.items() if value) or None


_LOG_IN = "set ANTHROPIC_API_KEY, or start {program} in a terminal and log in with /login"
_INSTALL = install_command("claude")
CLAUDE_CLI = Program(
    agent="claude_cli",
    command="claude",
    install=f"npm install -g @anthropic-ai/claude-code, or {_INSTALL}",
    log_in=_LOG_IN.format(program="claude"),
)
AGENT_SDK = Program(agent="agent_sdk", command="claude", install=_INSTALL, log_in=_LOG_IN.format(program="claude"))


def find_claude(program: Program, configured: str | None) -> Path:
    """The configured program, else the one on the PATH or in the Agent SDK's package, which comes first for the SDK.

    Raises NotInstalled, with the command that installs it.
    """
    bundled = None if configured else bundled_program()
    if bundled and program is AGENT_SDK:
        return bundled
    try:
        return found_program(program, configured)
    except NotInstalled:
        if bundled is None:
            raise
        return bundled


def bundled_program() -> Path | None:
    """The program inside the Agent SDK's package, which is not imported for this."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    found = find_program(str(Path(spec.origin).parent / "_bundled" / "claude"))
    return None if found is None else Path(found)


async def cli_availability(configured: str | None, source: Mapping[str, str]) -> Availability:
    """Whether the program can be used."""
    try:
        path = find_claude(CLAUDE_CLI, configured)
    except NotInstalled as error:
        return Availability(found=False, how_to_fix=error.hint)
    version, problem = await version_of(CLAUDE_CLI, path, source)
    if version is None:
        return Availability(found=False, how_to_fix=problem, path=str(path))
    return claude_availability(path, source, version=version)


def claude_availability(path: Path, source: Mapping[str, str], *, version: str) -> Availability:
    """What is known of a program that was found."""
    logged_in = has_login(source)
    return Availability(
        found=True,
        version=version,
        logged_in=logged_in,
        how_to_fix="" if logged_in else _LOG_IN.format(program=_typed(path)),
        default_model=source.get("ANTHROPIC_MODEL") or None,
        path=str(path),
    )


def _typed(path: Path) -> str:
    """What a person types to start the program: its path, when it is only in the Agent SDK's package."""
    return CLAUDE_CLI.command if find_program(CLAUDE_CLI.command) is not None else str(path)


def has_login(source: Mapping[str, str]) -> bool | None:
    """Whether there are credentials: a variable, or a login in the user's configuration. None when nobody can know."""
    if any(source.get(name) for name in KEY_NAMES) or has_cloud(source):
        return True
    try:
        if (user_folder(source) / ".credentials.json").is_file():
            return True
    except OSError:
        return None
    # There the login is in the system's key ring, which would ask the user.
    return None if sys.platform == "darwin" else False


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
_WRITING_TOOLS = ("Edit", "Write")
_ALL_TOOLS = (*READ_ONLY_TOOLS, *_WRITING_TOOLS, "Bash")
# One argument of a program is at most 128 KiB on Linux.
_MAX_SCHEMA_BYTES = 120_000


class ToolChoice(Struct, frozen=True):
    """The tools that exist for the model, and rules such as `Bash(git log:*)` for what is allowed without asking."""

    names: tuple[str, ...]
    rules: tuple[str, ...]


def tools_for(request: AgentRequest) -> ToolChoice:
    """The tools of a request; without any named, those that its permission mode makes sense of."""
    if request.tools is None:
        by_default = {
            PermissionMode.ACCEPT_EDITS: (*READ_ONLY_TOOLS, *_WRITING_TOOLS),
            PermissionMode.BYPASS: _ALL_TOOLS,
        }
        return ToolChoice(by_default.get(request.permission_mode, READ_ONLY_TOOLS), ())
    names = dict.fromkeys(tool.partition("(")[0] for tool in request.tools)
    return ToolChoice(tuple(names), tuple(tool for tool in request.tools if "(" in tool))


def schema_of(request: AgentRequest) -> dict[str, Any] | None:
    """The schema as the program takes it: without the draft's name, since it knows no other than its own."""
    if request.output_schema is None:
        return None
    return {name: value for name, value in request.output_schema.items() if name != "$schema"}


def schema_text(request: AgentRequest, *, agent: str) -> str | None:
    """The schema as one argument. Raises InvalidRequest when it is too large for one."""
    schema = schema_of(request)
    if schema is None:
        return None
    text = json.dumps(schema, default=dict)
    if len(text) > _MAX_SCHEMA_BYTES:
        raise InvalidRequest(
            f"the schema has {len(text):,} bytes; {agent} takes at most {_MAX_SCHEMA_BYTES:,}",
            agent=agent,
            hint="use a smaller schema",
        )
    return text


def safe_flags(request: AgentRequest, settings: ClaudeSettings) -> dict[str, str | None]:
    """The flags that the Agent SDK has no option for; the CLI gets them too. None stands for a flag without a value."""
    flags: dict[str, str | None] = {"permission-prompts": "none", "disable-slash-commands": None}
    if request.permission_mode is not PermissionMode.BYPASS:
        flags["restricted"] = None
    if not keeps_session(request, settings):
        flags["no-session-persistence"] = None
    return flags


def cli_arguments(request: AgentRequest, settings: ClaudeSettings, places: Places, *, agent: str) -> tuple[str, ...]:
    """The arguments of `claude` for a request; its prompt goes by stdin. Raises InvalidRequest.

    Each value is bound to its flag by "=", so that none can be taken for another flag or swallow one.
    """
    tools = tools_for(request)
    flags: dict[str, str | None] = {
        "print": None,
        "verbose": None,
        "output-format": "stream-json",
        "setting-sources": "",
        "strict-mcp-config": None,
        "tools": ",".join(tools.names),
        **({"allowed-tools": ",".join(tools.rules)} if tools.rules else {}),
        "permission-mode": request.permission_mode.value,
        **safe_flags(request, settings),
        **prompt_files(request, places.root),
        **_wishes(request, agent=agent),
    }
    return tuple(f"--{name}" if value is None else f"--{name}={value}" for name, value in flags.items())


def _wishes(request: AgentRequest, *, agent: str) -> dict[str, str | None]:
    given = {
        "model": request.model,
        "fallback-model": request.fallback_model,
        "max-turns": None if request.max_turns is None else str(request.max_turns),
        "max-budget-usd": None if request.max_budget_usd is None else str(request.max_budget_usd),
        "json-schema": schema_text(request, agent=agent),
        "resume": request.resume_session,
    }
    flags: dict[str, str | None] = {name: value for name, value in given.items() if value is not None}
    if request.resume_session is not None and request.fork_session:
        flags["fork-session"] = None
    # With the pieces of an answer as signs of life, silence means that nothing happens.
    return flags if request.idle_timeout_seconds is None else {**flags, "include-partial-messages": None}


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


def prompt_input(prompt: str) -> str:
    """The prompt as the program takes it for text: one that begins with a slash would be a command of its own."""
    return f"The request:\n{prompt}" if prompt.lstrip()[:1] in ("/", "-") else prompt


_log = logging.getLogger(__name__)


class ClaudeCliAgent:
    """Runs `claude` once for each call.

    `program` is a path or a name; without one it is looked for on the PATH and in the Agent SDK's package.
    `environment` is what variables are taken from, by default our own. `allow_bypass` lets requests bypass all
    permissions. `keep_sessions` writes sessions to the user's configuration directory, so that they can be resumed.
    """

    name = CLAUDE_CLI.agent

    def __init__(
        self,
        program: str | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        base_url: str | None = None,
        allow_bypass: bool = False,
        keep_sessions: bool = False,
    ) -> None:
        self._program = program
        self._settings = ClaudeSettings(
            environment=os.environ if environment is None else environment,
            base_url=base_url,
            allow_bypass=allow_bypass,
            keep_sessions=keep_sessions,
        )

    @property
    def limits(self) -> AgentLimits:
        """What it can take and do."""
        return LIMITS

    @property
    def default_model(self) -> str | None:
        """The model that is asked when a request names none, where the environment tells."""
        return model_by_default(self._settings.environment)

    def service_of(self, _request: AgentRequest) -> str | None:
        """Where it asks, where the settings or the environment tell."""
        return service_of(self._settings)

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the program being gone."""
        started = time.monotonic()
        validate(request, LIMITS, agent=self.name)
        refuse_bypass(request, allowed=self._settings.allow_bypass, agent=self.name)
        path = find_claude(CLAUDE_CLI, self._program)
        if request.permission_mode is PermissionMode.BYPASS:
            _log.warning("%s bypasses all permissions: it may do whatever this user can", self.name)
        progress = Progress(request, program=CLAUDE_CLI, emit=emit)
        with throw_away_places() as places:
            make_private_folder(request, self._settings, places)
            command = Command(
                argv=(str(path), *cli_arguments(request, self._settings, places, agent=self.name)),
                cwd=request.working_dir,
                environment=claude_environment(request, self._settings, places),
                timeout_seconds=request.timeout_seconds,
                max_output_bytes=KEPT_OUTPUT_BYTES,
                stdin=prompt_input(full_prompt(request)).encode(),
            )
            completed = await run_program(
                CLAUDE_CLI, command, progress, idle_timeout_seconds=request.idle_timeout_seconds
            )
        return _read(progress, completed, duration_ms=round((time.monotonic() - started) * 1000))

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing and never raises."""
        return await cli_availability(self._program, self._settings.environment)


def _read(progress: Progress, completed: Completed, *, duration_ms: int) -> AgentResult:
    if progress.result is None:
        raw_output = completed.stdout.decode("utf-8", "replace")
        failure = Failure(program=CLAUDE_CLI, session_id=progress.session_id, raw_output=raw_output)
        raise ended_without_result(failure, exit_code=completed.exit_code, stderr=completed.stderr)
    return answer_in(progress.result, progress.told(), duration_ms=duration_ms, now=time.time())
