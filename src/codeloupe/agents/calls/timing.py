"""Time as the calls see it, given from outside so that tests own it, and told in words."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from codeloupe.model.ports import Clock

_LONGEST_TOLD_SECONDS = 10 * 365 * 86400


def _now() -> datetime:
    return datetime.now(UTC)


class Timing(Struct, frozen=True, kw_only=True):
    """`clock` for lengths, `now` for moments told to a person, `sleep` for waiting, `chance` in [0, 1) for jitter."""

    clock: Clock = time.monotonic
    now: Callable[[], datetime] = _now
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
    if seconds < 2 * 86400:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 86400:.1f} days"
