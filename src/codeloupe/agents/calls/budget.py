"""What calls may spend together: money, tokens, requests and time, reserved before a request and settled after it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from codeloupe import errors
from codeloupe.agents.calls.limiter import readable
from codeloupe.model.agent import AgentRequest, AgentResult, TokenUsage, Usage, full_prompt
from codeloupe.model.ports import Clock

# The next request may cost more than the dearest so far, and its tokens more than those: an answer's cost most.
MARGIN = 1.5


class Spent(Struct, frozen=True):
    """What went out so far. Requests of unknown cost are counted in `unknown_costs` and not in `usd`."""

    usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    unknown_costs: int = 0

    @property
    def tokens(self) -> int:
        """Return the number of all tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def usage(self) -> Usage:
        """Return the same as the usage of a review, a stage or a run."""
        return Usage(
            requests=self.requests,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cost_usd=self.usd,
            unknown_costs=self.unknown_costs,
        )


class SpendingLimits(Struct, frozen=True, kw_only=True):
    """What a part of all calls may spend, `spent` included, which went out earlier; None means no limit."""

    max_usd: float | None = None
    max_tokens: int | None = None
    max_requests: int | None = None
    spent: Spent = Spent()


class RunBudget:
    """What some calls may spend, in one event loop, by `SpendingLimits`. `deadline` is a moment of `clock`.

    A running request counts with what it may take, estimated high: its prompt and a long answer, or more when one has
    taken more. One that would go beyond a limit together with those waits until they have ended, and while no price is
    known, it waits for the first. So the last answer may pass a limit, but never all that run at a time.
    A request must also fit into `within`, the budget that this one is a part of.
    """

    def __init__(
        self, *, clock: Clock, deadline: float | None = None, within: RunBudget | None = None, **limits: Any
    ) -> None:
        given = SpendingLimits(**limits)
        most = (given.max_usd, given.max_tokens, given.max_requests)
        self._max_usd, self._max_tokens, self._max_requests = (math.inf if one is None else one for one in most)
        self._clock, self._within, self.spent = clock, within, given.spent
        # Also answers that turn out to be unusable: they are paid for.
        self.answers = 0
        self.deadline: float = min(math.inf if deadline is None else deadline, within.deadline if within else math.inf)
        self._running = Spent()
        self._dearest_usd: float | None = None
        self._token_usd: float | None = None
        self._most_tokens = 0
        self._first_in_line = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def limits_money(self) -> bool:
        """Whether there is a limit of money."""
        return self._max_usd < math.inf or (self._within is not None and self._within.limits_money)

    def part(self, limits: SpendingLimits) -> RunBudget:
        """A budget with limits of its own, whose requests must fit into this one too."""
        return RunBudget(clock=self._clock, within=self, **asdict(limits))

    def check(self, *, agent: str) -> None:
        """Raises BudgetExhausted, which names the limit and what was spent, when nothing more may be begun."""
        spent, most = self.spent, (self._max_usd, self._max_tokens, self._max_requests)
        requests = spent.requests + self._running.requests
        late = self._clock() - self.deadline if self.deadline < math.inf else -math.inf
        reached = (
            (spent.usd >= most[0], f"${spent.usd:.4f} of ${most[0]:.4f} spent", "max_budget_usd"),
            (spent.tokens >= most[1], f"{spent.tokens:,} of {most[1]:,} tokens used", "max_tokens"),
            (requests >= most[2], f"{requests:,} of {most[2]:,} requests used", "max_requests"),
            (late >= 0, f"its time ran out {readable(late)} ago", "the time limit"),
        )
        note = f" ({spent.unknown_costs} more requests did not report their cost)" if spent.unknown_costs else ""
        for is_reached, what, limit in reached:
            if is_reached:
                message = f"the budget of this run is used up, so {agent} was not called: {what}{note}"
                hint = f"raise {limit} and run again; earlier answers are stored"
                raise errors.BudgetExhausted(message, agent=agent, hint=hint, attempts=0)
        if self._within is not None:
            self._within.check(agent=agent)

    @asynccontextmanager
    async def reserve(
        self, request: AgentRequest, *, agent: str, reads: bool = False
    ) -> AsyncIterator[Callable[[AgentResult], None]]:
        """Room for one request, as long as the block runs; the block calls what it gets with the result.

        `reads` tells that the agent has tools, with which it sends more than the prompt. Raises BudgetExhausted before
        the block. An error or cancellation counts as a request too, with the cost that the error tells in `cost_usd`
        and `usage`.
        """
        async with self._first_in_line:
            while True:
                self.check(agent=agent)
                expected = self._expected(request, reads=reads)
                together = _sum(_sum(self.spent, self._running), expected)
                fits = together.usd <= self._max_usd and together.tokens <= self._max_tokens
                if fits or not self._running.requests:
                    break
                self._changed.clear()
                await self._changed.wait()
            self._running = _sum(self._running, expected)
        # Until the wider budget lets it in too, nothing was asked and nothing is spent.
        cost = Spent()
        try:
            wider = self._within.reserve(request, agent=agent, reads=reads) if self._within else nullcontext()
            async with wider as spend_within:
                cost = Spent(requests=1, unknown_costs=1)

                def spend(result: AgentResult) -> None:
                    nonlocal cost
                    cost = cost_of(result)
                    self.answers += 1
                    if spend_within is not None:
                        spend_within(result)

                try:
                    yield spend
                except Exception as error:  # whatever it was, what it cost is spent
                    cost = cost_of(error)
                    raise
        finally:
            self._end(expected, cost)

    def _expected(self, request: AgentRequest, *, reads: bool) -> Spent:
        """The most that a request is likely to take, rather too much than too little."""
        tokens = self._expected_tokens(request, reads=reads)
        price = self._price(tokens)
        # While no price is known, one request may take all there is.
        usd = self._max_usd if price is None else price
        most = math.inf if request.max_budget_usd is None else request.max_budget_usd
        return Spent(usd=min(usd, most) if self._max_usd < math.inf else 0.0, input_tokens=tokens, requests=1)

    def expected_usd(self, request: AgentRequest, *, reads: bool) -> float | None:
        """What a request is likely to cost at most, by what all calls have cost; None while no price is known."""
        if self._within is not None:
            return self._within.expected_usd(request, reads=reads)
        return self._price(self._expected_tokens(request, reads=reads))

    def _expected_tokens(self, request: AgentRequest, *, reads: bool) -> int:
        schema = json.dumps(request.output_schema, default=str) if request.output_schema else ""
        texts = (full_prompt(request), request.system_prompt, request.append_system_prompt, schema)
        # Code has more tokens for its length than prose; a reservation that is too large costs only some concurrency.
        sent = sum(len(text or "") for text in texts) // 3
        # Hardly any answer is longer than this, and an agent with tools sends its own instructions and, turn by turn,
        # all that it has read.
        return max(sent + (64_000 if reads else 16_000), round(MARGIN * self._most_tokens))

    def _price(self, tokens: int) -> float | None:
        if self._dearest_usd is None:
            return None
        # The least is for an agent that says what it costs, but not for how many tokens.
        by_tokens = 0.5 if self._token_usd is None else MARGIN * self._token_usd * tokens
        return max(MARGIN * self._dearest_usd, by_tokens)

    def _end(self, expected: Spent, cost: Spent) -> None:
        self._running = _sum(self._running, expected, sign=-1)
        self.spent = _sum(self.spent, cost)
        self._most_tokens = max(self._most_tokens, cost.tokens)
        # A service that refused took nothing, which tells nothing about the price of an answer.
        if cost.usd or cost.tokens:
            self._dearest_usd = max(self._dearest_usd or 0.0, cost.usd)
        if cost.tokens:
            self._token_usd = max(self._token_usd or 0.0, cost.usd / cost.tokens)
        self._changed.set()


# With these a service gave no answer, so it takes no money.
UNPAID = (
    errors.InvalidRequest, errors.NotLoggedIn, errors.RateLimited, errors.Overloaded, errors.ConnectionFailed,
    errors.PromptTooLong,
)  # fmt: skip


def cost_of(outcome: object) -> Spent:
    """What a result or an error says that it cost; nothing where nothing was asked."""
    if isinstance(outcome, errors.StoreError) or (isinstance(outcome, errors.AgentError) and not outcome.attempts):
        return Spent()
    usage, usd = getattr(outcome, "usage", None), getattr(outcome, "total_cost_usd", getattr(outcome, "cost_usd", None))
    used = usage or TokenUsage()
    spent = Spent(input_tokens=used.input_tokens, output_tokens=used.output_tokens, requests=1)
    if usd is None or not math.isfinite(usd):
        return replace(spent, unknown_costs=int(not isinstance(outcome, UNPAID)))
    return replace(spent, usd=max(usd, 0.0))


def _sum(first: Spent, second: Spent, *, sign: int = 1) -> Spent:
    return Spent(*(one + sign * other for one, other in zip(astuple(first), astuple(second), strict=True)))
