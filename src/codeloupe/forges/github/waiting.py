"""When to ask GitHub again, and after how long: its limits, its failures, and our patience. No I/O but the sleep."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime

from msgspec import Struct

from codeloupe.errors import ForgeError
from codeloupe.reports.wording import duration

MOST_ATTEMPTS = 4
MOST_LIMITED = 6
_FIRST_PAUSE_SECONDS = 1.0
# What GitHub asks for when it names no time itself.
_UNNAMED_LIMIT_SECONDS = 60.0
_LIMIT_WORDS = (b"secondary rate limit", b"abuse detection", b"rate limit exceeded")
# GitHub's words for too many comments at once, in an answer that looks as if something were wrong with them.
_TOO_QUICK = b"submitted too quickly"
_LOOKED_AT_BYTES = 4_000
_LIMITED_QUERY = b'"RATE_LIMIT'
_FAILED_FROM = 500


class Reply(Struct, frozen=True):
    """What came back for one request; names of headers are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def is_limited(reply: Reply) -> bool:
    """Whether GitHub did nothing, since too much was asked: of the hour, of a moment, or of GraphQL."""
    text = reply.body[:_LOOKED_AT_BYTES].lower()
    if reply.status == 429 or (reply.status == 422 and _TOO_QUICK in text):
        return True
    if reply.status == 403:
        named = "retry-after" in reply.headers or reply.headers.get("x-ratelimit-remaining") == "0"
        return named or any(words in text for words in _LIMIT_WORDS)
    return reply.status == 200 and _LIMITED_QUERY in reply.body and _is_limited_query(reply.body)


def _is_limited_query(body: bytes) -> bool:
    """Whether GraphQL says so itself, and not a comment that it cites."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    errors = document.get("errors") if isinstance(document, dict) else None
    kinds = [each.get("type") for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    return any(isinstance(kind, str) and kind.startswith("RATE_LIMIT") for kind in kinds)


def is_failure(reply: Reply) -> bool:
    """Whether GitHub failed on its side, so that nobody knows what it did."""
    return reply.status >= _FAILED_FROM


def limit_seconds(reply: Reply, *, times: int, now: float) -> float:
    """How long to wait after a limit was met for the so many-th time: as GitHub says, else a minute, doubling."""
    asked = _retry_after(reply.headers.get("retry-after", ""), now)
    if asked is not None:
        return asked
    reset = _number(reply.headers.get("x-ratelimit-reset", ""))
    if reset is not None and reply.headers.get("x-ratelimit-remaining") == "0":
        return max(reset - now, 0.0) + 1.0
    return _UNNAMED_LIMIT_SECONDS * (1 << (times - 1))


def _retry_after(text: str, now: float) -> float | None:
    seconds = _number(text)
    if seconds is not None:
        return seconds
    try:
        return max(parsedate_to_datetime(text).timestamp() - now, 0.0)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _number(text: str) -> float | None:
    word = text.strip()
    return float(word) if word.isascii() and word.isdecimal() and len(word) <= 12 else None


class Patience(Struct):
    """How long to wait in all, over every request of a run. `sleep` and `clock` (seconds since 1970) can be given."""

    most_seconds: float = 900.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.time
    waited_seconds: float = 0.0

    async def after_limit(self, reply: Reply, *, times: int) -> None:
        """Wait as GitHub asks. Raises ForgeError when that is too long, or too often."""
        seconds = limit_seconds(reply, times=times, now=self.clock())
        if times >= MOST_LIMITED or self.waited_seconds + seconds > self.most_seconds:
            raise ForgeError(
                f"GitHub's rate limit is reached; it asks to wait {duration(seconds)} more",
                status=reply.status,
                hint="run it again later; what was posted is known then and not posted twice",
            )
        await self._wait(seconds)

    async def after_failure(self, attempt: int) -> None:
        """Wait before the next attempt: a second, doubling, with some chance in it."""
        spread = 0.5 + random.random()  # noqa: S311 - to spread requests, not to keep a secret
        await self._wait(_FIRST_PAUSE_SECONDS * (1 << (attempt - 1)) * spread)

    async def pause(self, seconds: float) -> None:
        """Wait between two requests."""
        await self._wait(seconds)

    async def _wait(self, seconds: float) -> None:
        self.waited_seconds += seconds
        await self.sleep(seconds)
