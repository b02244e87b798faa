"""Time as the calls see it, how many calls of one agent run at a time, and when the next may start.

The number that a limiter lets in is halved when the service has no room and grows again by one after a row of
successes. While one call was asked to wait, no other call starts. Every call costs the same few steps, however many
wait.
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


class Timing(Struct, frozen=True, kw_only=True):
    """`clock` for lengths, `now` for moments shown to a person, `sleep` for waiting, `chance` in [0, 1) for jitter."""

    clock: Clock = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def moment(self, seconds_from_now: float) -> datetime | None:
        """When that will be; None for more than ten years, which no calendar need hold."""
        is_near = 0 <= seconds_from_now <= 10 * 365 * 86400
        return self.now() + timedelta(seconds=seconds_from_now) if is_near else None

    def opening(self, seconds_from_now: float) -> str:
        """When something opens again, for a message."""
        moment = self.moment(seconds_from_now)
        if moment is None:
            return "it does not open again within ten years"
        return f"it opens again at {moment:%Y-%m-%d %H:%M:%S %Z} (in {readable(seconds_from_now)})"


def readable(seconds: float) -> str:
    """A length of time for a person."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 2 * 86400 else f"{seconds / 86400:.1f} days"


class Limiter:
    """At most `concurrency` places, and `calls_per_minute` starts in any minute where that is given.

    It is for one agent in one run, in one event loop. A pause longer than `longest_pause_seconds`, or than a call has
    patience, is a quota that ended: nobody waits for it here, whoever wants a place meanwhile gets RateLimited with the
    time that is left.
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
        self.most = self.limit = max(concurrency, 1)
        self.longest_pause_seconds = longest_pause_seconds
        self.successes = self.running = self.returning = self.lowered = 0
        self.opens_at = -math.inf
        self.starts: deque[float] = deque(maxlen=calls_per_minute)
        # Only the first of each queue looks whether it may start; a lock lets the next one in its order. What began
        # already goes first: its deadline runs.
        self.queues = {False: asyncio.Lock(), True: asyncio.Lock()}
        self.changed = asyncio.Event()

    def place(self, *, patience_seconds: float = math.inf) -> Place:
        """A place that is not taken yet, for one call; whoever takes it leaves it. A longer pause is not waited for."""
        return Place(self, min(patience_seconds, self.longest_pause_seconds))


class Place:
    """One of the places, held by one call. It can be left for a while and taken again, ahead of new calls."""

    def __init__(self, limiter: Limiter, patience_seconds: float) -> None:
        self._limiter = limiter
        self._patience_seconds = patience_seconds
        self._held = self._was_held = False
        self._lowered = 0

    async def take(self) -> None:
        """Wait for the place, unless it is held. Raises RateLimited while a quota has ended."""
        if self._held:
            return
        limiter, returning = self._limiter, self._was_held
        self._pause_seconds()
        limiter.returning += returning
        try:
            async with limiter.queues[returning]:
                while True:
                    wait = self._pause_seconds()
                    if len(limiter.starts) == limiter.starts.maxlen:
                        wait = max(wait, limiter.starts[0] + 60.0 - limiter.timing.clock())
                    if wait > 0:
                        await limiter.timing.sleep(wait)
                    elif limiter.running >= limiter.limit or (limiter.returning and not returning):
                        limiter.changed.clear()
                        await limiter.changed.wait()
                    else:
                        break
                limiter.running += 1
                if limiter.starts.maxlen is not None:
                    limiter.starts.append(limiter.timing.clock())
        finally:
            limiter.returning -= returning
            limiter.changed.set()
        self._held = self._was_held = True
        self._lowered = limiter.lowered

    def _pause_seconds(self) -> float:
        limiter = self._limiter
        left = limiter.opens_at - limiter.timing.clock()
        if left > self._patience_seconds:
            message = f"the quota of {limiter.agent} is used up; {limiter.timing.opening(left)}"
            hint = "wait until then, or use another agent"
            raise RateLimited(message, agent=limiter.agent, retry_after_seconds=left, hint=hint, attempts=0)
        return left

    def pause(self, seconds: float) -> None:
        """Let no call start before, since a call of another process was asked to wait. Raises as `take` does."""
        limiter = self._limiter
        limiter.opens_at = max(limiter.opens_at, limiter.timing.clock() + seconds)
        limiter.changed.set()
        self._pause_seconds()

    def leave(self) -> None:
        """Give the place to the next, if it is held."""
        if self._held:
            self._held = False
            self._limiter.running -= 1
            self._limiter.changed.set()

    def succeeded(self) -> None:
        """An attempt went well: after ten in a row there is one more place, up to all of them."""
        limiter = self._limiter
        limiter.successes += 1
        if limiter.successes >= 10 and limiter.limit < limiter.most:
            limiter.limit += 1
            limiter.successes = 0
            limiter.changed.set()

    def refused(self, pause_seconds: float = 0.0) -> None:
        """The service had no room, or asked to wait: half of the places are left, and no call starts before."""
        limiter = self._limiter
        limiter.successes = 0
        # Those that began before the limit was lowered say nothing about the lower one.
        if self._lowered == limiter.lowered:
            limiter.limit = max(limiter.limit // 2, 1)
            limiter.lowered += 1
        if pause_seconds:
            limiter.opens_at = max(limiter.opens_at, limiter.timing.clock() + pause_seconds)
            limiter.changed.set()
