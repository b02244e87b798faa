from __future__ import annotations

import asyncio
import math

import pytest

from codeloupe.agents.calls.retry import RetryPolicy, with_retries
from codeloupe.errors import (
    AgentError,
    ConnectionFailed,
    Crashed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    OutputInvalid,
    PromptTooLong,
    RateLimited,
    Refused,
    TimedOut,
)
from codeloupe.model.agent import AgentEvent, AgentResult, AttemptFailed, AttemptStarted
from tests.unit.agents.call_samples import overloaded, rate_limited, result
from tests.unit.agents.virtual_time import run_virtually, virtual_clock, virtual_timing, virtually

Step = AgentError | AgentResult


class Script:
    """Fails and answers as told, and notes when it was asked."""

    def __init__(self, *steps: Step, seconds: float = 0.0) -> None:
        self.steps = list(steps)
        self.seconds = seconds
        self.times: list[float] = []
        self.events: list[AgentEvent] = []

    async def attempt(self, number: int) -> AgentResult:
        self.times.append(virtual_clock())
        assert number == len(self.times)
        await asyncio.sleep(self.seconds)
        step = self.steps.pop(0)
        if isinstance(step, AgentError):
            raise step
        return step

    async def run(
        self, policy: RetryPolicy | None = None, *, deadline: float = math.inf, chance: float = 0.5
    ) -> AgentResult:
        return await with_retries(
            self.attempt,
            policy or RetryPolicy(),
            deadline=deadline,
            timing=virtual_timing(chance=lambda: chance),
            emit=self.events.append,
            agent="scripted",
        )

    def failure(self, policy: RetryPolicy | None = None, *, deadline: float = math.inf) -> AgentError:
        with pytest.raises(AgentError) as caught:
            run_virtually(self.run(policy, deadline=deadline))
        return caught.value


def test_the_first_success_is_returned_at_once() -> None:
    script = Script(result())
    assert run_virtually(script.run()).attempts == 1
    assert script.times == [0.0]
    assert script.events == [AttemptStarted("scripted", 1, 3)]


@pytest.mark.requirement("R13")
def test_a_transient_failure_is_tried_three_times_with_growing_waits() -> None:
    script = Script(overloaded(), ConnectionFailed("cut", agent="scripted"), result("at last"))
    answer = run_virtually(script.run())
    assert (answer.output, answer.attempts) == ("at last", 3)
    assert script.times == [0.0, 1.0, 3.0]


@pytest.mark.requirement("R13")
def test_what_would_fail_again_is_tried_once(subtests: pytest.Subtests) -> None:
    for kind in [NotLoggedIn, NotInstalled, InvalidRequest, OutputInvalid, PromptTooLong, Refused, TimedOut, Crashed]:
        with subtests.test(str(kind)[:80]):
            error = kind("no", agent="scripted")
            script = Script(error, result())
            assert script.failure() is error
            assert len(script.times) == 1


@pytest.mark.requirement("R13")
@virtually
async def test_a_cancellation_is_not_tried_again() -> None:
    times: list[float] = []

    async def attempt(_number: int) -> AgentResult:
        times.append(virtual_clock())
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await with_retries(
            attempt, RetryPolicy(), deadline=math.inf, timing=virtual_timing(), emit=print, agent="scripted"
        )
    assert times == [0.0]


def test_the_last_failure_carries_the_number_of_attempts_and_the_earlier_ones() -> None:
    script = Script(ConnectionFailed("the line was cut", agent="scripted"), overloaded(), overloaded())
    error = script.failure()
    assert error.attempts == 3
    assert error.__notes__ == [
        "attempt 1: ConnectionFailed: the line was cut",
        "attempt 2: Overloaded: the service has no room",
        "not tried again: it was tried 3 times",
    ]


def test_a_failure_keeps_its_cause() -> None:
    error = overloaded()
    error.__cause__ = OSError("reset by peer")
    assert isinstance(Script(error).failure(RetryPolicy(attempts=1)).__cause__, OSError)


def test_every_attempt_is_told() -> None:
    script = Script(overloaded(), overloaded(), overloaded())
    script.failure()
    words = ("Overloaded", "the service has no room")
    assert script.events == [
        AttemptStarted("scripted", 1, 3),
        AttemptFailed("scripted", 1, *words, retry_in_seconds=1.0),
        AttemptStarted("scripted", 2, 3),
        AttemptFailed("scripted", 2, *words, retry_in_seconds=2.0),
        AttemptStarted("scripted", 3, 3),
        AttemptFailed("scripted", 3, *words, retry_in_seconds=None),
    ]


