"""The settings and the environment with which the gemini program reads, answers, and does nothing else.

It runs in a home directory that is thrown away and never trusts the directory it works in, so nothing of the reviewed
repository shapes the run: no settings, `.env`, hooks, MCP servers, extensions, skills, commands or GEMINI.md. The
tools it is given need no permission and stay inside that directory; it has no others. It retries nothing by itself.
"""

from __future__ import annotations

import json
import secrets
import shutil
import uuid
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.agents.calls.program import Places, agent_environment
from codeloupe.agents.gemini.program import GEMINI, LOGIN_FILE, GeminiSettings, Login
from codeloupe.errors import InvalidRequest
from codeloupe.model.agent import AgentLimits, AgentRequest, PermissionMode

LIMITS = AgentLimits(
    max_prompt_bytes=2 * 1024 * 1024,
    turns=True,
    resume=True,
    fork=True,
    tools=True,
    writes=True,
    confined=True,
    own_tokens=1_800,
)
READ_ONLY_TOOLS = ("read_file", "read_many_files", "list_directory", "glob", "grep_search")
_WRITING_TOOLS = ("write_file", "replace")
_OTHER_TOOLS = ("run_shell_command", "web_fetch", "google_web_search")
_TOOLS = {
    PermissionMode.ACCEPT_EDITS: (*READ_ONLY_TOOLS, *_WRITING_TOOLS),
    PermissionMode.BYPASS: (*READ_ONLY_TOOLS, *_WRITING_TOOLS, *_OTHER_TOOLS),
}
# Where no limit is asked for, this one ends a model that calls tools for ever.
_MAX_TURNS = 100
_SERVICE = "https://generativelanguage.googleapis.com"
_LOGIN_SERVICE = "https://cloudcode-pa.googleapis.com"
_LOGIN_NAMES = {
    Login.KEY: ("GEMINI_API_KEY",),
    Login.CLOUD: (
        "GOOGLE_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CLOUD_LOCATION",
        "GOOGLE_CLOUD_PROJECT",
        "GOOGLE_GENAI_USE_VERTEXAI",
        "GOOGLE_VERTEX_BASE_URL",
    ),
    Login.GOOGLE: ("GOOGLE_CLOUD_PROJECT",),
}
# The project's name in the directory of a call, and where the program keeps the sessions of a project.
_PROJECT = "project"
_CHATS = Path("tmp", _PROJECT, "chats")
# Without a person to ask, the program denies each shell command that writes to a file, uses git or looks dangerous to
# it, whatever its settings allow. It leaves those alone for which a rule looks at their arguments.
_ALL_COMMANDS = """\
[[rule]]
toolName = "run_shell_command"
argsPattern = ".*"
decision = "allow"
priority = 999
allowRedirection = true
"""
_SETTINGS: dict[str, dict[str, Any]] = {
    "general": {
        "retryFetchErrors": False,
        "maxAttempts": 1,
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        "checkpointing": {"enabled": False},
    },
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "hooksConfig": {"enabled": False},
    "skills": {"enabled": False},
    "experimental": {"enableAgents": False},
    "ide": {"enabled": False},
    "advanced": {"ignoreLocalEnv": True, "autoConfigureMemory": False},
    "admin": {"extensions": {"enabled": False}, "mcp": {"enabled": False}, "skills": {"enabled": False}},
}
_VARIABLES = {
    "GEMINI_CLI_NO_RELAUNCH": "true",
    # Without a terminal the program refuses to run in a directory that is not trusted, unless trust is not asked for
    # in its settings. What then decides is this: the directory is not trusted.
    "GEMINI_RESTRICTED_MODE": "true",
    "GEMINI_CLI_TRUST_WORKSPACE": "false",
    "GEMINI_SANDBOX": "false",
    "GEMINI_SYSTEM_MD": "false",
    "GEMINI_TELEMETRY_ENABLED": "false",
    "GEMINI_WRITE_SYSTEM_MD": "false",
    "NO_BROWSER": "true",
}


def gemini_environment(
    request: AgentRequest, settings: GeminiSettings, places: Places, *, login: Login
) -> dict[str, str]:
    """The whole environment of the program; files that it names are written to `places`.

    The addresses are set in any case, since a repository's `.env` may name others.
    """
    source = settings.environment
    addresses = {
        "GOOGLE_GEMINI_BASE_URL": settings.base_url or source.get("GOOGLE_GEMINI_BASE_URL") or _SERVICE,
        "CODE_ASSIST_ENDPOINT": _LOGIN_SERVICE,
    }
    return agent_environment(
        source,
        home=places.home,
        temporary=places.temporary,
        names=(*_LOGIN_NAMES[login], "GEMINI_MODEL", "GOOGLE_GENAI_API_VERSION"),
        settings={**_VARIABLES, **addresses, **_system_prompt(request, places)},
    )


