"""Processes that carry a mark in their environment, and their end.

For programs that a vendor's package starts, so that we are not told their process numbers. What a program starts
inherits the mark, in whatever session it is. Only Linux shows another process's environment: elsewhere none is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import math
import os
import re
import secrets
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct, field

from codeloupe.agents.calls.program import Failure, Places, installed_version, refuse_bypass, throw_away_places
from codeloupe.agents.calls.validation import validate
from codeloupe.agents.claude.cli import (
    AGENT_SDK,
    LIMITS,
    ClaudeSettings,
    claude_availability,
    claude_environment,
    find_claude,
    make_private_folder,
    model_by_default,
    prompt_files,
    prompt_input,
    safe_flags,
    schema_of,
    schema_text,
    service_of,
    tools_for,
)
from codeloupe.agents.claude.output import Progress, answer_in, ended_without_result
from codeloupe.errors import AgentError, NotInstalled, OutputInvalid, TimedOut
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability, PermissionMode, full_prompt
from codeloupe.model.ports import AgentEventSink

MARK = "CODELOUPE_CALL"
_PROCESSES = Path("/proc")


def signal_marked(token: str, number: signal.Signals) -> int:
    """Send a signal to every process of ours with this mark; how many there were."""
    mark = f"{MARK}={token}".encode()
    found = 0
    for entry in _PROCESSES.glob("[0-9]*"):
        # It may end, or not be ours, at any moment.
        with contextlib.suppress(OSError):
            found += _signal_if_marked(entry, mark, number)
    return found


def _signal_if_marked(entry: Path, mark: bytes, number: signal.Signals) -> bool:
    if mark not in (entry / "environ").read_bytes().split(b"\0"):
        return False
    # Held by its file, the number cannot pass to a stranger; so the mark is looked at again.
    process = os.pidfd_open(int(entry.name))
    try:
        is_marked = mark in (entry / "environ").read_bytes().split(b"\0")
        if is_marked:
            signal.pidfd_send_signal(process, number)
        return is_marked
    finally:
        os.close(process)


_GRACE_SECONDS = 2.0
_ROUND_SECONDS = 0.1
# The SDK's own way to end its program, where we cannot find it, takes up to 20 s.
_LAST_WAIT_SECONDS = 25.0


class PassedLimit(Struct, frozen=True):
    """A limit that passed, in seconds: of the whole conversation, or of silence in it."""

    seconds: float
    silent: bool


class Conversation:
    """Hands each message of the SDK to `take`. `token` is the mark in the environment of its program."""

    def __init__(self, messages: AsyncGenerator[Any, None], take: Callable[[Any], None], *, token: str) -> None:
        self._messages = messages
        self._take = take
        self._token = token
        self._started = self._heard_at = time.monotonic()
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def hold(self, *, timeout_seconds: float, idle_timeout_seconds: float | None) -> PassedLimit | None:
        """Until the end of the conversation, or until a limit passed. Raises what the SDK or `take` raised.

        The program is gone in every case. A cancellation, however often, is raised when it is.
        """
        task = asyncio.ensure_future(self._listen())
        try:
            passed = await self._watch(task, timeout_seconds, idle_timeout_seconds)
        finally:
            await _uninterrupted(asyncio.ensure_future(self._end(task)))
        if self._refused.done():
            self._refused.result()
        if passed is None:
            task.result()
        return passed

    async def _listen(self) -> None:
        """Always to the end of the messages: an SDK that is left before it does not clean up."""
        async for message in self._messages:
            self._heard_at = time.monotonic()
            if self._refused.done():
                continue
            try:
                self._take(message)
            except Exception as error:  # noqa: BLE001 - whatever the taker raises is its caller's, see `hold`
                self._refused.set_exception(error)

    async def _watch(
        self, task: asyncio.Future[None], timeout_seconds: float, idle_seconds: float | None
    ) -> PassedLimit | None:
        idle = math.inf if idle_seconds is None else idle_seconds
        ends = (task, self._refused)
        while not any(end.done() for end in ends):
            now = time.monotonic()
            left, idle_left = self._started + timeout_seconds - now, self._heard_at + idle - now
            if left <= 0:
                return PassedLimit(timeout_seconds, silent=False)
            if idle_left <= 0:
                return PassedLimit(idle, silent=True)
            await asyncio.wait(ends, timeout=min(left, idle_left), return_when=asyncio.FIRST_COMPLETED)
        return None

    async def _end(self, task: asyncio.Future[None]) -> None:
        begun = time.monotonic()
        is_told = False
        while not task.done() and (spent := time.monotonic() - begun) < _LAST_WAIT_SECONDS:
            number = signal.SIGTERM if spent < _GRACE_SECONDS else signal.SIGKILL
            if not signal_marked(self._token, number) and not is_told:
                is_told = task.cancel()
            await asyncio.wait((task,), timeout=_ROUND_SECONDS)
        signal_marked(self._token, signal.SIGKILL)
        for end in (task, self._refused):
            if end.done() and not end.cancelled():
                end.exception()  # looked at, so that asyncio does not report it as lost


async def _uninterrupted(task: asyncio.Future[None]) -> None:
    """Wait for a task even when we are cancelled meanwhile, however often; the cancellation is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        with contextlib.suppress(Exception):  # the cancellation is what is told
            task.result()
        raise cancelled
    task.result()


