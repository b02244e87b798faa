import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from codeloupe.agents.calls.limiter import Limiter, Place, Timing, readable
from codeloupe.errors import RateLimited
from tests.unit.agents.virtual_time import virtual_clock, virtual_timing, virtually


def limiter(concurrency: int = 2, **settings: Any) -> Limiter:
    return Limiter("scripted", concurrency=concurrency, timing=virtual_timing(), **settings)


@asynccontextmanager
async def slot(places: Limiter) -> AsyncIterator[Place]:
    """A place that is taken, and left at the end of the block, as a call does it."""
    place = places.place()
    await place.take()
    try:
        yield place
    finally:
        place.leave()


class Calls:
    """Calls of one second each, with the order and time of their starts."""

    def __init__(self, places: Limiter, *, seconds: float = 1.0) -> None:
        self.places = places
        self.seconds = seconds
        self.starts: list[tuple[str, float]] = []
        self.most = 0

    async def one(self, name: str) -> None:
        async with slot(self.places) as place:
            self.starts.append((name, round(virtual_clock(), 3)))
            self.most = max(self.most, self.places.running)
            await asyncio.sleep(self.seconds)
            place.succeeded()

    def begin(self, *names: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.one(name)) for name in names]

    async def comes_back(self, away_seconds: float) -> None:
        """A call that leaves its place for a while."""
        async with slot(self.places) as place:
            place.leave()
            await asyncio.sleep(away_seconds)
            await place.take()
            self.starts.append(("back", virtual_clock()))


async def failing(places: Limiter, *, pause: float = 0.0) -> None:
    async with slot(places) as place:
        await asyncio.sleep(0.01)
        place.refused(pause)


@virtually
async def test_no_more_than_the_limit_run_at_a_time_or_start_in_a_minute_in_the_order_of_asking() -> None:
    calls = Calls(limiter(2))
    await asyncio.gather(*calls.begin("a", "b", "c", "d", "e"))
    assert calls.most == 2
    assert calls.starts == [("a", 0.0), ("b", 0.0), ("c", 1.0), ("d", 1.0), ("e", 2.0)]
    assert (limiter(0).limit, limiter(-3).limit) == (1, 1)
    began = virtual_clock()
    calls = Calls(limiter(10, calls_per_minute=3), seconds=0.5)
    await asyncio.gather(*calls.begin(*"abcdefgh"))
    assert [time - began for _, time in calls.starts] == [0.0, 0.0, 0.0, 60.0, 60.0, 60.0, 120.0, 120.0]


