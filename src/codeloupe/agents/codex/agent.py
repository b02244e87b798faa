"""The agent `codex`: the codex program, started for one prompt and read while it runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import datetime

from msgspec.structs import replace

from codeloupe.agents.calls.program import (
    KEPT_OUTPUT_BYTES,
    refuse_bypass,
    refuse_length,
    run_program,
    throw_away_places,
)
from codeloupe.agents.calls.validation import validate
from codeloupe.agents.codex.flags import LIMITS, arguments, prompt_input, refuse_other_tools
from codeloupe.agents.codex.output import CodexProgress, model_in_session
from codeloupe.agents.codex.program import (
    CODEX,
    CodexSettings,
    availability,
    codex_environment,
    find_codex,
    refuse_without_login,
)
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability, PermissionMode
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.command import Command

_log = logging.getLogger(__name__)


class CodexAgent:
    """Runs `codex exec` once for each call.

    `program` is a path or a name; without one it is looked for on the PATH. `environment` is what variables are taken
    from, by default our own: a key, or else the login in the user's directory of the program. The program's own
    directory is thrown away after each call. `base_url` is the address of another service that speaks the Responses
    API, with its version, such as https://host/v1; without one, OPENAI_BASE_URL or OpenAI's own. `allow_bypass` lets
    requests bypass the sandbox. `keep_sessions` writes sessions to the user's directory, so that they can be resumed.

    A system prompt replaces the program's own; what is to be appended to it goes to the model as instructions. Limits
    of turns and of money are not known to the program.
    """

    name = CODEX.agent

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
        self._settings = CodexSettings(
            environment=os.environ if environment is None else environment,
            base_url=base_url,
            allow_bypass=allow_bypass,
            keep_sessions=keep_sessions,
        )

    @property
    def limits(self) -> AgentLimits:
        """What it can take and do."""
        return LIMITS

    def service_of(self, _request: AgentRequest) -> str | None:
        """Where it asks, where the settings or the environment tell."""
        return self._settings.address

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the program being gone."""
        settings = self._settings
        validate(request, LIMITS, agent=self.name)
        refuse_other_tools(request)
        refuse_bypass(request, allowed=settings.allow_bypass, agent=self.name)
        prompt = prompt_input(request)
        refuse_length(prompt, LIMITS, agent=self.name)
        program = find_codex(self._program)
        refuse_without_login(settings)
        if request.permission_mode is PermissionMode.BYPASS:
            _log.warning("codex runs without its sandbox in %s: it may do whatever this user can", request.working_dir)
        progress = CodexProgress(request, emit=emit)
        with throw_away_places() as places:
            command = Command(
                argv=(str(program), *arguments(request, settings, places)),
                cwd=request.working_dir,
                environment=codex_environment(settings, places),
                timeout_seconds=request.timeout_seconds,
                max_output_bytes=KEPT_OUTPUT_BYTES,
                stdin=prompt.encode(),
            )
            completed = await run_program(CODEX, command, progress, idle_timeout_seconds=request.idle_timeout_seconds)
            result = progress.answer(completed, now=datetime.now().astimezone())
            return replace(result, model=model_in_session(places, result.session_id) or result.model)

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing and never raises."""
        return await availability(self._program, self._settings)
