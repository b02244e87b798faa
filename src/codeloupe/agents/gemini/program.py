"""Where the gemini program is, whether it is new enough to be kept safe, and which login it has.

Never reads a credential: a login of the program is reached by a link in a home directory that is thrown away.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from codeloupe.agents.calls.program import Program, found_program, user_home, version_of
from codeloupe.errors import NotInstalled, NotLoggedIn
from codeloupe.model.agent import Availability

GEMINI = Program(
    agent="gemini",
    command="gemini",
    install="npm install -g @google/gemini-cli@latest",
    log_in="set GEMINI_API_KEY, or start gemini in a terminal and log in",
)
LOGIN_FILE = "oauth_creds.json"
_PACKAGE = "@google/gemini-cli"
# The first one that was seen to keep a directory untrusted while it runs without a terminal.
_OLDEST = (0, 61)


class Login(StrEnum):
    """How the program proves who asks, by its own names."""

    KEY = "gemini-api-key"
    CLOUD = "vertex-ai"
    GOOGLE = "oauth-personal"


class GeminiSettings(Struct, frozen=True, kw_only=True):
    """How a gemini agent was set up. `environment` is what it may take variables from."""

    environment: Mapping[str, str]
    base_url: str | None = None
    allow_bypass: bool = False
    keep_sessions: bool = False

    @property
    def user_folder(self) -> Path:
        """The user's own directory of the program, with the login."""
        home = self.environment.get("GEMINI_CLI_HOME")
        return (Path(home) if home else user_home(self.environment)).absolute() / ".gemini"

    @property
    def login(self) -> Login | None:
        """The login that there is; of several, the one that the program would take."""
        if self.environment.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true"):
            return Login.CLOUD
        if self.environment.get("GEMINI_API_KEY"):
            return Login.KEY
        try:
            return Login.GOOGLE if (self.user_folder / LOGIN_FILE).is_file() else None
        except OSError:  # a directory that we may not enter holds no login that a program of ours could use
            return None


async def usable_program(configured: str | None, settings: GeminiSettings) -> Path:
    """The program. Raises NotInstalled, also for one that is too old: it would trust the directory it runs in."""
    path = found_program(GEMINI, configured)
    version = _version_beside(path) or (await version_of(GEMINI, path, settings.environment))[0]
    if version is None or _numbers(version) < _OLDEST:
        known = f"is version {version}" if version else "does not report its version"
        raise NotInstalled(
            f"gemini cannot be used: {path} {known}, and only from {'.'.join(map(str, _OLDEST))} on it can be kept"
            " from loading settings of the reviewed repository",
            agent=GEMINI.agent,
            hint=GEMINI.install,
        )
    return path


def chosen_login(settings: GeminiSettings) -> Login:
    """The login. Raises NotLoggedIn, before anything is started."""
    login = settings.login
    if login is None:
        raise NotLoggedIn(
            "gemini cannot be asked: there is no key in the environment, and no login of the program",
            agent=GEMINI.agent,
            hint=GEMINI.log_in,
        )
    return login


async def availability(configured: str | None, settings: GeminiSettings) -> Availability:
    """Whether the program can be used here."""
    try:
        path = found_program(GEMINI, configured)
    except NotInstalled as error:
        return Availability(found=False, how_to_fix=error.hint)
    version, problem = await version_of(GEMINI, path, settings.environment)
    if version is not None and _numbers(version) < _OLDEST:
        problem = f"{path} is too old; {GEMINI.install}"
    logged_in = settings.login is not None
    return Availability(
        found=version is not None and not problem,
        version=version,
        logged_in=logged_in,
        how_to_fix=problem or ("" if logged_in else GEMINI.log_in),
        default_model=settings.environment.get("GEMINI_MODEL") or None,
        path=str(path),
    )


def _version_beside(script: Path) -> str | None:
    """The version in the package of a script, since asking the program takes more than a second."""
    try:
        folders = script.resolve(strict=True).parents
    except (OSError, RuntimeError):
        return None
    for folder in list(folders)[:3]:
        try:
            package = json.loads((folder / "package.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(package, dict) and package.get("name") == _PACKAGE:
            return str(package.get("version"))
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", version)[:2])
