"""What a forge must be able to do for a review to be published there, and how a plan is done on it, step by step.

What to post, change and resolve is decided in `plan`; neither knows a vendor. A forge is a folder with a client that
has the methods of `Forge`, each of which raises ForgeError. Those that make something new may raise ForgeUncertain,
when nobody knows whether it was made.

A step that fails is reported, and the next one is tried. Comments come first, the summary after them, since it lists
those that were refused, and the status last: so a run that is ended in the middle opens no gate. To run it again does
what is left, and nothing twice.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.errors import ForgeError, ForgeRefused, ForgeUncertain, HeadMoved
from codeloupe.forges.comments import review_body, summary_body
from codeloupe.forges.plan import check_current
from codeloupe.forges.threads import Marker, MarkKind, OwnThread, SigningKey, double_comments, own_threads
from codeloupe.model import publication as model
from codeloupe.model.publication import InlineComment, Opinion, Plan, PostedComment, Publication
from codeloupe.reports.wording import counted, duration

# The statuses of what is not there, or not for us to see.
GONE = (404, 410)
MOST_LIMITED = 6
_MOST_ATTEMPTS = 3
# Forges ask for a second between requests that make something; a few at once do no harm.
_AT_ONCE = 10
AGAIN = "run the command again; it does not post anything twice"


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
                f"{whose}'s rate limit is reached; retry in {duration(seconds)}", status=status, hint=AGAIN
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

    async def once(self, send: Callable[[], Awaitable[object]], is_done: Callable[[], Awaitable[object]]) -> None:
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

    async def read(self, key: SigningKey) -> model.PullRequest:
        """All that a plan needs."""

    async def read_head(self) -> model.PullRequest:
        """What the pull request says of itself, without its files and comments."""

    async def read_threads(self) -> tuple[model.Thread, ...]:
        """The threads on lines of the diff, each with all its comments."""

    async def read_comments(self) -> tuple[PostedComment, ...]:
        """The comments on the whole."""

    async def read_opinions(self) -> tuple[model.StandingOpinion, ...]:
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
        if plan.comments or plan.opinion is not Opinion.COMMENT:
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
            self._add(
                problems=model.PublishProblem(error.message, error.hint, is_refusal=isinstance(error, ForgeRefused))
            )
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
                why = f"{self._forge.forge} rejected a comment on its lines"
                self._add(refused=model.WithoutComment(comments[0].finding, why))
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
        """Delete what another run of the same moment said before us: whichever looks last keeps the oldest."""
        for comment_id in double_comments(await self._own_threads()):
            await self._sending.breathe()
            await self._forge.delete_comment(comment_id, on_line=True)

    async def _answer(self, answer: model.ThreadAnswer) -> None:
        """Answer in a thread and resolve it. One that somebody has deleted since it was read needs neither."""
        try:
            await self._say(answer)
        except ForgeRefused as error:
            threads = await self._forge.read_threads() if error.status in GONE else ()
            if error.status not in GONE or any(one.thread_id == answer.thread_id for one in threads):
                raise

    async def _say(self, answer: model.ThreadAnswer) -> None:
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
            self._add(problems=model.PublishProblem(error.message, error.hint, is_refusal=True, is_minor=True))
        else:
            self._done = replace(self._done, answered=(*before, answer))

    async def _withdraw(self, opinion: model.StandingOpinion) -> None:
        await self._sending.breathe()
        await self._forge.withdraw_review(opinion.review_id, f"It no longer applies at {self._head[:12]}.")
        self._add(withdrawn=opinion)

    async def _write_summary(self) -> None:
        """Post or change it. A second one, which two runs at once may have left, is deleted."""
        # A push in the middle has a run of its own: its summary must not be written over by this one.
        try:
            check_current(self._plan.review, await self._forge.read_head())
        except HeadMoved as error:
            self._is_over = True
            raise HeadMoved(f"{self._posted_so_far()}, because new commits arrived", hint=error.hint) from error
        body = summary_body(self._plan, self._done.refused, marker=self._marker)
        known = self._summaries(self._plan.pull_request.comments)
        change = model.SummaryChange.UNCHANGED
        if known and known[0].body.strip() != body.strip():
            await self._sending.breathe()
            change = model.SummaryChange.UPDATED
            try:
                await self._forge.edit_comment(known[0].comment_id, body)
            except ForgeRefused as error:
                if error.status not in GONE:
                    raise
                # It was deleted after it was read.
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
        return f"{', '.join(filter(None, parts))} for {self._head[:12]}, but no summary and no status"

    def _summaries(self, comments: Sequence[PostedComment]) -> list[PostedComment]:
        """The comments that are by us and bear the mark of a summary, the oldest first."""
        ours = [(comment, self._marker.read(comment.body)) for comment in comments if comment.is_ours]
        return [comment for comment, mark in ours if mark is not None and mark.kind is MarkKind.SUMMARY]

    async def _post_summary(self, body: str) -> list[PostedComment]:
        """Post it; all that are there then, since another run of the same moment may have posted one too."""
        found: list[PostedComment] = []

        async def send() -> None:
            found.append(await self._forge.post_comment(body))

        async def is_done() -> list[PostedComment]:
            found.extend(self._summaries(await self._forge.read_comments()))
            return found

        await self._sending.once(send, is_done)
        self._done = replace(self._done, summary=model.SummaryChange.CREATED, summary_url=found[0].url)
        return self._summaries(await self._forge.read_comments())

    async def _set_status(self) -> None:
        status = self._plan.options.status
        if status is not model.StatusKind.NONE:
            await self._forge.set_status(self._plan, self._sending)
        self._done = replace(self._done, status=status)