class TestCancellation:
    @virtually
    async def test_a_waiter_cancelled_in_the_moment_of_its_turn_takes_no_place(self) -> None:
        calls = Calls(limiter(1))
        first, second, third = calls.begin("a", "b", "c")
        first.add_done_callback(lambda _task: second.cancel())
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert calls.starts[-1] == ("c", 1.0)
        assert calls.places.running == 0

    @virtually
    async def test_every_second_of_many_waiters_can_be_cancelled_at_any_time(self) -> None:
        calls = Calls(limiter(3))
        tasks = calls.begin(*map(str, range(40)))
        for number, task in enumerate(tasks[::2]):
            asyncio.get_running_loop().call_later(number * 0.25, task.cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(not task.cancelled() for task in tasks) >= 20
        await asyncio.gather(*calls.begin("x", "y", "z"))
        assert (calls.most, len({time for _, time in calls.starts[-3:]}), calls.places.running) == (3, 1, 0)


class TestAdapting:
    @virtually
    async def test_the_limit_is_halved_when_there_is_no_room_once_for_calls_that_fail_together(self) -> None:
        places, seen = limiter(8), []
        await asyncio.gather(*(failing(places) for _ in range(8)))
        for _ in range(4):
            seen.append(places.limit)
            await failing(places)
        assert seen == [4, 2, 1, 1]

    @virtually
    async def test_it_grows_by_one_after_a_row_of_successes_up_to_where_it_was(self) -> None:
        places, seen = limiter(4), []
        calls = Calls(places)
        await failing(places)
        await asyncio.gather(*calls.begin(*"abcdefghi"))
        await failing(places)  # the row begins anew
        for _ in range(35):
            await calls.one("a")
            seen.append(places.limit)
        assert seen == [*[1] * 9, *[2] * 10, *[3] * 10, *[4] * 6]

    @virtually
    async def test_a_lowered_limit_holds_for_those_that_wait(self) -> None:
        calls = Calls(limiter(4))
        tasks = [asyncio.create_task(failing(calls.places)) for _ in range(4)]
        await asyncio.sleep(0.001)
        await asyncio.gather(*tasks, *calls.begin(*"abcdef"))
        assert calls.most == 2


class TestPause:
    @virtually
    async def test_while_one_call_was_asked_to_wait_no_other_starts_and_a_shorter_pause_changes_nothing(self) -> None:
        calls = Calls(limiter(4))
        await asyncio.gather(failing(calls.places, pause=30), failing(calls.places, pause=5))
        await asyncio.gather(*calls.begin("a", "b"))
        assert calls.starts == [("a", 30.01), ("b", 30.01)]
        # One that grows while somebody waits holds too.
        began = virtual_clock()
        async with slot(calls.places) as place:
            place.refused(10)
            waiting = asyncio.create_task(calls.one("c"))
            await asyncio.sleep(5)
            place.refused(20)
        await waiting
        assert virtual_clock() - began == pytest.approx(26.0)

    @virtually
    async def test_a_long_quota_is_not_waited_for_not_even_by_those_that_wait_already(self) -> None:
        places = limiter(1)
        async with slot(places) as place:
            waiting = asyncio.create_task(Calls(places).one("a"))
            await asyncio.sleep(1)
            place.refused(7200)
            for late in (waiting, Calls(places).one("b")):
                with pytest.raises(RateLimited) as caught:
                    await late
                quota = "the quota of scripted is used up; it opens again at 2030-01-01 02:00:01 UTC"
                assert quota in caught.value.message
                assert (caught.value.retry_after_seconds, caught.value.attempts) == (7200, 0)
            assert virtual_clock() == 1
        await asyncio.sleep(7200)
        await Calls(places).one("a")
        assert virtual_clock() == 7202


class TestReturning:
    @virtually
    async def test_a_call_that_comes_back_goes_before_those_that_have_not_begun(self) -> None:
        calls = Calls(limiter(1))
        back = asyncio.create_task(calls.comes_back(0.5))
        await asyncio.sleep(0)
        await asyncio.gather(back, *calls.begin("a", "b"))
        assert calls.starts == [("a", 0.0), ("back", 1.0), ("b", 1.0)]

    @virtually
    async def test_one_that_is_cancelled_in_the_moment_of_its_turn_lets_the_next_in(self) -> None:
        calls = Calls(limiter(1))
        returning = asyncio.create_task(calls.comes_back(1))
        await asyncio.sleep(0.1)
        async with slot(calls.places):
            new = calls.begin("new")
            await asyncio.sleep(2)
        returning.cancel()
        await asyncio.gather(returning, *new, return_exceptions=True)
        assert (calls.starts, calls.places.running) == ([("new", 2.1)], 0)


def test_lengths_and_moments_of_time_can_be_read() -> None:
    words = {0: "0 s", 45.4: "45 s", 119: "119 s", 600: "10 minutes", 3 * 3600: "3.0 hours", 3 * 86400: "3.0 days"}
    assert {seconds: readable(seconds) for seconds in words} == words
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    timing = Timing(now=lambda: noon)
    assert timing.moment(90) == noon + timedelta(seconds=90)
    assert timing.opening(5400) == "it opens again at 2030-01-01 13:30:00 UTC (in 90 minutes)"
    for seconds in (-1.0, 1e12, math.inf, math.nan):
        assert timing.moment(seconds) is None
        assert timing.opening(seconds) == "it does not open again within ten years"
