"""Sending what makes something new: once, also when the line is cut and nobody knows whether it was done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from codeloupe.errors import ForgeError, ForgeUncertain
from codeloupe.forges.github.client import GitHubClient
from codeloupe.forges.github.waiting import Patience
from codeloupe.forges.marker import Marker

_MOST_ATTEMPTS = 3
# GitHub asks for a second between requests that make something; a few at once do no harm.
_AT_ONCE = 10
_PAUSE_SECONDS = 1.0


class Sending(Struct):
    """What all steps share: the client, the marks, and how much was sent already."""

    client: GitHubClient
    marker: Marker
    patience: Patience
    sent: int = 0

    async def breathe(self) -> None:
        """To be called before each request that changes something."""
        self.sent += 1
        if self.sent > _AT_ONCE:
            await self.patience.pause(_PAUSE_SECONDS)

    async def once(self, send: Callable[[], Awaitable[object]], is_done: Callable[[], Awaitable[bool]]) -> None:
        """Send it; when it is not known whether it went through, look before it is sent again. Raises ForgeError."""
        attempt = 1
        while True:
            await self.breathe()
            try:
                await send()
                return
            except ForgeUncertain as cut:
                unknown = cut
            # What was done a moment ago may need another to be seen.
            await self.patience.after_failure(attempt)
            if await is_done():
                return
            if attempt == _MOST_ATTEMPTS:
                raise _given_up(unknown) from unknown
            attempt += 1


def _given_up(cut: ForgeUncertain) -> ForgeError:
    return ForgeError(
        f"{cut.message}, {_MOST_ATTEMPTS} times",
        status=cut.status,
        hint="run it again; what was posted is known then and not posted twice",
    )
