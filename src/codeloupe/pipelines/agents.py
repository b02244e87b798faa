"""Which agents answer for a stage and for its critics, how they are asked, and what a run may still spend on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls.budget import SpendingLimits, Spent
from codeloupe.agents.calls.caller import AgentCaller
from codeloupe.config.schema import Settings
from codeloupe.errors import BudgetExhausted, ConfigError
from codeloupe.model.agent import AgentEvent, AgentRequest, AgentResult, AttemptStarted, PermissionMode, Usage
from codeloupe.model.pipeline import GateDefinition, PipelineDefinition, StageDefinition, StageRecord
from codeloupe.model.ports import Agent, AgentEventSink, AskAgent
from codeloupe.pipelines.definition import did_you_mean
from codeloupe.pipelines.gates import GateTask
from codeloupe.pipelines.state import RunState


class RunAgents(Struct, frozen=True, kw_only=True):
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
        """Raises ConfigError for an unknown agent, before anything is spent."""
        named = {stage.agent for stage in definition.stages} | set(self.usual)
        named |= {gate.agent for stage in definition.stages for gate in stage.gates}
        known = (*self.built_in, *self.own)
        for name in sorted(name for name in named if name is not None):
            if name not in known:
                meant = did_you_mean(name, known) or f"the agents are: {', '.join(dict.fromkeys(known))}"
                raise ConfigError(f"there is no agent {name!r}", hint=meant)

    def chain(self, name: str | None) -> tuple[Agent, ...]:
        """The agent of that name, or the usual ones."""
        names = (name,) if name else self.usual
        return tuple(self.make(one) if (own := self._own(one)) is None else own for one in names)

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


class RunLimits:
    """The limits of a pipeline and of the settings, against what the run's record says was spent in its whole life."""

    def __init__(self, definition: PipelineDefinition, state: RunState, settings: Settings) -> None:
        self._definition = definition
        self._stage_usd = {stage.name: stage.max_budget_usd for stage in definition.stages}
        self._settings = settings
        self._state = state

    def spending(self) -> SpendingLimits:
        """The limits of all calls of the run together, with what it has used so far."""
        run, limits = self._state.run, (self._definition.max_budget_usd, self._settings.max_budget_usd)
        lost = sum(stage.unanswered for stage in run.stages)
        used = run.usage.plus(Usage(requests=lost, unknown_costs=lost))
        return SpendingLimits(
            max_usd=min((most for most in limits if most is not None), default=None),
            max_tokens=self._settings.max_tokens,
            max_requests=self._settings.max_requests,
            spent=Spent(used.cost_usd, _tokens(used), used.requests, used.unknown_costs),
        )

    def left_usd(self, stage: str) -> float | None:
        """What a call of a stage, or of one of its gates, may cost; None without a limit of money.

        Raises BudgetExhausted, which names the limit, what was spent and how to go on, when a limit is reached.
        """
        used, most = self._state.run.usage, self._settings
        if most.max_requests is not None and used.requests >= most.max_requests:
            words = f"the run has made {used.requests:,} of its {most.max_requests:,} requests"
            raise self._exhausted(stage, words, key="max_requests")
        if most.max_tokens is not None and _tokens(used) >= most.max_tokens:
            words = f"the run has used {_tokens(used):,} of its {most.max_tokens:,} tokens"
            raise self._exhausted(stage, words, key="max_tokens")
        left = []
        for whose, dollars, spent, where in self._money(stage):
            if spent.cost_usd >= dollars:
                unknown = f" ({spent.unknown_costs} calls did not report their cost)" if spent.unknown_costs else ""
                words = f"${spent.cost_usd:.4f} of the ${dollars:.4f} for {whose} has been spent{unknown}"
                raise self._exhausted(stage, words, where=where)
            left.append(dollars - spent.cost_usd)
        return min(left, default=None)

    def _money(self, stage: str) -> list[tuple[str, float, Usage, str]]:
        """Each limit of money on a stage: whose it is, how much, what was spent of it, and where it can be raised."""
        run, file = self._state.run, self._definition.file
        limits = (
            ("the run", self._definition.max_budget_usd, run.usage, f"`max_budget_usd` in {file}"),
            (f"the stage {stage}", self._stage_usd[stage], run.stage(stage).usage, f"its `budget` in {file}"),
            ("the run", self._settings.max_budget_usd, run.usage, ""),
        )
        return [(whose, most, spent, where) for whose, most, spent, where in limits if most is not None]

    def advice(self, stage: str) -> str:
        """What to do when an agent stopped at the money that it was given; nothing where no limit of ours gave it."""
        if not (limits := self._money(stage)):
            return ""
        *_, where = min(limits, key=lambda limit: limit[1] - limit[2].cost_usd)
        return self._exhausted(stage, "", where=where).hint

    def counting(self, stage: str, emit: AgentEventSink) -> AgentEventSink:
        """A sink that saves each request of a stage when it goes out: a process that dies has not lost it."""

        def count(event: AgentEvent) -> None:
            if isinstance(event, AttemptStarted):
                record = self._state.stage(stage)
                self._state.put(replace(record, unanswered=record.unanswered + 1))
            emit(event)

        return count

    def _exhausted(self, stage: str, words: str, *, key: str = "max_budget_usd", where: str = "") -> BudgetExhausted:
        option = " --accept-changes" if where else ""
        place = where or f"`{key}` in your settings, or CODELOUPE_{key.upper()}"
        return BudgetExhausted(
            f"no more is spent on {stage}: {words}",
            agent="none",
            hint=f"raise {place}, then `codeloupe pipeline resume {self._state.run.run_id}{option} --retry {stage}`",
            attempts=0,
        )


