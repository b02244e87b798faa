from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from codeloupe.agents.budget import RunBudget, Spent
from codeloupe.errors import BudgetExhausted, Crashed, NotInstalled
from codeloupe.model.agent import AgentResult, TokenUsage
from tests.unit.agents.call_samples import rate_limited, request, result
from tests.unit.agents.virtual_time import run_virtually, virtual_clock


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


def test_without_limits_everything_may_be_spent_and_is_counted() -> None:
    async def run() -> RunBudget:
        limits = budget()
        await asyncio.gather(*(spend(limits, cost(2.0, 10)) for _ in range(20)))
        limits.check(agent="scripted")
        assert virtual_clock() == 1.0
        return limits

    assert run_virtually(run()).spent == Spent(usd=40.0, tokens=200, requests=20)


@pytest.mark.parametrize(
    ("limits", "outcome", "words"),
    [
        ({"max_usd": 1.0}, cost(1.25), "$1.2500 of $1.0000 are spent"),
        ({"max_tokens": 1000}, cost(0.1, 1200), "1,200 of 1,000 tokens"),
        ({"max_requests": 1}, cost(0.1), "1 of 1 requests"),
        ({"deadline": 1.0}, cost(0.1), "the time of the run ended 0 s ago"),
    ],
)
def test_a_limit_that_is_reached_is_named_with_what_was_spent(
    limits: dict[str, Any], outcome: AgentResult, words: str
) -> None:
    async def run() -> str:
        spent = budget(**limits)
        await spend(spent, outcome)
        with pytest.raises(BudgetExhausted):
            await spend(spent, outcome)
        return exhausted(spent)

    assert words in run_virtually(run())


class TestConcurrency:
    def test_running_requests_count(self) -> None:
        async def run() -> list[Any]:
            limits = budget(max_requests=3)
            return await asyncio.gather(*(spend(limits, cost(0.0)) for _ in range(5)), return_exceptions=True)

        ended = run_virtually(run())
        assert [isinstance(end, BudgetExhausted) for end in ended] == [False, False, False, True, True]

    def test_calls_at_the_same_time_do_not_overshoot_together(self) -> None:
        async def run() -> RunBudget:
            limits = budget(max_usd=1.0)
            await spend(limits, cost(0.3))
            await asyncio.gather(*(spend(limits, cost(0.3)) for _ in range(10)), return_exceptions=True)
            return limits

        spent = run_virtually(run()).spent
        # 0.3, then two beside each other, then one alone that passes the limit.
        assert spent.requests == 4
        assert spent.usd == pytest.approx(1.2)

    def test_one_that_does_not_fit_beside_the_others_waits_for_them(self) -> None:
        async def run() -> list[float]:
            limits = budget(max_usd=1.0)
            await spend(limits, cost(0.3), seconds=0.0)
            cheaper = (spend(limits, cost(0.01)) for _ in range(4))
            return list(await asyncio.gather(*cheaper))

        assert run_virtually(run()) == [0.0, 0.0, 1.0, 1.0]

    def test_before_any_cost_is_known_a_small_budget_begins_with_one_call(self) -> None:
        async def run() -> list[float]:
            limits = budget(max_usd=0.4)
            return list(await asyncio.gather(*(spend(limits, cost(0.1)) for _ in range(3))))

        assert run_virtually(run()) == [0.0, 1.0, 1.0]

    def test_what_a_call_may_cost_bounds_what_is_kept_for_it(self) -> None:
        async def run() -> list[float]:
            limits = budget(max_usd=0.4)
            calls = (spend(limits, cost(0.1), max_budget_usd=0.1) for _ in range(3))
            return list(await asyncio.gather(*calls))

        assert run_virtually(run()) == [0.0, 0.0, 0.0]

    def test_tokens_are_kept_by_the_length_of_the_prompt_and_the_most_so_far(self) -> None:
        async def run() -> list[float]:
            limits = budget(max_tokens=1000)
            calls = (spend(limits, cost(0.0, 300), prompt="word " * 400) for _ in range(3))
            return list(await asyncio.gather(*calls))

        assert run_virtually(run()) == [0.0, 0.0, 1.0]

    def test_all_that_wait_learn_that_the_budget_is_used_up(self) -> None:
        async def run() -> list[Any]:
            limits = budget(max_usd=0.2)
            return await asyncio.gather(*(spend(limits, cost(0.3)) for _ in range(6)), return_exceptions=True)

        assert [isinstance(end, BudgetExhausted) for end in run_virtually(run())] == [False, *[True] * 5]

    def test_a_cancelled_waiter_keeps_nobody_waiting(self) -> None:
        async def run() -> RunBudget:
            limits = budget(max_usd=0.4)
            tasks = [asyncio.create_task(spend(limits, cost(0.1))) for _ in range(3)]
            await asyncio.sleep(0.5)
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return limits

        assert run_virtually(run()).spent.requests == 2


