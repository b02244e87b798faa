"""From the name of an agent to its class. Names, labels and vendors are data in `codeloupe.model.agent`.

The modules of an agent load when more than its name is asked for, so that of a chain only those that are asked cost a
start: this is one of the few places with imports inside functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from codeloupe.config.schema import Settings
from codeloupe.model.agent import AGENTS
from codeloupe.model.ports import Agent


def make_agent(name: str, settings: Settings, *, environment: Mapping[str, str] | None = None) -> Agent:
    """The agent of that name, with what it needs of `environment`, or our own. Raises KeyError for an unknown name."""
    path_setting = AGENTS[name].path_setting
    return cast("Agent", _LateAgent(name, cache(lambda: _made(name, path_setting, settings, environment))))


class _LateAgent:
    """An agent whose modules load when more than its name is asked for."""

    def __init__(self, name: str, made: Any) -> None:
        self.name = name
        self._made = made

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._made(), attribute)


def _made(name: str, path_setting: str | None, settings: Settings, environment: Mapping[str, str] | None) -> Agent:
    options: dict[str, Any] = {
        "environment": environment,
        "allow_bypass": settings.allow_bypass,
        "keep_sessions": settings.keep_sessions,
        **({"program": getattr(settings, path_setting)} if path_setting else {}),
    }
    match name:
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
        case "api":
            from codeloupe.agents.api.agent import ApiAgent

            return ApiAgent(environment=environment, model=settings.api_model, base_url=settings.api_base_url)
        case _:
            raise LookupError(f"{name} has no case in agents/registry.py")
