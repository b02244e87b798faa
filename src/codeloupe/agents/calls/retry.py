"""The attempts of one call at one agent, each in its place, within its budget and under one deadline over all.

Only what may work a moment later is tried again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from msgspec import Struct, field
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.limiter import Limiter, Place, Timing, in_words
from codeloupe.agents.calls.schemas import check_output
from codeloupe.model.agent import AgentRequest, AgentResult, AttemptFailed, AttemptStarted
from codeloupe.model.ports import Agent, AgentEventSink

# With less time than this left no attempt can come to an answer.
SHORTEST_ATTEMPT_SECONDS = 1.0
# Agents keep their time themselves and need a while to end a program; this is for one that does not come back.
_GRACE_SECONDS = 15.0
# Checking takes some milliseconds for so much text; more is done beside the event loop.
_QUICK_CHARACTERS = 64 * 1024


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

    def delay_seconds(self, error: errors.AgentError, attempt: int, *, chance: float, left: float = math.inf) -> float:
        """How long to wait after the failure of an attempt, the first of which is 1; `left` is the call's time."""
        spread = 1 + self.jitter * (2 * chance - 1)
        own = self.first_delay_seconds * self.factor ** (attempt - 1) * spread
        asked = asked_wait_seconds(error)
        if asked is not None:
            return max(asked * (1 + self.jitter * chance) + self.first_delay_seconds * chance, own)
        if isinstance(error, errors.RateLimited):
            grown = self.rate_limit_min_seconds * self.factor ** (attempt - 1) * spread
            return max(min(grown, self.rate_limit_max_seconds, left / 2 * spread), own)
        return own

    def pause_seconds(self, error: errors.RateLimited, *, left: float = math.inf) -> float:
        """How long no other call may start after a rate limit, when the call that met it has so much time left."""
        asked = asked_wait_seconds(error)
        if asked is None:
            return min(self.rate_limit_min_seconds, max(left / 2, self.first_delay_seconds))
        return max(asked, self.first_delay_seconds)


def asked_wait_seconds(error: errors.AgentError) -> float | None:
    """What the service asked to wait; None when it asked for nothing that makes sense."""
    asked = error.retry_after_seconds if isinstance(error, errors.RateLimited) else None
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
    failures: list[errors.AgentError] = []
    while True:
        number = len(failures) + 1
        emit(AttemptStarted(agent, number, policy.attempts))
        try:
            return replace(await attempt(number), attempts=number)
        except errors.AgentError as error:
            failures.append(error)
            failure = error
        left = deadline - timing.clock()
        delay = policy.delay_seconds(failure, number, chance=timing.chance(), left=left)
        why_not = ""
        if not failure.retryable:
            why_not = "trying again would not help"
        elif number >= policy.attempts:
            why_not = f"it was tried {number} times" if number > 1 else "it may be tried only once"
        elif (asked_wait_seconds(failure) or 0.0) > policy.rate_limit_max_seconds:
            why_not = f"the wait asked for is longer than {in_words(policy.rate_limit_max_seconds)}"
        elif delay + SHORTEST_ATTEMPT_SECONDS > left:
            why_not = f"the time left, {in_words(max(left, 0.0))}, does not hold another attempt"
        emit(AttemptFailed(agent, number, type(failure).__name__, failure.message, None if why_not else delay))
        if why_not:
            raise _final(failures, why_not, timing)
        await timing.sleep(delay)


def _final(failures: list[errors.AgentError], why_not: str, timing: Timing) -> errors.AgentError:
    error = failures[-1]
    # What was refused before it was sent, by a budget or for want of time, was no attempt.
    attempts = len(failures) if error.attempts else len(failures) - 1
    asked = asked_wait_seconds(error)
    if isinstance(error, errors.RateLimited) and asked is not None:
        told = errors.RateLimited(
            f"{error.message}; {timing.opening(asked)}",
            agent=error.agent,
            retry_after_seconds=asked,
            hint=error.hint or "wait until then, or use another agent",
            raw_output=error.raw_output,
            session_id=error.session_id,
        )
        told.cost_usd, told.usage = error.cost_usd, error.usage
        told.__cause__ = error
        error = told
    error.attempts = attempts
    for number, earlier in enumerate(failures[:-1], start=1):
        error.add_note(f"attempt {number}: {type(earlier).__name__}: {earlier.message}")
    if error.retryable:
        error.add_note(f"not tried again: {why_not}")
    return error


class Unusable:
    """Which agents of a run were found to be missing or logged out before they gave any answer.

    Calls that have another agent to ask need not find that out again, each with a program that is started for it. One
    that has answered can be used: if it is refused later, that may be for one request alone.
    """

    def __init__(self) -> None:
        self._known: dict[str, errors.AgentError | None] = {}

    def check(self, agent: str) -> None:
        """Raises the error again that was met when the agent was asked, if it cannot be used."""
        error = self._known.get(agent)
        if error is not None:
            raise type(error)(error.message, agent=agent, hint=error.hint, attempts=0) from error

    def note(self, agent: str, error: errors.AgentError | None = None) -> None:
        """Tell that an attempt failed, or that the agent answered."""
        if error is None:
            self._known[agent] = None
        elif isinstance(error, errors.NotInstalled | errors.NotLoggedIn):
            self._known.setdefault(agent, error)


