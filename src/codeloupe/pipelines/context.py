"""The context that the stages of a run share: agents, budget, workspaces, files and people."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from msgspec.structs import replace

from codeloupe.agents.calls.budget import SpendingLimits
from codeloupe.agents.calls.limiter import Timing
from codeloupe.calls import AgentCalls, StageKeys, trust_of
from codeloupe.engine import review
from codeloupe.errors import BudgetExhausted, PipelineError, RateLimited, StoreError
from codeloupe.git.workspaces import GitWorkspaceStore
from codeloupe.model import pipeline
from codeloupe.model.agent import AgentRequest, AgentResult, AttemptStarted, PermissionMode
from codeloupe.model.events import AgentActivity
from codeloupe.model.finding import Severity
from codeloupe.model.limits import QuotaWait
from codeloupe.model.pipeline import AttemptRecord, GateDefinition, GateKind, StageDefinition, StageRecord
from codeloupe.model.ports import Agent
from codeloupe.model.review import Review
from codeloupe.pipelines.agents import RunAgents
from codeloupe.pipelines.files import RunFiles
from codeloupe.pipelines.gates import GateTask, answer_of_a_person, command_gate, critic_gate, review_gate
from codeloupe.pipelines.joins import Joins
from codeloupe.pipelines.opening import pack_name
from codeloupe.pipelines.spending import budget_advice, left_usd, spending_of
from codeloupe.pipelines.state import RunState

AskPerson = Callable[[StageRecord, str], Awaitable[pipeline.Approval | None]]

# A quota without a known time of reset is tried again after this time.
_UNKNOWN_QUOTA_SECONDS = 300.0
LONGEST_QUOTA_SECONDS = 366 * 86_400.0


class Context:
    """The parts of a run that its stages work with.

    `keys` records the content of a workspace and how many calls of the attempt failed: if both are the same, an answer
    that was paid for is used again. `ask` asks a person on a terminal. Without it, an answer is waited for unless
    `waits` is off.
    """

    def __init__(
        self,
        definition: pipeline.PipelineDefinition,
        state: RunState,
        files: RunFiles,
        workspaces: GitWorkspaceStore,
        agents: RunAgents,
        *,
        ask: AskPerson | None,
        waits: bool,
    ) -> None:
        self.definition = definition
        self.state = state
        self.files = files
        self.workspaces = workspaces
        self.agents = agents
        self._ask = ask
        self._waits = waits
        self.joins = Joins(definition, workspaces, base=state.run.base_tree, run_id=state.run.run_id)
        self.keys = StageKeys(agents.called, trust=trust_of(trusted=not agents.settings.untrusted))
        spending = spending_of(definition, state.run, agents.settings)
        self._of_reviews = agents.calls.part(agents.settings, spending, repo=agents.repo)
        # A call never waits for a quota itself, because the state of its stage shows that it waits.
        self._caller = self._of_reviews.caller(
            agents.settings, key_of=self.keys.key_of, watch_files=None, quota_wait=QuotaWait.NO
        )
        self._quota_clocks: dict[str, Timing] = {}

    @property
    def is_checkout(self) -> bool:
        """Return whether the stages work in the user's own tree, which is never reset."""
        return self.files.checkout is not None

    async def stored(self, tree: str) -> str:
        """Return a tree whose objects the next save stores, so that any machine has them. Raise WorkspaceError."""
        pack = await self.workspaces.pack(tree)
        if pack is not None:
            self.files.attach(pack_name(tree), pack)
        return tree

    def left_usd(self, stage: str) -> float | None:
        """Return the amount that a call of a stage may cost, or None without a limit. Raise BudgetExhausted."""
        return left_usd(self.definition, self.state.run, self.agents.settings, stage)

    def budget_advice(self, stage: str) -> str:
        """Return advice for an agent that stopped at its budget; empty if no limit of ours set that budget."""
        return budget_advice(self.definition, self.state.run, self.agents.settings, stage)

    def quota_reset(self, stage: str, error: RateLimited) -> datetime:
        """Return when a stage that met a used-up quota continues: at its reset or, if that is unknown, soon."""
        timing = self._caller.clock_of(error.agent)
        self._quota_clocks[stage] = timing
        seconds = error.retry_after_seconds
        if seconds is None or not 0 <= seconds <= LONGEST_QUOTA_SECONDS:
            seconds = _UNKNOWN_QUOTA_SECONDS
        return timing.now() + timedelta(seconds=seconds)

    def may_continue(self, stage: StageRecord) -> bool:
        """Return whether a stage that waits for a quota can be started: this run waits, or the quota has reset."""
        return self._waits or self._quota_seconds(stage) <= 0

    async def wait_for_quota(self, stage: str) -> None:
        """Wait until the quota of a stage has reset."""
        timing = self._quota_clocks.get(stage, self._caller.timing)
        seconds = self._quota_seconds(self.state.stage(stage))
        if seconds > 0:
            await timing.sleep(seconds + timing.chance())

    def _quota_seconds(self, stage: StageRecord) -> float:
        if stage.quota_until is None:
            return 0.0
        timing = self._quota_clocks.get(stage.name, self._caller.timing)
        return (stage.quota_until - timing.now()).total_seconds()

    async def ask_stage(self, stage: StageDefinition, resumed: str, request: AgentRequest) -> AgentResult:
        """Return the answer of a stage's agent; `resumed` names the agent whose session is resumed."""
        agents = self.agents.chain(stage.agent)
        if resumed:
            same = [each for each in agents if each.name == resumed]
            agents = tuple(same[:1]) or self.agents.chain(resumed)
        # A session that cannot be forked is resumed itself, because it knows what was done.
        forks = request.fork_session and all(each.limits.fork for each in agents)
        asked = replace(request, model=request.model or self.agents.model, fork_session=forks)
        if not asked.permission_mode.may_write or any(each.limits.writes for each in agents):
            return await self._call(stage.name, asked, agents)
        # A stage may write unless its file forbids it. If its agent only answers, the answer is enough.
        result = await self._call(stage.name, replace(asked, permission_mode=PermissionMode.DONT_ASK), agents)
        note = f"{result.agent} cannot change files, so it worked read-only"
        return replace(result, notes=(*result.notes, note))

    async def _ask_critic(self, stage: StageDefinition, gate: GateDefinition, request: AgentRequest) -> AgentResult:
        """Return the answer of a gate's critic, which is the stage's agent unless the gate names another."""
        model = request.model
        if model is None and gate.agent in (None, stage.agent):
            model = stage.model
        model = model or self.agents.model
        asked = replace(request, model=model, max_budget_usd=self.left_usd(stage.name))
        return await self._call(stage.name, asked, self.agents.chain(gate.agent or stage.agent))

    async def _call(self, stage: str, asked: AgentRequest, agents: Sequence[Agent]) -> AgentResult:
        payable = asked
        if not all(agent.limits.budget for agent in agents):
            # An agent that cannot stop at a limit is not given one; ours is checked between calls.
            payable = replace(asked, max_budget_usd=None)
        try:
            return await self._caller.call(payable, agent=agents, emit=partial(self._count, stage))
        except BudgetExhausted as error:
            if error.attempts and error.cost_usd is None:
                # It stopped at its limit without reporting its cost, which is then at least that limit.
                error.cost_usd = asked.max_budget_usd
            raise

    def _count(self, stage: str, event: object) -> None:
        """Save a request of a stage when it is sent, so that it counts even if this process dies."""
        if isinstance(event, AgentActivity):
            event = event.event
        if isinstance(event, AttemptStarted):
            record = self.state.stage(stage)
            self.state.put(replace(record, unanswered=record.unanswered + 1))

    async def judge(self, stage: StageDefinition, gate: GateDefinition, task: GateTask) -> pipeline.Critique:
        """Return the verdict of a gate. Raise CodeloupeError if it could not decide."""
        if gate.kind is GateKind.COMMAND:
            return await command_gate(gate, task)
        usd = self.left_usd(stage.name)
        if gate.kind is GateKind.CRITIC:
            can_read = all(agent.limits.tools for agent in self.agents.chain(gate.agent or stage.agent))
            return await critic_gate(gate, task, ask=partial(self._ask_critic, stage, gate), can_read=can_read)
        calls = self._of_reviews.part(self.agents.settings, SpendingLimits(max_usd=usd))
        try:
            return await review_gate(task, partial(self._review, gate, task, calls))
        except BaseException:  # what was spent counts, whatever ended the review, also a cancellation
            record = self.state.stage(stage.name)
            # The caller gets the first error.
            with suppress(StoreError):
                self.state.put(replace(record, unanswered=0, lost=record.lost.plus(calls.spent.usage)))
            raise

    async def _review(self, gate: GateDefinition, task: GateTask, calls: AgentCalls) -> Review:
        usual = self.agents.settings
        fail_on = usual.fail_on
        if gate.fail_on:
            fail_on = Severity.parse(gate.fail_on)
        settings = replace(
            usual,
            # The change is the agent's and not the user's, so nothing in it may suppress a finding.
            untrusted=True,
            keep_history=False,
            wait_for_quota=False,
            on_incomplete="fail",
            fail_on=fail_on,
            experts=gate.experts or usual.experts,
        )
        root = self.files.of_stage(task.stage) / "review"
        async with self.workspaces.committed_change(root, before=task.start_tree, after=task.tree) as change:
            try:
                async with asyncio.timeout(gate.timeout_seconds):
                    found = await review(
                        change,
                        repo=root,
                        settings=settings,
                        context=task.requirements,
                        calls=calls,
                        # The analysers never replace an agent: `offline` must be asked for by name.
                        needs_agent=True,
                        emit=partial(self._count, task.stage),
                    )
            except TimeoutError as error:
                what = f"the review of {task.stage} did not finish within {gate.timeout_seconds:g} s"
                hint = "raise the timeout of the gate, then retry the stage; finished reviews come from the ledger"
                raise PipelineError(what, stage=task.stage, hint=hint) from error
        self._refuse_quota(found)
        return found

    def _refuse_quota(self, found: Review) -> None:
        """Raise RateLimited if a review is incomplete because a quota is used up."""
        messages = [problem.message for problem in found.errors if problem.kind == "rate_limited"]
        if found.complete or not messages:
            return
        agent, seconds = self._caller.longest_pause() or ("none", None)
        # Its requests are counted with those of the whole review.
        raise RateLimited(messages[0], agent=agent, retry_after_seconds=seconds, attempts=0)

    async def ask_person(self, stage: StageRecord, question: str, seconds: float) -> pipeline.Approval | None:
        """Return the decision of a person about a stage that waits, or None if there is none in time."""
        ask = None
        if self._ask is not None:
            ask = partial(self._ask, stage, question)
        take = partial(self.state.answer, stage.name)
        timeout = seconds if self._waits else 0.0
        return await answer_of_a_person(take, ask, timeout_seconds=timeout)

    def chosen_trees(self) -> dict[str, str]:
        """Return the tree of the chosen attempt of each completed stage."""
        trees: dict[str, str] = {}
        for stage in self.state.run.stages:
            chosen = _chosen(stage)
            if chosen is not None:
                trees[stage.name] = chosen.tree
        return trees

    def built_on(self, stage: StageDefinition) -> dict[str, str]:
        """Return what a stage builds on if it begins now: the trees of the stages that it needs, and earlier answers.

        The initial tree of the run is under "".
        """
        trees = self.chosen_trees()
        found = {"": self.state.run.base_tree}
        for name in self.joins.lineage(stage.name):
            parts: list[str] = []
            if name in stage.needs and name in trees:
                parts.append(trees[name])
            parts += map(_digest, self.saved_answers([name]).values())
            if parts:
                found[name] = " ".join(parts)
        return found

    def saved_answers(self, stages: Iterable[str]) -> dict[str, str]:
        """Return the answers of completed stages that were saved outside the user's own tree, by name."""
        answers: dict[str, str] = {}
        if not self.is_checkout:
            return answers
        for name in stages:
            chosen = _chosen(self.state.stage(name))
            if chosen is not None and chosen.saved_answer:
                text = self.files.read(self.files.attempt(name, chosen.number, chosen.saved_answer))
                answers[chosen.saved_answer] = text
        return answers

    def own_answers(self) -> tuple[str, ...]:
        """Return the answers that were saved among a repository's files; they are not changes of the repository."""
        run = self.state.run
        if run.workspace is pipeline.WorkspaceKind.DIRECTORY:
            return ()
        names: set[str] = set()
        for stage in run.stages:
            for attempt in (*stage.earlier, *stage.attempts):
                if attempt.saved_answer in attempt.artifacts:
                    names.add(attempt.saved_answer)
        return tuple(sorted(names))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _chosen(stage: StageRecord) -> AttemptRecord | None:
    if stage.state is not pipeline.StageState.COMPLETED:
        return None
    return stage.chosen_attempt
