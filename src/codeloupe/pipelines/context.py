"""What the stages of a run share: its agents, what may still be spent on them, and how their work becomes one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from graphlib import TopologicalSorter
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls.budget import SpendingLimits, Spent
from codeloupe.calls import AgentCalls, StageKeys, trust_of
from codeloupe.config.schema import Settings
from codeloupe.engine import review
from codeloupe.errors import BudgetExhausted, ConfigError, PipelineError
from codeloupe.git.workspaces import GitWorkspaceStore, JoinConflict
from codeloupe.model import pipeline
from codeloupe.model.agent import (
    AGENT_NAMES,
    AgentRequest,
    AgentResult,
    AttemptStarted,
    Availability,
    PermissionMode,
    Usage,
)
from codeloupe.model.finding import Severity
from codeloupe.model.pipeline import GateDefinition, GateKind, PipelineDefinition, StageDefinition, StageRecord
from codeloupe.model.ports import Agent
from codeloupe.model.review import Review
from codeloupe.pipelines.definition import did_you_mean
from codeloupe.pipelines.gates import GateTask, answer_of_a_person, command_gate, critic_gate, review_gate
from codeloupe.pipelines.state import RunFiles, RunState

AskPerson = Callable[[StageRecord, str], Awaitable[pipeline.Approval | None]]


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
        return self.calls.names(self.settings) if self.agent is None else (self.agent,)

    def check(self, definition: PipelineDefinition) -> None:
        """Raises ConfigError for an unknown agent, before anything is spent."""
        named = {agent for stage in definition.stages for agent in (stage.agent, *(gate.agent for gate in stage.gates))}
        known = (*AGENT_NAMES, *self.own)
        for name in sorted({*filter(None, named), *self._usual}.difference(known)):
            meant = did_you_mean(name, known) or f"the agents are: {', '.join(dict.fromkeys(known))}"
            raise ConfigError(f"unknown agent {name!r}", hint=meant)

    def names(self, name: str | None) -> tuple[str, ...]:
        """Return that name, or without one the names of the usual agents."""
        return (name,) if name else self._usual

    def chain(self, name: str | None) -> tuple[Agent, ...]:
        """Return the agent of that name, or without one the usual agents."""
        return tuple(self._own(one) or self.calls.agent(one, self.settings) for one in self.names(name))

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
        """The caller's agent of that name: as the caller calls it or, since answers tell that, as it calls itself."""
        alike = (agent for agent in self.own.values() if agent.name == name and name not in AGENT_NAMES)
        return self.own.get(name) or next(alike, None)

    def can_resume(self, name: str) -> bool:
        """Whether a session of an agent can be resumed."""
        if (own := self._own(name)) is not None:
            return own.limits.resume
        return name in AGENT_NAMES and self.settings.keep_sessions and self.chain(name)[0].limits.resume

    def called(self, agent: Agent) -> str:
        """As the caller calls one of its agents, of which two may have the same name of their own; else its name."""
        return next((name for name, own in self.own.items() if own is agent), agent.name)


def spending_of(definition: PipelineDefinition, run: pipeline.RunRecord, settings: Settings) -> SpendingLimits:
    """The limits of all calls of a run together, with what it has used so far."""
    limits = (definition.max_budget_usd, settings.max_budget_usd)
    used = reduce(Usage.plus, (with_lost(stage).usage for stage in run.stages), Usage())
    return SpendingLimits(
        max_usd=min((most for most in limits if most is not None), default=None),
        max_tokens=settings.max_tokens,
        max_requests=settings.max_requests,
        spent=Spent(used.cost_usd, used.input_tokens + used.output_tokens, used.requests, used.unknown_costs),
    )


def with_lost(record: StageRecord) -> StageRecord:
    """A stage that was stopped: what it had asked and nobody will answer counts as asked, at an unknown cost."""
    unknown = Usage(requests=record.unanswered, unknown_costs=record.unanswered)
    return replace(record, unanswered=0, lost=record.lost.plus(unknown))


