"""Does on a forge what a plan says, step by step. A step that fails is told, and the next one is tried all the same.

Comments come first, the summary after them, since it tells which were refused, and the status last: so a run that is
ended in the middle opens no gate. To run it again does what is left, and nothing twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import ForgeError, ForgeRefused, ForgeUncertain, HeadMoved
from codeloupe.forges.comments import check_summary, check_title, review_body, status_description, summary_body
from codeloupe.forges.forge import GONE, Forge, Patience, Status
from codeloupe.forges.marker import Marker, MarkKind
from codeloupe.forges.plan import check_current
from codeloupe.forges.threads import double_comments, own_threads
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

_MOST_ATTEMPTS = 3
# Forges ask for a second between requests that make something; a few at once do no harm.
_AT_ONCE = 10
_PAUSE_SECONDS = 1.0


class Sending(Struct):
    """What all steps share: the forge, the marks, and how much was sent already."""

    forge: Forge
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
        threads = await self._sending.forge.read_threads()
        for comment_id in double_comments(own_threads(threads, self._sending.marker)):
            await self._sending.breathe()
            await self._sending.forge.delete_review_comment(comment_id)

    async def _post(self, comments: Sequence[InlineComment], opinion: Opinion) -> None:
        try:
            await self._send(comments, opinion)
        except ForgeError as error:
            is_opinion_alone = opinion is not Opinion.COMMENT and not comments
            if is_opinion_alone or not self._sending.forge.is_place_refused(error):
                raise
            await self._post_apart(comments, opinion)
        else:
            self.posted.extend(comments)
            self.opinion = opinion if self.opinion in (None, Opinion.COMMENT) else self.opinion

    async def _post_apart(self, comments: Sequence[InlineComment], opinion: Opinion) -> None:
        """A review is taken whole or not at all, and a forge may not say what it minds: so its parts are tried."""
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
            await self._sending.forge.post_review(head, body, opinion, left)

        async def is_done() -> bool:
            if not comments:
                opinions = await self._sending.forge.read_opinions()
                return any(one.opinion is opinion and one.head == head for one in opinions)
            there = await self._new_threads()
            left[:] = [one for one in left if (one.key, one.path) not in there]
            return not left

        await self._sending.once(send, is_done)

    async def _new_threads(self) -> set[tuple[str, str]]:
        """What the threads of ours are about that were not there when the plan was made."""
        before = {thread.thread_id for thread in self._plan.pull_request.threads}
        threads = await self._sending.forge.read_threads()
        ours = own_threads((one for one in threads if one.thread_id not in before), self._sending.marker)
        return {(own.key, own.thread.path) for own in ours}


def own_summaries(comments: Sequence[PostedComment], marker: Marker) -> tuple[PostedComment, ...]:
    """The comments that are by us and bear the mark of a summary, the oldest first."""
    found = [(comment, marker.read(comment.body)) for comment in comments if comment.is_ours]
    return tuple(comment for comment, mark in found if mark is not None and mark.kind is MarkKind.SUMMARY)


async def post_summary(
    plan: Plan, refused: Sequence[WithoutComment], *, sending: Sending
) -> tuple[SummaryChange, PostedComment | None]:
    """Post or change it. A second one, which two runs at once may have left, is deleted."""
    body = summary_body(plan, refused, marker=sending.marker)
    known = own_summaries(plan.pull_request.comments, sending.marker)
    if not known:
        return SummaryChange.CREATED, await _post(body, sending)
    change = SummaryChange.UNCHANGED
    if known[0].body.strip() != body.strip():
        await sending.breathe()
        try:
            await sending.forge.edit_comment(known[0].comment_id, body)
        except ForgeRefused as error:
            if error.status not in GONE:
                raise
            # Somebody has deleted it since it was read.
            return SummaryChange.CREATED, await _post(body, sending)
        change = SummaryChange.UPDATED
    await remove_doubles(known, sending)
    return change, known[0]


async def remove_doubles(summaries: Sequence[PostedComment], sending: Sending) -> None:
    """Delete each summary but the oldest, which all runs take for the one. Raises ForgeError."""
    for extra in summaries[1:]:
        await sending.breathe()
        await sending.forge.delete_comment(extra.comment_id)


async def _post(body: str, sending: Sending) -> PostedComment | None:
    found: list[PostedComment] = []

    async def send() -> None:
        found.append(await sending.forge.post_comment(body))

    async def is_done() -> bool:
        found.extend(own_summaries(await sending.forge.read_comments(), sending.marker))
        return bool(found)

    await sending.once(send, is_done)
    return found[0] if found else None


_NOT_ACCEPTED = 401


async def execute(plan: Plan, sending: Sending) -> Publication:
    """Do it all. Raises HeadMoved when there are new commits before anything was posted, and what reading raises."""
    check_current(plan.review, await sending.forge.read_head())
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
            threads = await self._sending.forge.read_threads() if error.status in GONE else ()
            if error.status not in GONE or any(one.thread_id == answer.thread_id for one in threads):
                raise

    async def _say(self, answer: ThreadAnswer) -> None:
        body = answer.body
        if body is not None:
            await self._sending.once(
                lambda: self._sending.forge.reply(answer.comment_id, body), partial(self._is_answered, answer)
            )
            self._answered.append(replace(answer, resolved=None))
        if answer.resolved is None or not self._may_resolve:
            return
        try:
            await self._sending.breathe()
            await self._sending.forge.set_resolved(answer.thread_id, resolved=answer.resolved)
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
        threads = await self._sending.forge.read_threads()
        ours = own_threads((one for one in threads if one.thread_id == answer.thread_id), self._sending.marker)
        return any(own.last_word is answer.kind for own in ours)

    async def _withdraw(self, standing: StandingOpinion) -> None:
        await self._sending.breathe()
        words = f"It does not hold any more at {self._plan.pull_request.head[:12]}."
        await self._sending.forge.withdraw_review(standing.review_id, words)
        self._withdrawn.append(standing)

    async def _write_summary(self) -> None:
        # A push in the middle has a run of its own: its summary must not be written over by this one.
        try:
            check_current(self._plan.review, await self._sending.forge.read_head())
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
            comments = await self._sending.forge.read_comments()
            await remove_doubles(own_summaries(comments, self._sending.marker), self._sending)

    async def _set_status(self) -> None:
        plan, review = self._plan, self._plan.review
        if plan.options.status is not StatusKind.NONE:
            status = Status(
                kind=plan.options.status,
                head=plan.pull_request.head,
                conclusion=plan.conclusion,
                passed=review.passed,
                title=check_title(review),
                summary=check_summary(review),
                description=status_description(review),
            )
            await self._sending.forge.set_status(status, self._sending)
        self._status = plan.options.status
