"""From the name of an agent to its class. Names, labels and vendors are data in `codeloupe.model.agent`.

The modules of an agent load when more than its name is asked for, so that of a chain only those that are asked cost a
start: this is one of the few places with imports inside functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from codeloupe.config.schema import Settings
from codeloupe.model.agent import AGENTS
from codeloupe.model.ports import Agent


def make_agent(name: str, settings: Settings, *, environment: Mapping[str, str] | None = None) -> Agent:
    """The agent of that name, as the settings want it. Raises KeyError for an unknown name.

    Its program or service gets what it needs of `environment`, or of this process's own.
    """
    AGENTS[name]
    late: Any = _LateAgent(name, settings, environment)
    made: Agent = late
    return made


class _LateAgent:
    """An agent whose modules load when more than its name is asked for."""

    def __init__(self, name: str, settings: Settings, environment: Mapping[str, str] | None) -> None:
        self.name = name
        self._settings = settings
        self._environment = environment

    def __getattr__(self, name: str) -> Any:
        if name == "_agent":  # to make it failed with an AttributeError, such as for a setting that does not exist
            raise AttributeError(f"the agent {self.name} cannot be made as {AGENTS[self.name]} says")
        return getattr(self._agent, name)

    @cached_property
    def _agent(self) -> Agent:
        settings, environment = self._settings, self._environment
        options: dict[str, Any] = {
            "environment": environment,
            "allow_bypass": settings.allow_bypass,
            "keep_sessions": settings.keep_sessions,
        }
        if path_setting := AGENTS[self.name].path_setting:
            options["program"] = getattr(settings, path_setting)
        match self.name:
            case "agent_sdk":
                from codeloupe.agents.claude.sdk import AgentSdkAgent

                return AgentSdkAgent(**options)
            case "claude_cli":
                from codeloupe.agents.claude.cli import ClaudeCliAgent

                return ClaudeCliAgent(**options)
            case "codex":
                from codeloupe.agents.codex.agent import CodexAgent

                return CodexAgent(**options)
            case "gemini":
                from codeloupe.agents.gemini.agent import GeminiAgent

                return GeminiAgent(**options)
            case _:
                from codeloupe.agents.api.agent import ApiAgent

                return ApiAgent(environment=environment, model=settings.api_model, base_url=settings.api_base_url)
