"""The settings and the environment with which the gemini program reads, answers, and does nothing else.

It runs in a home directory that is thrown away and never trusts the directory it works in, so nothing of the reviewed
repository shapes the run: no settings, `.env`, hooks, MCP servers, extensions, skills, commands or GEMINI.md. The
tools it is given need no permission and stay inside that directory; it has no others. It retries nothing by itself.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from codeloupe.agents.environment import Places, agent_environment
from codeloupe.agents.gemini_program import LOGIN_FILES, GeminiSettings, Login
from codeloupe.model.agent import AgentLimits, AgentRequest, PermissionMode

LIMITS = AgentLimits(max_prompt_bytes=2 * 1024 * 1024, turns=True, tools=True, writes=True, confined=True)
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


def write_home(request: AgentRequest, settings: GeminiSettings, places: Places, *, login: Login) -> None:
    """Put the settings of one call, and the way to a login that is kept in files, into its home directory."""
    folder = places.home / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings_for(request, login=login)), encoding="utf-8")
    if login is Login.GOOGLE:
        for name in LOGIN_FILES:
            (folder / name).symlink_to(settings.user_folder / name)


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


def notes_on(request: AgentRequest) -> tuple[str, ...]:
    """What was asked and cannot be done, in words."""
    given = tools_for(request)
    missing = ", ".join(tool for tool in request.tools or () if tool not in given)
    mode = request.permission_mode.value
    wishes = (
        (bool(missing), f"gemini did not get the tools {missing}: it does not know them, or not in the mode {mode}"),
        (request.fallback_model is not None, "gemini has no fallback model, so fallback_model was not applied"),
    )
    return tuple(words for is_unmet, words in wishes if is_unmet)


def _system_prompt(request: AgentRequest, places: Places) -> dict[str, str]:
    if request.system_prompt is None:
        return {}
    file = places.root / "system-prompt.md"
    parts = (request.system_prompt, request.append_system_prompt)
    file.write_text("\n\n".join(part for part in parts if part), encoding="utf-8")
    return {"GEMINI_SYSTEM_MD": str(file)}