class Joins:
    """What any set of finished stages left together: their trees, joined over what they share."""

    def __init__(self, definition: PipelineDefinition, store: GitWorkspaceStore, *, base: str, run_id: str) -> None:
        self._file, self._run_id, self._store, self._base = definition.file, run_id, store, base
        self._order = [stage.name for stage in definition.stages]
        # For each stage itself and every stage that it builds on, however far back.
        self.ancestors: dict[str, frozenset[str]] = {}
        needs = {stage.name: stage.needs for stage in definition.stages}
        for name in TopologicalSorter(needs).static_order():
            self.ancestors[name] = frozenset({name}).union(*(self.ancestors[needed] for needed in needs[name]))
        # Where several stages need the same several others, what those share is asked for again and again.
        self._known: dict[frozenset[tuple[str, str]], str] = {}

    async def together(self, stages: Iterable[str], trees: Mapping[str, str]) -> str:
        """One tree with the work of some finished stages and all they build on. Raises JoinConflict."""
        wanted = frozenset(stages)
        # Those that no other of them builds on: their trees hold the work of the rest.
        held = {name for other in wanted for name in self.ancestors[other] if name != other}
        names = [name for name in self._order if name in wanted and name not in held]
        if not names:
            return self._base
        key = frozenset((name, trees[name]) for name in names)
        if key not in self._known:
            tree, within = trees[names[0]], self.ancestors[names[0]]
            for position, name in enumerate(names[1:], start=1):
                shared = await self.together(within & self.ancestors[name], trees)
                try:
                    tree = await self._store.joined(shared, tree, trees[name])
                except JoinConflict as error:
                    others = " and ".join(names[:position])
                    again = f"`codeloupe pipeline resume {self._run_id} --accept-changes --retry {name}`"
                    hint = f"let {name} need {others} in {self._file}, or have them write different files; then {again}"
                    what = f"cannot merge the work of {others} and {name}: {error.message}"
                    raise JoinConflict(what, hint=hint) from None
                within |= self.ancestors[name]
            self._known[key] = tree
        return self._known[key]

    def lineage(self, stage: str) -> tuple[str, ...]:
        """The stages that a stage builds on, in the order of the file."""
        return tuple(name for name in self._order if name in self.ancestors[stage] and name != stage)


