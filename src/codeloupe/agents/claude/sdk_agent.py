"""The agent `agent_sdk`: the Claude Agent SDK in our process. It starts the claude program and speaks with it."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import Mapping
from types import ModuleType

from codeloupe.agents.calls.environment import throw_away_places
from codeloupe.agents.calls.installed_package import installed_version
from codeloupe.agents.calls.program import refuse_bypass
from codeloupe.agents.calls.program_failures import Failure
from codeloupe.agents.calls.prompt_text import full_prompt
from codeloupe.agents.calls.validation import validate
from codeloupe.agents.claude.environment import ClaudeSettings, make_private_folder, model_by_default, service_of
from codeloupe.agents.claude.failures import ended_without_result
from codeloupe.agents.claude.flags import LIMITS, prompt_input
from codeloupe.agents.claude.output import answer_in
from codeloupe.agents.claude.program import AGENT_SDK, claude_availability, find_claude
from codeloupe.agents.claude.progress import Progress
from codeloupe.agents.claude.sdk_conversation import Conversation, PassedLimit
from codeloupe.agents.claude.sdk_options import SdkCall, as_printed, sdk_options
from codeloupe.errors import AgentError, NotInstalled, OutputInvalid, TimedOut
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability, PermissionMode
from codeloupe.model.ports import AgentEventSink

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
