"""The clock of agent calls, and the limits of one process: how many calls of an agent run, and when the next starts.

The number of places is halved when the service has no capacity, and grows by one after ten successes. While the service
asked one call to wait, no other call starts. The cost of a call does not depend on how many calls wait.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from codeloupe.errors import RateLimited
from codeloupe.model.ports import Clock

_TEN_YEARS_SECONDS = 10 * 365 * 86_400


class Timing(Struct, frozen=True, kw_only=True):
    """`clock` measures time, `now` is shown to people, `sleep` waits, and `chance` in [0, 1) is for jitter."""

    clock: Clock = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def moment(self, seconds_from_now: float) -> datetime | None:
        """Return the time after so many seconds; None if it is more than ten years ahead, or in the past."""
        if not 0 <= seconds_from_now <= _TEN_YEARS_SECONDS:
            return None
        return self.now() + timedelta(seconds=seconds_from_now)

    def opening(self, seconds_from_now: float) -> str:
        """Return when something opens again, for a message."""
        moment = self.moment(seconds_from_now)
        if moment is None:
            return "it does not open again within ten years"
        return f"it opens again at {moment:%Y-%m-%d %H:%M:%S %Z} (in {readable(seconds_from_now)})"


def readable(seconds: float) -> str:
    """Return a length of time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    if seconds < 2 * 86400:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:.1f} days"


class Limiter:
    """At most `concurrency` places, and `calls_per_minute` starts in any minute if that is given.

    It is for one agent in one runtime, in one event loop. A pause longer than `longest_pause_seconds`, or than the
    patience of a call, is a used-up quota. No call waits for that: it gets RateLimited with the remaining time.
    """

    def __init__(
        self,
        agent: str,
        *,
        concurrency: int,
        timing: Timing,
        calls_per_minute: int | None = None,
        longest_pause_seconds: float = 300.0,
    ) -> None:
        self.agent = agent
        self.timing = timing
        self.most = max(concurrency, 1)
        self.limit = self.most
        self.longest_pause_seconds = longest_pause_seconds
        self.successes = 0
        self.running = 0
        self.returning = 0
        self.lowered = 0
        self.opens_at = -math.inf
        self.starts: deque[float] = deque(maxlen=calls_per_minute)
        # Only the first call of each queue checks whether it may start; the lock admits the others in their order.
        # Calls that have begun go first, because their deadline runs.
        self.queues = {False: asyncio.Lock(), True: asyncio.Lock()}
        self.changed = asyncio.Event()

    def place(self, *, patience_seconds: float = math.inf) -> Place:
        """Return a place for one call, which is not taken yet. The call does not wait for a longer pause."""
        return Place(self, min(patience_seconds, self.longest_pause_seconds))

    def seconds_until_start(self, pause_seconds: float) -> float:
        """Return how long the rate and a pause delay the next start."""
        if len(self.starts) != self.starts.maxlen:
            return pause_seconds
        return max(pause_seconds, self.starts[0] + 60.0 - self.timing.clock())


class Place:
    """One of the places, for one call. It can be left for a while and taken again, before new calls."""

    def __init__(self, limiter: Limiter, patience_seconds: float) -> None:
        self._limiter = limiter
        self._patience_seconds = patience_seconds
        self._held = False
        self._was_held = False
        self._lowered = 0

    async def take(self) -> None:
        """Wait for the place, unless it is held. Raise RateLimited while a quota is used up."""
        if self._held:
            return
        limiter = self._limiter
        returning = self._was_held
        self._pause_seconds()
        limiter.returning += returning
        try:
            async with limiter.queues[returning]:
                await self._wait_for_room(returning=returning)
                limiter.running += 1
                if limiter.starts.maxlen is not None:
                    limiter.starts.append(limiter.timing.clock())
        finally:
            limiter.returning -= returning
            limiter.changed.set()
        self._held = True
        self._was_held = True
        self._lowered = limiter.lowered

    async def _wait_for_room(self, *, returning: bool) -> None:
        limiter = self._limiter
        while True:
            seconds = limiter.seconds_until_start(self._pause_seconds())
            if seconds > 0:
                await limiter.timing.sleep(seconds)
            elif limiter.running >= limiter.limit or (limiter.returning and not returning):
                limiter.changed.clear()
                await limiter.changed.wait()
            else:
                return

    def _pause_seconds(self) -> float:
        limiter = self._limiter
        left = limiter.opens_at - limiter.timing.clock()
        if left > self._patience_seconds:
            message = f"the quota of {limiter.agent} is used up; {limiter.timing.opening(left)}"
            hint = "wait until then, or use another agent"
            raise RateLimited(message, agent=limiter.agent, retry_after_seconds=left, hint=hint, attempts=0)
        return left

    def pause(self, seconds: float) -> None:
        """Start no call for so long, because the service asked another process to wait. Raise as `take` does."""
        limiter = self._limiter
        limiter.opens_at = max(limiter.opens_at, limiter.timing.clock() + seconds)
        limiter.changed.set()
        self._pause_seconds()

    def leave(self) -> None:
        """Give the place to the next call, if it is held."""
        if self._held:
            self._held = False
            self._limiter.running -= 1
            self._limiter.changed.set()

    def succeeded(self) -> None:
        """Count a successful attempt. After ten there is one more place, up to the configured number."""
        limiter = self._limiter
        limiter.successes += 1
        if limiter.successes >= 10 and limiter.limit < limiter.most:
            limiter.limit += 1
            limiter.successes = 0
            limiter.changed.set()

    def refused(self, pause_seconds: float = 0.0) -> None:
        """Halve the places, because the service had no capacity, and start no call during the pause."""
        limiter = self._limiter
        limiter.successes = 0
        # A call that began before the limit was lowered says nothing about the lower one.
        if self._lowered == limiter.lowered:
            limiter.limit = max(limiter.limit // 2, 1)
            limiter.lowered += 1
        if pause_seconds:
            limiter.opens_at = max(limiter.opens_at, limiter.timing.clock() + pause_seconds)
            limiter.changed.set()
