"""What a run may spend on all its calls together: money, tokens, requests and time, looked at before each request."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from codeloupe.agents.timing import in_words
from codeloupe.errors import (
    AgentError,
    BudgetExhausted,
    ConnectionFailed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    Overloaded,
    PromptTooLong,
    RateLimited,
)
from codeloupe.model.agent import AgentRequest, AgentResult, TokenUsage
from codeloupe.model.records import dataclass
from codeloupe.ports import Clock

_CHARACTERS_PER_TOKEN = 4
# Before any call told its cost: enough for most, so that a run with a few dollars need not begin with one call alone.
_ASSUMED_COST_USD = 0.5


@dataclass(frozen=True, slots=True)
class Spent:
    """What went out so far. Requests whose cost nobody told are counted in `unknown_costs` and not in `usd`."""

    usd: float = 0.0
    tokens: int = 0
    requests: int = 0
    unknown_costs: int = 0


_UNKNOWN = Spent(requests=1, unknown_costs=1)
_FREE = (InvalidRequest, NotLoggedIn, RateLimited, Overloaded, ConnectionFailed, PromptTooLong)


class RunBudget:
    """The budget of one run, in one event loop; None means no limit. `deadline` is a moment of `clock`.

    Requests that run count with what they are expected to cost: the most that one has cost so far, and no more than
    their own max_budget_usd. One that would go beyond the limit together with those waits until they have ended. So
    the last one may pass a limit, but not all that run at a time. `spent` is what went out earlier.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        max_usd: float | None = None,
        max_tokens: int | None = None,
        max_requests: int | None = None,
        deadline: float | None = None,
        spent: Spent = Spent(),  # noqa: B008 - frozen
    ) -> None:
        self._clock = clock
        self._max_usd = math.inf if max_usd is None else max_usd
        self._max_tokens = math.inf if max_tokens is None else max_tokens
        self._max_requests = math.inf if max_requests is None else max_requests
        self.deadline = math.inf if deadline is None else deadline
        self._spent = spent
        self._running = Spent()
        self._dearest_usd: float | None = None
        self._most_tokens = 0
        self._first_in_line = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def spent(self) -> Spent:
        """What ended requests have cost."""
        return self._spent

    @property
    def limits_money(self) -> bool:
        """Whether there is a limit of money."""
        return self._max_usd < math.inf

    def check(self, *, agent: str) -> None:
        """Raises BudgetExhausted, which names the limit and what was spent, when nothing more may be begun."""
        spent = self._spent
        requests = spent.requests + self._running.requests
        self._refuse(spent.usd >= self._max_usd, f"${spent.usd:.4f} of ${self._max_usd:.4f} are spent", agent)
        self._refuse(spent.tokens >= self._max_tokens, f"{spent.tokens:,} of {self._max_tokens:,} tokens", agent)
        self._refuse(requests >= self._max_requests, f"{requests:,} of {self._max_requests:,} requests", agent)
        late = self._clock() - self.deadline
        self._refuse(late >= 0, f"the time of the run ended {in_words(max(late, 0.0))} ago", agent)

    def _refuse(self, is_over: bool, what: str, agent: str) -> None:  # noqa: FBT001 - a list of checks reads best so
        if is_over:
            unknown = self._spent.unknown_costs
            note = f" ({unknown} more requests did not tell their cost)" if unknown else ""
            raise BudgetExhausted(
                f"nothing more is asked of {agent}, since the budget of this run is used up: {what}{note}",
                agent=agent,
                hint="what was found before stays; raise the limit to go on",
                attempts=0,
            )

    @asynccontextmanager
    async def reserve(self, request: AgentRequest, *, agent: str) -> AsyncIterator[Callable[[AgentResult], None]]:
        """Room for one request, as long as the block runs; the block calls what it gets with the result.

        Raises BudgetExhausted before the block. An error or cancellation counts as a request too, with the cost
        that the error tells in `cost_usd` and `usage`.
        """
        async with self._first_in_line:
            while not self._fits(expected := self._expected(request), agent):
                self._changed.clear()
                await self._changed.wait()
            self._running = _sum(self._running, expected)
        costs: list[Spent] = []
        try:
            yield lambda result: costs.append(_cost(result.total_cost_usd, result.usage))
        except Exception as error:  # whatever it was, what it cost is spent
            costs.append(_cost_of_failure(error))
            raise
        finally:
            self._end(expected, costs[0] if costs else _UNKNOWN)

    def _expected(self, request: AgentRequest) -> Spent:
        most = math.inf if request.max_budget_usd is None else request.max_budget_usd
        usd = _ASSUMED_COST_USD if self._dearest_usd is None else self._dearest_usd
        tokens = max(self._most_tokens, len(request.prompt) // _CHARACTERS_PER_TOKEN)
        return Spent(usd=min(usd, most), tokens=tokens, requests=1)

    def _fits(self, expected: Spent, agent: str) -> bool:
        self.check(agent=agent)
        if not self._running.requests:
            return True
        together = _sum(_sum(self._spent, self._running), expected)
        return together.usd <= self._max_usd and together.tokens <= self._max_tokens

    def _end(self, expected: Spent, cost: Spent) -> None:
        self._running = _sum(self._running, expected, sign=-1)
        self._spent = _sum(self._spent, cost)
        self._most_tokens = max(self._most_tokens, cost.tokens)
        # A service that refused took nothing, which tells nothing about the price of an answer.
        if cost.usd or (cost.tokens and not cost.unknown_costs):
            self._dearest_usd = max(self._dearest_usd or 0.0, cost.usd)
        self._changed.set()


def _cost(cost_usd: float | None, usage: TokenUsage | None) -> Spent:
    tokens = usage.input_tokens + usage.output_tokens if usage else 0
    if cost_usd is None or not math.isfinite(cost_usd):
        return Spent(tokens=tokens, requests=1, unknown_costs=1)
    return Spent(usd=max(cost_usd, 0.0), tokens=tokens, requests=1)


def _cost_of_failure(error: Exception) -> Spent:
    """What the error tells, in `cost_usd` and `usage`; a service that gave no answer takes no money."""
    cost = _cost(error.cost_usd, error.usage) if isinstance(error, AgentError) else _UNKNOWN
    if isinstance(error, NotInstalled):
        return Spent()
    return replace(cost, unknown_costs=0) if isinstance(error, _FREE) else cost


def _sum(first: Spent, second: Spent, *, sign: int = 1) -> Spent:
    return Spent(
        usd=first.usd + sign * second.usd,
        tokens=first.tokens + sign * second.tokens,
        requests=first.requests + sign * second.requests,
        unknown_costs=first.unknown_costs + sign * second.unknown_costs,
    )
