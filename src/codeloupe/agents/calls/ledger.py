"""Buying an answer once: the ledger is asked first, a claim keeps others from buying the same meanwhile.

The ledger works on a disk and may wait for other processes, so it runs in a thread. Each of its steps is brought to
its end even when the call is cancelled: a claim that nobody knows of would block others until it runs out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from codeloupe.agents.calls.limiter import readable
from codeloupe.errors import StoreError, TimedOut
from codeloupe.model.agent import AgentResult
from codeloupe.system.process import uninterrupted

if TYPE_CHECKING:
    from codeloupe.store.interface import Ledger

_Answer = TypeVar("_Answer")
_log = logging.getLogger(__name__)


class LedgerCalls:
    """The calls of one run that go through the ledger. A claim whose owner was killed runs out with its lease.

    Leases and the claims of other processes run in real time, whatever the clock of the calls is.
    """

    def __init__(self, ledger: Ledger, *, lease_seconds: float) -> None:
        self._ledger = ledger
        self._lease_seconds = lease_seconds
        self._claimed: set[str] = set()
        # One call of this run at a time for each key; the next one looks again what is stored.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def answer(
        self, key: str, ask: Callable[[], Awaitable[AgentResult]], *, agent: str, patience_seconds: float, fresh: bool
    ) -> AgentResult:
        """The stored answer, or the one that is bought now and kept. Raises what `ask` does, StoreError, TimedOut."""
        if fresh:
            return await self._stored(key, await ask())
        if kept := await in_thread(lambda: self._get(key)):
            return kept
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                if kept := await self._claim_or_find(key, agent=agent, patience_seconds=patience_seconds):
                    return kept
                renewing = asyncio.create_task(self._renew(key))
                try:
                    return await self._stored(key, await ask())
                finally:
                    renewing.cancel()
                    await uninterrupted(asyncio.wait((renewing,)))
            finally:
                if key in self._claimed:
                    self._claimed.discard(key)
                    # A claim that cannot be ended now ends by itself, and the failure that led here is what counts.
                    with suppress(StoreError):
                        await in_thread(lambda: self._ledger.release(key))

    def _get(self, key: str) -> AgentResult | None:
        kept = self._ledger.get(key)
        if kept is None:
            return None
        # It is paid for: whoever adds up costs must not count it again.
        return replace(kept, from_ledger=True, stored=True, total_cost_usd=0.0, original_cost_usd=kept.total_cost_usd)

    async def _claim_or_find(self, key: str, *, agent: str, patience_seconds: float) -> AgentResult | None:
        """None when the claim is ours, or the answer that somebody else bought since we looked."""
        clock = asyncio.get_running_loop().time
        started = clock()
        pause = 0.1

        def claim() -> AgentResult | None:
            # Noted in the same step, so that a cancellation meanwhile does not leave a claim behind. And what was
            # bought since the last look is stored by now.
            if self._ledger.claim(key, lease_seconds=self._lease_seconds):
                self._claimed.add(key)
            return self._get(key)

        while True:
            kept = await in_thread(claim)
            if kept is not None or key in self._claimed:
                return kept
            if clock() - started > patience_seconds:
                patience = readable(patience_seconds)
                message = f"another process is making the same call to {agent} and did not finish within {patience}"
                raise TimedOut(message, agent=agent, hint="wait for it, raise the time limit, or try again", attempts=0)
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)

    async def _stored(self, key: str, result: AgentResult) -> AgentResult:
        def put() -> None:
            self._ledger.put(key, result)
            self._claimed.discard(key)

        try:
            await in_thread(put)
        except StoreError as error:
            # It is paid for: better used without being kept than thrown away and bought again.
            _log.warning("an answer could not be stored: %s", error)
            return replace(result, notes=(*result.notes, f"this answer could not be stored in the ledger: {error}"))
        return replace(result, stored=True)

    async def _renew(self, key: str) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / 2)
            try:
                await in_thread(lambda: self._ledger.renew(key, lease_seconds=self._lease_seconds))
            except StoreError as error:
                # The call goes on: at worst another process buys the same.
                _log.warning("a claim could not be renewed: %s", error)


async def in_thread(step: Callable[[], _Answer]) -> _Answer:
    """Run a step in a thread. A cancellation, however often, is raised when the step has ended."""
    return await uninterrupted(asyncio.to_thread(step))
