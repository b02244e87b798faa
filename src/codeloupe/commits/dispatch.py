"""Dispatching commits to reviewers, and stopping when every further review would fail in the same way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec.structs import replace

from codeloupe.errors import CodeloupeError
from codeloupe.model.change import Change
from codeloupe.model.review import Review
from codeloupe.model.sweep import CommitReview
from codeloupe.system.logs import log_failure

# No one can log in, install a program or repair a database during the sweep. An exhausted budget is not among them: it
# refuses at no cost, and answers from the ledger still come.
_LASTING = frozenset(("not_logged_in", "not_installed", "ledger_failed"))
# The sweep stops after so many failures in a row, and after so many invalid requests before the first answer.
_MOST_FAILURES_IN_A_ROW = 20
_MOST_INVALID_REQUESTS = 2
_log = logging.getLogger(__name__)

# A commit that is not reviewed yet, and its change. Without a change, `failure` says why it cannot be read.
Assignment = tuple[CommitReview, Change | None]


class AgentDispatcher:
    """Dispatches commits to reviewers, up to a number at a time, in one event loop, which it never blocks.

    `review` makes one review. An error of it affects only its commit. After a failure that will last, no further review
    starts, and the remaining commits could not be reviewed. `judge` returns the commit with its review, score and
    verdict. `finished` is awaited for each commit as it ends.
    """

    def __init__(
        self,
        review: Callable[[CommitReview, Change], Awaitable[Review]],
        *,
        judge: Callable[[CommitReview, Review], CommitReview],
        max_concurrent: int = 5,
        finished: Callable[[CommitReview], Awaitable[None]] | None = None,
    ) -> None:
        if max_concurrent < 1:
            raise ValueError(f"max_concurrent must be at least 1, not {max_concurrent}")
        self._review = review
        self._judge = judge
        self._finished = finished
        self._places = asyncio.Semaphore(max_concurrent)
        self._lasting_failure = ""
        self._is_answered = False
        self._invalid_requests = 0
        self._failures_in_a_row = 0

    async def dispatch(self, assignments: AsyncGenerator[Assignment]) -> tuple[CommitReview, ...]:
        """Return every commit with its outcome, in order. Raise an error of the source after the running reviews."""
        running: list[asyncio.Task[CommitReview]] = []
        problem: Exception | None = None
        async with asyncio.TaskGroup() as group, aclosing(assignments):
            try:
                # A commit is read only if there is a place for it, so that a long history does not fill the memory.
                await self._places.acquire()
                async for commit, change in assignments:
                    task = group.create_task(self._outcome(commit, change))
                    task.add_done_callback(lambda _task: self._places.release())
                    running.append(task)
                    await self._places.acquire()
            except Exception as error:  # noqa: BLE001 - it is raised below as it is
                problem = error
        if problem is not None:
            raise problem
        return tuple(task.result() for task in running)

    async def _outcome(self, commit: CommitReview, change: Change | None) -> CommitReview:
        """Return a commit with its outcome, after `finished` was awaited for it."""
        if change is None:
            outcome = replace(commit, failure=commit.failure or "its change cannot be read")
        elif self._lasting_failure:
            outcome = replace(commit, failure=f"not started: {self._lasting_failure}")
        else:
            outcome = await self._reviewed(commit, change)
            self._note(outcome)
        outcome = replace(outcome, failure=_on_one_line(outcome.failure))
        if outcome.failure:
            _log.warning("commit %s could not be reviewed: %s", commit.commit.sha[:12], outcome.failure)
        if self._finished is not None:
            await self._finished(outcome)
        return outcome

    async def _reviewed(self, commit: CommitReview, change: Change) -> CommitReview:
        """Return a commit with its review, or with the reason why there is none."""
        try:
            review = await self._review(commit, change)
        except CodeloupeError as error:
            return replace(commit, failure=f"{error.message} ({error.hint})" if error.hint else error.message)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # Raise only if this task itself is cancelled, not if something that it awaited was cancelled.
            if task is None or task.cancelling() > 0:
                raise
            return replace(commit, failure="the reviewer cancelled itself")
        except Exception as error:  # noqa: BLE001 - any error of a reviewer is a failure of this commit
            log_failure(_log, error, "the review of commit %s failed", commit.commit.sha[:12])
            return replace(commit, failure=f"unexpected error: {type(error).__name__}: {error}")
        return self._judge(commit, review)

    def _note(self, outcome: CommitReview) -> None:
        """Note a failure that will last: by its kind, by invalid requests, or by many failures in a row."""
        review = outcome.review
        if review is not None and review.coverage.files_reviewed:
            self._is_answered = True
            self._failures_in_a_row = 0
            return
        kinds: set[str] = set()
        was_asked = True
        if review is not None:
            kinds = {error.kind for error in review.errors}
            was_asked = bool(review.coverage.units_failed)
        if not outcome.failure or not was_asked or "budget_exhausted" in kinds:
            return
        self._failures_in_a_row += 1
        if "invalid_request" in kinds:
            self._invalid_requests += 1
        is_refused = not self._is_answered and self._invalid_requests >= _MOST_INVALID_REQUESTS
        is_hopeless = self._failures_in_a_row >= _MOST_FAILURES_IN_A_ROW
        if kinds & _LASTING or is_refused or is_hopeless:
            self._lasting_failure = self._lasting_failure or _on_one_line(outcome.failure)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
