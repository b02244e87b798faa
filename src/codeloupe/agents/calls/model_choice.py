"""Whose model a request names: in a chain of agents, that of the first one and of others of the same vendor."""

from __future__ import annotations

from msgspec.structs import replace

from codeloupe.model.agent import AgentRequest

# Agents that are not named here are a vendor each: `api` too, whose names of models have a provider in front.
_VENDORS = {"agent_sdk": "anthropic", "claude_cli": "anthropic"}


def with_own_model(request: AgentRequest, agent: str, *, first: str) -> tuple[AgentRequest, tuple[str, ...]]:
    """The request as one agent of a chain takes it, and a note when it is asked for its own default model instead."""
    named = [name for name in (request.model, request.fallback_model) if name is not None]
    if not named or same_vendor(agent, first):
        return request, ()
    note = f"{agent} was asked for its own default model, not for {' or '.join(named)}, which was meant for {first}"
    return replace(request, model=None, fallback_model=None), (note,)


def same_vendor(agent: str, other: str) -> bool:
    """Whether two agents know the same names of models."""
    return _vendor(agent) == _vendor(other)


def _vendor(agent: str) -> str:
    return _VENDORS.get(agent, agent)
