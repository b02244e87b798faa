"""Paying for an answer once: a call looks into the ledger first, and a claim keeps others from making the same call.

The ledger uses a disk and may wait for other processes, so it runs in a thread. Each of its steps ends even if the call
is cancelled, because a forgotten claim would block others until it expires. An answer that has arrived is stored even
if the call is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from codeloupe.agents.calls.limiter import readable
from codeloupe.errors import StoreError, TimedOut
from codeloupe.model.agent import AgentEvent, AgentResult
from codeloupe.model.ports import AgentEventSink
from codeloupe.system.process import saved_once_answered, uninterrupted

if TYPE_CHECKING:
    from codeloupe.store.interface import Ledger

_Answer = TypeVar("_Answer")
_Ask = Callable[[], Awaitable[AgentResult]]
_SPOOLED = "the database could not store answers; they are stored on this machine and moved to the database later"
_log = logging.getLogger(__name__)


class LedgerCalls:
    """The calls of one run that use the ledger. A claim whose owner was killed expires with its lease.

    Leases and the claims of other processes use real time, even if the calls have another clock.
    """

    def __init__(self, ledger: Ledger, *, lease_seconds: float) -> None:
        self._ledger = ledger
        self._lease_seconds = lease_seconds
        self._claimed: set[str] = set()
        # One call of this run at a time for each key. The next one looks into the ledger again.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._emitted: AgentEvent | None = None

    async def answer(
        self,
        key: str,
        ask: _Ask,
        *,
        is_answered: Callable[[], bool],
        agent: str,
        patience_seconds: float,
        since: float | None = 0.0,
        emit: AgentEventSink = lambda _event: None,
    ) -> AgentResult:
        """Return the stored answer, or make the call and store its answer. Raise as `ask`, StoreError or TimedOut.

        `is_answered` says whether the answer has arrived, although `ask` may still work on it. With `since`, only an
        answer that was stored `since` a time is used; with None, no stored answer is.
        """

        async def ask_and_store() -> AgentResult:
            return await self._stored(key, await ask())

        paid = partial(saved_once_answered, ask_and_store, is_answered=is_answered)
        try:
            if since is None:
                await in_thread(self._ledger.open)
                return await paid()
            known = await in_thread(lambda: self._get(key, since=since))
            if known is not None:
                return known
            if since:
                return await paid()
            async with self._locks.setdefault(key, asyncio.Lock()):
                return await self._claimed_answer(key, paid, agent=agent, patience_seconds=patience_seconds)
        finally:
            self._emit_changes(emit)

    def _emit_changes(self, emit: AgentEventSink) -> None:
        event = self._ledger.last_event
        if event is not None and event != self._emitted:
            self._emitted = event
            emit(event)

    async def _claimed_answer(self, key: str, paid: _Ask, *, agent: str, patience_seconds: float) -> AgentResult:
        try:
            known = await self._claim_or_find(key, agent=agent, patience_seconds=patience_seconds)
            if known is not None:
                return known
            renewing = asyncio.create_task(self._renew(key))
            try:
                return await paid()
            finally:
                renewing.cancel()
                await uninterrupted(asyncio.wait((renewing,)))
        finally:
            if key in self._claimed:
                self._claimed.discard(key)
                # A claim that cannot be ended now expires. The failure that led here is the one to report.
                with suppress(StoreError):
                    await in_thread(lambda: self._ledger.release(key))

    def _get(self, key: str, *, since: float = 0.0) -> AgentResult | None:
        known = self._ledger.get(key, since=since)
        if known is None:
            return None
        # It is already paid for, so it must not be counted again.
        return replace(known, from_ledger=True, stored=True, total_cost_usd=0.0, original_cost_usd=known.total_cost_usd)

    async def _claim_or_find(self, key: str, *, agent: str, patience_seconds: float) -> AgentResult | None:
        """Return None if the claim is ours, or the answer that another process has stored."""
        clock = asyncio.get_running_loop().time
        started = clock()
        pause = 0.1

        def claim() -> AgentResult | None:
            # The claim is recorded in the same step, so that a cancellation does not forget it.
            if self._ledger.claim(key, lease_seconds=self._lease_seconds):
                self._claimed.add(key)
            return self._get(key)

        while True:
            known = await in_thread(claim)
            if known is not None or key in self._claimed:
                return known
            if clock() - started > patience_seconds:
                patience = readable(patience_seconds)
                message = f"another process is making the same call to {agent} and did not finish within {patience}"
                raise TimedOut(message, agent=agent, hint="wait for it, raise the time limit, or try again", attempts=0)
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)

    async def _stored(self, key: str, result: AgentResult) -> AgentResult:
        try:
            is_in_database = await in_thread(lambda: self._put(key, result))
        except StoreError as error:
            # It is paid for, so it is used although it could not be stored.
            _log.warning("an answer could not be stored: %s", error)
            return replace(result, notes=(*result.notes, f"this answer could not be stored in the ledger: {error}"))
        if not is_in_database:
            return replace(result, stored=True, notes=(*result.notes, _SPOOLED))
        return replace(result, stored=True)

    def _put(self, key: str, result: AgentResult) -> bool:
        is_in_database = self._ledger.put(key, result)
        if is_in_database:
            self._claimed.discard(key)
        return is_in_database

    async def _renew(self, key: str) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / 2)
            try:
                await in_thread(lambda: self._ledger.renew(key, lease_seconds=self._lease_seconds))
            except StoreError as error:
                # The call continues. In the worst case, another process makes it too.
                _log.warning("a claim could not be renewed: %s", error)


async def in_thread(step: Callable[[], _Answer]) -> _Answer:
    """Run a step in a thread. A cancellation is raised when the step has ended."""
    return await uninterrupted(asyncio.to_thread(step))
