"""The agent `gemini`: the gemini program, started for one prompt and read while it runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from codeloupe.agents.calls.program import (
    KEPT_OUTPUT_BYTES,
    refuse_bypass,
    refuse_length,
    run_program,
    throw_away_places,
)
from codeloupe.agents.calls.validation import validate
from codeloupe.agents.gemini.output import GeminiProgress
from codeloupe.agents.gemini.program import GEMINI, GeminiSettings, availability, chosen_login, usable_program
from codeloupe.agents.gemini.prompt import prompt_input
from codeloupe.agents.gemini.settings import (
    LIMITS,
    gemini_environment,
    keep_session,
    refuse_other_tools,
    service_of,
    session_flags,
    write_home,
)
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability, PermissionMode
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.command import Command

_FLAGS = ("--output-format=stream-json",)
_log = logging.getLogger(__name__)


class GeminiAgent:
    """Runs `gemini` once for each call, in a home directory that is thrown away after it.

    `program` is a path or a name; without one it is looked for on the PATH. `environment` is what variables are taken
    from, by default our own: a key, the settings of a cloud, or else the login that the program keeps in the user's
    home. `base_url` is the address of another service that speaks the Gemini API; without one, GOOGLE_GEMINI_BASE_URL
    or Google's own. `allow_bypass` lets requests give it a shell. `keep_sessions` keeps sessions in the user's
    directory of the program, so that they can be resumed.

    A system prompt replaces the program's own; what is to be appended to that stands at the head of the prompt
    otherwise. The program knows no schema, so that is told in words, and no limit of money.
    """

    name = GEMINI.agent

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
        self._settings = GeminiSettings(
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
        return self._settings.environment.get("GEMINI_MODEL") or None

    def service_of(self, _request: AgentRequest) -> str | None:
        """Where it asks, where the settings or the environment tell."""
        return service_of(self._settings)

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the program being gone."""
        settings = self._settings
        validate(request, LIMITS, agent=self.name)
        refuse_other_tools(request)
        refuse_bypass(request, allowed=settings.allow_bypass, agent=self.name)
        prompt = prompt_input(request)
        refuse_length(prompt, LIMITS, agent=self.name)
        program = await usable_program(self._program, settings)
        login = chosen_login(settings)
        if request.permission_mode is PermissionMode.BYPASS:
            _log.warning(
                "gemini runs commands without asking in %s: it may do whatever this user can", request.working_dir
            )
        progress = GeminiProgress(request, emit=emit)
        with throw_away_places() as places:
            write_home(request, settings, places, login=login)
            model = () if request.model is None else (f"--model={request.model}",)
            command = Command(
                argv=(str(program), *_FLAGS, *model, *session_flags(request, settings, places)),
                cwd=request.working_dir,
                environment=gemini_environment(request, settings, places, login=login),
                timeout_seconds=request.timeout_seconds,
                max_output_bytes=KEPT_OUTPUT_BYTES,
                stdin=prompt.encode(),
            )
            completed = await run_program(GEMINI, command, progress, idle_timeout_seconds=request.idle_timeout_seconds)
            result = progress.answer(completed)
            keep_session(request, settings, places, session_id=result.session_id)
        return result

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing and never raises."""
        return await availability(self._program, self._settings)
