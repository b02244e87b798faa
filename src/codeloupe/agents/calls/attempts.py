"""The attempts of one call at one agent, each in its place, within its budget and its time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls.answer_check import checked_answer
from codeloupe.agents.calls.budget import RunBudget
from codeloupe.agents.calls.fallback import Roll
from codeloupe.agents.calls.limiter import Limiter, Place, Timing, in_words
from codeloupe.agents.calls.retry import SHORTEST_ATTEMPT_SECONDS, RetryPolicy, with_retries
from codeloupe.errors import AgentError, Crashed, OutputInvalid, Overloaded, RateLimited, TimedOut
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.ports import Agent, AgentEventSink

# Agents keep their time themselves and need a while to end a program; this is for one that does not come back.
_GRACE_SECONDS = 15.0


class Span:
    """The time of one call, its waits for quotas included. It begins when its end is first asked for."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    def end(self, now: float) -> float:
        """When it ends, by the same clock as `now`."""
        if self._end is None:
            self._end = now + self._seconds
        return self._end


class Attempts(Struct, frozen=True, kw_only=True):
    """Who is asked, and under which limits. With a `roll` an agent that it knows to be missing is not asked again."""

    agent: Agent
    limiter: Limiter
    budget: RunBudget
    policy: RetryPolicy
    timing: Timing
    emit: AgentEventSink
    roll: Roll | None = None

    async def answer(self, request: AgentRequest, span: Span) -> AgentResult:
        """A checked answer, or the AgentError of the last attempt. The call's time begins with its place."""
        self._call_the_roll()
        self.budget.check(agent=self.agent.name)
        async with self._slot(request.timeout_seconds) as place:
            self._call_the_roll()
            deadline = min(span.end(self.timing.clock()), self.budget.deadline)

            async def attempt(number: int) -> AgentResult:
                await self._take(place, deadline)
                return await self._attempt(request, place, deadline, number)

            async def away(seconds: float) -> None:
                place.leave()
                await self.timing.sleep(seconds)

            most = request.max_attempts
            return await with_retries(
                attempt,
                self.policy if most is None else replace(self.policy, attempts=most),
                deadline=deadline,
                timing=replace(self.timing, sleep=away),
                emit=self.emit,
                agent=self.agent.name,
            )

    def _call_the_roll(self) -> None:
        if self.roll is not None:
            self.roll.check(self.agent.name)

    @asynccontextmanager
    async def _slot(self, patience_seconds: float) -> AsyncIterator[Place]:
        place = self.limiter.place(patience_seconds=patience_seconds)
        await self._take(place, self.budget.deadline)
        try:
            yield place
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

    async def _attempt(self, request: AgentRequest, place: Place, deadline: float, number: int) -> AgentResult:
        reads = self.agent.limits.tools and request.tools != ()
        async with self.budget.reserve(request, agent=self.agent.name, reads=reads) as spend:
            left = deadline - self.timing.clock()
            if left < (SHORTEST_ATTEMPT_SECONDS if number > 1 else 0):
                raise self._timed_out("no time is left for another attempt", 0)
            try:
                result = await self._run(replace(request, timeout_seconds=left))
            except RateLimited as error:
                place.rate_limited(self.policy.pause_seconds(error, left=deadline - self.timing.clock()))
                raise
            except Overloaded:
                place.overloaded()
                raise
            except AgentError as error:
                if self.roll is not None:
                    self.roll.note_failure(self.agent.name, error)
                raise
            spend(result)
        if self.roll is not None:
            self.roll.note_answer(self.agent.name)
        place.succeeded()
        try:
            return await checked_answer(result, request, self.agent)
        except OutputInvalid as error:
            error.model = result.model
            raise

    async def _run(self, request: AgentRequest) -> AgentResult:
        name = self.agent.name
        guard = asyncio.timeout(request.timeout_seconds + _GRACE_SECONDS)
        try:
            async with guard:
                result = await self.agent.run(request, self.emit)
        except AgentError:
            raise
        except Exception as error:  # a vendor's library may raise anything, and every failure belongs to one family
            if guard.expired():
                raise self._timed_out(f"it did not end by itself in {in_words(request.timeout_seconds)}") from error
            raise Crashed(
                f"{name} failed in a way that is not known: {type(error).__name__}: {error}",
                agent=name,
                hint="try again, or another agent; `codeloupe doctor` looks whether this one can be used",
            ) from error
        if not result.success:
            words = result.error or "it does not say why"
            raise Crashed(f"{name} gave no answer: {words}", agent=name, raw_output=result.raw_output)
        return result

    def _timed_out(self, what: str, attempts: int = 1) -> TimedOut:
        return TimedOut(
            f"{self.agent.name} gave no answer in time: {what}",
            agent=self.agent.name,
            hint="give more time with timeout_seconds, or ask for less at once",
            attempts=attempts,
        )
