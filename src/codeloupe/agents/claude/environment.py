"""What the claude program finds in its environment, and in which home directory it runs.

Its configuration directory is thrown away after each call, since it writes to it in any mode. A login is read from
where the user keeps it, and sessions go to the user's own where they are kept. The home directory is thrown away too,
but for a login that needs it: the profile of a cloud, or the key ring of macOS.

The program asks git for the state of the directory, and git would run the filters that the repository configures. So
it finds a git that knows of no repository; the commands of the model find the real one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codeloupe.agents.calls.environment import PERSON_NAMES, Places, agent_environment, user_home
from codeloupe.model.agent import AgentRequest

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