class TestRateLimits:
    def test_without_retry_after_the_wait_begins_with_thirty_seconds(self) -> None:
        script = Script(rate_limited(), rate_limited(), result())
        run_virtually(script.run())
        assert script.times == [0.0, 30.0, 90.0]

    def test_waits_without_retry_after_do_not_grow_beyond_the_longest(self) -> None:
        script = Script(*[rate_limited() for _ in range(6)], result())
        run_virtually(script.run(RetryPolicy(attempts=7)))
        waits = [later - earlier for earlier, later in zip(script.times, script.times[1:], strict=False)]
        assert waits == [30.0, 60.0, 120.0, 240.0, 300.0, 300.0]

    def test_retry_after_is_honoured_and_never_cut_short(self, subtests: pytest.Subtests) -> None:
        for chance in [0.0, 0.999]:
            for asked in [0.0, 2.0, 45.0, 300.0]:
                with subtests.test(str((asked, chance))[:80]):
                    script = Script(rate_limited(asked), result())
                    run_virtually(script.run(chance=chance))
                    assert asked <= script.times[1] <= max(asked * 1.25 + 1, 1.25)

    def test_a_service_that_asks_for_next_to_no_wait_is_not_asked_again_at_once(
        self, subtests: pytest.Subtests
    ) -> None:
        for asked in [0.0, 0.1]:
            with subtests.test(str(asked)[:80]):
                script = Script(rate_limited(asked), rate_limited(asked), result())
                run_virtually(script.run(chance=0.5))
                assert script.times == [0.0, 1.0, 3.0]

    def test_a_retry_after_that_makes_no_sense_counts_as_none(self, subtests: pytest.Subtests) -> None:
        for nonsense in [-5.0, math.nan, math.inf]:
            with subtests.test(str(nonsense)[:80]):
                script = Script(rate_limited(nonsense), result())
                run_virtually(script.run())
                assert script.times == [0.0, 30.0]

    def test_a_long_quota_is_given_up_at_once_and_the_error_tells_when_it_opens(self) -> None:
        script = Script(rate_limited(3600), result())
        error = script.failure()
        assert isinstance(error, RateLimited)
        assert error.message == "too many requests; it opens again at 2030-01-01 01:00:00 UTC (in 60 minutes)"
        assert (error.retry_after_seconds, error.attempts) == (3600, 1)
        assert isinstance(error.__cause__, RateLimited)
        assert script.times == [0.0]

    def test_a_retry_after_beyond_the_deadline_is_given_up_at_once(self) -> None:
        script = Script(rate_limited(50), result())
        error = script.failure(deadline=40.0)
        assert "opens again at 2030-01-01 00:00:50 UTC" in error.message
        assert error.__notes__ == ["not tried again: the time left, 40 s, does not hold another attempt"]
        assert script.times == [0.0]

    def test_a_retry_after_beyond_all_calendars_is_told_in_words(self) -> None:
        assert "does not open again in our time" in Script(rate_limited(1e300)).failure().message


class TestDeadline:
    def test_one_deadline_covers_all_attempts(self) -> None:
        script = Script(overloaded(), overloaded(), result(), seconds=4.0)
        error = script.failure(deadline=11.0)
        assert type(error).__name__ == "Overloaded"
        assert script.times == [0.0, 5.0]
        assert error.attempts == 2

    def test_no_attempt_is_begun_that_cannot_finish(self) -> None:
        assert len(Script(overloaded(), result()).failure(deadline=1.9).__notes__) == 1
        assert run_virtually(Script(overloaded(), result()).run(deadline=2.0)).attempts == 2


@pytest.mark.requirement("R14")
@virtually
async def test_a_cancellation_cuts_the_wait_short() -> None:
    script = Script(rate_limited(250), result())
    task = asyncio.ensure_future(script.run())
    await asyncio.sleep(3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert virtual_clock() == 3.0
    assert script.times == [0.0]


def test_jitter_spreads_the_waits() -> None:
    policy = RetryPolicy()
    waits = [policy.delay_seconds(overloaded(), 1, chance=chance) for chance in (0.0, 0.5, 0.999)]
    assert waits == sorted(waits)
    assert 0.7 < waits[0] < waits[-1] < 1.3