class TestWhatIsNotToldOrFails:
    def test_an_unknown_cost_is_counted_as_unknown_and_told(self) -> None:
        async def run() -> tuple[Spent, str]:
            limits = budget(max_requests=2)
            await spend(limits, cost(None))
            await spend(limits, cost(math.nan))
            return limits.spent, exhausted(limits)

        spent, words = run_virtually(run())
        assert spent == Spent(requests=2, unknown_costs=2)
        assert "2 more requests did not tell their cost" in words

    def test_a_failure_that_cost_money_counts(self) -> None:
        error = Crashed("it crashed", agent="scripted")
        error.cost_usd, error.usage = 0.7, TokenUsage(input_tokens=5, output_tokens=6)

        async def run() -> Spent:
            limits = budget(max_usd=0.5)
            with pytest.raises(Crashed):
                await spend(limits, error)
            assert "$0.7000 of $0.5000" in exhausted(limits)
            return limits.spent

        assert run_virtually(run()) == Spent(usd=0.7, tokens=11, requests=1)

    @pytest.mark.parametrize(
        ("error", "spent"),
        [
            (rate_limited(), Spent(requests=1)),
            (NotInstalled("not here", agent="scripted"), Spent()),
            (Crashed("it crashed", agent="scripted"), Spent(requests=1, unknown_costs=1)),
        ],
    )
    def test_a_failure_counts_for_what_it_can_have_cost(self, error: Exception, spent: Spent) -> None:
        async def run() -> Spent:
            limits = budget()
            with pytest.raises(type(error)):
                await spend(limits, error)
            return limits.spent

        assert run_virtually(run()) == spent

    def test_a_refusal_tells_nothing_about_the_price(self) -> None:
        async def run() -> list[float]:
            limits = budget(max_usd=0.4)
            with pytest.raises(type(rate_limited())):
                await spend(limits, rate_limited(), seconds=0.0)
            return list(await asyncio.gather(*(spend(limits, cost(0.1)) for _ in range(2))))

        assert run_virtually(run()) == [0.0, 1.0]

    def test_a_free_model_needs_no_room(self) -> None:
        async def run() -> list[float]:
            limits = budget(max_usd=0.4)
            await spend(limits, cost(0.0, 50), seconds=0.0)
            return list(await asyncio.gather(*(spend(limits, cost(0.0, 50)) for _ in range(9))))

        assert set(run_virtually(run())) == {0.0}

    def test_a_cancelled_request_counts_with_unknown_cost_and_keeps_no_room(self) -> None:
        async def run() -> Spent:
            limits = budget(max_usd=0.4)
            task = asyncio.create_task(spend(limits, cost(0.1)))
            await asyncio.sleep(0.5)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert await spend(limits, cost(0.1)) == 0.5
            return limits.spent

        assert run_virtually(run()) == Spent(usd=0.1, requests=2, unknown_costs=1)
