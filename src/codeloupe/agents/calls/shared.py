"""Agent requests under limits that many processes share through a database: asked before each, and told after it.

The database may block, so it is used in a thread. Of the requests of this process that wait for the same limits, only
the one with the earliest turn asks the database again. One task renews all leases of the process. An end that could not
be recorded is recorded later.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from codeloupe.agents.calls.budget import MARGIN, RunBudget, Spent, cost_of
from codeloupe.agents.calls.ledger import in_thread
from codeloupe.agents.calls.limiter import Place, Timing
from codeloupe.errors import StoreError
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.limits import Ending, LimitedRequest, MonthlyBudget, Waiting
from codeloupe.model.ports import Agent

if TYPE_CHECKING:
    from codeloupe.store.limits import SharedLimits

# How long a line waits before it asks again for a place that anybody may leave: from, to. And the longest that it
# relies on a time that it was told: whoever is before it may give up.
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS, _LONGEST_SECONDS = 0.25, 1.0, 5.0
_log = logging.getLogger(__name__)


class SharedOptions(Struct, frozen=True, kw_only=True):
    """The limits over all processes, None for none: for each account, and of money in a month."""

    concurrency: int | None = None
    calls_per_minute: int | None = None
    team: str | None = None
    monthly_usd: float | None = None
    monthly_team_usd: float | None = None
    monthly_repository_usd: float | None = None

    def budgets(self, repository: tuple[str, str]) -> tuple[MonthlyBudget, ...]:
        """What a request for a repository, of this name and label, is paid from."""
        of_all = MonthlyBudget("all", "all work", "monthly_budget_usd", self.monthly_usd)
        label, setting = f"the repository {repository[1]}", "monthly_repository_budget_usd"
        of_one = MonthlyBudget(f"repository {repository[0]}", label, setting, self.monthly_repository_usd)
        if self.team is None:
            return of_all, of_one
        label, setting = f"the team {self.team}", "monthly_team_budget_usd"
        return of_all, of_one, MonthlyBudget(f"team {self.team}", label, setting, self.monthly_team_usd)


def account_of(agent: Agent, request: AgentRequest) -> str:
    """Names what a service counts by: the agent, its address and its key. No key can be found out from it."""
    asked = (getattr(agent, name, None) for name in ("service_of", "credential_of"))
    known = json.dumps([agent.name, *(each and each(request) for each in asked)])
    return f"{agent.name} {hashlib.sha256(known.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


class SharedCalls:
    """The requests of one runtime, in one event loop. `name_of` gives the name of a repository and its label."""

    def __init__(
        self,
        limits: SharedLimits,
        options: SharedOptions,
        *,
        timing: Timing,
        priority: int,
        name_of: Callable[[Path], Awaitable[tuple[str, str]]],
    ) -> None:
        self.limits, self.options, self.timing = limits, options, timing
        self._priority, self._name_of = priority, name_of
        self.lines: dict[tuple[str, ...], _Line] = defaultdict(_Line)
        self.changed = asyncio.Event()
        self._held = 0
        self._unrecorded: list[tuple[LimitedRequest, Ending]] = []
        self._renewing: asyncio.Task[None] | None = None

    @property
    def limits_money(self) -> bool:
        """Whether there is a limit of money."""
        return any(budget.limit_usd is not None for budget in self.options.budgets(("", "")))

    async def request(
        self, request: AgentRequest, agent: Agent, *, place: Place, repo: Path | None, budget: RunBudget, reads: bool
    ) -> SharedPlace:
        """What one attempt needs: a place that is not taken yet."""
        wanted = LimitedRequest(
            id=uuid.uuid4().hex,
            agent=agent.name,
            account=account_of(agent, request),
            priority=self._priority,
            budgets=self.options.budgets(await self._name_of(repo or request.working_dir)),
            concurrency=self.options.concurrency,
            per_minute=self.options.calls_per_minute,
            expected_usd=budget.expected_usd(request, reads=reads),
            max_usd=request.max_budget_usd,
        )
        return SharedPlace(self, wanted, place)

    def hold(self) -> None:
        """One more request is known to others: they must hear that we are alive."""
        self._held += 1
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew())

    async def end(self, wanted: LimitedRequest, ending: Ending) -> str:
        """Record the end of a request; why that could not be done, if so."""

        def record() -> str:
            # Noted in the same step, so that a cancellation meanwhile does not lose it.
            try:
                self.limits.end(wanted, ending)
            except StoreError as error:
                self._unrecorded.append((wanted, ending))
                _log.warning("the end of a request could not be recorded, and will be retried: %s", error)
                return error.message
            return ""

        try:
            return await in_thread(record)
        finally:
            self._held -= 1
            self.changed.set()
            if not self._held and not self._unrecorded and self._renewing is not None:
                self._renewing.cancel()
                self._renewing = None

    async def _renew(self) -> None:
        while self._held or self._unrecorded:
            # In real time, whatever the clock of the calls is: other processes wait for this.
            await asyncio.sleep(self.limits.lease_seconds / 3)
            try:
                await in_thread(self.limits.renew)
                while self._unrecorded:
                    wanted, ending = self._unrecorded[0]
                    await in_thread(lambda: self.limits.end(wanted, ending))  # noqa: B023 - it has ended with the line
                    self._unrecorded.pop(0)
            except StoreError as error:
                _log.warning("the places of this process could not be renewed: %s", error)
        self._renewing = None


class _Line:
    """The requests of this process that wait for the same limits, by their turns."""

    def __init__(self) -> None:
        self._is_first: dict[int, asyncio.Event] = {}

    def join(self, turn: int) -> asyncio.Event:
        """Return an event that is set while no earlier turn waits."""
        is_first = self._is_first[turn] = asyncio.Event()
        self._choose()
        return is_first

    def leave(self, turn: int) -> None:
        """Let the next turn be the first."""
        del self._is_first[turn]
        self._choose()

    def _choose(self) -> None:
        earliest = min(self._is_first, default=None)
        for turn, is_first in self._is_first.items():
            if turn == earliest:
                is_first.set()
            else:
                is_first.clear()


class SharedPlace:
    """The place of one attempt among those of all processes: taken once, and left by `async with`.

    `result` is to be set to the answer, and `pause_seconds` when the service had no room.
    """

    def __init__(self, calls: SharedCalls, wanted: LimitedRequest, place: Place) -> None:
        self._calls, self._wanted, self._place = calls, wanted, place
        self._is_started = False
        self.result: AgentResult | None = None
        self.pause_seconds: float | None = None
        self.problem = ""

    async def __aenter__(self) -> Self:
        self._calls.hold()
        return self

    async def take(self) -> None:
        """Wait for the place. Raises RateLimited while a quota has ended, BudgetExhausted, and StoreError."""
        waiting = await self._look()
        if waiting is None:
            return
        line = self._calls.lines[self._wanted.account, self._wanted.budgets[1].name]
        turn = waiting.turn
        is_first = line.join(turn)
        try:
            await self._poll(waiting, is_first)
        finally:
            line.leave(turn)

    async def _poll(self, waiting: Waiting, is_first: asyncio.Event) -> None:
        """Ask the database until the request may start, but only while no earlier turn of this process waits."""
        state: Waiting | None = waiting
        delay = _FIRST_LOOK_SECONDS
        while state is not None:
            if is_first.is_set():
                await self._pause(state, delay)
                delay = min(1.5 * delay, _LAST_LOOK_SECONDS)
            else:
                await is_first.wait()
            state = await self._look()

    async def _pause(self, waiting: Waiting, delay: float) -> None:
        """Wait until it is worth asking again: as long as the database said, or until a request of ours ends."""
        if waiting.seconds is None:
            # Spread, so that not all processes ask at once.
            seconds = delay * (0.75 + 0.5 * self._calls.timing.chance())
        else:
            seconds = min(max(waiting.seconds, 0.001), _LONGEST_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._calls.changed.wait()

    async def _look(self) -> Waiting | None:
        # Cleared before the look: what changes meanwhile is not missed.
        self._calls.changed.clear()
        waiting = await in_thread(lambda: self._calls.limits.start(self._wanted))
        self._is_started = waiting is None
        if waiting is not None and waiting.pause_seconds:
            self._place.pause(waiting.pause_seconds)
        return waiting

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        cost = Spent()
        if self._is_started:
            outcome = self.result or error
            # Whoever is cancelled may have been asked something all the same.
            is_known = outcome is not None and not isinstance(outcome, asyncio.CancelledError)
            cost = cost_of(outcome) if is_known else Spent(requests=1, unknown_costs=1)
        ending = Ending(
            usd=cost.usd,
            requests=cost.requests,
            unknown_costs=cost.unknown_costs,
            next_usd=MARGIN * cost.usd if self.result is not None or cost.usd else None,
            succeeded=self.result is not None,
            refused=self.pause_seconds is not None,
            pause_seconds=self.pause_seconds or 0.0,
        )
        self.problem = await self._calls.end(self._wanted, ending)
