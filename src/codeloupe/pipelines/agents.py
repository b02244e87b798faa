"""The agents of a run: by name, or the usual ones from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.calls import AgentCalls
from codeloupe.config.schema import Settings
from codeloupe.errors import ConfigError
from codeloupe.model.agent import AGENT_NAMES, Availability
from codeloupe.model.pipeline import PipelineDefinition
from codeloupe.model.ports import Agent
from codeloupe.pipelines.definition import did_you_mean


class RunAgents(Struct, frozen=True):
    """The agents of a run by name. `agent` and `model` are for stages that name none; `repo` pays for all of them."""

    calls: AgentCalls
    settings: Settings
    own: Mapping[str, Agent]
    agent: str | None = None
    model: str | None = None
    repo: Path | None = None

    @property
    def _usual(self) -> tuple[str, ...]:
        if self.agent is not None:
            return (self.agent,)
        return self.calls.names(self.settings)

    def check(self, definition: PipelineDefinition) -> None:
        """Raise ConfigError for an unknown agent, before anything is spent."""
        wanted = set(self._usual)
        for stage in definition.stages:
            named = [stage.agent, *(gate.agent for gate in stage.gates)]
            wanted.update(name for name in named if name)
        known = (*AGENT_NAMES, *self.own)
        for name in sorted(wanted.difference(known)):
            meant = did_you_mean(name, known) or f"the agents are: {', '.join(dict.fromkeys(known))}"
            raise ConfigError(f"unknown agent {name!r}", hint=meant)

    def names(self, name: str | None) -> tuple[str, ...]:
        """Return that name, or without one the names of the usual agents."""
        return (name,) if name else self._usual

    def chain(self, name: str | None) -> tuple[Agent, ...]:
        """Return the agent of that name, or without one the usual agents."""
        return tuple(self._named(one) for one in self.names(name))

    def _named(self, name: str) -> Agent:
        return self._own(name) or self.calls.agent(name, self.settings)

    async def availability(self, name: str, model: str | None) -> Availability:
        """Return whether an agent can be used for calls that ask for a model, or for the usual one. Costs nothing."""
        own = self._own(name)
        if own is not None:
            return await own.check()
        model = model or self.model
        found = await self.calls.agent_to_check(name, replace(self.settings, model=model)).check()
        if found.usable or model is None or name != "api":
            return found
        # The model may belong to another provider than `api_model`.
        return await self.calls.agent(name, replace(self.settings, api_model=model)).check()

    def _own(self, name: str) -> Agent | None:
        """Return the caller's agent with that name, which is the caller's word for it or the agent's own."""
        if name in self.own:
            return self.own[name]
        if name in AGENT_NAMES:
            return None
        for agent in self.own.values():
            # Answers name an agent by its own name.
            if agent.name == name:
                return agent
        return None

    def can_resume(self, name: str) -> bool:
        """Return whether a session of an agent can be resumed."""
        own = self._own(name)
        if own is not None:
            return own.limits.resume
        if name not in AGENT_NAMES or not self.settings.keep_sessions:
            return False
        return self.chain(name)[0].limits.resume

    def called(self, agent: Agent) -> str:
        """Return the caller's word for one of its agents, because two may have the same name; otherwise its name."""
        for name, own in self.own.items():
            if own is agent:
                return name
        return agent.name
