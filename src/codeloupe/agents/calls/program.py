"""Vendors' agent programs: where one is, its version, and one run of it, read line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from codeloupe.agents.calls.environment import agent_environment, throw_away_places
from codeloupe.errors import (
    AgentError,
    Crashed,
    InvalidRequest,
    NotInstalled,
    OutputInvalid,
    ProcessError,
    ProgramNotFound,
    PromptTooLong,
    TimedOut,
)
from codeloupe.model.agent import AgentLimits, AgentRequest, PermissionMode
from codeloupe.system.process import Command, Completed, find_program, run
from codeloupe.system.streaming import StreamTimedOut, stream

KEPT_OUTPUT_BYTES = 256 * 1024
_VERSION_SECONDS = 20.0
_VERSION = re.compile(rb"\d+\.\d+[\w.+-]*")
_DEAD_PROXY = "http://127.0.0.1:9"


class Program(Struct, frozen=True, kw_only=True):
    """A program as its users know it. `install` is a command; `log_in` says what to set or run."""

    agent: str
    command: str
    install: str
    log_in: str


class Reading(Protocol):
    """What takes the messages of one run in order."""

    @property
    def session_id(self) -> str:
        """The session, once it was told."""

    @property
    def is_answered(self) -> bool:
        """Whether the run is over and has told how, so that only the program's end is left."""

    def take(self, message: Mapping[str, Any]) -> None:
        """Take the next message."""


def found_program(program: Program, configured: str | None) -> Path:
    """The configured program, else the one on the PATH. Raises NotInstalled, with the command that installs it."""
    found = find_program(configured or program.command)
    if found is None:
        where = f"at {configured}" if configured else "on the PATH"
        raise NotInstalled(
            f"{program.agent} cannot be used: there is no {program.command} program {where}",
            agent=program.agent,
            hint=program.install,
        )
    # It is started in the directory of the request, not in ours.
    return Path(found).absolute()


async def version_of(program: Program, path: Path, source: Mapping[str, str]) -> tuple[str | None, str]:
    """The version, or None and what is wrong. Needs no network, so it gets none."""
    proxies = {"HTTPS_PROXY": _DEAD_PROXY, "HTTP_PROXY": _DEAD_PROXY, "GEMINI_CLI_NO_RELAUNCH": "true"}
    with throw_away_places() as places:
        settings = {**proxies, "CODEX_HOME": str(places.home)}
        command = Command(
            argv=(str(path), "--version"),
            cwd=places.root,
            environment=agent_environment(
                source, home=places.home, temporary=places.temporary, names=(), settings=settings
            ),
            timeout_seconds=_VERSION_SECONDS,
            max_output_bytes=64 * 1024,
        )
        try:
            completed = await run(command)
        except ProcessError as error:
            return None, f"{error.message}; {program.install}"
    version = _VERSION.search(completed.stdout)
    if completed.exit_code != 0 or version is None:
        return None, f"{path} does not report its version; {program.install}"
    return version[0].decode("ascii", "replace"), ""


async def run_program(
    program: Program, command: Command, reading: Reading, *, idle_timeout_seconds: float | None
) -> Completed:
    """Run a program to its end and hand over each message that it prints; a line that holds none is passed over.

    Raises NotInstalled, TimedOut, Crashed, or OutputInvalid where its last message is too long; the program is gone in
    every case. One that told its answer and then did not end has still answered.
    """

    def take(line: bytes) -> None:
        message = message_on(line)
        if message is not None:
            reading.take(message)

    try:
        completed = await stream(
            command, on_line=take, idle_timeout_seconds=idle_timeout_seconds, is_over=lambda: reading.is_answered
        )
    except StreamTimedOut as error:
        if not reading.is_answered:
            raise _timed_out(program, error, reading) from error
        return Completed(0, error.stdout, error.stderr, command.timeout_seconds)
    except ProcessError as error:
        raise _not_run(program, error) from error
    if completed.skipped_lines and not reading.is_answered:
        raise OutputInvalid(
            f"{program.agent} gave an answer that is too long to be read",
            agent=program.agent,
            hint="ask for a shorter answer",
            raw_output=completed.stdout.decode("utf-8", "replace"),
            session_id=reading.session_id,
            cut_off=True,
        )
    return completed


def message_on(line: bytes) -> Mapping[str, Any] | None:
    """The message on a line of output, or None for a line that holds none."""
    try:
        # Programs pass on bytes of files and tools: what is no UTF-8 in a text does not take the message with it.
        message = json.loads(line.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def refuse_bypass(request: AgentRequest, *, allowed: bool, agent: str) -> None:
    """Raises InvalidRequest for a request that bypasses permissions where that was not allowed on purpose."""
    if request.permission_mode is PermissionMode.BYPASS and not allowed:
        raise InvalidRequest(
            f"{agent} was asked to bypass all permissions: it could run any command, change any file that this user"
            " can, and send anything anywhere",
            agent=agent,
            hint="use acceptEdits; or set allow_bypass in your own configuration, and only in a sandbox",
        )


def refuse_length(prompt: str, limits: AgentLimits, *, agent: str) -> None:
    """Raises PromptTooLong for a prompt that is too long with all that was put around it."""
    sizes = (
        (len(prompt), limits.max_prompt_characters, "characters"),
        (len(prompt.encode()), limits.max_prompt_bytes, "bytes"),
    )
    for size, most, unit in sizes:
        if most is not None and size > most:
            raise PromptTooLong(
                f"the prompt, with all that {agent} is sent beside it, has {size:,} {unit}; it takes at most {most:,}",
                agent=agent,
                hint="send less at once, or use an agent that takes more",
            )


def _timed_out(program: Program, error: StreamTimedOut, reading: Reading) -> TimedOut:
    return TimedOut(
        f"{program.agent}: {error.message}",
        agent=program.agent,
        hint=error.hint,
        raw_output=error.stdout.decode("utf-8", "replace"),
        session_id=reading.session_id,
    )


def _not_run(program: Program, error: ProcessError) -> AgentError:
    if isinstance(error, ProgramNotFound):
        return NotInstalled(f"{program.agent}: {error.message}", agent=program.agent, hint=program.install)
    return Crashed(f"{program.agent}: {error.message}", agent=program.agent, hint=error.hint)
