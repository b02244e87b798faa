"""The agent `agent_sdk`: the Claude Agent SDK in our process. It starts the claude program and speaks with it.

The SDK closes its program in several steps with waits between them, and a cancellation during such a wait leaves the
program running. So the SDK runs in a task of its own that no cancellation from outside reaches, and its program is
found and ended by us, which lets the SDK come to its end by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import math
import os
import secrets
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from codeloupe.agents.calls.failures import Kind, Program
from codeloupe.agents.calls.program import Message, call_folder, installed_version
from codeloupe.agents.claude.cli import (
    ClaudeAgent,
    ClaudeCliAgent,
    ClaudeReading,
    bundled_program,
    prompt_files,
    tools_for,
)
from codeloupe.errors import AgentError, NotInstalled, OutputInvalid, TimedOut, install_command
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.process import uninterrupted
from codeloupe.system.regex import regex

MARK = "CODELOUPE_CALL"
_PROCESSES = Path("/proc")
_PACKAGE, _DISTRIBUTION = "claude_agent_sdk", "claude-agent-sdk"
_LAUNCHER = Path(__file__).with_name("claude_launcher.sh")
# The SDK sets the first ones itself, and takes the last one out: to blank it would put it back.
_LEFT_TO_THE_SDK = {"PWD", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_AGENT_SDK_VERSION", "CLAUDECODE"}
_PLAIN_NAME = regex(r"[A-Za-z_][A-Za-z0-9_]*")


class AgentSdkAgent(ClaudeAgent):
    """Asks the Claude Agent SDK once for each call. `program` is used instead of the one in the SDK's package."""

    name = "agent_sdk"
    program = Program(name, "claude", install_command("claude"), log_in=ClaudeCliAgent.program.log_in)

    def find(self) -> Path:
        """The configured program, else the one in the SDK's package, else the one on the PATH."""
        return (None if self.configured else bundled_program()) or super().find()

    async def prepare(self, request: AgentRequest) -> None:  # noqa: ARG002 - the same for all requests
        """Load the SDK. Raise NotInstalled."""
        await asyncio.to_thread(_loaded_sdk)

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the program being gone."""
        prompt = self._checked_prompt(request)
        sdk = await asyncio.to_thread(_loaded_sdk)
        path, reading = self.find(), self.reading(self.program, request, emit)
        stderr: deque[str] = deque(maxlen=100)
        failure: Exception | None = None
        passed = ""
        with call_folder() as root:
            self._make_private_folder(request, root)
            token, started = secrets.token_hex(16), time.monotonic()
            cli_path, env = how_to_start(str(path), self._environment(request, root), token=token)
            options = self._options(sdk, request, root, cli_path=cli_path, env=env, stderr=stderr.append)
            try:
                passed = await converse(
                    sdk.query(prompt=prompt, options=options),
                    lambda message: reading.take(as_printed(sdk, message)),
                    token=token,
                    timeout_seconds=request.timeout_seconds,
                    idle_timeout_seconds=request.idle_timeout_seconds,
                )
            except AgentError:
                raise
            except Exception as error:  # noqa: BLE001 - the SDK may raise anything; all of it becomes an AgentError below
                failure = error
        # The error has the last message whole, where the SDK's own form of it leaves fields out.
        data = getattr(failure, "data", None) if isinstance(failure, sdk.ResultError) else None
        result = Message(data) if data else reading.last
        if result is None:
            raise self._without_result(sdk, failure, passed, reading, stderr) from failure
        if failure is not None:
            reading.note_inexact(f"failed after its result: {failure}")
        try:
            return reading.answer_in(result, seconds=time.monotonic() - started)
        except AgentError as error:
            raise error from failure

    async def _version_of(self, path: Path) -> tuple[str | None, str]:  # noqa: ARG002 - that of the package
        version = installed_version(_DISTRIBUTION)
        return version, "" if version else self.program.install

    def _options(self, sdk: ModuleType, request: AgentRequest, root: Path, **start: Any) -> Any:
        """The SDK's options for a request. Raises InvalidRequest for a schema that is too large."""
        names, rules = tools_for(request)
        schema = self._schema_text(request)
        files = prompt_files(request, root)
        # Without a preset the SDK sends an empty system prompt; with it the program's own, as the CLI does.
        system_prompt = {"type": "preset", "preset": "claude_code"}
        if file := files.pop("system-prompt-file", None):
            system_prompt = {"type": "file", "path": file}
        return sdk.ClaudeAgentOptions(
            **start,
            cwd=request.working_dir,
            setting_sources=[],
            strict_mcp_config=True,
            tools=list(names),
            allowed_tools=list(rules),
            permission_mode=request.permission_mode.value,
            extra_args={**self._safe_flags(request), **files},
            system_prompt=system_prompt,
            verbatim_prompts=True,
            model=request.model,
            fallback_model=request.fallback_model,
            max_turns=request.max_turns,
            max_budget_usd=request.max_budget_usd,
            output_format=None if schema is None else {"type": "json_schema", "schema": json.loads(schema)},
            resume=request.resume_session,
            fork_session=request.fork_session and request.resume_session is not None,
            # With the pieces of an answer as signs of life, silence means that nothing happens.
            include_partial_messages=request.idle_timeout_seconds is not None,
            max_buffer_size=16 * 1024 * 1024,
        )

    def _without_result(
        self, sdk: ModuleType, failure: Exception | None, passed: str, reading: ClaudeReading, stderr: deque[str]
    ) -> AgentError:
        if passed:
            hint = "raise the time limit or the idle timeout, or ask for less at once"
            return reading.error(Kind(TimedOut, f"{passed} and was ended", hint))
        if isinstance(failure, sdk.CLIJSONDecodeError):
            kind = Kind(OutputInvalid, "wrote a message that is broken or too large", "ask for a shorter answer")
            return reading.error(kind, str(failure))
        exit_code = getattr(failure, "exit_code", None) or 0
        return reading.without_result(exit_code=exit_code, stderr="\n".join(stderr) or str(failure or ""))


