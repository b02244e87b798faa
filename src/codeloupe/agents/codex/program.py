"""Where the codex program is, where it finds its login, and what it sees of this machine. Never reads a credential."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from codeloupe.agents.calls.program import Places, Program, agent_environment, found_program, user_home, version_of
from codeloupe.agents.codex.failures import LOG_FILTER
from codeloupe.errors import NotInstalled, NotLoggedIn
from codeloupe.model.agent import AgentRequest, Availability

CODEX = Program(
    agent="codex",
    command="codex",
    install="npm install -g @openai/codex",
    log_in="set OPENAI_API_KEY, or run `codex login`",
)
KEY_NAMES = ("CODEX_API_KEY", "OPENAI_API_KEY")
_SERVICE_NAMES = ("OPENAI_ORGANIZATION", "OPENAI_PROJECT", "CODEX_CA_CERTIFICATE")
_LOGIN_FILE = "auth.json"
_SESSIONS = "sessions"
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class CodexSettings(Struct, frozen=True, kw_only=True):
    """How a codex agent was set up. `environment` is what it may take variables from."""

    environment: Mapping[str, str]
    base_url: str | None = None
    allow_bypass: bool = False
    keep_sessions: bool = False

    @property
    def key_name(self) -> str | None:
        """The variable that holds a key."""
        return next((name for name in KEY_NAMES if self.environment.get(name)), None)

    @property
    def address(self) -> str | None:
        """The service, where it is another than the program's own."""
        return self.base_url or self.environment.get("OPENAI_BASE_URL") or None

    @property
    def user_folder(self) -> Path:
        """The user's own directory of the program, with the login and the sessions."""
        return Path(self.environment.get("CODEX_HOME") or user_home(self.environment) / ".codex").absolute()


def find_codex(configured: str | None) -> Path:
    """The program. Raises NotInstalled.

    The one that npm puts on the PATH is a script for Node, which starts the real one; that is taken where it lies
    beside the script, since the way over Node takes longer than the program itself.
    """
    found = found_program(CODEX, configured)
    return _native_beside(found) or found


def _native_beside(script: Path) -> Path | None:
    try:
        package = script.resolve(strict=True).parent.parent
    except (OSError, RuntimeError):
        return None
    name = f"codex-{sys.platform}-{_MACHINES.get(platform.machine().lower(), '')}"
    places = (package.parent / name, package / "node_modules" / "@openai" / name, package)
    programs = (file for place in places for file in sorted(place.glob("vendor/*/bin/codex")))
    return next((file for file in programs if os.access(file, os.X_OK)), None)


def keeps_session(request: AgentRequest, settings: CodexSettings) -> bool:
    """Whether the session is written to the user's own directory, so that it can be resumed."""
    return settings.keep_sessions or request.resume_session is not None


def codex_environment(settings: CodexSettings, places: Places) -> dict[str, str]:
    """The whole environment of the program. Its home and its own directory are thrown away after the call.

    It asks git for the state of the directory, and git would run the filters that the repository configures. So its git
    finds no repository; the commands of the model do, since they get none of these variables.
    """
    return agent_environment(
        settings.environment,
        home=places.home,
        temporary=places.temporary,
        names=(*KEY_NAMES, *_SERVICE_NAMES),
        settings={"CODEX_HOME": str(private_folder(places)), "RUST_LOG": LOG_FILTER, "GIT_DIR": os.devnull},
    )


def private_folder(places: Places) -> Path:
    """The directory of the program for one call."""
    folder = places.home / ".codex"
    folder.mkdir(exist_ok=True)
    return folder


def link_user_files(request: AgentRequest, settings: CodexSettings, places: Places) -> None:
    """Let the program reach the user's login and sessions where a call needs them, and nothing else of the user's.

    The program writes more into its directory than it is asked to, such as that it trusts the directory it works in.
    """
    folder, users = private_folder(places), settings.user_folder
    if settings.key_name is None:
        (folder / _LOGIN_FILE).symlink_to(users / _LOGIN_FILE)
    if settings.keep_sessions:
        users.mkdir(mode=0o700, parents=True, exist_ok=True)
        (users / _SESSIONS).mkdir(mode=0o700, exist_ok=True)
    if keeps_session(request, settings):
        (folder / _SESSIONS).symlink_to(users / _SESSIONS)


def has_login(settings: CodexSettings) -> bool | None:
    """Whether there is a key or a login. None when nobody can know."""
    if settings.key_name:
        return True
    try:
        return (settings.user_folder / _LOGIN_FILE).is_file()
    except OSError:
        return None


def refuse_without_login(settings: CodexSettings) -> None:
    """Raises NotLoggedIn: without a login the program does not say so, but tries for a long time."""
    if has_login(settings) is False:
        raise NotLoggedIn(
            "codex cannot be asked: there is no key in the environment, and no login of the program",
            agent=CODEX.agent,
            hint=CODEX.log_in,
        )


async def availability(configured: str | None, settings: CodexSettings) -> Availability:
    """Whether the program can be used here."""
    try:
        path = find_codex(configured)
    except NotInstalled as error:
        return Availability(found=False, how_to_fix=error.hint)
    version, problem = await version_of(CODEX, path, settings.environment)
    logged_in = has_login(settings)
    return Availability(
        found=version is not None,
        version=version,
        logged_in=logged_in,
        how_to_fix=problem or ("" if logged_in else CODEX.log_in),
        path=str(path),
    )
