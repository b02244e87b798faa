"""Agent requests under limits that many processes share through a database: a permit before each, its cost after it.

The database may block, so it is used in a thread. One task asks for permits for all waiting requests of a runtime, in
one transaction, so that no request depends on another one to ask. Another task renews the permits of the process. An
end that could not be recorded is recorded later.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from msgspec import Struct

from codeloupe.agents.calls.budget import MARGIN, RunBudget, Spent, cost_of
from codeloupe.agents.calls.ledger import in_thread
from codeloupe.agents.calls.limiter import Place, Timing
from codeloupe.errors import BudgetExhausted, RateLimited, StoreError
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.limits import Ending, LimitedRequest, MonthlyBudget, Permit, Waiting
from codeloupe.model.ports import Agent
from codeloupe.system.process import uninterrupted

if TYPE_CHECKING:
    from codeloupe.store.interface import Database

# How long to wait before asking again for a place or money that another process holds: at first, and at most.
_FIRST_DELAY_SECONDS = 0.25
_LAST_DELAY_SECONDS = 1.0
# A known wait is cut to this, because a request with an earlier turn may be withdrawn.
_LONGEST_WAIT_SECONDS = 5.0
_SHORTEST_WAIT_SECONDS = 0.005
_log = logging.getLogger(__name__)


class RequestLimits(Protocol):
    """Grants permits and counts costs: `SharedLimits`, or `SpendingCounter` without limits. Raises StoreError."""

    @property
    def database(self) -> Database:
        """The database that counts."""

    @property
    def lease_seconds(self) -> float:
        """How long a permit is valid if it is not renewed."""

    def now(self) -> float:
        """Return the time by the clock of the database."""

    def start(self, requests: Sequence[LimitedRequest]) -> Mapping[str, Permit | Waiting | BudgetExhausted]:
        """Start the requests that may start now, and return the answer for each by its id."""

    def end(self, request: LimitedRequest, ending: Ending) -> None:
        """End a request, whatever the answer was, and count its cost."""

    def renew(self) -> None:
        """Keep the permits of this process for another lease."""


class SharedOptions(Struct, frozen=True, kw_only=True):
    """The limits over all processes, None for no limit: for each account, and of money in a month."""

    concurrency: int | None = None
    calls_per_minute: int | None = None
    team: str | None = None
    monthly_usd: float | None = None
    monthly_team_usd: float | None = None
    monthly_repository_usd: float | None = None

    def budgets(self, key: str, label: str) -> tuple[MonthlyBudget, ...]:
        """Return the budgets that pay for a request, for the repository with this key and label."""
        budgets = [
            MonthlyBudget("all", "", "all work", "monthly_budget_usd", self.monthly_usd),
            MonthlyBudget("repository", key, label, "monthly_repository_budget_usd", self.monthly_repository_usd),
        ]
        if self.team is not None:
            team = MonthlyBudget("team", self.team, self.team, "monthly_team_budget_usd", self.monthly_team_usd)
            budgets.append(team)
        return tuple(budgets)


def account_of(agent: Agent, request: AgentRequest) -> str:
    """Return a name for what a service counts by: the agent, its address and its key. It does not reveal the key."""
    known: list[str | None] = [agent.name]
    for name in ("service_of", "credential_of"):
        method = getattr(agent, name, None)
        known.append(method(request) if method else None)
    digest = hashlib.sha256(json.dumps(known).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{agent.name} {digest[:16]}"


class _Turn(Struct, frozen=True, eq=False):
    """A request that waits for its permit, and its place in the limiter of this process."""

    wanted: LimitedRequest
    place: Place
    permit: asyncio.Future[Permit]


class SharedCalls:
    """The requests of one runtime, in one event loop. `name_of` returns the key and the label of a repository."""

    def __init__(
        self,
        limits: RequestLimits,
        options: SharedOptions,
        *,
        timing: Timing,
        priority: int,
        name_of: Callable[[Path], Awaitable[tuple[str, str]]],
    ) -> None:
        self.limits = limits
        self.options = options
        self.timing = timing
        self._priority = priority
        self._name_of = name_of
        self._turns: dict[str, _Turn] = {}
        self._changed = asyncio.Event()
        # One step at a time uses the database. So the end of a request follows the step that may have started it.
        self._database = asyncio.Lock()
        self._held = 0
        self._unrecorded: list[tuple[LimitedRequest, Ending]] = []
        self._polling: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def limits_money(self) -> bool:
        """Whether there is a limit of money."""
        return any(budget.limit_usd is not None for budget in self.options.budgets("", ""))

    async def request(
        self, request: AgentRequest, agent: Agent, *, place: Place, repo: Path | None, budget: RunBudget, reads: bool
    ) -> SharedPlace:
        """Return a place for one attempt, which is not taken yet."""
        key, label = await self._name_of(repo or request.working_dir)
        wanted = LimitedRequest(
            id=uuid.uuid4().hex,
            agent=agent.name,
            account=account_of(agent, request),
            priority=self._priority,
            budgets=self.options.budgets(key, label),
            concurrency=self.options.concurrency,
            per_minute=self.options.calls_per_minute,
            expected_usd=budget.expected_usd(request, reads=reads),
            max_usd=request.max_budget_usd,
        )
        return SharedPlace(self, wanted, place)

    def hold(self) -> None:
        """Count one more request, and renew the permits of this process while there are any."""
        self._held += 1
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew())

    async def permit(self, wanted: LimitedRequest, place: Place) -> Permit:
        """Wait for the permit of a request. Raise RateLimited, BudgetExhausted and StoreError."""
        turn = _Turn(wanted, place, asyncio.get_running_loop().create_future())
        self._turns[wanted.id] = turn
        self._changed.set()
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        try:
            return await turn.permit
        finally:
            self._turns.pop(wanted.id, None)

    async def _poll(self) -> None:
        """Ask for the permits of all waiting requests until none waits."""
        delay = _FIRST_DELAY_SECONDS
        try:
            while self._turns:
                # Cleared before the question, so that a change during it is noticed.
                self._changed.clear()
                answers = await self._ask(list(self._turns.values()))
                waits = [answer for answer in answers if isinstance(answer, Waiting)]
                if len(waits) < len(answers):
                    delay = _FIRST_DELAY_SECONDS
                if waits:
                    await self._wait_for_change(self._seconds_until_next(waits, delay))
                    delay = min(1.5 * delay, _LAST_DELAY_SECONDS)
        finally:
            self._polling = None
            # Only a cancellation, as at the end of the event loop, leaves requests without an answer.
            for turn in self._turns.values():
                turn.permit.cancel()

    async def _ask(self, turns: Sequence[_Turn]) -> list[Permit | Waiting | BudgetExhausted]:
        """Ask the database once, and pass on the permits and failures."""
        wanted = [turn.wanted for turn in turns]
        try:
            async with self._database:
                answers = await in_thread(lambda: self.limits.start(wanted))
        except Exception as error:  # noqa: BLE001 - each waiting request reports it as its own failure
            for turn in turns:
                self._fail(turn, error)
            return []
        for turn in turns:
            self._pass_on(turn, answers[turn.wanted.id])
        return list(answers.values())

    def _pass_on(self, turn: _Turn, answer: Permit | Waiting | BudgetExhausted) -> None:
        if isinstance(answer, BudgetExhausted):
            self._fail(turn, answer)
        elif isinstance(answer, Permit):
            self._turns.pop(turn.wanted.id, None)
            if not turn.permit.done():
                turn.permit.set_result(answer)
        elif answer.pause_seconds:
            try:
                turn.place.pause(answer.pause_seconds)
            except RateLimited as error:
                self._fail(turn, error)

    def _fail(self, turn: _Turn, error: Exception) -> None:
        self._turns.pop(turn.wanted.id, None)
        if turn.permit.done():
            return
        if isinstance(error, StoreError):
            # Several requests fail with it, and each adds its own notes.
            error = type(error)(error.message, hint=error.hint)
        turn.permit.set_exception(error)

    def _seconds_until_next(self, waits: Sequence[Waiting], delay: float) -> float:
        """Return how long no request can start, as far as that is known."""
        seconds = _LONGEST_WAIT_SECONDS
        for waiting in waits:
            if waiting.seconds is None:
                # Spread, so that not all processes ask at once.
                seconds = min(seconds, delay * (0.75 + 0.5 * self.timing.chance()))
            else:
                seconds = min(seconds, waiting.seconds)
        return max(seconds, _SHORTEST_WAIT_SECONDS)

    async def _wait_for_change(self, seconds: float) -> None:
        """Wait so long, or until a request of this runtime is added or ends."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def end(self, wanted: LimitedRequest, ending: Ending) -> str:
        """Record the end of a request. Return the reason if that was not possible."""
        try:
            return await uninterrupted(self._record(wanted, ending))
        finally:
            self._held -= 1
            self._changed.set()
            if not self._held and not self._unrecorded and self._renewing is not None:
                self._renewing.cancel()
                self._renewing = None

    async def _record(self, wanted: LimitedRequest, ending: Ending) -> str:
        def record() -> None:
            # The answer of the request is not stored yet, so this does not wait for the end of an outage.
            with self.limits.database.once():
                self.limits.end(wanted, ending)

        async with self._database:
            try:
                await asyncio.to_thread(record)
            except StoreError as error:
                self._unrecorded.append((wanted, ending))
                _log.warning("the end of a request could not be recorded, and will be retried: %s", error)
                return error.message
        return ""

    async def _renew(self) -> None:
        while self._held or self._unrecorded:
            # In real time, even if the calls have another clock, because other processes rely on it.
            await asyncio.sleep(self.limits.lease_seconds / 3)
            try:
                await in_thread(self.limits.renew)
                await self._record_later()
            except StoreError as error:
                _log.warning("the permits of this process could not be renewed: %s", error)
        self._renewing = None

    async def _record_later(self) -> None:
        """Record the ends that could not be recorded before. Raise StoreError."""
        async with self._database:
            await uninterrupted(asyncio.to_thread(self._record_all))

    def _record_all(self) -> None:
        while self._unrecorded:
            # To record an end twice, as another thread may do, changes nothing.
            wanted, ending = self._unrecorded[0]
            self.limits.end(wanted, ending)
            with suppress(ValueError):
                self._unrecorded.remove((wanted, ending))

    def close(self) -> None:
        """Record the ends that could not be recorded before, and wait for an unreachable database for a while."""
        try:
            self._record_all()
        except (StoreError, IndexError) as error:
            _log.warning("the end of a request could not be recorded: %s", error)