def _loaded_sdk() -> ModuleType:
    """The SDK, which is optional and takes most of a second to import: not before it is needed."""
    program = AgentSdkAgent.program
    try:
        sdk = importlib.import_module(_PACKAGE)
    except ImportError as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == _PACKAGE
        reason = f"the package {_DISTRIBUTION} is not installed" if is_absent else str(error)
        message = f"{program.agent} cannot be used: {reason}"
        raise NotInstalled(message, agent=program.agent, hint=program.install) from error
    # It logs as errors what it also raises, and what is meant: that its program was ended.
    logger = logging.getLogger(_PACKAGE)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    return sdk


def how_to_start(
    program: str, environment: Mapping[str, str], *, token: str, launcher: Path = _LAUNCHER
) -> tuple[str, dict[str, str]]:
    """What the SDK is to start and the variables it is to set, so that the program sees this environment only.

    `token` marks the program. Without the launcher, variables that must not pass are blank, and the program outlives
    us when we are killed.
    """
    unwanted = os.environ.keys() - environment.keys() - _LEFT_TO_THE_SDK
    variables = {**dict.fromkeys(unwanted, ""), **environment, MARK: token}
    if not os.access(launcher, os.X_OK):
        return program, variables
    removed = " ".join(f"-u {name}" for name in sorted(unwanted) if _PLAIN_NAME.fullmatch(name))
    return str(launcher), {**variables, "CODELOUPE_PROGRAM": program, "CODELOUPE_UNSET": removed}


def as_printed(sdk: ModuleType, message: Any) -> Message:
    """A message of the SDK in the form in which the program printed it."""
    if isinstance(message, sdk.SystemMessage):
        return Message(type="system", **{name: value for name, value in message.data.items() if name != "type"})
    if isinstance(message, sdk.ResultMessage):
        given = {name: value for name, value in asdict(message).items() if value is not None}
        return Message(type="result", modelUsage=message.model_usage, **given)
    if isinstance(message, sdk.RateLimitEvent):
        return Message(type="rate_limit_event", rate_limit_info=message.rate_limit_info.raw)
    if not isinstance(message, sdk.AssistantMessage):
        return Message()
    said = asdict(message)
    blocks = [{**block, "type": _type_of(block)} for block in said["content"]]
    return Message(said, type="assistant", message={**said, "id": message.message_id, "content": blocks})


def _type_of(block: Mapping[str, Any]) -> str:
    if "input" in block:
        return "tool_use"
    return "text" if "text" in block else "other"


async def converse(
    messages: AsyncGenerator[Any, None],
    take: Callable[[Any], None],
    *,
    token: str,
    timeout_seconds: float,
    idle_timeout_seconds: float | None,
) -> str:
    """Hand each message of the SDK to `take` until the end; which limit passed before it, or nothing.

    Raises what the SDK or `take` raised. The program, which has `token` as its mark in its environment, is gone in
    every case. A cancellation, however often, is raised when it is.
    """
    started = heard_at = time.monotonic()
    idle = math.inf if idle_timeout_seconds is None else idle_timeout_seconds
    refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    passed = ""

    async def listen() -> None:
        nonlocal heard_at
        # Always to the end of the messages: an SDK that is left before it does not clean up.
        async for message in messages:
            heard_at = time.monotonic()
            try:
                if not refused.done():
                    take(message)
            except Exception as error:  # noqa: BLE001 - whatever the taker raises is its caller's
                refused.set_exception(error)

    task = asyncio.ensure_future(listen())
    for end in (task, refused):
        # Looked at, so that asyncio does not report it as lost.
        end.add_done_callback(lambda end: end.cancelled() or end.exception())
    try:
        while not (passed or task.done() or refused.done()):
            whole = (started + timeout_seconds, "did not finish within", timeout_seconds)
            ends_at, words, seconds = min(whole, (heard_at + idle, "said nothing for", idle))
            left = ends_at - time.monotonic()
            if left <= 0:
                passed = f"{words} {round(seconds, 2):g} s"
            else:
                await asyncio.wait((task, refused), timeout=left, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await uninterrupted(_end(task, token))
    if refused.done():
        refused.result()
    if not passed:
        task.result()
    return passed


async def _end(task: asyncio.Future[None], token: str) -> None:
    begun, is_told = time.monotonic(), False
    # The SDK's own way to end its program, where we cannot find it, takes up to 20 s.
    while not task.done() and (spent := time.monotonic() - begun) < 25.0:
        number = signal.SIGTERM if spent < 2.0 else signal.SIGKILL
        if not signal_marked(token, number) and not is_told:
            is_told = task.cancel()
        await asyncio.wait((task,), timeout=0.1)
    signal_marked(token, signal.SIGKILL)


def signal_marked(token: str, number: signal.Signals) -> int:
    """Send a signal to every process of ours that carries this mark in its environment; how many there were.

    For programs that a vendor's package starts, so we do not learn their process numbers. What a program starts
    inherits the mark, in whatever session it is. Only Linux shows another process's environment: elsewhere none is
    found.
    """
    mark, found = f"{MARK}={token}".encode(), 0
    for entry in _PROCESSES.glob("[0-9]*"):
        # It may end, or not be ours, at any moment.
        with contextlib.suppress(OSError):
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            # Held by its file, the number cannot pass to a stranger; so the mark is looked at again.
            process = os.pidfd_open(int(entry.name))
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(process, number)
                    found += 1
            finally:
                os.close(process)
    return found
