"""Time as the calls see it, how many calls of one agent run at a time, and when the next may start.

The number that a limiter lets in is halved when the service has no room and grows again by one after a row of
successes. While one call was told to wait, no other call starts. Every call costs the same few steps, however many
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

_LONGEST_TOLD_SECONDS = 10 * 365 * 86400
_MINUTE_SECONDS = 60.0


class Timing(Struct, frozen=True, kw_only=True):
    """`clock` for lengths, `now` for moments told to a person, `sleep` for waiting, `chance` in [0, 1) for jitter."""

    clock: Clock = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    def moment(self, seconds_from_now: float) -> datetime | None:
        """When that will be; None for what no calendar holds."""
        if not 0 <= seconds_from_now <= _LONGEST_TOLD_SECONDS:
            return None
        return self.now() + timedelta(seconds=seconds_from_now)

    def opening(self, seconds_from_now: float) -> str:
        """When something opens again, in words."""
        moment = self.moment(seconds_from_now)
        if moment is None:
            return "it does not open again in our time"
        return f"it opens again at {moment:%Y-%m-%d %H:%M:%S %Z} (in {in_words(seconds_from_now)})"


def in_words(seconds: float) -> str:
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
        successes_to_grow: int = 10,
    ) -> None:
        self._agent = agent
        self._timing = timing
        self._most = self.limit = max(concurrency, 1)
        self._longest_pause_seconds = longest_pause_seconds
        self._successes_to_grow = successes_to_grow
        self._successes = 0
        self.running = 0
        self._returning = 0
        self._lowered = 0
        self._opens_at = -math.inf
        self._starts: deque[float] = deque(maxlen=calls_per_minute)
        # Only the first of each queue looks whether it may start; a lock lets the next one in its order.
        self._first_in_line = asyncio.Lock()
        self._first_of_returning = asyncio.Lock()
        self._changed = asyncio.Event()

    def place(self, *, patience_seconds: float = math.inf) -> Place:
        """A place that is not taken yet, for one call; whoever takes it leaves it. A longer pause is not waited for."""
        return Place(self, patience_seconds=min(patience_seconds, self._longest_pause_seconds))

    async def admit(self, *, returning: bool, patience_seconds: float) -> int:
        """Wait for a place and take it; `Place` does. What began already goes first: its deadline runs."""
        self._pause_seconds(patience_seconds)
        self._returning += returning
        try:
            async with self._first_of_returning if returning else self._first_in_line:
                while True:
                    wait = self._pause_seconds(patience_seconds)
                    if len(self._starts) == self._starts.maxlen:
                        wait = max(wait, self._starts[0] + _MINUTE_SECONDS - self._timing.clock())
                    if wait > 0:
                        await self._timing.sleep(wait)
                    elif self.running >= self.limit or (self._returning and not returning):
                        self._changed.clear()
                        await self._changed.wait()
                    else:
                        break
                self.running += 1
                if self._starts.maxlen is not None:
                    self._starts.append(self._timing.clock())
                return self._lowered
        finally:
            self._returning -= returning
            self._changed.set()

    def _pause_seconds(self, patience_seconds: float) -> float:
        left = self._opens_at - self._timing.clock()
        if left > patience_seconds:
            raise RateLimited(
                f"the quota of {self._agent} has ended; {self._timing.opening(left)}",
                agent=self._agent,
                retry_after_seconds=left,
                hint="wait until then, or use another agent",
                attempts=0,
            )
        return left

    def give_back(self) -> None:
        """End what `admit` began."""
        self.running -= 1
        self._changed.set()

    def note_success(self) -> None:
        """Grow by one place after a row of successes."""
        self._successes += 1
        if self._successes >= self._successes_to_grow and self.limit < self._most:
            self.limit += 1
            self._successes = 0
            self._changed.set()

    def lower(self, since: int, *, pause_seconds: float = 0.0) -> None:
        """Halve the places, unless that was done after `since`, which `admit` gave, and let nobody start for a while.

        Of many calls that fail together only the first tells something new: those that began before the limit was
        lowered say nothing about the lower one.
        """
        self._successes = 0
        if since == self._lowered:
            self.limit = max(self.limit // 2, 1)
            self._lowered += 1
        if pause_seconds:
            self._opens_at = max(self._opens_at, self._timing.clock() + pause_seconds)
            self._changed.set()


class Place:
    """One of the places, held by one call. It can be left for a while and taken again, ahead of new calls."""

    def __init__(self, limiter: Limiter, *, patience_seconds: float) -> None:
        self._limiter = limiter
        self._patience_seconds = patience_seconds
        self._held = False
        self._was_held = False
        self._since = 0

    async def take(self) -> None:
        """Wait for the place, unless it is held. Raises RateLimited while a quota has ended."""
        if not self._held:
            self._since = await self._limiter.admit(returning=self._was_held, patience_seconds=self._patience_seconds)
            self._held = self._was_held = True

    def leave(self) -> None:
        """Give the place to the next, if it is held."""
        if self._held:
            self._held = False
            self._limiter.give_back()

    def succeeded(self) -> None:
        """Tell that an attempt went well."""
        self._limiter.note_success()

    def refused(self, pause_seconds: float = 0.0) -> None:
        """Tell that the service had no room, or asked to wait: fewer calls run from now on, and none starts before."""
        self._limiter.lower(self._since, pause_seconds=pause_seconds)
