"""The attempts of one call to one agent: each has a place and a budget, and all have one deadline."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.agents.calls.limiter import readable
from codeloupe.agents.calls.schemas import check_output, no_answer
from codeloupe.model.agent import AgentRequest, AgentResult, AttemptFailed, AttemptStarted, QuotaEnded, TokenUsage
from codeloupe.model.limits import QuotaWait
from codeloupe.model.ports import Agent, AgentEventSink
from codeloupe.system.json_values import refuse_unsound

if TYPE_CHECKING:
    from codeloupe.agents.calls.caller import AgentCaller
    from codeloupe.agents.calls.shared import SharedPlace

# A shorter attempt cannot succeed.
_SHORTEST_ATTEMPT_SECONDS = 1.0
# A service that refuses for so long without a time of reset has another problem than a quota.
_LONGEST_UNKNOWN_QUOTA_SECONDS = 86_400.0


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """The number of attempts and the waits between them.

    Waits begin with `first_delay_seconds` and grow by `factor`. A rate limit without Retry-After begins with
    `rate_limit_min_seconds`, or with half of the time left if that is less. `jitter` spreads each wait by that share,
    but never below the wait that the service asked for. A shorter wait than our own, such as none, is not granted. If a
    service asks for more than `rate_limit_max_seconds`, its quota is used up, and the call does not wait here.
    """

    attempts: int = 3
    first_delay_seconds: float = 1.0
    factor: float = 2.0
    jitter: float = 0.25
    rate_limit_min_seconds: float = 30.0
    rate_limit_max_seconds: float = 300.0

    def delay_seconds(self, error: errors.AgentError, attempt: int, *, chance: float, left: float = math.inf) -> float:
        """Return the wait after a failed attempt, counted from 1; `left` is the remaining time of the call."""
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
        """Return how long no other call may start after a rate limit; `left` is the remaining time of the call."""
        asked = asked_wait_seconds(error)
        if asked is None:
            return min(self.rate_limit_min_seconds, max(left / 2, self.first_delay_seconds))
        return max(asked, self.first_delay_seconds)


def asked_wait_seconds(error: errors.AgentError) -> float | None:
    """Return the wait that the service asked for; None if there is none or it is not a valid one."""
    asked = error.retry_after_seconds if isinstance(error, errors.RateLimited) else None
    return asked if asked is not None and 0 <= asked < math.inf else None


class Attempts:
    """One call to one agent, which may be the last of its chain, under the limits that it shares with others.

    `is_answered` says whether the agent has answered, although the answer is not checked yet.
    """

    def __init__(
        self, caller: AgentCaller, agent: Agent, request: AgentRequest, emit: AgentEventSink, *, is_last: bool
    ) -> None:
        self.agent, self.request, self.emit, self.is_last = agent, request, emit, is_last
        self.budget = caller.budget
        self.timing = caller.timing_of(agent)
        self.unusable = caller.unusable
        self.policy = caller.options.retry
        self.quota_wait = caller.options.quota_wait if is_last else QuotaWait.NO
        self.began_at = self.timing.clock()
        self.place = caller.limiter(agent).place(patience_seconds=request.timeout_seconds)
        self.ends_at: float | None = None
        self.is_answered = False
        self.shared, self.repo, self.has_begun = caller.shared, caller.options.repo, False

    def _deadline(self) -> float:
        """Return when the time of the call ends, waits for quotas included. It begins with the first use of this."""
        if self.ends_at is None:
            self.ends_at = self.timing.clock() + self.request.timeout_seconds
        return min(self.ends_at, self.budget.deadline)

    async def answer(self) -> AgentResult:
        """Return a checked answer, after waits for quotas if allowed. Raise the AgentError of the last attempt."""
        made = 0
        while True:
            try:
                result = await self._answer()
                return replace(result, attempts=result.attempts + made)
            except errors.AgentError as error:
                made += error.attempts
                error.attempts = made
                if not isinstance(error, errors.RateLimited):
                    raise
                await self._wait_for_quota(error)

    async def _wait_for_quota(self, error: errors.RateLimited) -> None:
        """Wait until a quota resets, or raise the error if that takes longer than the call may wait."""
        asked = asked_wait_seconds(error)
        pause = self.policy.rate_limit_max_seconds if asked is None else asked
        deadline = self._deadline()
        if self.quota_wait is QuotaWait.UNTIL_RESET:
            deadline = self.budget.deadline
            if asked is None:
                deadline = min(deadline, self.began_at + _LONGEST_UNKNOWN_QUOTA_SECONDS)
        is_in_time = self.timing.clock() + pause + _SHORTEST_ATTEMPT_SECONDS < deadline
        waiting = self.quota_wait is not QuotaWait.NO and is_in_time
        opens_at = None if asked is None else self.timing.moment(asked)
        self.emit(QuotaEnded(self.agent.name, opens_at, waiting))
        if not waiting:
            if self.quota_wait is QuotaWait.WITHIN_TIMEOUT:
                seconds = self.request.timeout_seconds
                error.add_note(f"not waited for: the time limit of the call is {readable(seconds)}")
            raise error
        await self.timing.sleep(pause + self.timing.chance())
        if self.quota_wait is QuotaWait.UNTIL_RESET:
            self.ends_at = None

    async def _answer(self) -> AgentResult:
        """Return the result of the first successful attempt. Raise the error of the last, with notes on the others."""
        name, failures = self.agent.name, list[errors.AgentError]()
        most = self.request.max_attempts or self.policy.attempts
        self._refuse_unusable()
        self.budget.check(agent=name)
        await self._prepare()
        await self._wait(self.place.take(), self.budget.deadline)
        try:
            self._refuse_unusable()
            # The time of the call begins.
            self._deadline()
            while True:
                number = len(failures) + 1
                self.emit(AttemptStarted(name, number, most))
                try:
                    await self._wait(self.place.take(), self._deadline())
                    return replace(await self._attempt(number), attempts=number)
                except errors.AgentError as error:
                    failures.append(error)
                failure, left = failures[-1], self._deadline() - self.timing.clock()
                delay = self.policy.delay_seconds(failure, number, chance=self.timing.chance(), left=left)
                why_not = ""
                if not failure.retryable:
                    why_not = "a retry would not help"
                elif number >= most:
                    why_not = f"it was tried {number} times" if number > 1 else "only one attempt is allowed"
                elif (asked_wait_seconds(failure) or 0.0) > self.policy.rate_limit_max_seconds:
                    why_not = f"the requested wait is longer than {readable(self.policy.rate_limit_max_seconds)}"
                elif delay + _SHORTEST_ATTEMPT_SECONDS > left:
                    why_not = f"{readable(max(left, 0.0))} left is too short for another attempt"
                retry_in = None if why_not else delay
                self.emit(AttemptFailed(name, number, type(failure).__name__, failure.message, retry_in))
                if why_not:
                    raise self._final(failures, why_not)
                self.place.leave()
                await self.timing.sleep(delay)
        finally:
            self.place.leave()

    def _final(self, failures: list[errors.AgentError], why_not: str) -> errors.AgentError:
        error = failures[-1]
        asked = asked_wait_seconds(error)
        if asked is not None:
            error.message = f"{error.message}; {self.timing.opening(asked)}"
            error.args = (error.message,)
            error.hint = error.hint or "wait until then, or use another agent"
        # A request that was refused before it was sent, by a budget or for lack of time, is not an attempt.
        error.attempts = len(failures) if error.attempts else len(failures) - 1
        for number, earlier in enumerate(failures[:-1], start=1):
            error.add_note(f"attempt {number}: {type(earlier).__name__}: {earlier.message}")
        if error.retryable:
            error.add_note(f"not retried: {why_not}")
        return error

    async def _prepare(self) -> None:
        """Let the agent load what it needs, so that a permit is taken only when the request is about to be sent."""
        prepare = getattr(self.agent, "prepare", None)
        if prepare is None:
            return
        # The attempt meets the same problem, and reports it.
        with suppress(Exception):
            await prepare(self.request)

    def _refuse_unusable(self) -> None:
        error = self.unusable.get(self.agent.name) if not self.is_last else None
        if error is not None:
            kind = type(error)
            raise kind(error.message, agent=self.agent.name, hint=error.hint, attempts=0, unusable=True) from error

    async def _wait(self, place: Awaitable[None], deadline: float) -> None:
        left = deadline - self.timing.clock()
        try:
            async with asyncio.timeout(max(left, 0.0) if left < math.inf else None):
                await place
        except TimeoutError as error:
            self.budget.check(agent=self.agent.name)
            raise self._timed_out("too little time was left for another attempt", 0) from error

    async def _attempt(self, number: int) -> AgentResult:
        agent, request = self.agent, self.request
        reads = agent.limits.tools and request.tools != ()
        async with AsyncExitStack() as stack:
            spend = await stack.enter_async_context(self.budget.reserve(request, agent=agent.name, reads=reads))
            shared = await self._take_shared_place(stack, reads=reads)
            left = self._deadline() - self.timing.clock()
            if left < (_SHORTEST_ATTEMPT_SECONDS if number > 1 else 0):
                raise self._timed_out("no time is left for another attempt", 0)
            try:
                result = await self._run(replace(request, timeout_seconds=left))
                self.is_answered = True
            except (errors.RateLimited, errors.Overloaded) as error:
                self._refused(error, shared)
                raise
            except errors.AgentError as error:
                if error.unusable and not self.is_last:
                    self.unusable.setdefault(agent.name, error)
                raise
            spend(result)
            if shared is not None:
                shared.result = result
        if not self.is_last:
            self.unusable[agent.name] = None
        self.place.succeeded()
        if shared is not None and shared.problem:
            note = f"the cost of this call could not be recorded yet: {shared.problem}"
            result = replace(result, notes=(*result.notes, note))
        try:
            return await _checked_answer(result, request, agent)
        except errors.OutputInvalid as error:
            error.model = result.model
            raise

    def _refused(self, error: errors.RateLimited | errors.Overloaded, shared: SharedPlace | None) -> None:
        pause = 0.0
        if isinstance(error, errors.RateLimited):
            pause = self.policy.pause_seconds(error, left=self._deadline() - self.timing.clock())
        self.place.refused(pause)
        if shared is not None:
            shared.pause_seconds = pause

    async def _take_shared_place(self, stack: AsyncExitStack, *, reads: bool) -> SharedPlace | None:
        """Wait for a place among those that all processes share. The time of a call does not run before its first."""
        if self.shared is None:
            return None
        wanted = await self.shared.request(
            self.request, self.agent, place=self.place, repo=self.repo, budget=self.budget, reads=reads
        )
        place = await stack.enter_async_context(wanted)
        began = self.timing.clock()
        deadline = self.budget.deadline
        if self.has_begun:
            deadline = self._deadline()
        await self._wait(place.take(), deadline)
        if not self.has_begun and self.ends_at is not None:
            self.ends_at += self.timing.clock() - began
        self.has_begun = True
        return place

    async def _run(self, request: AgentRequest) -> AgentResult:
        name = self.agent.name
        # Agents enforce the timeout themselves and need a while to end a program. This is for an agent that hangs.
        guard = asyncio.timeout(request.timeout_seconds + 15.0)
        started = self.timing.clock()
        try:
            async with guard:
                result = await self.agent.run(request, self.emit)
        except errors.OutputInvalid as error:
            if not request.accept_any_output or not error.output.strip():
                raise
            return _accepted(error, request, agent=name, seconds=self.timing.clock() - started)
        except errors.BudgetExhausted as error:
            if error.cost_usd is None:
                # It stopped at its limit without reporting its cost, which is then at least that limit.
                error.cost_usd = request.max_budget_usd
            raise
        except errors.AgentError:
            raise
        except Exception as error:  # a vendor's library may raise anything, and every failure belongs to one family
            if guard.expired():
                raise self._timed_out(f"it did not finish within {readable(request.timeout_seconds)}") from error
            message = f"{name} failed unexpectedly: {type(error).__name__}: {error}"
            hint = "try again, or another agent; `codeloupe doctor` checks whether this one can be used"
            raise errors.Crashed(message, agent=name, hint=hint) from error
        if not result.success:
            words = result.error or "no reason was given"
            raise errors.Crashed(
                f"{name} gave no answer: {words}",
                agent=name,
                raw_output=result.raw_output,
                cost_usd=result.total_cost_usd,
                usage=result.usage,
            )
        return result

    def _timed_out(self, what: str, attempts: int = 1) -> errors.TimedOut:
        message = f"{self.agent.name} gave no answer in time: {what}"
        hint = "raise timeout_seconds, or ask for less at once"
        return errors.TimedOut(message, agent=self.agent.name, hint=hint, attempts=attempts)


def _accepted(error: errors.OutputInvalid, request: AgentRequest, *, agent: str, seconds: float) -> AgentResult:
    """Return the answer that an error carries as a result, so that it is stored and its cost is counted.

    The run failed, so the answer is inexact.
    """
    return AgentResult(
        success=True,
        output=error.output,
        agent=agent,
        session_id=error.session_id,
        duration_ms=round(seconds * 1000),
        total_cost_usd=error.cost_usd,
        usage=error.usage or TokenUsage(),
        model=error.model or request.model,
        raw_output=error.raw_output,
        inexact=error.message,
        other_answers=error.other_answers,
        notes=(error.message,),
    )


async def _checked_answer(result: AgentResult, request: AgentRequest, agent: Agent) -> AgentResult:
    """Return the result with `structured` as asked for. Raise OutputInvalid, which keeps the answer and its cost."""
    if not result.output.strip() and result.structured is None:
        raise no_answer(replace(result, agent=agent.name), "is empty", "try again, or another model")
    if request.output_schema is None:
        return result
    if request.accept_any_output:
        return _with_sound_value(result)
    # A long answer takes some milliseconds, so it is checked in a thread.
    checked = await asyncio.to_thread(check_output, result, request.output_schema)
    if agent.limits.schema and result.structured is None:
        note = f"{agent.name} gave its structured answer as text, which was parsed"
        return replace(checked, notes=(*checked.notes, note))
    return checked


def _with_sound_value(result: AgentResult) -> AgentResult:
    """Return the result without a structured value that cannot be written as JSON; the result is then inexact."""
    try:
        refuse_unsound(result.structured)
    except ValueError as error:
        note = f"the structured answer of {result.agent} was not used: {error}"
        inexact = result.inexact or note
        return replace(result, structured=None, inexact=inexact, notes=(*result.notes, note))
    return result
