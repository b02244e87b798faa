from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from codeloupe.agents.calls.limiter import Limiter, Place, Timing, in_words
from codeloupe.errors import RateLimited
from tests.unit.agents.virtual_time import run_virtually, virtual_clock, virtual_timing, virtually


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
            self.starts.append((name, virtual_clock()))
            self.most = max(self.most, self.places.running)
            await asyncio.sleep(self.seconds)
            place.succeeded()

    def begin(self, *names: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.one(name)) for name in names]


async def failing(places: Limiter, *, pause: float | None = None) -> None:
    async with slot(places) as place:
        await asyncio.sleep(0.01)
        if pause is None:
            place.refused()
        else:
            place.refused(pause)


@virtually
async def test_no_more_than_the_limit_run_at_a_time_in_the_order_of_asking() -> None:
    calls = Calls(limiter(2))
    await asyncio.gather(*calls.begin("a", "b", "c", "d", "e"))
    assert calls.most == 2
    assert calls.starts == [("a", 0.0), ("b", 0.0), ("c", 1.0), ("d", 1.0), ("e", 2.0)]


def test_a_limit_below_one_lets_one_in(subtests: pytest.Subtests) -> None:
    for wrong in [0, -3]:
        with subtests.test(str(wrong)[:80]):
            assert limiter(wrong).limit == 1


@virtually
async def test_a_place_is_given_back_after_an_error() -> None:
    places = limiter(1)
    with pytest.raises(KeyError):
        async with slot(places):
            raise KeyError
    assert places.running == 0


class TestCancellation:
    @virtually
    async def test_a_cancelled_waiter_gives_its_turn_to_the_next(self) -> None:
        calls = Calls(limiter(1))
        tasks = calls.begin("a", "b", "c")
        await asyncio.sleep(0.5)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert calls.starts == [("a", 0.0), ("c", 1.0)]
        assert calls.places.running == 0

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
        assert calls.most == 3
        assert len({time for _, time in calls.starts[-3:]}) == 1
        assert calls.places.running == 0


class TestAdapting:
    @virtually
    async def test_the_limit_is_halved_when_there_is_no_room_and_never_below_one(self) -> None:
        places, seen = limiter(8), []
        for _ in range(5):
            await failing(places)
            seen.append(places.limit)
        assert seen == [4, 2, 1, 1, 1]

    @virtually
    async def test_calls_that_fail_together_lower_it_once(self) -> None:
        places = limiter(8)
        await asyncio.gather(*(failing(places) for _ in range(8)))
        assert places.limit == 4

    @virtually
    async def test_it_grows_by_one_after_a_row_of_successes_up_to_where_it_was(self) -> None:
        places, seen = limiter(4, successes_to_grow=3), []
        await failing(places)
        calls = Calls(places)
        for _ in range(12):
            await calls.one("a")
            seen.append(places.limit)
        assert seen == [2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4]

    @virtually
    async def test_a_failure_begins_the_row_anew(self) -> None:
        places = limiter(4, successes_to_grow=3)
        calls = Calls(places)
        await failing(places)
        await calls.one("a")
        await calls.one("b")
        await failing(places)
        await calls.one("c")
        assert places.limit == 1

    @virtually
    async def test_a_lowered_limit_holds_for_those_that_wait(self) -> None:
        places = limiter(4)
        calls = Calls(places)
        tasks = [asyncio.create_task(failing(places)) for _ in range(4)]
        await asyncio.sleep(0.001)
        await asyncio.gather(*tasks, *calls.begin(*"abcdef"))
        assert calls.most == 2