def with_lost(record: StageRecord) -> StageRecord:
    """A stage that was stopped: what it had asked and nobody will answer counts as asked, at an unknown cost."""
    lost = Usage(requests=record.unanswered, unknown_costs=record.unanswered)
    return replace(record, unanswered=0, lost=record.lost.plus(lost))


def _tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


class StageCalls:
    """Puts the questions of stages and critics to their agents, each within what may still be spent."""

    def __init__(
        self, definition: PipelineDefinition, agents: RunAgents, limits: RunLimits, caller: AgentCaller
    ) -> None:
        self._stages = {stage.name: stage for stage in definition.stages}
        self._agents = agents
        self._limits = limits
        self._caller = caller

    def of_stage(self, stage: StageDefinition, agent: str) -> AskAgent:
        """The agent of a stage; by name the one of its agents whose session is resumed."""
        agents = self._agents.chain(stage.agent)
        if agent:
            agents = tuple(each for each in agents if each.name == agent)[:1] or self._agents.chain(agent)

        async def ask(request: AgentRequest, emit: AgentEventSink) -> AgentResult:
            # A session that cannot be forked is resumed itself: to refuse it would lose what it knows.
            forks = request.fork_session and all(each.limits.fork for each in agents)
            asked = replace(request, model=request.model or self._agents.model, fork_session=forks)
            if asked.permission_mode.may_write and not any(each.limits.writes for each in agents):
                # A stage may write unless its file says otherwise; of an agent that only answers, the answer is enough.
                asked = replace(asked, permission_mode=PermissionMode.DONT_ASK)
                result = await self._called(stage.name, asked, agents, emit)
                note = f"{result.agent} cannot change files, so it only read"
                return replace(result, notes=(*result.notes, note))
            return await self._called(stage.name, asked, agents, emit)

        return ask

    async def critic(self, gate: GateDefinition, request: AgentRequest) -> AgentResult:
        """The answer of a gate's critic, which is the stage's agent unless the gate names another."""
        stage = self._stages[request.labels["stage"]]
        of_stage = stage.model if gate.agent in (None, stage.agent) else None
        model = request.model or of_stage or self._agents.model
        asked = replace(request, model=model, max_budget_usd=self._limits.left_usd(stage.name))
        return await self._called(stage.name, asked, self._agents.chain(gate.agent or stage.agent), lambda _event: None)

    def critic_can_read(self, gate: GateDefinition, task: GateTask) -> bool:
        """Whether the critic has tools to read files with."""
        critics = self._agents.chain(gate.agent or self._stages[task.stage].agent)
        return all(agent.limits.tools for agent in critics)

    async def _called(
        self, stage: str, asked: AgentRequest, agents: Sequence[Agent], emit: AgentEventSink
    ) -> AgentResult:
        payable = asked
        if not all(agent.limits.budget for agent in agents):
            # An agent cannot stop at a limit of money: ours then holds between calls.
            payable = replace(asked, max_budget_usd=None)
        try:
            return await self._caller.call(payable, agent=agents, emit=self._limits.counting(stage, emit))
        except BudgetExhausted as error:
            if error.attempts and error.cost_usd is None:
                # It ended at its limit without telling its cost, which is then at least that.
                error.cost_usd = asked.max_budget_usd
            raise
