"""Trying again what may work a moment later: transient failures only, under one deadline over all attempts."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls.limiter import Timing, in_words
from codeloupe.errors import AgentError, RateLimited
from codeloupe.model.agent import AgentResult, AttemptFailed, AttemptStarted
from codeloupe.model.ports import AgentEventSink

# With less time than this left no attempt can come to an answer.
SHORTEST_ATTEMPT_SECONDS = 1.0


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often and how long.

    Waits begin with `first_delay_seconds` and grow by `factor`; a rate limit without Retry-After begins with
    `rate_limit_min_seconds`, or with half of the time left where that is less. `jitter` spreads each wait by that
    share, and never below what a service asked for; one that asks for less than our own wait, such as nothing at all,
    is not asked sooner for it. A service that asks for more than `rate_limit_max_seconds` has ended a quota: that is
    not waited for here.
    """

    attempts: int = 3
    first_delay_seconds: float = 1.0
    factor: float = 2.0
    jitter: float = 0.25
    rate_limit_min_seconds: float = 30.0
    rate_limit_max_seconds: float = 300.0

    def delay_seconds(self, error: AgentError, attempt: int, *, chance: float, left: float = math.inf) -> float:
        """How long to wait after the failure of an attempt, the first of which is 1; `left` is the call's time."""
        spread = 1 + self.jitter * (2 * chance - 1)
        own = self.first_delay_seconds * self.factor ** (attempt - 1) * spread
        asked = asked_wait_seconds(error)
        if asked is not None:
            return max(asked * (1 + self.jitter * chance) + self.first_delay_seconds * chance, own)
        if isinstance(error, RateLimited):
            grown = self.rate_limit_min_seconds * self.factor ** (attempt - 1) * spread
            return max(min(grown, self.rate_limit_max_seconds, left / 2 * spread), own)
        return own

    def pause_seconds(self, error: RateLimited, *, left: float = math.inf) -> float:
        """How long no other call may start after a rate limit, when the call that met it has so much time left."""
        asked = asked_wait_seconds(error)
        if asked is None:
            return min(self.rate_limit_min_seconds, max(left / 2, self.first_delay_seconds))
        return max(asked, self.first_delay_seconds)


def asked_wait_seconds(error: AgentError) -> float | None:
    """What the service asked to wait; None when it asked for nothing that makes sense."""
    asked = error.retry_after_seconds if isinstance(error, RateLimited) else None
    return asked if asked is not None and 0 <= asked < math.inf else None


async def with_retries(
    attempt: Callable[[int], Awaitable[AgentResult]],
    policy: RetryPolicy,
    *,
    deadline: float,
    timing: Timing,
    emit: AgentEventSink,
    agent: str,
) -> AgentResult:
    """The result of the first attempt that succeeds, with their number.

    `attempt` is called with 1, 2 and so on. Only a `retryable` AgentError leads to another one, and only when the
    wait before it leaves time for it; otherwise the error is raised, with the number of attempts and a note for
    each earlier one. RateLimited then tells when it opens again. A cancellation ends a wait at once.
    """
    failures: list[AgentError] = []
    while True:
        number = len(failures) + 1
        emit(AttemptStarted(agent, number, policy.attempts))
        try:
            return replace(await attempt(number), attempts=number)
        except AgentError as error:
            failures.append(error)
        left = deadline - timing.clock()
        delay = policy.delay_seconds(failures[-1], number, chance=timing.chance(), left=left)
        why_not = _why_not_again(failures, policy, delay=delay, left=left)
        told = None if why_not else delay
        emit(AttemptFailed(agent, number, type(failures[-1]).__name__, failures[-1].message, told))
        if why_not:
            raise _final(failures, why_not, timing)
        await timing.sleep(delay)


def _why_not_again(failures: list[AgentError], policy: RetryPolicy, *, delay: float, left: float) -> str:
    """The reason to give up in words, or nothing."""
    error = failures[-1]
    asked = asked_wait_seconds(error) or 0.0
    if not error.retryable:
        return "trying again would not help"
    if len(failures) >= policy.attempts:
        return f"it was tried {len(failures)} times" if len(failures) > 1 else "it may be tried only once"
    if asked > policy.rate_limit_max_seconds:
        return f"the wait asked for is longer than {in_words(policy.rate_limit_max_seconds)}"
    if delay + SHORTEST_ATTEMPT_SECONDS > left:
        return f"the time left, {in_words(max(left, 0.0))}, does not hold another attempt"
    return ""


def _final(failures: list[AgentError], why_not: str, timing: Timing) -> AgentError:
    error = failures[-1]
    # What was refused before it was sent, by a budget or for want of time, was no attempt.
    attempts = len(failures) if error.attempts else len(failures) - 1
    asked = asked_wait_seconds(error)
    if isinstance(error, RateLimited) and asked is not None:
        error = _telling_the_opening(error, asked, timing)
    error.attempts = attempts
    for number, earlier in enumerate(failures[:-1], start=1):
        error.add_note(f"attempt {number}: {type(earlier).__name__}: {earlier.message}")
    if error.retryable:
        error.add_note(f"not tried again: {why_not}")
    return error


def _telling_the_opening(error: RateLimited, asked_seconds: float, timing: Timing) -> RateLimited:
    told = RateLimited(
        f"{error.message}; {timing.opening(asked_seconds)}",
        agent=error.agent,
        retry_after_seconds=asked_seconds,
        hint=error.hint or "wait until then, or use another agent",
        raw_output=error.raw_output,
        session_id=error.session_id,
    )
    told.cost_usd, told.usage = error.cost_usd, error.usage
    told.__cause__ = error
    return told
