"""Where the claude program is, which version, and whether it has a login. Never reads a credential."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from codeloupe.agents.calls.program import Program, found_program, version_of
from codeloupe.agents.claude.environment import KEY_NAMES, has_cloud, user_folder
from codeloupe.errors import NotInstalled, install_command
from codeloupe.model.agent import Availability
from codeloupe.system.process import find_program

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
