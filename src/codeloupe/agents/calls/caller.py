"""One agent call with all that is done around it, in order.

    check the request → mask secrets → ledger → claim → limiter → budget → shared limits → attempts → check the answer →
    ledger

Time: `timeout_seconds` of a request begins when the call gets its place in the limiter and covers all that follows:
attempts and the waits between them. Waiting for a place is not part of it, and `QuotaWait` says whether waiting for a
quota is.
The deadline of the run, in the budget, bounds everything. A wait that does not fit is not begun.
A cancellation ends every wait and every attempt at once, and is raised when the agent is gone and the claim is given
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe.agents.calls.budget import RunBudget, SpendingLimits, Spent
from codeloupe.agents.calls.ledger import LedgerCalls
from codeloupe.agents.calls.limiter import Limiter, Timing
from codeloupe.agents.calls.masking import mask_error, masked_request, masked_result, masked_sink
from codeloupe.agents.calls.retry import Attempts, RetryPolicy
from codeloupe.agents.calls.transcript import label_of, log_answer, log_failed_call, log_prompt
from codeloupe.agents.calls.validation import validate, validate_types
from codeloupe.errors import AgentError, CodeloupeError, InvalidRequest, RateLimited
from codeloupe.model.agent import (
    FILES_NOT_KNOWN,
    AgentFinished,
    AgentRequest,
    AgentResult,
    AgentStarted,
    FellBack,
    same_vendor,
)
from codeloupe.model.limits import QuotaWait
from codeloupe.model.ports import Agent, AgentEventSink

if TYPE_CHECKING:
    from codeloupe.agents.calls.shared import SharedCalls
    from codeloupe.store.interface import Ledger

KeyOf = Callable[[AgentRequest, Agent], str | None]
ChangedFiles = Callable[[], Awaitable[tuple[str, ...]]]
WatchFiles = Callable[[Path], Awaitable[ChangedFiles]]


class CallerOptions(Struct, frozen=True, kw_only=True):
    """How calls are made. Limits hold for each agent by itself.

    `fresh` does not read the ledger, but writes to it; answers that were stored `fresh_since` a time count.
    `quota_wait` says whether a call waits until a quota resets; if the chain has another agent, that one is asked
    instead. `repo` is what calls are about, if not the directory that they work in.
    """

    concurrency: int = 5
    calls_per_minute: int | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    mask_prompts: bool = True
    fresh: bool = False
    fresh_since: float | None = None
    quota_wait: QuotaWait = QuotaWait.NO
    lease_seconds: float = 120.0
    repo: Path | None = None


class AgentCaller:
    """Makes calls in one event loop, which share limits, budget and ledger; `variant` makes others that share them too.

    `key_of` gives the ledger's key of a request, or None for one that must be made each time. `watch_files` looks at
    a directory before a call that may write and gives a function that tells, after it, which files changed. `shared`
    holds limits over more processes than this one. `timing` is the clock of all waits; without one, an agent's own
    `timing` is, as a scripted agent has it, or else real time.
    """

    def __init__(
        self,
        options: CallerOptions = CallerOptions(),  # noqa: B008 - frozen
        *,
        budget: RunBudget | None = None,
        ledger: Ledger | None = None,
        key_of: KeyOf | None = None,
        watch_files: WatchFiles | None = None,
        timing: Timing | None = None,
        shared: SharedCalls | None = None,
    ) -> None:
        self.options = options
        self.shared = shared
        self.timing = timing or Timing()
        self._given_timing = timing
        self.budget = budget or RunBudget(clock=self.timing.clock)
        self._key_of = key_of
        self._watch_files = watch_files
        self._limiters: dict[str, Limiter] = {}
        # The error of each agent that was missing or logged out before it gave any answer, and None for one that did:
        # calls that have another agent to ask need not find that out again. One that has answered can be used: if it
        # is refused later, that may be for one request alone.
        self.unusable: dict[str, AgentError | None] = {}
        self._ledger = ledger and LedgerCalls(ledger, lease_seconds=options.lease_seconds)

    @property
    def spent(self) -> Spent:
        """What ended requests have taken of the budget."""
        return self.budget.spent

    def timing_of(self, agent: Agent) -> Timing:
        """Return the clock of the waits for an agent: the one given, else the agent's own, else real time."""
        own: Timing | None = getattr(agent, "timing", None)
        return self._given_timing or own or self.timing

    def limiter(self, agent: Agent) -> Limiter:
        """Return what lets calls of this agent begin."""
        if agent.name not in self._limiters:
            self._limiters[agent.name] = Limiter(
                agent.name,
                concurrency=self.options.concurrency,
                calls_per_minute=self.options.calls_per_minute,
                longest_pause_seconds=self.options.retry.rate_limit_max_seconds,
                timing=self.timing_of(agent),
            )
        return self._limiters[agent.name]

    def clock_of(self, agent: str) -> Timing:
        """Return the clock of an agent that was asked, by its name."""
        limiter = self._limiters.get(agent)
        return self.timing if limiter is None else limiter.timing

    def longest_pause(self) -> tuple[str, float] | None:
        """Return the agent whose service has asked for the longest pause, and how many seconds of it are left."""
        longest: tuple[str, float] | None = None
        for name, limiter in self._limiters.items():
            seconds = limiter.opens_at - limiter.timing.clock()
            if seconds > 0 and (longest is None or seconds > longest[1]):
                longest = name, seconds
        return longest

    def variant(
        self,
        *,
        key_of: KeyOf | None,
        watch_files: WatchFiles | None,
        limits: SpendingLimits | None = None,
        **options: Any,
    ) -> AgentCaller:
        """A caller with other keys and options, under the same limits, and perhaps more, and with the same ledger."""
        other = copy(self)
        other._key_of, other._watch_files = key_of, watch_files  # noqa: SLF001 - of our own class
        other.options = replace(self.options, **options)
        if limits is not None:
            other.budget = self.budget.part(limits)
        return other

    async def call(
        self,
        request: AgentRequest,
        *,
        agent: Agent | Sequence[Agent],
        emit: AgentEventSink,
        chain: Sequence[Agent] = (),
    ) -> AgentResult:
        """The answer of the agent, or of the first of a chain that can be used; `notes` tell what was not as asked.

        A model that the request names is the first agent's; one of another vendor is asked for its own default.
        With `chain`, only `agent` is asked, as one of these: a caller that decides itself about the next agent asks
        them one by one. Budget and cancellation then end the chain: they are BudgetExhausted and CancelledError.
        Raises an AgentError, or a StoreError when the ledger cannot be read; no text in it holds a secret that is
        known. A failed call is not stored. A cancellation is raised as it came.
        """
        # Also raises a cancellation that came before anything was begun.
        await asyncio.sleep(0)
        agents = tuple(agent) if isinstance(agent, Sequence) else (agent,)
        first = agents[0].name if agents else "none"
        validate_types(request, agent=first)
        masked_emit = masked_sink(emit)
        started = self.timing.clock()
        masked_emit(AgentStarted(first, request.model, label_of(request)))

        ended: object = None
        try:
            ended = await self._ask_chain(request, agents, masked_emit, chain=tuple(chain) or agents)
            return ended
        except BaseException as error:  # whatever it was, the call has ended, which is reported
            ended = error
            raise
        finally:
            finished = AgentFinished(
                getattr(ended, "agent", agents[-1].name if agents else first),
                success=isinstance(ended, AgentResult),
                attempts=getattr(ended, "attempts", 0),
                duration_ms=round((self.timing.clock() - started) * 1000),
                cost_usd=getattr(ended, "total_cost_usd", None),
                from_ledger=getattr(ended, "from_ledger", False),
                stored=getattr(ended, "stored", False),
            )
            masked_emit(finished)

    async def _ask_chain(
        self, request: AgentRequest, agents: Sequence[Agent], emit: AgentEventSink, *, chain: Sequence[Agent]
    ) -> AgentResult:
        """The result of the first agent that can be used, with a note for each one before it."""
        failures: list[AgentError] = []
        for position, agent in enumerate(agents):
            if failures:
                emit(FellBack(agents[position - 1].name, agent.name, failures[-1].message))
            try:
                result = await self._ask(request, agent, emit, chain=chain)
                notes = (f"{failure.agent} was not used: {failure.message}" for failure in failures)
                return replace(result, notes=(*notes, *result.notes))
            except AgentError as error:
                failures.append(error)
                # After any other failure, another agent would not do better.
                if not error.unusable and not isinstance(error, RateLimited):
                    break
        if failures:
            raise _failure_of_all(failures)
        raise InvalidRequest("no agent was named, so no call was made", agent="none", hint="name at least one agent")

    async def _ask(
        self, request: AgentRequest, agent: Agent, emit: AgentEventSink, *, chain: Sequence[Agent]
    ) -> AgentResult:
        notes, first = list[str](), chain[0].name
        # The model that a request names is that of the first agent and of others of the same vendor.
        asked = " or ".join(filter(None, (request.model, request.fallback_model)))
        if asked and not same_vendor(agent.name, first):
            request = replace(request, model=None, fallback_model=None)
            notes.append(f"{agent.name} used its own default model, because {asked} was meant for {first}")
        try:
            validate(request, agent.limits, agent=agent.name)
            sent, masked = masked_request(request) if self.options.mask_prompts else (request, ())
            log_prompt(sent, agent.name)

            attempts = Attempts(self, agent, sent, emit, is_last=agent is chain[-1])

            async def ask() -> AgentResult:
                result = await self._watched(attempts)
                return masked_result(replace(result, notes=(*result.notes, *self._notes_on_cost(result, sent))))

            key = self._key_of(sent, agent) if self._key_of and self._ledger else None
            if key is None or not self._ledger:
                result = await ask()
            else:
                since = self.options.fresh_since if self.options.fresh else 0.0
                patience = min(sent.timeout_seconds, self.budget.deadline - self.timing.clock())
                result = await self._ledger.answer(
                    key,
                    ask,
                    is_answered=lambda: attempts.is_answered,
                    agent=agent.name,
                    patience_seconds=patience,
                    since=since,
                    emit=emit,
                )
        except CodeloupeError as error:
            mask_error(error)
            log_failed_call(request, agent.name, error)
            raise
        log_answer(request, agent.name, result)
        return replace(result, notes=(*result.notes, *masked, *notes))

    async def _watched(self, attempts: Attempts) -> AgentResult:
        """The answer, with the files that changed meanwhile where some may have."""
        request, unknown = attempts.request, ""
        if self._watch_files is None or not (request.permission_mode.may_write and attempts.agent.limits.writes):
            return await attempts.answer()
        changed_files: ChangedFiles | None = None
        try:
            changed_files = await self._watch_files(request.working_dir)
        except CodeloupeError as error:
            unknown = error.message
        result = await attempts.answer()
        try:
            if changed_files is not None:
                files = (*await changed_files(), *result.files_changed)
                return replace(result, files_changed=tuple(dict.fromkeys(files)))
        except CodeloupeError as error:
            unknown = error.message
        return replace(result, notes=(*result.notes, f"{FILES_NOT_KNOWN}: {unknown}"))

    def _notes_on_cost(self, result: AgentResult, request: AgentRequest) -> tuple[str, ...]:
        cost, most = result.total_cost_usd, request.max_budget_usd
        limits_money = self.budget.limits_money or (self.shared is not None and self.shared.limits_money)
        if cost is None and (most is not None or limits_money):
            return (f"{result.agent} does not report its cost, so a budget cannot be enforced",)
        if cost is not None and most is not None and cost > most:
            return (f"the call cost ${cost:.4f}, more than the allowed ${most:.4f}",)
        return ()


def _failure_of_all(failures: Sequence[AgentError]) -> AgentError:
    """Return the error of a call that no agent answered.

    It is the error of the last agent that could be used; if none could be, that of the first agent. Its message names
    every agent and why it did not answer, in the order asked.
    """
    usable = [failure for failure in failures if not failure.unusable]
    decisive = usable[-1] if usable else failures[0]
    if len(failures) == 1:
        return decisive
    reasons: list[str] = []
    for failure in failures:
        named = failure.message.startswith(failure.agent)
        reasons.append(failure.message if named else f"{failure.agent}: {failure.message}")
    summary = "no agent answered" if usable else "no agent can be used"
    decisive.message = f"{summary}: {'; '.join(reasons)}"
    decisive.args = (decisive.message,)
    hints = dict.fromkeys(failure.hint for failure in failures if failure.hint)
    # One may contain another: the same package brings two of the agents.
    distinct = [hint for hint in hints if not any(hint in other for other in hints if other != hint)]
    decisive.hint = "; or ".join(distinct)
    return decisive
