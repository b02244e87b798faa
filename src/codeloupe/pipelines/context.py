"""The context that the stages of a run share: agents, budget, workspaces, files and people."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from functools import partial

from msgspec.structs import replace

from codeloupe.agents.calls.budget import SpendingLimits
from codeloupe.agents.calls.limiter import Timing
from codeloupe.calls import StageKeys, trust_of
from codeloupe.engine import review
from codeloupe.errors import PipelineError, RateLimited
from codeloupe.git.repository import object_name
from codeloupe.git.workspaces import GitWorkspaceStore
from codeloupe.model import pipeline
from codeloupe.model.agent import AgentRequest, AgentResult, PermissionMode
from codeloupe.model.finding import Severity
from codeloupe.model.pipeline import AttemptRecord, GateDefinition, GateKind, StageDefinition, StageRecord
from codeloupe.model.review import Review
from codeloupe.pipelines.agents import RunAgents
from codeloupe.pipelines.artifacts import saved_content
from codeloupe.pipelines.files import RunFiles
from codeloupe.pipelines.gates import GateTask, answer_of_a_person, command_gate, critic_gate, review_gate
from codeloupe.pipelines.joins import Joins
from codeloupe.pipelines.opening import pack_name
from codeloupe.pipelines.spending import budget_advice, left_usd, spending_of
from codeloupe.pipelines.stage_calls import StageCalls
from codeloupe.pipelines.state import RunState

AskPerson = Callable[[StageRecord, str], Awaitable[pipeline.Approval | None]]

# A quota without a known time of reset is tried again after this time.
_UNKNOWN_QUOTA_SECONDS = 300.0
# A service may say that its quota resets at once, and refuse the next request all the same.
_LEAST_QUOTA_SECONDS = 5.0
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
        self._calls = agents.calls.part(agents.settings, spending, repo=agents.repo)
        # It makes no calls itself, but knows how long the services of agents have asked to wait.
        self._pauses = self._calls.caller(agents.settings, watch_files=None)
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
        timing = self._pauses.clock_of(error.agent)
        self._quota_clocks[stage] = timing
        seconds = error.retry_after_seconds
        if seconds is None or not 0 <= seconds <= LONGEST_QUOTA_SECONDS:
            seconds = _UNKNOWN_QUOTA_SECONDS
        return timing.now() + timedelta(seconds=max(seconds, _LEAST_QUOTA_SECONDS))

    def may_continue(self, stage: StageRecord) -> bool:
        """Return whether a stage that waits for a quota can be started: this run waits, or the quota has reset."""
        return self._waits or self._quota_seconds(stage) <= 0

    async def wait_for_quota(self, stage: str) -> None:
        """Wait until the quota of a stage has reset."""
        timing = self._quota_clocks.get(stage, self._pauses.timing)
        seconds = self._quota_seconds(self.state.stage(stage))
        if seconds > 0:
            await timing.sleep(seconds + timing.chance())

    def _quota_seconds(self, stage: StageRecord) -> float:
        if stage.quota_until is None:
            return 0.0
        timing = self._quota_clocks.get(stage.name, self._pauses.timing)
        return (stage.quota_until - timing.now()).total_seconds()

    def calls_of(self, stage: str) -> StageCalls:
        """Return the calls of one attempt or one gate of a stage, which have not spent anything yet."""
        return StageCalls(
            self._calls, self.agents.settings, keys=self.keys, on_sent=partial(self._count_request, stage)
        )

    def _count_request(self, stage: str) -> None:
        """Save a request of a stage when it is sent, so that it counts even if this process dies."""
        record = self.state.stage(stage)
        self.state.put(replace(record, unanswered=record.unanswered + 1))

    async def ask_stage(
        self, stage: StageDefinition, resumed: str, request: AgentRequest, *, calls: StageCalls
    ) -> AgentResult:
        """Return the answer of a stage's agent; `resumed` names the agent whose session is resumed."""
        agents = self.agents.chain(stage.agent)
        if resumed:
            same = [each for each in agents if each.name == resumed]
            agents = tuple(same[:1]) or self.agents.chain(resumed)
        # A session that cannot be forked is resumed itself, because it knows what was done.
        forks = request.fork_session and all(each.limits.fork for each in agents)
        asked = replace(request, model=request.model or self.agents.model, fork_session=forks)
        if not asked.permission_mode.may_write or any(each.limits.writes for each in agents):
            return await calls.ask(asked, agents)
        # A stage may write unless its file forbids it. If its agent only answers, the answer is enough.
        result = await calls.ask(replace(asked, permission_mode=PermissionMode.DONT_ASK), agents)
        note = f"{result.agent} cannot change files, so it worked read-only"
        return replace(result, notes=(*result.notes, note))

    async def _ask_critic(
        self, stage: StageDefinition, gate: GateDefinition, calls: StageCalls, request: AgentRequest
    ) -> AgentResult:
        """Return the answer of a gate's critic, which is the stage's agent unless the gate names another."""
        model = request.model
        if model is None and gate.agent in (None, stage.agent):
            model = stage.model
        model = model or self.agents.model
        asked = replace(request, model=model, max_budget_usd=self.left_usd(stage.name))
        return await calls.ask(asked, self.agents.chain(gate.agent or stage.agent))

    async def judge(
        self, stage: StageDefinition, gate: GateDefinition, task: GateTask, *, calls: StageCalls
    ) -> pipeline.Critique:
        """Return the verdict of a gate. Raise CodeloupeError if it could not decide."""
        if gate.kind is GateKind.COMMAND:
            return await command_gate(gate, task)
        usd = self.left_usd(stage.name)
        if gate.kind is GateKind.CRITIC:
            can_read = all(agent.limits.tools for agent in self.agents.chain(gate.agent or stage.agent))
            ask = partial(self._ask_critic, stage, gate, calls)
            critique = await critic_gate(gate, task, ask=ask, can_read=can_read)
        else:
            limits = SpendingLimits(max_usd=usd)
            critique = await review_gate(task, partial(self._review, gate, task, limits, calls))
        return replace(critique, usage=calls.usage)

    async def _review(self, gate: GateDefinition, task: GateTask, limits: SpendingLimits, calls: StageCalls) -> Review:
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
                        calls=calls.part(limits),
                        # The analysers never replace an agent: `offline` must be asked for by name.
                        needs_agent=True,
                        emit=calls.watch,
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
        agent, seconds = self._pauses.longest_pause() or ("none", None)
        raise RateLimited(messages[0], agent=agent, retry_after_seconds=seconds)

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

    def own_answers(self) -> frozenset[tuple[str, str]]:
        """Return the answers that were saved among a repository's files, which are no changes of it: path and blob.

        A file of the same name with other content was not saved by us.
        """
        run = self.state.run
        found: set[tuple[str, str]] = set()
        if run.workspace is pipeline.WorkspaceKind.DIRECTORY:
            return frozenset(found)
        for stage in run.stages:
            for attempt in (*stage.earlier, *stage.attempts):
                if attempt.saved_answer in attempt.artifacts:
                    content = saved_content(self.files.read(attempt.output_file))
                    found.add((attempt.saved_answer, object_name("blob", content, run.object_format)))
        return frozenset(found)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _chosen(stage: StageRecord) -> AttemptRecord | None:
    if stage.state is not pipeline.StageState.COMPLETED:
        return None
    return stage.chosen_attempt
