"""What a forge must be able to do for a review to be published there: one pull request, one protocol.

What to post, change and resolve is decided in `plan` and done in `publish`; neither knows a vendor. A forge is a folder
with a client that has these methods, each of which raises ForgeError. Those that make something new may raise
ForgeUncertain, when nobody knows whether it was made.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from codeloupe.errors import ForgeError, ForgeUncertain
from codeloupe.forges.threads import Marker, SigningKey
from codeloupe.model.publication import (
    InlineComment,
    Opinion,
    Plan,
    PostedComment,
    PullRequest,
    StandingOpinion,
    Thread,
)
from codeloupe.reports.wording import duration

# The statuses of what is not there, or not for us to see.
GONE = (404, 410)
MOST_LIMITED = 6
_MOST_ATTEMPTS = 3
# Forges ask for a second between requests that make something; a few at once do no harm.
_AT_ONCE = 10
AGAIN = "run it again; what was posted is known then and not posted twice"


class Patience(Struct):
    """How long to wait in all, over every request of a run. `sleep` and `clock` (seconds since 1970) can be given."""

    most_seconds: float = 900.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.time
    waited_seconds: float = 0.0

    async def after_limit(self, seconds: float, *, times: int, whose: str, status: int) -> None:
        """Wait as a forge asks. Raises ForgeError when that is too long, or too often."""
        if times >= MOST_LIMITED or self.waited_seconds + seconds > self.most_seconds:
            raise ForgeError(
                f"{whose}'s rate limit is reached; it asks to wait {duration(seconds)} more", status=status, hint=AGAIN
            )
        await self.pause(seconds)

    async def after_failure(self, attempt: int) -> None:
        """Wait before the next attempt: a second, doubling, with some chance in it."""
        spread = 0.5 + random.random()  # noqa: S311 - to spread requests, not to keep a secret
        await self.pause((1 << (attempt - 1)) * spread)

    async def pause(self, seconds: float) -> None:
        """Wait between two requests."""
        self.waited_seconds += seconds
        await self.sleep(seconds)


class Sending(Struct):
    """How requests that change something are sent: with pauses, and none twice. All steps of a run share it."""

    forge: Forge
    marker: Marker
    patience: Patience
    sent: int = 0

    async def breathe(self) -> None:
        """To be called before each request that changes something."""
        self.sent += 1
        if self.sent > _AT_ONCE:
            await self.patience.pause(1.0)

    async def once(self, send: Callable[[], Awaitable[object]], is_done: Callable[[], Awaitable[bool]]) -> None:
        """Send it; when it is not known whether it went through, look before it is sent again. Raises ForgeError."""
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            await self.breathe()
            try:
                await send()
                return
            except ForgeUncertain as cut:
                # What was done a moment ago may need another to be seen.
                await self.patience.after_failure(attempt)
                if await is_done():
                    return
                if attempt == _MOST_ATTEMPTS:
                    raise ForgeError(f"{cut.message}, {attempt} times", status=cut.status, hint=AGAIN) from cut


class Forge(Protocol):
    """One pull request on a forge. `forge` is its name, for messages."""

    forge: str

    async def read(self, key: SigningKey) -> PullRequest:
        """All that a plan needs."""

    async def read_head(self) -> PullRequest:
        """What the pull request says of itself, without its files and comments."""

    async def read_threads(self) -> tuple[Thread, ...]:
        """The threads on lines of the diff, each with all its comments."""

    async def read_comments(self) -> tuple[PostedComment, ...]:
        """The comments on the whole."""

    async def read_opinions(self) -> tuple[StandingOpinion, ...]:
        """Our own approvals and requests for changes that still hold."""

    async def post_review(self, head: str, body: str, opinion: Opinion, comments: Sequence[InlineComment]) -> None:
        """Post comments on lines, and an opinion, as one review of a commit: all of it, or nothing."""

    def is_place_refused(self, error: ForgeError) -> bool:
        """Whether the error of `post_review` says that one of the places, or the opinion, is not taken."""

    async def withdraw_review(self, review_id: int, message: str) -> None:
        """Take an opinion of ours back."""

    async def reply(self, comment_id: int, body: str) -> None:
        """Answer in a thread."""

    async def set_resolved(self, thread_id: str, *, resolved: bool) -> None:
        """Resolve a thread, or open it again."""

    async def post_comment(self, body: str) -> PostedComment:
        """Comment on the whole."""

    async def edit_comment(self, comment_id: int, body: str) -> None:
        """Change a comment of ours on the whole."""

    async def delete_comment(self, comment_id: int, *, on_line: bool) -> None:
        """Delete a comment of ours, on a line or on the whole; one that is gone already is no error."""

    async def set_status(self, plan: Plan, sending: Sending) -> None:
        """Show the outcome beside the commit, as the plan's options say, once for each commit and outcome."""
