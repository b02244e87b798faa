"""Which agents answer for a stage and for its critics, and how they are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import BudgetExhausted, ConfigError
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode
from codeloupe.model.pipeline_definition import GateDefinition, PipelineDefinition, StageDefinition
from codeloupe.model.ports import Agent, AgentEventSink, AskAgent, GateTask
from codeloupe.pipeline.definition_problems import did_you_mean
from codeloupe.pipeline.purse import Purse
from codeloupe.pipeline.surroundings import ignore


class Caller(Protocol):
    """Makes agent calls, with retries, limits, budget and ledger around them."""

    async def call(self, request: AgentRequest, *, agent: Sequence[Agent], emit: AgentEventSink) -> AgentResult:
        """The answer of the first agent that can be used. Raises an AgentError or a StoreError."""


class Crew(Struct, frozen=True, kw_only=True):
    """The agents of a run by name. `own` are the caller's, `built_in` the names of those that `make` makes.

    `usual` are asked, the first that can be used, where neither a stage nor a gate names one. `model` is for those that
    name none. `keeps_sessions` tells whether the built-in ones keep theirs, so that they can be resumed.
    """

    own: Mapping[str, Agent]
    built_in: tuple[str, ...]
    make: Callable[[str], Agent]
    usual: tuple[str, ...]
    model: str | None = None
    keeps_sessions: bool = False

    def check(self, definition: PipelineDefinition) -> None:
        """Raises ConfigError for an agent that nobody knows, before anything is spent."""
        named = {stage.agent for stage in definition.stages} | set(self.usual)
        named |= {gate.agent for stage in definition.stages for gate in stage.gates}
        known = (*self.built_in, *self.own)
        for name in sorted(name for name in named if name is not None):
            if name not in known:
                meant = did_you_mean(name, known) or f"the agents are: {', '.join(dict.fromkeys(known))}"
                raise ConfigError(f"there is no agent {name!r}", hint=meant)

    def chain(self, name: str | None) -> tuple[Agent, ...]:
        """The agent of that name, or the usual ones."""
        return tuple(self._agent(one) for one in ((name,) if name else self.usual))

    def _agent(self, name: str) -> Agent:
        own = self._own(name)
        return self.make(name) if own is None else own

    def _own(self, name: str) -> Agent | None:
        """The caller's agent of that name: as the caller calls it or, since answers tell that, as it calls itself."""
        own = self.own.get(name)
        if own is None and name not in self.built_in:
            own = next((agent for agent in self.own.values() if agent.name == name), None)
        return own

    def can_resume(self, name: str) -> bool:
        """Whether a session of an agent can be resumed."""
        own = self._own(name)
        if own is not None:
            return own.limits.resume
        return name in self.built_in and self.keeps_sessions and self.make(name).limits.resume

    def called(self, agent: Agent) -> str:
        """As the caller calls one of its agents, of which two may have the same name of their own; else its name."""
        return next((name for name, own in self.own.items() if own is agent), agent.name)


class Asking:
    """Puts the questions of stages and critics to their agents, each within what may still be spent."""

    def __init__(self, definition: PipelineDefinition, crew: Crew, purse: Purse, caller: Caller) -> None:
        self._stages = {stage.name: stage for stage in definition.stages}
        self._crew = crew
        self._purse = purse
        self._caller = caller

    def of_stage(self, stage: StageDefinition, agent: str) -> AskAgent:
        """The agent of a stage; by name the one of its agents whose session is resumed."""
        agents = self._crew.chain(stage.agent)
        if agent and all(each.name != agent for each in agents):
            agents = self._crew.chain(agent)
        elif agent:
            agents = tuple(each for each in agents if each.name == agent)[:1]

        async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
            # A session that cannot be forked is resumed itself: to refuse it would lose what it knows.
            forks = request.fork_session and all(each.limits.fork for each in agents)
            asked = replace(request, model=request.model or self._crew.model, fork_session=forks)
            if asked.permission_mode.may_write and not any(each.limits.writes for each in agents):
                # A stage may write unless its file says otherwise; of an agent that only answers, the answer is enough.
                asked = replace(asked, permission_mode=PermissionMode.DONT_ASK)
                result = await self._called(stage.name, asked, agents, emit)
                return replace(result, notes=(*result.notes, f"{result.agent} cannot change files, so it only read"))
            return await self._called(stage.name, asked, agents, emit)

        return ask

    async def critic(self, gate: GateDefinition, request: AgentRequest) -> AgentResult:
        """The answer of a gate's critic, which is the stage's agent unless the gate names another."""
        stage = self._stages[request.labels["stage"]]
        of_stage = stage.model if gate.agent in (None, stage.agent) else None
        asked = replace(
            request,
            model=request.model or of_stage or self._crew.model,
            max_budget_usd=self._purse.left_usd(stage.name),
        )
        return await self._called(stage.name, asked, self._critics(gate, stage), ignore)

    async def _called(
        self, stage: str, asked: AgentRequest, agents: Sequence[Agent], emit: AgentEventSink
    ) -> AgentResult:
        try:
            payable = _payable(asked, agents)
            return await self._caller.call(payable, agent=agents, emit=self._purse.counting(stage, emit))
        except BudgetExhausted as error:
            if error.attempts and error.cost_usd is None:
                # It ended at its limit without telling its cost, which is then at least that.
                error.cost_usd = asked.max_budget_usd
            raise

    def critic_can_read(self, gate: GateDefinition, task: GateTask) -> bool:
        """Whether the critic has tools to read files with."""
        return all(agent.limits.tools for agent in self._critics(gate, self._stages[task.stage]))

    def _critics(self, gate: GateDefinition, stage: StageDefinition) -> tuple[Agent, ...]:
        return self._crew.chain(gate.agent or stage.agent)


def _payable(request: AgentRequest, agents: Sequence[Agent]) -> AgentRequest:
    """The request without its limit of money where an agent cannot stop at one: the purse then holds between calls."""
    return request if all(agent.limits.budget for agent in agents) else replace(request, max_budget_usd=None)
