"""Rate limits and quotas as a whole call meets them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.caller import AgentCaller, CallerOptions
from codeloupe.errors import RateLimited
from codeloupe.model.agent import AgentEvent, AgentRequest, QuotaEnded
from codeloupe.testing.agent import ScriptedAgent
from codeloupe.testing.replies import Delay, Text
from tests.unit.agents.call_samples import rate_limited, request
from tests.unit.agents.virtual_time import MIDNIGHT, virtual_clock, virtual_timing, virtually


def caller(*, deadline: float | None = None, **options: Any) -> AgentCaller:
    budget = RunBudget(clock=virtual_clock, deadline=deadline)
    return AgentCaller(CallerOptions(**options), budget=budget, timing=virtual_timing())


def quotas(events: list[AgentEvent]) -> list[QuotaEnded]:
    return [event for event in events if isinstance(event, QuotaEnded)]


@virtually
async def test_a_long_quota_fails_at_once_and_tells_when_it_opens() -> None:
    events: list[AgentEvent] = []
    agent = ScriptedAgent([rate_limited(3600)])
    with pytest.raises(RateLimited) as caught:
        await caller().call(request(), agent=agent, emit=events.append)
    assert virtual_clock() == 0
    assert "opens again at 2030-01-01 01:00:00 UTC (in 60 minutes)" in caught.value.message
    assert quotas(events) == [QuotaEnded("scripted", MIDNIGHT + timedelta(hours=1), waiting=False)]


@virtually
async def test_while_a_quota_is_closed_no_other_call_is_made() -> None:
    agent, by = ScriptedAgent([rate_limited(3600), Text("open again")]), caller()
    for _ in range(3):
        with pytest.raises(RateLimited):
            await by.call(request(), agent=agent, emit=print)
    assert len(agent.requests) == 1
    await asyncio.sleep(3600)
    assert (await by.call(request(), agent=agent, emit=print)).output == "open again"
    assert len(agent.requests) == 2


@virtually
async def test_a_short_wait_asked_of_one_call_holds_for_all() -> None:
    starts: list[float] = []

    def answer(_request: object) -> Text:
        starts.append(virtual_clock())
        return Text("hello")

    agent = ScriptedAgent([rate_limited(30), answer])
    by = caller(concurrency=5)
    await asyncio.gather(
        by.call(request("first"), agent=agent, emit=lambda _event: None),
        *(_later(by, agent, number) for number in range(4)),
    )
    assert len(starts) == 5
    assert min(starts) >= 30


async def _later(by: AgentCaller, agent: ScriptedAgent, number: int) -> None:
    await asyncio.sleep(1)
    await by.call(request(f"number {number}"), agent=agent, emit=lambda _event: None)


class TestWaitingForAQuota:
    @virtually
    async def test_it_is_waited_for_when_that_is_wanted(self) -> None:
        events: list[AgentEvent] = []
        agent = ScriptedAgent([rate_limited(3 * 3600), Text("open again")])
        answer = await caller(wait_for_quota=True).call(
            request(timeout_seconds=4 * 3600.0), agent=agent, emit=events.append
        )
        assert (answer.output, answer.attempts) == ("open again", 2)
        assert 3590 < agent.requests[1].timeout_seconds <= 3600, "the time of the call began anew"
        assert 3 * 3600 <= virtual_clock() <= 3 * 3600 + 5
        assert quotas(events) == [QuotaEnded("scripted", MIDNIGHT + timedelta(hours=3), waiting=True)]

    @virtually
    async def test_when_nobody_tells_when_it_opens_it_is_looked_at_every_few_minutes(self) -> None:
        events: list[AgentEvent] = []
        agent = ScriptedAgent([*[rate_limited() for _ in range(6)], Text("open again")])
        answer = await caller(wait_for_quota=True).call(request(), agent=agent, emit=events.append)
        assert answer.attempts == 7
        virtual_clock()
        assert quotas(events) == [QuotaEnded("scripted", None, waiting=True)] * 2

    @virtually
    async def test_one_that_opens_after_the_deadline_of_the_run_is_not_waited_for(self) -> None:
        agent = ScriptedAgent([rate_limited(3600)])
        with pytest.raises(RateLimited):
            await caller(wait_for_quota=True, deadline=1800.0).call(request(), agent=agent, emit=print)
        assert virtual_clock() == 0

    @pytest.mark.defect("L5")
    @pytest.mark.parametrize(("asked", "most"), [(3600, 10), (11, 10), (None, 10), (None, 200), (30 * 86400, 86400)])
    @virtually
    async def test_the_time_of_the_call_covers_the_wait_and_one_that_does_not_fit_is_not_begun(
        self, asked: float | None, most: float
    ) -> None:
        events: list[AgentEvent] = []
        agent = ScriptedAgent([rate_limited() if asked is None else rate_limited(asked)])
        with pytest.raises(RateLimited) as caught:
            await caller(wait_for_quota=True).call(
                request(timeout_seconds=float(most)), agent=agent, emit=events.append
            )
        error, ended_at = (caught.value, virtual_clock())
        assert ended_at == 0 if asked is not None else ended_at < most
        assert any("not waited for" in note for note in error.__notes__)
        assert asked is None or "opens again at" in error.message
        assert [event.waiting for event in quotas(events)] == [False]

    @pytest.mark.defect("L5")
    @pytest.mark.parametrize(("most", "times"), [(1.9, [0]), (3, [0, 1.5]), (10, [0, 5, 7.5]), (300, [0, 30, 90])])
    @virtually
    async def test_a_wait_that_nobody_asked_for_is_as_long_as_the_time_of_the_call_allows(
        self, most: float, times: list[float]
    ) -> None:
        asked_at: list[float] = []

        def refuse(_request: AgentRequest) -> RateLimited:
            asked_at.append(virtual_clock())
            return rate_limited()

        with pytest.raises(RateLimited) as caught:
            await caller().call(request(timeout_seconds=most), agent=ScriptedAgent([refuse]), emit=print)
        error = caught.value
        assert asked_at == times
        assert error.attempts == len(times)
        assert any("not tried again" in note for note in error.__notes__)

    @pytest.mark.defect("L5")
    @virtually
    async def test_a_pause_that_another_call_was_told_of_is_not_waited_for_beyond_the_time_of_a_call(self) -> None:
        agent, by = ScriptedAgent([rate_limited(200), Text("hello")]), caller()
        first = asyncio.create_task(by.call(request(timeout_seconds=600.0), agent=agent, emit=print))
        await asyncio.sleep(1)
        with pytest.raises(RateLimited, match="opens again at"):
            await by.call(request("other", timeout_seconds=10.0), agent=agent, emit=print)
        ended_at = virtual_clock()
        assert (await first).output == "hello"
        assert ended_at == 1

    @virtually
    async def test_waiting_without_end_has_an_end(self) -> None:
        with pytest.raises(RateLimited):
            await caller(wait_for_quota=True).call(
                request(timeout_seconds=3600.0), agent=ScriptedAgent([rate_limited()]), emit=lambda _event: None
            )
        assert 3000 < virtual_clock() <= 3600

    @pytest.mark.requirement("R14")
    @virtually
    async def test_a_cancellation_ends_the_wait_at_once(self) -> None:
        agent = ScriptedAgent([rate_limited(3 * 3600)])
        asked = request(timeout_seconds=4 * 3600.0)
        waiting = asyncio.create_task(caller(wait_for_quota=True).call(asked, agent=agent, emit=print))
        await asyncio.sleep(100)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert virtual_clock() == 100

    @virtually
    async def test_other_calls_wait_too_and_all_are_answered(self) -> None:
        agent = ScriptedAgent([rate_limited(3600), Delay(1.0, Text("hello"))])
        by = caller(wait_for_quota=True, concurrency=2)
        asked = (request(f"say {number}", timeout_seconds=7200.0) for number in range(6))
        calls = (by.call(one, agent=agent, emit=lambda _event: None) for one in asked)
        assert [answer.output for answer in await asyncio.gather(*calls)] == ["hello"] * 6

    @virtually
    async def test_another_agent_of_the_chain_is_asked_before_a_quota_is_waited_for(self) -> None:
        first = ScriptedAgent([rate_limited(3600)], name="first")
        second = ScriptedAgent([Text("hello")], name="second")
        answer = await caller(wait_for_quota=True).call(request(), agent=[first, second], emit=print)
        assert answer.agent == "second"
        assert virtual_clock() == 0
