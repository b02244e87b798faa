"""A clock that skips waits, so that a test of retries and rate limits takes no time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from codeloupe.agents.calls.limiter import Timing


def instant_timing() -> Timing:
    """Return a clock that jumps over each wait between attempts, for `Runtime(timing=...)` and `run_agent`.

    Real time passes as well: a call that works for a second makes the clock a second later. Waits have no jitter.
    """
    clock = _SkippingClock()
    return Timing(clock=clock.clock, now=clock.now, sleep=clock.sleep, chance=lambda: 0.5)


class _SkippingClock:
    """Real time plus the time that was skipped, in one event loop."""

    def __init__(self) -> None:
        self._skipped = 0.0
        self._sleeping: list[float] = []

    def clock(self) -> float:
        return time.monotonic() + self._skipped

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._skipped)

    async def sleep(self, seconds: float) -> None:
        """Skip a wait. Waits that began together end in the order of their lengths."""
        wakes_at = self.clock() + seconds
        self._sleeping.append(wakes_at)
        try:
            await asyncio.sleep(0)
            while min(self._sleeping) < wakes_at:  # noqa: ASYNC110 - it ends within a few rounds of the loop
                await asyncio.sleep(0)
            self._skipped += max(wakes_at - self.clock(), 0.0)
        finally:
            self._sleeping.remove(wakes_at)