def service_of(settings: GeminiSettings) -> str | None:
    """Which service is asked, as far as the settings and the environment tell."""
    source = settings.environment
    if settings.login is not Login.CLOUD:
        return settings.base_url or source.get("GOOGLE_GEMINI_BASE_URL") or None
    names = ("GOOGLE_VERTEX_BASE_URL", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION")
    return " ".join((Login.CLOUD.value, *(f"{name}={source.get(name)}" for name in names)))


def write_home(request: AgentRequest, settings: GeminiSettings, places: Places, *, login: Login) -> None:
    """Put the settings of one call, and the way to a login that is kept in files, into its home directory."""
    folder = places.home / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings_for(request, login=login)), encoding="utf-8")
    if request.permission_mode is PermissionMode.BYPASS:
        (folder / "policies").mkdir()
        (folder / "policies" / "bypass.toml").write_text(_ALL_COMMANDS, encoding="utf-8")
    if login is Login.GOOGLE:
        (folder / LOGIN_FILE).symlink_to(settings.user_folder / LOGIN_FILE)


def session_flags(request: AgentRequest, settings: GeminiSettings, places: Places) -> tuple[str, ...]:
    """The flags that resume a session, which is put where the program finds it.

    A copy of that one session: what is in the directory of a call can be read by the model. Raises InvalidRequest for
    a session that was not kept, before anything is started.
    """
    if request.resume_session is None:
        return ()
    folder = places.home / ".gemini"
    session = _session_name(request.resume_session)
    kept = _kept_session(settings, session)
    if not kept.is_file():
        raise InvalidRequest(
            f"gemini does not know the session {session}",
            agent=GEMINI.agent,
            hint="leave resume_session out, or keep sessions and give the session_id of an earlier result",
            attempts=0,
        )
    text = kept.read_text(encoding="utf-8")
    if request.fork_session:
        # It has a flag for this, with which it sends nothing of what was said before.
        forked = str(uuid.uuid4())
        text, session = text.replace(f'"sessionId":"{session}"', f'"sessionId":"{forked}"'), forked
    (folder / _CHATS).mkdir(parents=True)
    (folder / _CHATS / f"session-kept-{session[:8]}.jsonl").write_text(text, encoding="utf-8")
    projects = {str(request.working_dir.resolve()): _PROJECT}
    (folder / "projects.json").write_text(json.dumps({"projects": projects}), encoding="utf-8")
    return (f"--resume={session}",)


def keep_session(request: AgentRequest, settings: GeminiSettings, places: Places, *, session_id: str) -> None:
    """Keep the session of a call in the user's directory of the program, where that is wished."""
    if not settings.keep_sessions and request.resume_session is None:
        return
    kept = _kept_session(settings, _session_name(session_id))
    found = (places.home / ".gemini").glob(f"tmp/*/chats/session-*-{session_id[:8]}.jsonl")
    # One that it resumes it begins anew before, in a file that stays almost empty.
    file = max(found, key=lambda file: file.stat().st_size, default=None)
    if file is not None:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Another call may read it at the same moment.
        written = kept.with_name(f"{kept.name}.{secrets.token_hex(4)}")
        shutil.copyfile(file, written)
        written.replace(kept)


def _kept_session(settings: GeminiSettings, session: str) -> Path:
    return settings.user_folder / "codeloupe" / "sessions" / f"{session}.jsonl"


def _session_name(name: str) -> str:
    try:
        return str(uuid.UUID(name))
    except ValueError as error:
        raise InvalidRequest(
            f"gemini cannot resume the session {name!r}: its sessions are named by UUIDs",
            agent=GEMINI.agent,
            hint="give the session_id of an earlier result, or leave resume_session out",
            attempts=0,
        ) from error


def settings_for(request: AgentRequest, *, login: Login) -> dict[str, Any]:
    """The settings of the program for a request."""
    return {
        **_SETTINGS,
        "security": {"auth": {"selectedType": login.value}, "folderTrust": {"enabled": False}},
        "context": {
            # No repository can hold a file by this name.
            "fileName": f"{secrets.token_hex(16)}.md",
            "includeDirectoryTree": False,
            "fileFiltering": {"enableRecursiveFileSearch": False},
        },
        "tools": {"core": list(tools_for(request)), "sandbox": False, "useRipgrep": False},
        "model": {
            "maxSessionTurns": request.max_turns or _MAX_TURNS,
            "disableLoopDetection": True,
            "skipNextSpeakerCheck": True,
        },
    }


def tools_for(request: AgentRequest) -> tuple[str, ...]:
    """The tools of a request: all that its permission mode allows, or those of them that it names.

    A tool that is given is used without asking, so one that the mode does not allow is not given.
    """
    allowed = _TOOLS.get(request.permission_mode, READ_ONLY_TOOLS)
    return allowed if request.tools is None else tuple(tool for tool in request.tools if tool in allowed)


def refuse_other_tools(request: AgentRequest) -> None:
    """Raises InvalidRequest for a tool that there is not, or not in this mode."""
    given = tools_for(request)
    missing = ", ".join(tool for tool in request.tools or () if tool not in given)
    if missing:
        allowed = ", ".join(tools_for(replace(request, tools=None)))
        raise InvalidRequest(
            f"gemini has no {missing} in the permission mode {request.permission_mode.value}",
            agent=GEMINI.agent,
            hint=f"leave tools out, or name some of: {allowed}",
            attempts=0,
        )


def _system_prompt(request: AgentRequest, places: Places) -> dict[str, str]:
    if request.system_prompt is None:
        return {}
    file = places.root / "system-prompt.md"
    parts = (request.system_prompt, request.append_system_prompt)
    file.write_text("\n\n".join(part for part in parts if part), encoding="utf-8")
    return {"GEMINI_SYSTEM_MD": str(file)}
