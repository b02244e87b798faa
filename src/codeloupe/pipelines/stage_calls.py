"""The agent calls of one attempt or one gate of a stage, which count together what they spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from codeloupe.agents.calls.budget import SpendingLimits
from codeloupe.calls import AgentCalls, StageKeys
from codeloupe.config.schema import Settings
from codeloupe.model.agent import AgentFinished, AgentRequest, AgentResult, AttemptStarted, Usage
from codeloupe.model.events import AgentActivity
from codeloupe.model.limits import QuotaWait
from codeloupe.model.ports import Agent


class StageCalls:
    """The calls of one attempt or one gate. `on_sent` is called when a request is sent. `answer` is the last one."""

    def __init__(self, of_run: AgentCalls, settings: Settings, *, keys: StageKeys, on_sent: Callable[[], None]) -> None:
        self._settings = settings
        self._on_sent = on_sent
        self._calls = of_run.part(settings, SpendingLimits())
        # A call never waits for a quota itself, because the state of its stage shows that it waits.
        self._caller = self._calls.caller(settings, key_of=keys.key_of, watch_files=None, quota_wait=QuotaWait.NO)
        self.answer: AgentResult | None = None
        self._cached = 0
        self._sent_at: float | None = None

    @property
    def usage(self) -> Usage:
        """Return what all calls spent so far, whatever ended them. Answers from the ledger cost nothing."""
        seconds = 0.0
        if self._sent_at is not None:
            seconds = time.monotonic() - self._sent_at
        return replace(self._calls.spent.usage, cached=self._cached, duration_seconds=seconds)

    @property
    def is_answered(self) -> bool:
        """Return whether an answer that is paid for has arrived, although it may not be checked yet."""
        return self._caller.budget.answers > 0

    def part(self, limits: SpendingLimits) -> AgentCalls:
        """Return calls with further limits, which count here if `watch` sees their events."""
        return self._calls.part(self._settings, limits)

    async def ask(self, request: AgentRequest, agents: Sequence[Agent]) -> AgentResult:
        """Return the answer of the first agent that can be used. Raise AgentError and StoreError."""
        payable = request
        if not all(agent.limits.budget for agent in agents):
            # An agent that cannot stop at a limit is not given one; ours is checked between calls.
            payable = replace(request, max_budget_usd=None)
        self.answer = await self._caller.call(payable, agent=agents, emit=self.watch)
        return self.answer

    def watch(self, event: object) -> None:
        """Take an event of a call or of a review."""
        if isinstance(event, AgentActivity):
            event = event.event
        if isinstance(event, AttemptStarted):
            if self._sent_at is None:
                self._sent_at = time.monotonic()
            self._on_sent()
        if isinstance(event, AgentFinished) and event.from_ledger:
            self._cached += 1
