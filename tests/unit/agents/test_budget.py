import asyncio
import itertools
import math
from typing import Any

import pytest

from codeloupe.agents.calls.budget import RunBudget, Spent
from codeloupe.errors import BudgetExhausted, Crashed, NotInstalled, RateLimited
from codeloupe.model.agent import AgentResult, TokenUsage
from tests.rows import each
from tests.unit.agents.samples import rate_limited, request, result
from tests.unit.agents.virtual_time import run_virtually, virtual_clock, virtually


def budget(**limits: Any) -> RunBudget:
    return RunBudget(clock=virtual_clock, **limits)


async def spend(limits: RunBudget, outcome: AgentResult | Exception, *, seconds: float = 1.0, **fields: Any) -> float:
    """One request that takes a while; when it began."""
    async with limits.reserve(request(**fields), agent="scripted") as spent:
        began = virtual_clock()
        await asyncio.sleep(seconds)
        if isinstance(outcome, Exception):
            raise outcome
        spent(outcome)
        return began


def exhausted(limits: RunBudget) -> str:
    with pytest.raises(BudgetExhausted) as caught:
        limits.check(agent="scripted")
    assert caught.value.hint
    return caught.value.message


def cost(usd: float | None, tokens: int = 0) -> AgentResult:
    return result(total_cost_usd=usd, usage=TokenUsage(input_tokens=tokens))


@virtually
async def test_without_limits_everything_may_be_spent_and_is_counted() -> None:
    limits = budget()
    await asyncio.gather(*(spend(limits, cost(2.0, 10)) for _ in range(20)))
    limits.check(agent="scripted")
    assert virtual_clock() == 1.0
    assert limits.spent == Spent(usd=40.0, input_tokens=200, requests=20)


@each(
    ("limits", "outcome", "words"),
    [
        ({"max_usd": 1.0}, cost(1.25), "$1.2500 of $1.0000 spent"),
        ({"max_tokens": 1000}, cost(0.1, 1200), "1,200 of 1,000 tokens"),
        ({"max_requests": 1}, cost(0.1), "1 of 1 requests"),
        ({"deadline": 1.0}, cost(0.1), "its time ran out 0 s ago"),
    ],
)
@virtually
async def test_a_limit_that_is_reached_is_named_with_what_was_spent(
    limits: dict[str, Any], outcome: AgentResult, words: str
) -> None:
    spent = budget(**limits)
    await spend(spent, outcome)
    with pytest.raises(BudgetExhausted):
        await spend(spent, outcome)
    assert words in exhausted(spent)


