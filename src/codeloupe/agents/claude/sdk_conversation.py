"""A conversation through the Agent SDK that ends when it should, and leaves no program behind.

The SDK closes its program in several steps with waits between them, and a cancellation during such a wait leaves the
program running. So the SDK runs in a task of its own that no cancellation from outside reaches, and its program is
found and ended by us, which lets the SDK come to its end by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from msgspec import Struct

from codeloupe.agents.calls.marked_processes import signal_marked

_GRACE_SECONDS = 2.0
_ROUND_SECONDS = 0.1
# The SDK's own way to end its program, where we cannot find it, takes up to 20 s.
_LAST_WAIT_SECONDS = 25.0


class PassedLimit(Struct, frozen=True):
    """A limit that passed, in seconds: of the whole conversation, or of silence in it."""

    seconds: float
    silent: bool


class Conversation:
    """Hands each message of the SDK to `take`. `token` is the mark in the environment of its program."""

    def __init__(self, messages: AsyncGenerator[Any, None], take: Callable[[Any], None], *, token: str) -> None:
        self._messages = messages
        self._take = take
        self._token = token
        self._started = self._heard_at = time.monotonic()
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def hold(self, *, timeout_seconds: float, idle_timeout_seconds: float | None) -> PassedLimit | None:
        """Until the end of the conversation, or until a limit passed. Raises what the SDK or `take` raised.

        The program is gone in every case. A cancellation, however often, is raised when it is.
        """
        task = asyncio.ensure_future(self._listen())
        try:
            passed = await self._watch(task, timeout_seconds, idle_timeout_seconds)
        finally:
            await _uninterrupted(asyncio.ensure_future(self._end(task)))
        if self._refused.done():
            self._refused.result()
        if passed is None:
            task.result()
        return passed

    async def _listen(self) -> None:
        """Always to the end of the messages: an SDK that is left before it does not clean up."""
        async for message in self._messages:
            self._heard_at = time.monotonic()
            if self._refused.done():
                continue
            try:
                self._take(message)
            except Exception as error:  # noqa: BLE001 - whatever the taker raises is its caller's, see `hold`
                self._refused.set_exception(error)

    async def _watch(
        self, task: asyncio.Future[None], timeout_seconds: float, idle_seconds: float | None
    ) -> PassedLimit | None:
        idle = math.inf if idle_seconds is None else idle_seconds
        ends = (task, self._refused)
        while not any(end.done() for end in ends):
            now = time.monotonic()
            left, idle_left = self._started + timeout_seconds - now, self._heard_at + idle - now
            if left <= 0:
                return PassedLimit(timeout_seconds, silent=False)
            if idle_left <= 0:
                return PassedLimit(idle, silent=True)
            await asyncio.wait(ends, timeout=min(left, idle_left), return_when=asyncio.FIRST_COMPLETED)
        return None

    async def _end(self, task: asyncio.Future[None]) -> None:
        begun = time.monotonic()
        is_told = False
        while not task.done() and (spent := time.monotonic() - begun) < _LAST_WAIT_SECONDS:
            number = signal.SIGTERM if spent < _GRACE_SECONDS else signal.SIGKILL
            if not signal_marked(self._token, number) and not is_told:
                is_told = task.cancel()
            await asyncio.wait((task,), timeout=_ROUND_SECONDS)
        signal_marked(self._token, signal.SIGKILL)
        for end in (task, self._refused):
            if end.done() and not end.cancelled():
                end.exception()  # looked at, so that asyncio does not report it as lost


async def _uninterrupted(task: asyncio.Future[None]) -> None:
    """Wait for a task even when we are cancelled meanwhile, however often; the cancellation is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        with contextlib.suppress(Exception):  # the cancellation is what is told
            task.result()
        raise cancelled
    task.result()
