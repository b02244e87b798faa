"""Posts the new comments as one review. What GitHub does not take by its place is found out and left to the summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from codeloupe.errors import ForgeError
from codeloupe.forges.comment_text import review_body
from codeloupe.forges.github.failures import PENDING
from codeloupe.forges.github.reading import read_opinions, read_threads
from codeloupe.forges.own_threads import double_comments, own_threads
from codeloupe.forges.sending import Sending
from codeloupe.model.publication import InlineComment, Opinion, Plan, WithoutComment

_NOT_TAKEN = 422


class ReviewPosting:
    """One plan's review on its way. After an error it tells what was posted; without a review, `opinion` is None."""

    def __init__(self, plan: Plan, sending: Sending) -> None:
        self._plan = plan
        self._sending = sending
        self.posted: list[InlineComment] = []
        self.refused: list[WithoutComment] = []
        self.opinion: Opinion | None = None

    async def post(self) -> None:
        """Post what the plan has. Raises ForgeError."""
        if self._plan.posts_review:
            await self._post(self._plan.comments, self._plan.opinion)

    async def take_back_doubles(self) -> None:
        """Delete what another run of the same moment said before us. Raises ForgeError.

        Whichever run looks last sees both, and each keeps the oldest.
        """
        if not self.posted:
            return
        threads = await read_threads(self._sending.client)
        for comment_id in double_comments(own_threads(threads, self._sending.marker)):
            await self._sending.breathe()
            await self._sending.client.delete_review_comment(comment_id)

    async def _post(self, comments: Sequence[InlineComment], opinion: Opinion) -> None:
        try:
            await self._send(comments, opinion)
        except ForgeError as error:
            is_opinion_alone = opinion is not Opinion.COMMENT and not comments
            if error.status != _NOT_TAKEN or is_opinion_alone or PENDING in error.message.lower():
                raise
            await self._post_apart(comments, opinion)
        else:
            self.posted.extend(comments)
            self.opinion = opinion if self.opinion in (None, Opinion.COMMENT) else self.opinion

    async def _post_apart(self, comments: Sequence[InlineComment], opinion: Opinion) -> None:
        """A review is taken whole or not at all, and GitHub does not say what it minds: so its parts are tried."""
        if opinion is not Opinion.COMMENT:
            await self._post(comments, Opinion.COMMENT)
            await self._post((), opinion)
        elif len(comments) == 1:
            self.refused.append(WithoutComment(comments[0].finding, "GitHub took no comment on its lines"))
        else:
            half = len(comments) // 2
            await self._post(comments[:half], opinion)
            await self._post(comments[half:], opinion)

    async def _send(self, comments: Sequence[InlineComment], opinion: Opinion) -> None:
        head = self._plan.pull_request.head
        left = list(comments)

        async def send() -> None:
            body = review_body(opinion, len(left), head=head, marker=self._sending.marker)
            listed = [_comment(one) for one in left]
            review = {"commit_id": head, "body": body, "event": opinion.value, "comments": listed}
            await self._sending.client.post_review(review)

        async def is_done() -> bool:
            if not comments:
                opinions = await read_opinions(self._sending.client)
                return any(one.opinion is opinion and one.head == head for one in opinions)
            there = await self._new_threads()
            left[:] = [one for one in left if (one.key, one.path) not in there]
            return not left

        await self._sending.once(send, is_done)

    async def _new_threads(self) -> set[tuple[str, str]]:
        """What the threads of ours are about that were not there when the plan was made."""
        before = {thread.thread_id for thread in self._plan.pull_request.threads}
        threads = await read_threads(self._sending.client)
        ours = own_threads((one for one in threads if one.thread_id not in before), self._sending.marker)
        return {(own.key, own.thread.path) for own in ours}


def _comment(one: InlineComment) -> dict[str, Any]:
    place: dict[str, Any] = {"path": one.path, "line": one.line, "side": "RIGHT", "body": one.body}
    if one.start_line is not None:
        place |= {"start_line": one.start_line, "start_side": "RIGHT"}
    return place
