"""The built-in agents, as data: settings, pipelines, reports and the command line read their names here.

Where the class of each one is, `codeloupe.agents.registry` knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class AgentFacts(Struct, frozen=True):
    """How an agent is called in reports, whose names of models it knows, and the setting that holds its program."""

    label: str
    vendor: str
    path_setting: str | None = None


AGENTS: Mapping[str, AgentFacts] = MappingProxyType(
    {
        "agent_sdk": AgentFacts("Claude Agent SDK", "anthropic"),
        "claude_cli": AgentFacts("Claude Code", "anthropic", "claude_path"),
        "codex": AgentFacts("Codex", "codex", "codex_path"),
        "gemini": AgentFacts("Gemini", "gemini", "gemini_path"),
        # Its names of models have a provider in front.
        "api": AgentFacts("API model", "api"),
    }
)
AGENT_NAMES = tuple(AGENTS)
# What else can review: an external gate, a program of the user's own, the analysers.
OTHER_REVIEWERS = ("cerberus", "command", "offline")
REVIEWER_NAMES = (*AGENT_NAMES, *OTHER_REVIEWERS)


def vendor_of(agent: str) -> str:
    """Whose names of models an agent knows; one that is not built in is a vendor of its own."""
    return AGENTS[agent].vendor if agent in AGENTS else agent


def same_vendor(agent: str, other: str) -> bool:
    """Whether two agents know the same names of models."""
    return vendor_of(agent) == vendor_of(other)
