"""Does on GitHub what a plan says, step by step. A step that fails is told, and the next one is tried all the same.

Comments come first, the summary after them, since it tells which were refused, and the status last: so a run that is
ended in the middle opens no gate. To run it again does what is left, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from msgspec.structs import replace

from codeloupe.errors import ForgeError, ForgeRefused, HeadMoved
from codeloupe.forges.github.failures import GONE
from codeloupe.forges.github.reading import read_comments, read_head, read_threads
from codeloupe.forges.own_threads import own_threads
from codeloupe.forges.planning import check_current
from codeloupe.forges.posting_review import ReviewPosting
from codeloupe.forges.posting_status import post_status
from codeloupe.forges.posting_summary import own_summaries, post_summary, remove_doubles
from codeloupe.forges.sending import Sending
from codeloupe.model.publication import (
    Plan,
    Publication,
    PublishProblem,
    StandingOpinion,
    StatusKind,
    SummaryChange,
    ThreadAnswer,
)
from codeloupe.reports.wording import counted

_NOT_ACCEPTED = 401


async def execute(plan: Plan, sending: Sending) -> Publication:
    """Do it all. Raises HeadMoved when there are new commits before anything was posted, and what reading raises."""
    check_current(plan.review, await read_head(sending.client))
    return await _Run(plan, sending).go()


class _Run:
    """One run and what was done in it so far."""

    def __init__(self, plan: Plan, sending: Sending) -> None:
        self._plan = plan
        self._sending = sending
        self._review = ReviewPosting(plan, sending)
        self._answered: list[ThreadAnswer] = []
        self._withdrawn: list[StandingOpinion] = []
        self._summary = SummaryChange.NOT_WRITTEN
        self._summary_url = ""
        self._status = StatusKind.NONE
        self._problems: list[PublishProblem] = []
        self._may_resolve = True
        self._is_over = False

    async def go(self) -> Publication:
        plan = self._plan
        await self._step(self._review.post)
        await self._step(self._review.take_back_doubles)
        for answer in plan.answers:
            await self._step(partial(self._answer, answer))
        for standing in plan.withdrawn:
            await self._step(partial(self._withdraw, standing))
        await self._step(self._write_summary)
        await self._step(self._settle_summaries)
        await self._step(self._set_status)
        return Publication(
            plan=plan,
            posted=tuple(self._review.posted),
            refused=tuple(self._review.refused),
            opinion=self._review.opinion,
            answered=tuple(self._answered),
            withdrawn=tuple(self._withdrawn),
            summary=self._summary,
            summary_url=self._summary_url,
            status=self._status,
            problems=tuple(dict.fromkeys(self._problems)),
        )

    async def _step(self, act: Callable[[], Awaitable[None]]) -> None:
        if self._is_over:
            return
        try:
            await act()
        except ForgeError as error:
            self._problems.append(PublishProblem(error.message, error.hint, is_refusal=isinstance(error, ForgeRefused)))
            # With a token that is not accepted any more, nothing else will go better.
            if error.status == _NOT_ACCEPTED:
                self._is_over = True

    async def _answer(self, answer: ThreadAnswer) -> None:
        """Answer in a thread and resolve it. One that somebody has deleted since it was read needs neither."""
        try:
            await self._say(answer)
        except ForgeRefused as error:
            threads = await read_threads(self._sending.client) if error.status in GONE else ()
            if error.status not in GONE or any(one.thread_id == answer.thread_id for one in threads):
                raise

    async def _say(self, answer: ThreadAnswer) -> None:
        body = answer.body
        if body is not None:
            await self._sending.once(
                lambda: self._sending.client.reply(answer.comment_id, body), partial(self._is_answered, answer)
            )
            self._answered.append(replace(answer, resolved=None))
        if answer.resolved is None or not self._may_resolve:
            return
        try:
            await self._sending.breathe()
            await self._sending.client.set_resolved(answer.thread_id, resolved=answer.resolved)
        except ForgeRefused as error:
            if error.status in GONE:
                raise
            # To resolve takes more rights than to post, which many a job is not given, and rightly so.
            self._may_resolve = False
            self._problems.append(PublishProblem(error.message, error.hint, is_refusal=True, is_minor=True))
            return
        if body is not None:
            self._answered.pop()
        self._answered.append(answer)

    async def _is_answered(self, answer: ThreadAnswer) -> bool:
        threads = await read_threads(self._sending.client)
        ours = own_threads((one for one in threads if one.thread_id == answer.thread_id), self._sending.marker)
        return any(own.last_word is answer.kind for own in ours)

    async def _withdraw(self, standing: StandingOpinion) -> None:
        await self._sending.breathe()
        words = f"It does not hold any more at {self._plan.pull_request.head[:12]}."
        await self._sending.client.withdraw_review(standing.review_id, words)
        self._withdrawn.append(standing)

    async def _write_summary(self) -> None:
        # A push in the middle has a run of its own: its summary must not be written over by this one.
        try:
            check_current(self._plan.review, await read_head(self._sending.client))
        except HeadMoved as error:
            self._is_over = True
            raise HeadMoved(f"{self._posted_so_far()}, since new commits arrived", hint=error.hint) from error
        self._summary, comment = await post_summary(self._plan, self._review.refused, sending=self._sending)
        self._summary_url = "" if comment is None else comment.url

    def _posted_so_far(self) -> str:
        parts = [
            f"posted {counted(len(self._review.posted), 'comment', 'comments')}",
            f"answered {counted(len(self._answered), 'thread', 'threads')}" if self._answered else "",
            f"withdrew {counted(len(self._withdrawn), 'opinion', 'opinions')}" if self._withdrawn else "",
        ]
        done = " and ".join(filter(None, (", ".join(filter(None, parts[:-1])), parts[-1])))
        return f"{done} for {self._plan.pull_request.head[:12]}, but neither summary nor status"

    async def _settle_summaries(self) -> None:
        """Another run of the same moment may have posted one too."""
        if self._summary is SummaryChange.CREATED:
            comments = await read_comments(self._sending.client)
            await remove_doubles(own_summaries(comments, self._sending.marker), self._sending)

    async def _set_status(self) -> None:
        await post_status(self._plan, self._sending)
        self._status = self._plan.options.status
