"""Which agent programs are on this machine, and their versions."""

from __future__ import annotations

import importlib.metadata
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from codeloupe.errors import ProcessError
from codeloupe.process import Command, find_program, inherited_environment, run

_TIMEOUT_SECONDS = 10.0
_QUIET = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "GEMINI_CLI_NO_RELAUNCH": "true",
    # Asking for a version needs no network; what a program tries all the same goes nowhere.
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
}
_INSTALL = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "codex": "npm install -g @openai/codex",
    "gemini": "npm install -g @google/gemini-cli",
}


@dataclass(frozen=True, slots=True)
class FoundAgent:
    """An agent, its version when it is here, and how to get it when it is not."""

    name: str
    version: str | None
    problem: str = ""
    install: str = ""


AGENT_PROGRAMS = tuple(_INSTALL)


def find_agent_sdk() -> FoundAgent:
    """Whether the Claude Agent SDK is installed beside codeloupe."""
    try:
        return FoundAgent("agent_sdk", importlib.metadata.version("claude-agent-sdk"))
    except importlib.metadata.PackageNotFoundError:
        return FoundAgent("agent_sdk", None, "not installed", "pip install 'codeloupe[claude]'")


async def find_agent_program(name: str) -> FoundAgent:
    """Whether an agent program is on the PATH, and its version; a program that does not answer is not found."""
    path = find_program(name)
    if path is None:
        return FoundAgent(name, None, "not on the PATH", _INSTALL[name])
    with tempfile.TemporaryDirectory(prefix="codeloupe-") as home:
        command = Command(
            argv=(path, "--version"),
            cwd=Path(home),
            environment=inherited_environment(HOME=home, CODEX_HOME=home, CLAUDE_CONFIG_DIR=home, **_QUIET),
            timeout_seconds=_TIMEOUT_SECONDS,
            max_output_bytes=64 * 1024,
        )
        try:
            completed = await run(command)
        except ProcessError as error:
            return FoundAgent(name, None, error.message, _INSTALL[name])
    version = re.search(rb"\d+\.\d+[\w.+-]*", completed.stdout)
    if completed.exit_code != 0 or version is None:
        return FoundAgent(name, None, f"{path} does not tell its version", _INSTALL[name])
    return FoundAgent(name, version[0].decode("ascii", "replace"))
