"""What a forge must be able to do for a review to be published there: one pull request, behind one protocol.

What to post, change and resolve is decided in `plan` and done in `publish`; neither knows a vendor. A forge is a folder
with a client that has these methods, each of which raises ForgeError in words. Those that make something new may raise
ForgeUncertain, when nobody knows whether it was made.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from codeloupe.errors import ForgeError
from codeloupe.forges.marker import SigningKey
from codeloupe.model.publication import (
    Conclusion,
    InlineComment,
    Opinion,
    PostedComment,
    PullRequest,
    StandingOpinion,
    StatusKind,
    Thread,
)
from codeloupe.reports.wording import duration

# The statuses of what is not there, or not for us to see.
GONE = (404, 410)


MOST_LIMITED = 6


_FIRST_PAUSE_SECONDS = 1.0


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
                f"{whose}'s rate limit is reached; it asks to wait {duration(seconds)} more",
                status=status,
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


class Status(Struct, frozen=True, kw_only=True):
    """The outcome as it is shown beside the commit. `passed` decides where a forge knows no neutral conclusion."""

    kind: StatusKind
    head: str
    conclusion: Conclusion
    passed: bool
    title: str
    summary: str
    description: str


class Sender(Protocol):
    """How requests that change something are sent: with pauses, and none twice."""

    async def breathe(self) -> None:
        """To be called before each request that changes something."""

    async def once(self, send: Callable[[], Awaitable[object]], is_done: Callable[[], Awaitable[bool]]) -> None:
        """Send it; when it is not known whether it went through, look before it is sent again."""


class Forge(Protocol):
    """One pull request on a forge."""

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

    async def delete_review_comment(self, comment_id: int) -> None:
        """Delete a comment of ours on a line; one that is gone already is no error."""

    async def post_comment(self, body: str) -> PostedComment:
        """Comment on the whole."""

    async def edit_comment(self, comment_id: int, body: str) -> None:
        """Change a comment of ours on the whole."""

    async def delete_comment(self, comment_id: int) -> None:
        """Delete a comment of ours on the whole; one that is gone already is no error."""

    async def set_status(self, status: Status, sender: Sender) -> None:
        """Show the outcome beside the commit, once for each commit and outcome."""
