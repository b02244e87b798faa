"""Reviews commits concurrently, at most so many at a time; one that fails takes nothing from the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec.structs import replace

from codeloupe.commits.scoring import plan_of, score, verdict
from codeloupe.errors import CodeloupeError
from codeloupe.model.change import Change
from codeloupe.model.review import Review, claim_in_words
from codeloupe.model.sweep import CommitReview

_log = logging.getLogger(__name__)
# Nobody can log in, install a program or mend a database while the others wait. A budget that is spent is not among
# them: it refuses by itself, at no cost, and lets through what was bought before.
_LASTING = frozenset(("not_logged_in", "not_installed", "ledger_failed"))

# A commit that is not reviewed yet, and its change; without one `failure` says why it cannot be read.
Assignment = tuple[CommitReview, Change | None]
ReviewCommit = Callable[[CommitReview, Change], Awaitable[Review]]


class AgentDispatcher:
    """Hands commits to reviewers, in one event loop, which it never blocks.

    `review` makes one review; whatever it raises degrades its commit alone. When it fails for a reason that stays, or
    always, no further review is begun: the commits that are left are among those that could not be reviewed.
    `finished` is awaited for each commit as it ends.
    """

    def __init__(
        self,
        review: ReviewCommit,
        *,
        max_concurrent: int = 5,
        finished: Callable[[CommitReview], Awaitable[None]] | None = None,
    ) -> None:
        if max_concurrent < 1:
            raise ValueError(f"max_concurrent is {max_concurrent}, and at least one commit must be reviewed at a time")
        self._review = review
        self._max_concurrent = max_concurrent
        self._finished = finished
        # The failure after which nothing more is begun, and what led to it.
        self._lasting_failure = ""
        self._is_answered = False
        self._invalid_requests = 0
        self._in_a_row = 0

    async def dispatch(self, assignments: AsyncGenerator[Assignment]) -> tuple[CommitReview, ...]:
        """Every commit with its outcome, in their order. What the source raises comes when begun reviews have ended."""
        places = asyncio.Semaphore(self._max_concurrent)
        running: list[asyncio.Task[CommitReview]] = []
        problem: Exception | None = None
        async with asyncio.TaskGroup() as group, aclosing(assignments):
            try:
                # A commit is read only when somebody is free for it, so that a long history does not fill the memory.
                await places.acquire()
                async for commit, change in assignments:
                    task = group.create_task(self._outcome(commit, change))
                    task.add_done_callback(lambda _task: places.release())
                    running.append(task)
                    await places.acquire()
            except Exception as error:  # noqa: BLE001 - whatever it was, it is raised below as it came
                problem = error
        if problem is not None:
            raise problem
        return tuple(task.result() for task in running)

    async def _outcome(self, commit: CommitReview, change: Change | None) -> CommitReview:
        name = commit.commit.sha[:12]
        if change is None:
            outcome = _failed(commit, commit.failure or "its change cannot be read")
        elif self._lasting_failure:
            outcome = _failed(commit, f"not begun: {self._lasting_failure}")
        else:
            outcome = await self._reviewed(commit, change)
            self._note(outcome)
        if outcome.failure:
            _log.warning("commit %s could not be reviewed: %s", name, outcome.failure)
        if self._finished is not None:
            await self._finished(outcome)
        return outcome

    async def _reviewed(self, commit: CommitReview, change: Change) -> CommitReview:
        try:
            review = await self._review(commit, change)
        except CodeloupeError as error:
            return _failed(commit, f"{error.message} ({error.hint})" if error.hint else error.message)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # Raised only where somebody wants this task to end, and not something that it waited for.
            if task is None or task.cancelling() > 0:
                raise
            return _failed(commit, "the reviewer gave up: it cancelled itself")
        except Exception as error:  # noqa: BLE001 - whatever a reviewer trips over, it is this commit that failed
            _log.warning("the review of commit %s failed", commit.commit.sha[:12], exc_info=True)
            return _failed(commit, f"unexpected error: {type(error).__name__}: {error}")
        if not review.complete:
            # It says nothing about what it did not see: the commit has no verdict.
            return replace(commit, review=review, failure=_why_incomplete(review), plan=plan_of(review.findings))
        return replace(
            commit,
            review=review,
            # Nothing can be said of a commit of which nothing was read, not even that it is good.
            score=score(review.findings) if review.coverage.files_reviewed else None,
            verdict=verdict(review.findings),
            plan=plan_of(review.findings),
        )

    def _note(self, outcome: CommitReview) -> None:
        """Stop at a failure that lasts, at a second invalid request before any answer, at twenty failures in a row."""
        review = outcome.review
        if review is not None and review.coverage.files_reviewed:
            self._is_answered, self._in_a_row = True, 0
            return
        if not outcome.failure or (review is not None and not review.coverage.units_failed):
            return
        kinds = {error.kind for error in review.errors} if review is not None else set[str]()
        if "budget_exhausted" in kinds:
            return
        self._in_a_row += 1
        self._invalid_requests += "invalid_request" in kinds
        is_refused = not self._is_answered and self._invalid_requests >= 2
        if kinds & _LASTING or is_refused or self._in_a_row >= 20:
            self._lasting_failure = self._lasting_failure or outcome.failure


def _failed(commit: CommitReview, reason: str) -> CommitReview:
    return replace(commit, failure=" ".join(reason.split()))


def _why_incomplete(review: Review) -> str:
    failed = [unit.reason for unit in review.coverage.units_failed]
    gaps = [f"{skip.file}: {skip.in_words()}" for skip in review.coverage.skipped if skip.is_gap]
    claims = [f"{claim.file or '?'}: {claim_in_words(claim)}" for claim in review.unsettled]
    reasons = [reason for reason in dict.fromkeys((*claims, *failed, *gaps)) if reason]
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + more or "the review is not complete"