_LAUNCHER = Path(__file__).with_name("claude_launcher.sh")
_STDERR_LINES = 100
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
# The SDK sets the first ones itself, and takes the last one out: to blank it would put it back.
_LEFT_TO_THE_SDK = {"PWD", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_AGENT_SDK_VERSION", "CLAUDECODE"}
# Without this the SDK sends an empty system prompt; with it the program's own, as the CLI does.
_DEFAULT_PROMPT = {"type": "preset", "preset": "claude_code"}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SdkCall(Struct, frozen=True, kw_only=True):
    """One call through the SDK: what is started, the mark by which it is found, and its last words."""

    program: str
    agent: str
    places: Places
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=_STDERR_LINES))


def sdk_options(sdk: ModuleType, request: AgentRequest, settings: ClaudeSettings, call: SdkCall) -> Any:
    """The SDK's options for a request. Raises InvalidRequest for a schema that is too large."""
    tools = tools_for(request)
    has_schema = schema_text(request, agent=call.agent) is not None
    files = prompt_files(request, call.places.root)
    system_prompt = files.pop("system-prompt-file", None)
    start = how_to_start(claude_environment(request, settings, call.places), call)
    return sdk.ClaudeAgentOptions(
        cli_path=start.program,
        cwd=request.working_dir,
        env=start.variables,
        setting_sources=[],
        strict_mcp_config=True,
        tools=list(tools.names),
        allowed_tools=list(tools.rules),
        permission_mode=request.permission_mode.value,
        extra_args={**safe_flags(request, settings), **files},
        system_prompt={"type": "file", "path": system_prompt} if system_prompt else _DEFAULT_PROMPT,
        verbatim_prompts=True,
        model=request.model,
        fallback_model=request.fallback_model,
        max_turns=request.max_turns,
        max_budget_usd=request.max_budget_usd,
        output_format={"type": "json_schema", "schema": _plain(schema_of(request))} if has_schema else None,
        resume=request.resume_session,
        fork_session=request.fork_session and request.resume_session is not None,
        # With the pieces of an answer as signs of life, silence means that nothing happens.
        include_partial_messages=request.idle_timeout_seconds is not None,
        max_buffer_size=_MAX_MESSAGE_BYTES,
        stderr=call.stderr.append,
    )


class Start(Struct, frozen=True):
    """What the SDK is to start, and the variables that it is to set."""

    program: str
    variables: dict[str, str]


def how_to_start(environment: Mapping[str, str], call: SdkCall, *, launcher: Path = _LAUNCHER) -> Start:
    """A start in which the program sees this environment only, by the launcher where that can be run.

    Without it, variables that must not pass are blank, and the program outlives us when we are killed.
    """
    unwanted = os.environ.keys() - environment.keys() - _LEFT_TO_THE_SDK
    variables = {**dict.fromkeys(unwanted, ""), **environment, MARK: call.token}
    if not os.access(launcher, os.X_OK):
        return Start(call.program, variables)
    removed = " ".join(f"-u {name}" for name in sorted(unwanted) if _PLAIN_NAME.fullmatch(name))
    return Start(str(launcher), {**variables, "CODELOUPE_PROGRAM": call.program, "CODELOUPE_UNSET": removed})


