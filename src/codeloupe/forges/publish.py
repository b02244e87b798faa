"""Does on a forge what a plan says, step by step. A step that fails is reported, and the next one is tried.

Comments come first, the summary after them, since it lists those that were refused, and the status last: so a run that
is ended in the middle opens no gate. To run it again does what is left, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec.structs import replace

from codeloupe.errors import ForgeError, ForgeRefused, HeadMoved
from codeloupe.forges.comments import review_body, summary_body
from codeloupe.forges.forge import GONE, Sending
from codeloupe.forges.plan import check_current
from codeloupe.forges.threads import MarkKind, OwnThread, double_comments, own_threads
from codeloupe.model.publication import (
    InlineComment,
    Opinion,
    Plan,
    PostedComment,
    Publication,
    PublishProblem,
    StandingOpinion,
    StatusKind,
    SummaryChange,
    ThreadAnswer,
    WithoutComment,
)
from codeloupe.reports.wording import counted


async def execute(plan: Plan, sending: Sending) -> Publication:
    """Do it all. Raises HeadMoved when there are new commits before anything was posted, and what reading raises."""
    check_current(plan.review, await sending.forge.read_head())
    return await _Run(plan, sending).go()


class _Run:
    """One run, and what was done in it so far."""

    def __init__(self, plan: Plan, sending: Sending) -> None:
        self._plan, self._head = plan, plan.pull_request.head
        self._sending, self._forge, self._marker = sending, sending.forge, sending.marker
        self._done = Publication(plan=plan)
        self._may_resolve = True
        self._is_over = False

    async def go(self) -> Publication:
        plan = self._plan
        if plan.posts_review:
            await self._step(partial(self._post, plan.comments, plan.opinion))
        if self._done.posted:
            await self._step(self._take_back_doubles)
        for answer in plan.answers:
            await self._step(partial(self._answer, answer))
        for opinion in plan.withdrawn:
            await self._step(partial(self._withdraw, opinion))
        await self._step(self._write_summary)
        await self._step(self._set_status)
        return replace(self._done, problems=tuple(dict.fromkeys(self._done.problems)))

    def _add(self, **more: object) -> None:
        self._done = replace(self._done, **{name: (*getattr(self._done, name), one) for name, one in more.items()})

    async def _step(self, act: Callable[[], Awaitable[None]]) -> None:
        if self._is_over:
            return
        try:
            await act()
        except ForgeError as error:
            self._add(problems=PublishProblem(error.message, error.hint, is_refusal=isinstance(error, ForgeRefused)))
            # With a token that is not accepted any more, nothing else will go better.
            if error.status == 401:
                self._is_over = True

    async def _post(self, comments: Sequence[InlineComment], opinion: Opinion) -> None:
        """Post them as one review. It is taken whole or not at all, and nobody may say why: so its parts are tried."""
        try:
            await self._send(comments, opinion)
        except ForgeError as error:
            is_opinion_alone = opinion is not Opinion.COMMENT and not comments
            if is_opinion_alone or not self._forge.is_place_refused(error):
                raise
            if opinion is not Opinion.COMMENT:
                await self._post(comments, Opinion.COMMENT)
                await self._post((), opinion)
            elif len(comments) == 1:
                why = f"{self._forge.forge} took no comment on its lines"
                self._add(refused=WithoutComment(comments[0].finding, why))
            else:
                half = len(comments) // 2
                await self._post(comments[:half], opinion)
                await self._post(comments[half:], opinion)
        else:
            said = self._done.opinion
            opinion = opinion if said in (None, Opinion.COMMENT) else said
            self._done = replace(self._done, posted=(*self._done.posted, *comments), opinion=opinion)

    async def _send(self, comments: Sequence[InlineComment], opinion: Opinion) -> None:
        left = list(comments)

        async def send() -> None:
            body = review_body(opinion, len(left), head=self._head, marker=self._marker)
            await self._forge.post_review(self._head, body, opinion, left)

        async def is_done() -> bool:
            if not comments:
                opinions = await self._forge.read_opinions()
                return any(one.opinion is opinion and one.head == self._head for one in opinions)
            before = {thread.thread_id for thread in self._plan.pull_request.threads}
            new = [own for own in await self._own_threads() if own.thread.thread_id not in before]
            there = {(own.key, own.thread.path) for own in new}
            left[:] = [one for one in left if (one.key, one.path) not in there]
            return not left

        await self._sending.once(send, is_done)

    async def _own_threads(self) -> tuple[OwnThread, ...]:
        return own_threads(await self._forge.read_threads(), self._marker)

    async def _take_back_doubles(self) -> None:
        """Delete what another run of the same moment said before us.

        Whichever run looks last sees both, and each keeps the oldest.
        """
        for comment_id in double_comments(await self._own_threads()):
            await self._sending.breathe()
            await self._forge.delete_comment(comment_id, on_line=True)

    async def _answer(self, answer: ThreadAnswer) -> None:
        """Answer in a thread and resolve it. One that somebody has deleted since it was read needs neither."""
        try:
            await self._say(answer)
        except ForgeRefused as error:
            threads = await self._forge.read_threads() if error.status in GONE else ()
            if error.status not in GONE or any(one.thread_id == answer.thread_id for one in threads):
                raise

    async def _say(self, answer: ThreadAnswer) -> None:
        async def is_done() -> bool:
            ours = [own for own in await self._own_threads() if own.thread.thread_id == answer.thread_id]
            return any(own.last_word is answer.kind for own in ours)

        before, body = self._done.answered, answer.body
        if body is not None:
            await self._sending.once(lambda: self._forge.reply(answer.comment_id, body), is_done)
            self._add(answered=replace(answer, resolved=None))
        if answer.resolved is None or not self._may_resolve:
            return
        try:
            await self._sending.breathe()
            await self._forge.set_resolved(answer.thread_id, resolved=answer.resolved)
        except ForgeRefused as error:
            if error.status in GONE:
                raise
            # To resolve takes more rights than to post, which many a job is not given, and rightly so.
            self._may_resolve = False
            self._add(problems=PublishProblem(error.message, error.hint, is_refusal=True, is_minor=True))
        else:
            self._done = replace(self._done, answered=(*before, answer))

    async def _withdraw(self, opinion: StandingOpinion) -> None:
        await self._sending.breathe()
        await self._forge.withdraw_review(opinion.review_id, f"It does not hold any more at {self._head[:12]}.")
        self._add(withdrawn=opinion)

    async def _write_summary(self) -> None:
        """Post or change it. A second one, which two runs at once may have left, is deleted."""
        # A push in the middle has a run of its own: its summary must not be written over by this one.
        try:
            check_current(self._plan.review, await self._forge.read_head())
        except HeadMoved as error:
            self._is_over = True
            raise HeadMoved(f"{self._posted_so_far()}, since new commits arrived", hint=error.hint) from error
        body = summary_body(self._plan, self._done.refused, marker=self._marker)
        known = self._summaries(self._plan.pull_request.comments)
        change = SummaryChange.UNCHANGED
        if known and known[0].body.strip() != body.strip():
            await self._sending.breathe()
            change = SummaryChange.UPDATED
            try:
                await self._forge.edit_comment(known[0].comment_id, body)
            except ForgeRefused as error:
                if error.status not in GONE:
                    raise
                # Somebody has deleted it since it was read.
                known = []
        if known:
            self._done = replace(self._done, summary=change, summary_url=known[0].url)
        else:
            known = await self._post_summary(body)
        for extra in known[1:]:
            await self._sending.breathe()
            await self._forge.delete_comment(extra.comment_id, on_line=False)

    def _posted_so_far(self) -> str:
        done = self._done
        parts = [
            f"posted {counted(len(done.posted), 'comment', 'comments')}",
            f"answered {counted(len(done.answered), 'thread', 'threads')}" if done.answered else "",
            f"withdrew {counted(len(done.withdrawn), 'opinion', 'opinions')}" if done.withdrawn else "",
        ]
        return f"{', '.join(filter(None, parts))} for {self._head[:12]}, but neither summary nor status"

    def _summaries(self, comments: Sequence[PostedComment]) -> list[PostedComment]:
        """The comments that are by us and bear the mark of a summary, the oldest first."""
        ours = [(comment, self._marker.read(comment.body)) for comment in comments if comment.is_ours]
        return [comment for comment, mark in ours if mark is not None and mark.kind is MarkKind.SUMMARY]

    async def _post_summary(self, body: str) -> list[PostedComment]:
        """Post it; all that are there then, since another run of the same moment may have posted one too."""
        found: list[PostedComment] = []

        async def send() -> None:
            found.append(await self._forge.post_comment(body))

        async def is_done() -> bool:
            found.extend(self._summaries(await self._forge.read_comments()))
            return bool(found)

        await self._sending.once(send, is_done)
        self._done = replace(self._done, summary=SummaryChange.CREATED, summary_url=found[0].url)
        return self._summaries(await self._forge.read_comments())

    async def _set_status(self) -> None:
        status = self._plan.options.status
        if status is not StatusKind.NONE:
            await self._forge.set_status(self._plan, self._sending)
        self._done = replace(self._done, status=status)