class TestPause:
    @virtually
    async def test_while_one_call_was_told_to_wait_no_other_starts(self) -> None:
        places = limiter(4)
        await failing(places, pause=30)
        calls = Calls(places)
        await asyncio.gather(*calls.begin("a", "b"))
        starts = calls.starts
        assert [(name, round(time, 3)) for name, time in starts] == [("a", 30.01), ("b", 30.01)]

    def test_a_shorter_pause_does_not_end_a_longer_one(self) -> None:
        async def run() -> float:
            places = limiter(4)
            await asyncio.gather(failing(places, pause=30), failing(places, pause=5))
            async with slot(places):
                return virtual_clock()

        assert round(run_virtually(run()), 3) == 30.01

    @virtually
    async def test_a_pause_that_grows_while_one_waits_holds_too(self) -> None:
        places = limiter(4)
        async with slot(places) as place:
            place.refused(10)
            waiting = asyncio.create_task(Calls(places).one("a"))
            await asyncio.sleep(5)
            place.refused(20)
        await waiting
        assert virtual_clock() == 26.0

    @virtually
    async def test_a_long_quota_is_refused_in_words_and_not_waited_for(self) -> None:
        places = limiter(4)
        await failing(places, pause=7200)
        with pytest.raises(RateLimited) as caught:
            await Calls(places).one("a")
        error, time = (caught.value, virtual_clock())
        assert "the quota of scripted has ended; it opens again at 2030-01-01 02:00:00 UTC" in error.message
        assert error.retry_after_seconds == 7200
        assert error.attempts == 0
        assert time < 1

    def test_those_that_already_wait_are_told_of_a_long_quota_at_once(self) -> None:
        async def run() -> float:
            places = limiter(1)
            async with slot(places) as place:
                waiting = asyncio.create_task(Calls(places).one("a"))
                await asyncio.sleep(1)
                place.refused(7200)
                with pytest.raises(RateLimited):
                    await waiting
                return virtual_clock()

        assert run_virtually(run()) == 1.0

    @virtually
    async def test_after_a_long_quota_calls_start_again(self) -> None:
        places = limiter(4)
        await failing(places, pause=7200)
        await asyncio.sleep(7200)
        await Calls(places).one("a")
        assert 7201 <= virtual_clock() <= 7202


class TestReturning:
    @virtually
    async def test_a_call_that_comes_back_goes_before_those_that_have_not_begun(self) -> None:
        places = limiter(1)
        calls = Calls(places)

        async def leaves(place: Place) -> None:
            place.leave()
            await asyncio.sleep(0.5)
            await place.take()
            calls.starts.append(("back", virtual_clock()))

        async with slot(places) as place:
            tasks = calls.begin("a", "b")
            await leaves(place)
        await asyncio.gather(*tasks)
        assert calls.starts == [("a", 0.0), ("back", 1.0), ("b", 1.0)]

    @virtually
    async def test_one_that_is_cancelled_while_it_comes_back_leaves_nothing_behind(self) -> None:
        places = limiter(1)

        async def comes_back() -> None:
            async with slot(places) as place:
                place.leave()
                await asyncio.sleep(0.1)
                await place.take()

        returning = asyncio.create_task(comes_back())
        await asyncio.sleep(0)
        other = asyncio.create_task(Calls(places).one("a"))
        await asyncio.sleep(0.5)
        returning.cancel()
        await asyncio.gather(returning, other, return_exceptions=True)
        await Calls(places).one("b")
        assert places.running == 0

    @virtually
    async def test_one_that_is_cancelled_in_the_moment_of_its_turn_lets_the_next_in(self) -> None:
        places = limiter(1)
        calls = Calls(places)

        async def comes_back() -> None:
            async with slot(places) as place:
                place.leave()
                await asyncio.sleep(1)
                await place.take()

        returning = asyncio.create_task(comes_back())
        await asyncio.sleep(0.1)
        async with slot(places):
            new = calls.begin("new")
            await asyncio.sleep(2)
        returning.cancel()
        await asyncio.gather(returning, *new, return_exceptions=True)
        assert calls.starts == [("new", 2.1)]


@virtually
async def test_calls_per_minute_hold_in_every_minute() -> None:
    calls = Calls(limiter(10, calls_per_minute=3), seconds=0.5)
    await asyncio.gather(*calls.begin(*"abcdefgh"))
    assert [time for _, time in calls.starts] == [0.0, 0.0, 0.0, 60.0, 60.0, 60.0, 120.0, 120.0]


def test_lengths_and_moments_of_time_are_told_in_words() -> None:
    words = {0: "0 s", 45.4: "45 s", 119: "119 s", 600: "10 minutes", 3 * 3600: "3.0 hours", 3 * 86400: "3.0 days"}
    assert {seconds: in_words(seconds) for seconds in words} == words
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    timing = Timing(now=lambda: noon)
    assert timing.moment(90) == noon + timedelta(seconds=90)
    assert timing.opening(5400) == "it opens again at 2030-01-01 13:30:00 UTC (in 90 minutes)"
    for seconds in (-1.0, 1e12, math.inf, math.nan):
        assert timing.moment(seconds) is None
        assert timing.opening(seconds) == "it does not open again in our time"
    assert Timing().moment(0) is not None
    assert 0 <= Timing().chance() < 1