def _plain(value: Any) -> Any:
    """A schema as plain dictionaries and lists: the SDK writes nothing else as JSON."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def as_printed(sdk: ModuleType, message: Any) -> Mapping[str, Any]:
    """A message of the SDK in the form in which the program printed it."""
    if isinstance(message, sdk.SystemMessage):
        return {"type": "system", **message.data}
    if isinstance(message, sdk.ResultMessage):
        return {"type": "result", **_without_none(asdict(message)), "modelUsage": message.model_usage}
    if isinstance(message, sdk.AssistantMessage):
        return _printed_turn(sdk, message)
    if isinstance(message, sdk.RateLimitEvent):
        return {"type": "rate_limit_event", "rate_limit_info": message.rate_limit_info.raw}
    return {}


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _printed_turn(sdk: ModuleType, message: Any) -> Mapping[str, Any]:
    return {
        "type": "assistant",
        "session_id": message.session_id,
        "parent_tool_use_id": message.parent_tool_use_id,
        "message": {
            "id": message.message_id,
            "model": message.model,
            "usage": message.usage,
            "content": [_printed_block(sdk, block) for block in message.content],
        },
    }


def _printed_block(sdk: ModuleType, block: Any) -> Mapping[str, Any]:
    if isinstance(block, sdk.ToolUseBlock):
        return {"type": "tool_use", "name": block.name, "input": block.input}
    if isinstance(block, sdk.TextBlock):
        return {"type": "text", "text": block.text}
    return {}


_PACKAGE, _DISTRIBUTION = "claude_agent_sdk", "claude-agent-sdk"
_log = logging.getLogger(__name__)


class AgentSdkAgent:
    """Asks the Claude Agent SDK once for each call.

    `program` is the claude program to be used instead of the one in the SDK's package. `environment` is what variables
    are taken from, by default our own. `allow_bypass` lets requests bypass all permissions. `keep_sessions` writes
    sessions to the user's configuration directory, so that they can be resumed.
    """

    name = AGENT_SDK.agent

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
        validate(request, LIMITS, agent=self.name)
        refuse_bypass(request, allowed=self._settings.allow_bypass, agent=self.name)
        sdk = await asyncio.to_thread(_loaded_sdk)
        path = find_claude(AGENT_SDK, self._program)
        if request.permission_mode is PermissionMode.BYPASS:
            _log.warning("%s bypasses all permissions: it may do whatever this user can", self.name)
        progress = Progress(request, program=AGENT_SDK, emit=emit)
        with throw_away_places() as places:
            make_private_folder(request, self._settings, places)
            call = SdkCall(program=str(path), agent=self.name, places=places)
            return await self._ask(sdk, request, call, progress)

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing and never raises."""
        version = installed_version(_DISTRIBUTION)
        if version is None:
            return Availability(found=False, how_to_fix=AGENT_SDK.install)
        try:
            path = find_claude(AGENT_SDK, self._program)
        except NotInstalled as error:
            return Availability(found=False, how_to_fix=error.hint)
        return claude_availability(path, self._settings.environment, version=version)

    async def _ask(self, sdk: ModuleType, request: AgentRequest, call: SdkCall, progress: Progress) -> AgentResult:
        started = time.monotonic()
        options = sdk_options(sdk, request, self._settings, call)
        messages = sdk.query(prompt=prompt_input(full_prompt(request)), options=options)
        conversation = Conversation(messages, lambda message: progress.take(as_printed(sdk, message)), token=call.token)
        passed: PassedLimit | None = None
        failure: Exception | None = None
        try:
            passed = await conversation.hold(
                timeout_seconds=request.timeout_seconds, idle_timeout_seconds=request.idle_timeout_seconds
            )
        except AgentError:
            raise
        except Exception as error:  # noqa: BLE001 - the SDK may raise anything; all of it becomes an AgentError below
            failure = error
        # The error has the last message whole, where the SDK's own form of it leaves fields out.
        result = failure.data if isinstance(failure, sdk.ResultError) else progress.result
        if result is None:
            raise self._without_result(sdk, failure, passed, call, progress) from failure
        duration_ms = round((time.monotonic() - started) * 1000)
        try:
            return answer_in(result, progress.told(), duration_ms=duration_ms, now=time.time())
        except AgentError as error:
            raise error from failure

    def _without_result(
        self, sdk: ModuleType, failure: Exception | None, passed: PassedLimit | None, call: SdkCall, progress: Progress
    ) -> AgentError:
        session_id = progress.session_id
        if passed is not None:
            return _timed_out(passed, session_id=session_id)
        if isinstance(failure, sdk.CLINotFoundError):
            return NotInstalled(f"{self.name}: {failure}", agent=self.name, hint=AGENT_SDK.install)
        if isinstance(failure, sdk.CLIJSONDecodeError):
            return OutputInvalid(
                f"{self.name} wrote a message that is broken or too large: {failure}",
                agent=self.name,
                hint="ask for a shorter answer",
                session_id=session_id,
            )
        told = Failure(program=AGENT_SDK, session_id=session_id)
        stderr = "\n".join(call.stderr) or str(failure or "")
        return ended_without_result(told, exit_code=getattr(failure, "exit_code", None) or 0, stderr=stderr)


def _timed_out(passed: PassedLimit, *, session_id: str) -> TimedOut:
    seconds = round(passed.seconds, 2)
    if passed.silent:
        what, hint = f"said nothing for {seconds:g} s", "raise the limit of silence, or see what it waits for"
    else:
        what, hint = f"did not finish within {seconds:g} s", "raise the time limit, or ask for less at once"
    agent = AGENT_SDK.agent
    return TimedOut(f"{agent} {what} and was ended", agent=agent, hint=hint, session_id=session_id)


def _loaded_sdk() -> ModuleType:
    """The SDK, which is optional and takes most of a second to import: not before it is needed."""
    try:
        sdk = importlib.import_module(_PACKAGE)
    except ImportError as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == _PACKAGE
        reason = f"the package {_DISTRIBUTION} is not installed" if is_absent else str(error)
        raise NotInstalled(
            f"{AGENT_SDK.agent} cannot be used: {reason}", agent=AGENT_SDK.agent, hint=AGENT_SDK.install
        ) from error
    # It logs as errors what it also raises, and what is meant: that its program was ended.
    logger = logging.getLogger(_PACKAGE)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
    return sdk
