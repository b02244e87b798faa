"""Buying an answer once: the ledger is asked first, a claim keeps others from buying the same meanwhile.

The ledger works on a disk and may wait for other processes, so it runs in a thread. Each of its steps is brought to
its end even when the call is cancelled: a claim that nobody knows of would block others until it runs out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls.limiter import Timing, in_words
from codeloupe.errors import StoreError, TimedOut
from codeloupe.model.agent import AgentResult
from codeloupe.model.ports import Ledger

_Answer = TypeVar("_Answer")
_FIRST_LOOK_SECONDS = 0.1
_LONGEST_LOOK_SECONDS = 2.0
_log = logging.getLogger(__name__)


class Purchase(Struct, frozen=True, kw_only=True):
    """One answer to be had: its key, how it is bought, and how long to wait for another process that buys it."""

    key: str
    agent: str
    buy: Callable[[], Awaitable[AgentResult]]
    patience_seconds: float


class Purchases:
    """The purchases of one run, in one event loop.

    A claim is renewed while its call runs; one that its owner left (it was killed) is taken over when its lease runs
    out. What fails is not stored.
    """

    def __init__(self, ledger: Ledger, *, timing: Timing, lease_seconds: float) -> None:
        self._ledger = ledger
        self._timing = timing
        self._lease_seconds = lease_seconds
        self._turns: dict[str, _Turn] = {}

    async def had(self, purchase: Purchase) -> AgentResult:
        """The stored answer, or the one that is bought now and stored before it is returned.

        Raises what `buy` raises, StoreError when the ledger cannot be read before anything is bought, and TimedOut
        when another process holds the claim for too long.
        """
        kept = await _to_its_end(lambda: self._get(purchase.key))
        if kept is not None:
            return kept
        async with self._turn(purchase.key) as turn:
            try:
                return await self._claimed_or_kept(purchase, turn) or await self._bought(purchase, turn)
            finally:
                if turn.claimed:
                    await _to_its_end(lambda: self._release(purchase.key))

    async def had_anew(self, purchase: Purchase) -> AgentResult:
        """An answer that is bought whatever the ledger holds, and stored before it is returned."""
        return await self._stored(purchase.key, await purchase.buy(), _Turn())

    def _get(self, key: str) -> AgentResult | None:
        kept = self._ledger.get(key)
        if kept is None:
            return None
        # It is paid for: whoever adds up costs must not count it again.
        return replace(kept, from_ledger=True, total_cost_usd=0.0, original_cost_usd=kept.total_cost_usd)

    async def _claimed_or_kept(self, purchase: Purchase, turn: _Turn) -> AgentResult | None:
        """None when the claim is ours, or the answer that somebody else bought since we looked."""
        started, pause = self._timing.clock(), _FIRST_LOOK_SECONDS
        while True:
            kept = await _to_its_end(lambda: self._claim(purchase.key, turn))
            if kept is not None or turn.claimed:
                return kept
            if self._timing.clock() - started > purchase.patience_seconds:
                raise _waited_too_long(purchase)
            await self._timing.sleep(pause)
            pause = min(2 * pause, _LONGEST_LOOK_SECONDS)

    def _claim(self, key: str, turn: _Turn) -> AgentResult | None:
        """Try to claim, and look again: what was bought since the last look is stored by now."""
        # Noted in the same step, so that a cancellation meanwhile does not leave a claim behind.
        turn.claimed = self._ledger.claim(key, lease_seconds=self._lease_seconds)
        return self._get(key)

    async def _bought(self, purchase: Purchase, turn: _Turn) -> AgentResult:
        renewing = asyncio.create_task(self._renew(purchase.key))
        try:
            return await self._stored(purchase.key, await purchase.buy(), turn)
        finally:
            renewing.cancel()
            await _ended(renewing)

    async def _stored(self, key: str, result: AgentResult, turn: _Turn) -> AgentResult:
        try:
            await _to_its_end(lambda: self._put(key, result, turn))
        except StoreError as error:
            # It is paid for: better used without being kept than thrown away and bought again.
            _log.warning("an answer could not be stored: %s", error)
            return replace(result, notes=(*result.notes, f"this answer could not be stored in the ledger: {error}"))
        return result

    def _put(self, key: str, result: AgentResult, turn: _Turn) -> None:
        self._ledger.put(key, result)
        turn.claimed = False

    async def _renew(self, key: str) -> None:
        while True:
            await self._timing.sleep(self._lease_seconds / 2)
            try:
                await _to_its_end(lambda: self._ledger.renew(key, lease_seconds=self._lease_seconds))
            except StoreError as error:
                # The call goes on: at worst another process buys the same.
                _log.warning("a claim could not be renewed: %s", error)

    def _release(self, key: str) -> None:
        # A claim that cannot be ended now ends by itself, and the failure that led here is the one to tell.
        with suppress(StoreError):
            self._ledger.release(key)

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[_Turn]:
        """One call of this run at a time for each key; the next one looks again what is stored."""
        turn = self._turns.setdefault(key, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                turn.claimed = False
                yield turn
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[key]


class _Turn:
    """Who buys a key in this run; `claimed` tells whether the ledger's claim is with it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.claimed = False


def _waited_too_long(purchase: Purchase) -> TimedOut:
    patience = in_words(purchase.patience_seconds)
    return TimedOut(
        f"somebody else is asking {purchase.agent} the same, and did not end within {patience}",
        agent=purchase.agent,
        hint="wait for it, give more time, or ask again",
        attempts=0,
    )


async def _to_its_end(step: Callable[[], _Answer]) -> _Answer:
    """Run a step in a thread. A cancellation, however often, is raised when the step has ended."""
    task = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        await _ended(task)
    except asyncio.CancelledError:
        # Looked at, so that asyncio does not report a failure that the cancellation has overtaken.
        task.exception()
        raise
    return task.result()


async def _ended(task: asyncio.Future[_Answer]) -> None:
    """Wait until a task is done, whatever became of it. A cancellation is raised then."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
