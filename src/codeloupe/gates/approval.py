"""The word of a person on a stage: from a terminal, or left by another process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from codeloupe.model.pipeline import Approval

Take = Callable[[], Approval | None]
Ask = Callable[[], Awaitable[Approval | None]]

POLL_SECONDS = 0.5


async def word_of_a_person(
    take: Take, ask: Ask | None, *, timeout_seconds: float, poll_seconds: float = POLL_SECONDS
) -> Approval | None:
    """What a person decided, or None when nobody did in time.

    `take` gives the word that was left, if there is one; it is looked for at once, and then again and again. `ask` asks
    on a terminal meanwhile, as long as it takes; whichever comes first counts. A person there who does not want to
    decide now is not waited for.
    """
    if (left := take()) is not None:
        return left
    asking = None if ask is None else asyncio.ensure_future(ask())
    try:
        return await _first_word(take, asking, timeout_seconds=timeout_seconds, poll_seconds=poll_seconds)
    finally:
        if asking is not None and not asking.done():
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


async def _first_word(
    take: Take, asking: asyncio.Future[Approval | None] | None, *, timeout_seconds: float, poll_seconds: float
) -> Approval | None:
    clock = asyncio.get_running_loop().time
    # While a person sits before the question, no clock runs out on them.
    deadline = math.inf if asking is not None else clock() + timeout_seconds
    while True:
        if asking is not None and asking.done():
            return asking.result() or take()
        if (left := take()) is not None:
            return left
        pause = min(poll_seconds, deadline - clock())
        if pause <= 0:
            return None
        if asking is None:
            await asyncio.sleep(pause)
        else:
            await asyncio.wait((asking,), timeout=pause)