class Attempts(Struct, kw_only=True):
    """One call at one agent, under limits that it shares with others; it may be continued after a quota ended.

    An agent that `unusable` knows to be missing is not asked again. `ends_at` is set when the call begins.
    """

    agent: Agent
    request: AgentRequest
    limiter: Limiter
    budget: RunBudget
    policy: RetryPolicy
    timing: Timing
    emit: AgentEventSink
    unusable: Unusable = field(default_factory=Unusable)
    ends_at: float | None = None

    def deadline(self) -> float:
        """When the time of the call ends, its waits for quotas included. It begins when this is first asked for."""
        if self.ends_at is None:
            self.ends_at = self.timing.clock() + self.request.timeout_seconds
        return min(self.ends_at, self.budget.deadline)

    async def answer(self) -> AgentResult:
        """A checked answer, or the AgentError of the last attempt. The call's time begins with its first place."""
        name = self.agent.name
        self.unusable.check(name)
        self.budget.check(agent=name)
        place = self.limiter.place(patience_seconds=self.request.timeout_seconds)
        await self._take(place, self.budget.deadline)
        try:
            self.unusable.check(name)
            deadline = self.deadline()

            async def attempt(number: int) -> AgentResult:
                await self._take(place, deadline)
                return await self._attempt(place, deadline, number)

            async def away(seconds: float) -> None:
                place.leave()
                await self.timing.sleep(seconds)

            most = self.request.max_attempts
            return await with_retries(
                attempt,
                self.policy if most is None else replace(self.policy, attempts=most),
                deadline=deadline,
                timing=replace(self.timing, sleep=away),
                emit=self.emit,
                agent=name,
            )
        finally:
            place.leave()

    async def _take(self, place: Place, deadline: float) -> None:
        left = deadline - self.timing.clock()
        try:
            async with asyncio.timeout(max(left, 0.0) if left < math.inf else None):
                await place.take()
        except TimeoutError as error:
            self.budget.check(agent=self.agent.name)
            raise self._timed_out("there was no place for another attempt in the time that was left", 0) from error

    async def _attempt(self, place: Place, deadline: float, number: int) -> AgentResult:
        agent, request = self.agent, self.request
        reads = agent.limits.tools and request.tools != ()
        async with self.budget.reserve(request, agent=agent.name, reads=reads) as spend:
            left = deadline - self.timing.clock()
            if left < (SHORTEST_ATTEMPT_SECONDS if number > 1 else 0):
                raise self._timed_out("no time is left for another attempt", 0)
            try:
                result = await self._run(replace(request, timeout_seconds=left))
            except errors.RateLimited as error:
                place.refused(self.policy.pause_seconds(error, left=deadline - self.timing.clock()))
                raise
            except errors.Overloaded:
                place.refused()
                raise
            except errors.AgentError as error:
                self.unusable.note(agent.name, error)
                raise
            spend(result)
        self.unusable.note(agent.name)
        place.succeeded()
        try:
            return await _checked_answer(result, request, agent)
        except errors.OutputInvalid as error:
            error.model = result.model
            raise

    async def _run(self, request: AgentRequest) -> AgentResult:
        name = self.agent.name
        guard = asyncio.timeout(request.timeout_seconds + _GRACE_SECONDS)
        try:
            async with guard:
                result = await self.agent.run(request, self.emit)
        except errors.AgentError:
            raise
        except Exception as error:  # a vendor's library may raise anything, and every failure belongs to one family
            if guard.expired():
                raise self._timed_out(f"it did not end by itself in {in_words(request.timeout_seconds)}") from error
            raise errors.Crashed(
                f"{name} failed in a way that is not known: {type(error).__name__}: {error}",
                agent=name,
                hint="try again, or another agent; `codeloupe doctor` looks whether this one can be used",
            ) from error
        if not result.success:
            words = result.error or "it does not say why"
            raise errors.Crashed(f"{name} gave no answer: {words}", agent=name, raw_output=result.raw_output)
        return result

    def _timed_out(self, what: str, attempts: int = 1) -> errors.TimedOut:
        return errors.TimedOut(
            f"{self.agent.name} gave no answer in time: {what}",
            agent=self.agent.name,
            hint="give more time with timeout_seconds, or ask for less at once",
            attempts=attempts,
        )


async def _checked_answer(result: AgentResult, request: AgentRequest, agent: Agent) -> AgentResult:
    """The result with `structured` as asked for: a program that ended well may still have said nothing.

    Raises OutputInvalid, which keeps the answer and its cost.
    """
    if not result.output.strip() and result.structured is None:
        raise errors.OutputInvalid(
            f"the answer of {agent.name} is empty",
            agent=agent.name,
            hint="try again, or another model",
            raw_output=result.raw_output,
            session_id=result.session_id,
            cost_usd=result.total_cost_usd,
            usage=result.usage,
        )
    if request.output_schema is None:
        return result
    if len(result.output) + len(result.raw_output) <= _QUICK_CHARACTERS:
        checked = check_output(result, request.output_schema)
    else:
        checked = await asyncio.to_thread(check_output, result, request.output_schema)
    if agent.limits.schema and result.structured is None:
        note = f"{agent.name} gave its structured answer as text, and it was read from there"
        return replace(checked, notes=(*checked.notes, note))
    return checked