class TestConcurrency:
    @pytest.mark.defect("V2")
    @each(
        ("limits", "first", "later", "starts"),
        [
            # One that does not fit beside the others waits for them.
            ({"max_usd": 1.0}, cost(0.3, 100_000), cost(0.01, 100_000), [0.0, 1.0]),
            # Far from its limit a budget holds nobody up, and a free model needs no room.
            ({"max_usd": 20.0, "max_tokens": 2_000_000}, cost(0.05, 9_000), cost(0.05, 9_000), [0.0] * 10),
            ({"max_usd": 0.4}, cost(0.0, 50), cost(0.0, 50), [0.0] * 9),
        ],
    )
    @virtually
    async def test_the_first_cost_decides_how_many_calls_fit_at_a_time(
        self, limits: dict[str, Any], first: AgentResult, later: AgentResult, starts: list[float]
    ) -> None:
        spent = budget(**limits)
        await spend(spent, first, seconds=0.0)
        assert list(await asyncio.gather(*(spend(spent, later) for _ in starts))) == starts

    @pytest.mark.defect("V2")
    @each("most", [0.03, 0.4, 100.0])
    @virtually
    async def test_before_any_cost_is_known_there_is_one_call_whatever_it_may_cost(self, most: float) -> None:
        limits = budget(max_usd=most)
        with pytest.raises(RateLimited):
            await spend(limits, rate_limited(), seconds=0.0)  # a refusal says nothing about the price
        assert list(await asyncio.gather(*(spend(limits, cost(0.01, 1_000)) for _ in range(2)))) == [0.0, 1.0]

    @pytest.mark.defect("V2")
    def test_whatever_calls_cost_and_in_whatever_order_only_the_last_one_passes_a_limit(self) -> None:
        told = (100, 4_000, 900, 15_000, 30, 2_000)
        wrong: list[str] = []

        async def run(limits: RunBudget, *, first: int, step: int, usd: float) -> None:
            sizes = [told[(first + number * step) % len(told)] for number in range(60)]
            calls = (spend(limits, cost(usd * size, size), prompt="x = 1\n" * 300) for size in sizes)
            await asyncio.gather(*calls, return_exceptions=True)

        for first, step, most in itertools.product(range(6), (1, 5, 6), (1_000, 6_000, 20_000, 90_000)):
            for what, limits in (("tokens", budget(max_tokens=most)), ("usd", budget(max_usd=most * 5e-6))):
                run_virtually(run(limits, first=first, step=step, usd=5e-6))
                over = limits.spent.tokens - most
                if over > max(told):
                    wrong.append(f"{what} {first=} {step=} {most=} {over=}")
        assert wrong == []

    @pytest.mark.defect("V2")
    @virtually
    async def test_costs_without_tokens_that_grow_do_not_overshoot_together(self) -> None:
        limits = budget(max_usd=1.0)
        costs = (*[0.01] * 20, *[0.3] * 20)
        await asyncio.gather(*(spend(limits, cost(usd)) for usd in costs), return_exceptions=True)
        assert limits.spent.usd < 1.31

    @virtually
    async def test_what_a_call_may_cost_bounds_what_is_kept_for_it(self) -> None:
        limits = budget(max_usd=0.4)
        calls = (spend(limits, cost(0.1), max_budget_usd=0.1) for _ in range(3))
        assert list(await asyncio.gather(*calls)) == [0.0, 0.0, 0.0]

    def test_tokens_are_kept_for_the_whole_prompt_and_a_long_answer(self) -> None:
        async def run(**fields: Any) -> list[float]:
            limits = budget(max_tokens=50_000)
            return list(await asyncio.gather(*(spend(limits, cost(0.0, 300), **fields) for _ in range(3))))

        assert run_virtually(run()) == [0.0, 0.0, 0.0]
        for long in (
            {"prompt": "word " * 9_000},
            {"system_prompt": "word " * 9_000},
            {"context": {"a": "b " * 20_000}},
        ):
            assert run_virtually(run(**long)) == [0.0, 1.0, 2.0]

    @virtually
    async def test_a_request_must_fit_into_the_wider_budget_too_and_counts_in_both(self) -> None:
        wide = budget(max_requests=3)
        narrow, other = budget(max_requests=2, within=wide), budget(within=wide)
        calls = [*(spend(narrow, cost(0.1)) for _ in range(3)), *(spend(other, cost(0.1)) for _ in range(2))]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(end, BudgetExhausted) for end in ended] == [False, False, True, False, True]
        assert [limits.spent.requests for limits in (wide, narrow, other)] == [3, 2, 1]
        assert "2 of 2 requests" in exhausted(budget(max_requests=2, spent=Spent(requests=2)))

    @virtually
    async def test_all_that_wait_learn_that_the_budget_is_used_up(self) -> None:
        limits = budget(max_usd=0.2)
        assert [
            isinstance(end, BudgetExhausted)
            for end in (await asyncio.gather(*(spend(limits, cost(0.3)) for _ in range(6)), return_exceptions=True))
        ] == [False, *[True] * 5]

    @virtually
    async def test_a_cancelled_request_keeps_no_room_and_counts_with_unknown_cost_if_it_was_running(self) -> None:
        limits = budget(max_usd=0.4)
        running, waiting, last = [asyncio.create_task(spend(limits, cost(0.1))) for _ in range(3)]
        await asyncio.sleep(0.5)
        waiting.cancel()
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        assert await last == 0.5
        assert limits.spent == Spent(usd=0.1, requests=2, unknown_costs=1)


class TestWhatIsNotToldOrFails:
    @virtually
    async def test_an_unknown_cost_is_counted_as_unknown_and_told(self) -> None:
        limits = budget(max_requests=2)
        await spend(limits, cost(None))
        await spend(limits, cost(math.nan))
        spent, words = (limits.spent, exhausted(limits))
        assert spent == Spent(requests=2, unknown_costs=2)
        assert "2 more requests did not report their cost" in words

    def test_a_failure_counts_for_what_it_cost_or_can_have_cost(self) -> None:
        dear = Crashed("it crashed", agent="scripted")
        dear.cost_usd, dear.usage = 0.7, TokenUsage(input_tokens=5, output_tokens=6)
        for error, spent in (
            (dear, Spent(usd=0.7, input_tokens=5, output_tokens=6, requests=1)),
            (rate_limited(), Spent(requests=1)),
            (NotInstalled("not here", agent="scripted"), Spent()),
            (Crashed("it crashed", agent="scripted"), Spent(requests=1, unknown_costs=1)),
            (KeyError("surprise"), Spent(requests=1, unknown_costs=1)),
        ):
            limits = budget(max_usd=0.5)
            with pytest.raises(type(error)):
                run_virtually(spend(limits, error))
            assert limits.spent == spent