class SharedPlace:
    """The place of one attempt among those of all processes: taken once, and left by `async with`.

    Set `result` to the answer, or `pause_seconds` if the service had no capacity.
    """

    def __init__(self, calls: SharedCalls, wanted: LimitedRequest, place: Place) -> None:
        self._calls = calls
        self._wanted = wanted
        self._place = place
        self._may_be_sent = False
        self.result: AgentResult | None = None
        self.pause_seconds: float | None = None
        self.problem = ""

    async def __aenter__(self) -> Self:
        self._calls.hold()
        return self

    async def take(self) -> None:
        """Wait until the request may be sent. Raise RateLimited, BudgetExhausted and StoreError."""
        permit = await self._calls.permit(self._wanted, self._place)
        await asyncio.sleep(max(permit.starts_at - self._calls.limits.now(), 0.0))
        self._may_be_sent = True

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        cost = self._cost(error)
        next_usd = None
        if self.result is not None or cost.usd:
            next_usd = MARGIN * cost.usd
        ending = Ending(
            usd=cost.usd,
            requests=cost.requests,
            unknown_costs=cost.unknown_costs,
            next_usd=next_usd,
            succeeded=self.result is not None,
            refused=self.pause_seconds is not None,
            pause_seconds=self.pause_seconds or 0.0,
        )
        self.problem = await self._calls.end(self._wanted, ending)

    def _cost(self, error: BaseException | None) -> Spent:
        if not self._may_be_sent:
            return Spent()
        outcome = self.result or error
        # The service may have got a request that was cancelled.
        if outcome is None or isinstance(outcome, asyncio.CancelledError):
            return Spent(requests=1, unknown_costs=1)
        return cost_of(outcome)
