"""Waiting for a call that somebody else is buying."""

from __future__ import annotations

import asyncio
from typing import Protocol

from codeloupe.model.agent import AgentResult

_SLOWER = 1.5
_LONGEST_PAUSE_SECONDS = 5.0


class _Awaited(Protocol):
    def get(self, key: str) -> AgentResult | None: ...
    def is_claimed(self, key: str) -> bool: ...


async def wait_for(ledger: _Awaited, key: str, *, poll_seconds: float, timeout: float) -> AgentResult | None:
    """The result that the holder of the claim puts; None when nobody holds one any more, or the time is up.

    Looks every `poll_seconds` at first and then ever less often. After None the key may be claimed again.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    pause = poll_seconds
    while True:
        # Asked first: a claim ends together with its put, so what is not there afterwards will not come.
        claimed = ledger.is_claimed(key)
        result = ledger.get(key)
        if result is not None or not claimed:
            return result
        left = deadline - loop.time()
        if left <= 0:
            return None
        await asyncio.sleep(min(pause, left))
        pause = max(poll_seconds, min(pause * _SLOWER, _LONGEST_PAUSE_SECONDS))