class Context:
    """What the stages of a run work with.

    `keys` records what a workspace holds and how many calls of the attempt failed: with both the same, an answer that
    was paid for is taken again. `ask` asks a person on a terminal; else one is waited for unless `waits` is off.
    """

    def __init__(
        self,
        definition: PipelineDefinition,
        state: RunState,
        files: RunFiles,
        workspaces: GitWorkspaceStore,
        agents: RunAgents,
        *,
        ask: AskPerson | None,
        waits: bool,
    ) -> None:
        self.definition, self.state, self.files, self.workspaces = definition, state, files, workspaces
        self.agents, self._ask, self._waits = agents, ask, waits
        self.joins = Joins(definition, workspaces, base=state.run.base_tree, run_id=state.run.run_id)
        self.keys = StageKeys(agents.called, trust=trust_of(trusted=not agents.settings.untrusted))
        spending = spending_of(definition, state.run, agents.settings)
        self._of_reviews = agents.calls.part(agents.settings, spending, repo=agents.repo)
        self._caller = self._of_reviews.caller(agents.settings, key_of=self.keys.key_of, watch_files=None)

    def left_usd(self, stage: str) -> float | None:
        """What a call of a stage, or of one of its gates, may cost, if there is a limit. Raises BudgetExhausted."""
        limits = list(self._limits(stage))
        for left, _, words, hint in limits:
            if left <= 0:
                raise BudgetExhausted(f"stopped spending on {stage}: {words}", agent="none", hint=hint, attempts=0)
        return min((left for left, is_money, *_ in limits if is_money), default=None)

    def advice(self, stage: str) -> str:
        """What to do when an agent stopped at the money that it was given; nothing where no limit of ours gave it."""
        return min(((left, hint) for left, is_money, _, hint in self._limits(stage) if is_money), default=(0, ""))[1]

    def _limits(self, stage: str) -> Iterator[tuple[float, bool, str, str]]:
        """What each limit leaves for the rest of the run, whether it is money, what was spent, and what to do next."""
        run, most, file = self.state.run, self.agents.settings, self.definition.file
        own = next(each.max_budget_usd for each in self.definition.stages if each.name == stage)
        used, of_stage = run.usage, run.stage(stage).usage

        def hint(key: str, place: str = "") -> str:
            where = place or f"`{key}` in your settings, or CODELOUPE_{key.upper()}"
            again = f"{run.run_id}{' --accept-changes' if place else ''} --retry {stage}"
            return f"raise {where}, then `codeloupe pipeline resume {again}`"

        for made, unit, spent, limit in (
            ("made", "requests", used.requests, most.max_requests),
            ("used", "tokens", used.input_tokens + used.output_tokens, most.max_tokens),
        ):
            if limit is not None:
                words = f"the run has {made} {spent:,} of its {limit:,} {unit}"
                yield limit - spent, False, words, hint(f"max_{unit}")
        for usage, whose, usd, place in (
            (used, "the run", self.definition.max_budget_usd, f"`max_budget_usd` in {file}"),
            (of_stage, f"the stage {stage}", own, f"its `budget` in {file}"),
            (used, "the run", most.max_budget_usd, ""),
        ):
            if usd is not None:
                words = f"${usage.cost_usd:.4f} of the ${usd:.4f} for {whose} has been spent"
                words += f" ({usage.unknown_costs} calls did not report their cost)" if usage.unknown_costs else ""
                yield usd - usage.cost_usd, True, words, hint("max_budget_usd", place)

    async def ask_stage(self, stage: StageDefinition, resumed: str, request: AgentRequest) -> AgentResult:
        """The answer of a stage's agent; `resumed` names the one of its agents whose session is resumed."""
        agents = self.agents.chain(stage.agent)
        if resumed:
            agents = tuple(each for each in agents if each.name == resumed)[:1] or self.agents.chain(resumed)
        # A session that cannot be forked is resumed itself: to refuse it would lose what it knows.
        forks = request.fork_session and all(each.limits.fork for each in agents)
        asked = replace(request, model=request.model or self.agents.model, fork_session=forks)
        if not asked.permission_mode.may_write or any(each.limits.writes for each in agents):
            return await self._called(stage.name, asked, agents)
        # A stage may write unless its file says otherwise; of an agent that only answers, the answer is enough.
        result = await self._called(stage.name, replace(asked, permission_mode=PermissionMode.DONT_ASK), agents)
        return replace(result, notes=(*result.notes, f"{result.agent} cannot change files, so it worked read-only"))

    async def _ask_critic(self, stage: StageDefinition, gate: GateDefinition, request: AgentRequest) -> AgentResult:
        """The answer of a gate's critic, which is the stage's agent unless the gate names another."""
        model = request.model or (stage.model if gate.agent in (None, stage.agent) else None) or self.agents.model
        asked = replace(request, model=model, max_budget_usd=self.left_usd(stage.name))
        return await self._called(stage.name, asked, self.agents.chain(gate.agent or stage.agent))

    async def _called(self, stage: str, asked: AgentRequest, agents: Sequence[Agent]) -> AgentResult:
        def count(event: object) -> None:
            # Each request is saved when it goes out: a process that dies has not lost it.
            if isinstance(event, AttemptStarted):
                record = self.state.stage(stage)
                self.state.put(replace(record, unanswered=record.unanswered + 1))

        # Where an agent cannot stop at a limit of money, ours holds between calls.
        payable = asked if all(agent.limits.budget for agent in agents) else replace(asked, max_budget_usd=None)
        try:
            return await self._caller.call(payable, agent=agents, emit=count)
        except BudgetExhausted as error:
            if error.attempts and error.cost_usd is None:
                # It ended at its limit without telling its cost, which is then at least that.
                error.cost_usd = asked.max_budget_usd
            raise

    async def judge(self, stage: StageDefinition, gate: GateDefinition, task: GateTask) -> pipeline.Critique:
        """Let a gate decide. Raises a CodeloupeError when it could not."""
        if gate.kind is GateKind.COMMAND:
            return await command_gate(gate, task)
        left_usd = self.left_usd(stage.name)
        if gate.kind is GateKind.CRITIC:
            can_read = all(agent.limits.tools for agent in self.agents.chain(gate.agent or stage.agent))
            return await critic_gate(gate, task, ask=partial(self._ask_critic, stage, gate), can_read=can_read)
        return await review_gate(task, partial(self._reviewed, gate, task, left_usd))

    async def _reviewed(self, gate: GateDefinition, task: GateTask, left_usd: float | None) -> Review:
        usual = self.agents.settings
        # The change is the agent's and not the user's, so no word in it can keep the review from finding.
        fail_on = Severity.parse(gate.fail_on) if gate.fail_on else usual.fail_on
        settings = replace(usual, untrusted=True, keep_history=False, on_incomplete="fail", fail_on=fail_on)
        settings = replace(settings, experts=gate.experts or usual.experts)
        calls = self._of_reviews.part(usual, SpendingLimits(max_usd=left_usd))
        root = self.files.of_stage(task.stage) / "review"
        async with self.workspaces.committed_change(root, before=task.start_tree, after=task.tree) as change:
            try:
                async with asyncio.timeout(gate.timeout_seconds):
                    return await review(change, repo=root, settings=settings, context=task.requirements, calls=calls)
            except TimeoutError as error:
                what = f"the review of {task.stage} did not finish within {gate.timeout_seconds:g} s"
                hint = "raise the timeout of the gate, then retry the stage; finished reviews come from the ledger"
                raise PipelineError(what, stage=task.stage, hint=hint) from error

    async def ask_person(self, stage: StageRecord, question: str, seconds: float) -> pipeline.Approval | None:
        """What a person decides about a stage that waits, within so many seconds; None when nobody does."""
        ask = None if self._ask is None else partial(self._ask, stage, question)
        take = partial(self.state.left_answer, stage.name)
        pause = 1.5 if self.state.is_shared else 0.5
        timeout = seconds if self._waits else 0.0
        return await answer_of_a_person(take, ask, timeout_seconds=timeout, poll_seconds=pause)

    @property
    def is_checkout(self) -> bool:
        """Whether the stages work in the user's own tree, in which nothing is ever put back."""
        return self.files.checkout is not None

    def chosen_trees(self) -> dict[str, str]:
        """What each completed stage left."""
        done = (stage for stage in self.state.run.stages if stage.state is pipeline.StageState.COMPLETED)
        return {stage.name: chosen.tree for stage in done if (chosen := stage.chosen_attempt) is not None}

    def built_on(self, stage: StageDefinition) -> dict[str, str]:
        """What a stage that begins now builds on: the trees of its needs, and under "" that of the run's beginning."""
        trees = self.chosen_trees()
        return {"": self.state.run.base_tree, **{name: trees[name] for name in stage.needs if name in trees}}

    def kept_answers(self, stages: Iterable[str]) -> dict[str, str]:
        """The answers of completed stages that were saved beside the user's own tree, by name."""
        answers: dict[str, str] = {}
        for name in stages if self.is_checkout else ():
            record = self.state.stage(name)
            chosen = record.chosen_attempt if record.state is pipeline.StageState.COMPLETED else None
            # An older version saved them in the tree, as an artifact.
            if chosen is not None and chosen.saved_answer not in ("", *chosen.artifacts):
                text = self.files.read(self.files.attempt(name, chosen.number, chosen.saved_answer))
                answers[chosen.saved_answer] = text[:200_000]  # more than any stage should have to read in its prompt
        return answers

    def own_answers(self) -> tuple[str, ...]:
        """The answers that we saved into a repository's files: stages hand them on, but they are no change to it."""
        run = self.state.run
        if run.workspace is pipeline.WorkspaceKind.DIRECTORY:
            return ()
        attempts = (each for stage in run.stages for each in (*stage.earlier, *stage.attempts))
        return tuple(sorted({each.saved_answer for each in attempts if each.saved_answer in each.artifacts}))
