"""The agent `claude_cli`: the claude program, started for one prompt and read while it runs."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping

from codeloupe.agents.calls.environment import throw_away_places
from codeloupe.agents.calls.program import KEPT_OUTPUT_BYTES, refuse_bypass, run_program
from codeloupe.agents.calls.program_failures import Failure
from codeloupe.agents.calls.prompt_text import full_prompt
from codeloupe.agents.calls.validation import validate
from codeloupe.agents.claude.environment import (
    ClaudeSettings,
    claude_environment,
    make_private_folder,
    model_by_default,
    service_of,
)
from codeloupe.agents.claude.failures import ended_without_result
from codeloupe.agents.claude.flags import LIMITS, cli_arguments, prompt_input
from codeloupe.agents.claude.output import answer_in
from codeloupe.agents.claude.program import CLAUDE_CLI, cli_availability, find_claude
from codeloupe.agents.claude.progress import Progress
from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability, PermissionMode
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.process import Command, Completed

_log = logging.getLogger(__name__)


class ClaudeCliAgent:
    """Runs `claude` once for each call.

    `program` is a path or a name; without one it is looked for on the PATH and in the Agent SDK's package.
    `environment` is what variables are taken from, by default our own. `allow_bypass` lets requests bypass all
    permissions. `keep_sessions` writes sessions to the user's configuration directory, so that they can be resumed.
    """

    name = CLAUDE_CLI.agent

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
        started = time.monotonic()
        validate(request, LIMITS, agent=self.name)
        refuse_bypass(request, allowed=self._settings.allow_bypass, agent=self.name)
        path = find_claude(CLAUDE_CLI, self._program)
        if request.permission_mode is PermissionMode.BYPASS:
            _log.warning("%s bypasses all permissions: it may do whatever this user can", self.name)
        progress = Progress(request, program=CLAUDE_CLI, emit=emit)
        with throw_away_places() as places:
            make_private_folder(request, self._settings, places)
            command = Command(
                argv=(str(path), *cli_arguments(request, self._settings, places, agent=self.name)),
                cwd=request.working_dir,
                environment=claude_environment(request, self._settings, places),
                timeout_seconds=request.timeout_seconds,
                max_output_bytes=KEPT_OUTPUT_BYTES,
                stdin=prompt_input(full_prompt(request)).encode(),
            )
            completed = await run_program(
                CLAUDE_CLI, command, progress, idle_timeout_seconds=request.idle_timeout_seconds
            )
        return _read(progress, completed, duration_ms=round((time.monotonic() - started) * 1000))

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing and never raises."""
        return await cli_availability(self._program, self._settings.environment)


def _read(progress: Progress, completed: Completed, *, duration_ms: int) -> AgentResult:
    if progress.result is None:
        raw_output = completed.stdout.decode("utf-8", "replace")
        failure = Failure(program=CLAUDE_CLI, session_id=progress.session_id, raw_output=raw_output)
        raise ended_without_result(failure, exit_code=completed.exit_code, stderr=completed.stderr)
    return answer_in(progress.result, progress.told(), duration_ms=duration_ms, now=time.time())
