"""Reviews commits concurrently, at most so many at a time; one that fails takes nothing from the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec import Struct

from codeloupe.commits.scoring import plan_of, score, verdict
from codeloupe.errors import CodeloupeError
from codeloupe.model.change import Change, Commit
from codeloupe.model.review import Review, claim_in_words
from codeloupe.model.sweep import CommitCategory, CommitReview

_log = logging.getLogger(__name__)
_REASONS_NAMED = 3
# Nobody can log in, install a program or mend a database while the others wait. A budget that is spent is not among
# them: it refuses by itself, at no cost, and lets through what was bought before.
_LASTING = frozenset(("not_logged_in", "not_installed", "ledger_failed"))
_BUDGET = "budget_exhausted"
_INVALID_REQUEST = "invalid_request"
# One may be the fault of its commit, such as a prompt that a service refuses; two without any answer are not.
_INVALID_REQUESTS = 2
_FAILURES_IN_A_ROW = 20


class Assignment(Struct, frozen=True, kw_only=True):
    """One commit to be reviewed: its change, its category, and the experts that the category chose.

    `change` is None for a commit that cannot be read; `problem` says why.
    """

    commit: Commit
    category: CommitCategory
    experts: tuple[str, ...]
    change: Change | None
    problem: str = ""


ReviewCommit = Callable[[Assignment, Change], Awaitable[Review]]
Finished = Callable[[CommitReview], None]
Keep = Callable[[CommitReview], Awaitable[None]]


class AgentDispatcher:
    """Hands commits to reviewers, in one event loop, which it never blocks.

    `review` makes one review; whatever it raises degrades its commit alone. When it fails for a reason that stays, or
    always, no further review is begun: the commits that are left are among those that could not be reviewed.
    `finished` hears of each commit as it ends, when `keep` has kept it.
    """

    def __init__(
        self,
        review: ReviewCommit,
        *,
        max_concurrent: int = 5,
        keep: Keep | None = None,
        finished: Finished | None = None,
    ) -> None:
        if max_concurrent < 1:
            raise ValueError(f"max_concurrent is {max_concurrent}, and at least one commit must be reviewed at a time")
        self._review = review
        self._max_concurrent = max_concurrent
        self._keep = keep
        self._finished = finished
        # The failure after which nothing more is begun, and what led to it.
        self._lasting_failure = ""
        self._is_answered = False
        self._invalid_requests = 0
        self._in_a_row = 0

    async def dispatch(self, assignments: AsyncGenerator[Assignment]) -> tuple[CommitReview, ...]:
        """Every commit with its outcome, in the order they came.

        A cancellation is raised when nothing runs any more; what the source of the assignments raises, when the
        reviews that were begun have ended, since they are paid for.
        """
        places = asyncio.Semaphore(self._max_concurrent)
        running: list[asyncio.Task[CommitReview]] = []
        problem: Exception | None = None
        async with asyncio.TaskGroup() as group, aclosing(assignments):
            try:
                # A commit is read only when somebody is free for it, so that a long history does not fill the memory.
                await places.acquire()
                async for assignment in assignments:
                    task = group.create_task(self._outcome(assignment))
                    task.add_done_callback(lambda _task: places.release())
                    running.append(task)
                    await places.acquire()
            except Exception as error:  # noqa: BLE001 - whatever it was, it is raised below as it came
                problem = error
        if problem is not None:
            raise problem
        return tuple(task.result() for task in running)

    async def _outcome(self, assignment: Assignment) -> CommitReview:
        outcome = await self._reviewed(assignment)
        if outcome.failure:
            _log.warning("commit %s could not be reviewed: %s", assignment.commit.sha[:12], outcome.failure)
        if self._keep is not None:
            await self._keep(outcome)
        if self._finished is not None:
            try:
                self._finished(outcome)
            except Exception:  # noqa: BLE001 - a listener may fail at anything; what was bought is not lost for it
                _log.warning("the end of commit %s could not be reported", assignment.commit.sha[:12], exc_info=True)
        return outcome

    async def _reviewed(self, assignment: Assignment) -> CommitReview:
        if assignment.change is None:
            return _failed(assignment, assignment.problem or "its change cannot be read")
        if self._lasting_failure:
            return _failed(assignment, f"not begun: {self._lasting_failure}")
        try:
            review = await self._review(assignment, assignment.change)
        except CodeloupeError as error:
            outcome = _failed(assignment, f"{error.message} ({error.hint})" if error.hint else error.message)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            # Raised only where somebody wants this task to end, and not something that it waited for.
            if task is None or task.cancelling() > 0:
                raise
            outcome = _failed(assignment, "the reviewer gave up: it cancelled itself")
        except Exception as error:  # noqa: BLE001 - whatever a reviewer trips over, it is this commit that failed
            _log.warning("the review of commit %s failed", assignment.commit.sha[:12], exc_info=True)
            outcome = _failed(assignment, f"unexpected error: {type(error).__name__}: {error}")
        else:
            outcome = _concluded(assignment, review)
        self._note(outcome)
        return outcome

    def _note(self, outcome: CommitReview) -> None:
        """Stop at a failure that lasts, at a second invalid request before any answer, at twenty failures in a row.

        A commit of which something was reviewed, or nothing was asked, is no failure here.
        """
        review = outcome.review
        if review is not None and review.coverage.files_reviewed:
            self._is_answered, self._in_a_row = True, 0
            return
        if not outcome.failure or (review is not None and not review.coverage.units_failed):
            return
        kinds = {error.kind for error in review.errors} if review is not None else set[str]()
        if _BUDGET in kinds:
            return
        self._in_a_row += 1
        self._invalid_requests += _INVALID_REQUEST in kinds
        is_refused = not self._is_answered and self._invalid_requests >= _INVALID_REQUESTS
        if kinds & _LASTING or is_refused or self._in_a_row >= _FAILURES_IN_A_ROW:
            self._lasting_failure = self._lasting_failure or outcome.failure


def _failed(assignment: Assignment, reason: str) -> CommitReview:
    return CommitReview(
        commit=assignment.commit,
        category=assignment.category,
        experts=assignment.experts,
        failure=" ".join(reason.split()),
    )


def _concluded(assignment: Assignment, review: Review) -> CommitReview:
    """A review that is not complete says nothing about what it did not see: the commit has no verdict then."""
    return CommitReview(
        commit=assignment.commit,
        category=assignment.category,
        experts=assignment.experts,
        review=review,
        failure="" if review.complete else _why_incomplete(review),
        # Nothing can be said of a commit of which nothing was read, not even that it is good.
        score=score(review.findings) if review.complete and review.coverage.files_reviewed else None,
        verdict=verdict(review.findings) if review.complete else None,
        plan=plan_of(review.findings),
    )


def _why_incomplete(review: Review) -> str:
    failed = [unit.reason for unit in review.coverage.units_failed]
    gaps = [f"{skip.file}: {skip.in_words()}" for skip in review.coverage.skipped if skip.is_gap]
    claims = [f"{claim.file or '?'}: {claim_in_words(claim)}" for claim in review.unsettled]
    reasons = [reason for reason in dict.fromkeys((*claims, *failed, *gaps)) if reason]
    more = f"; and {len(reasons) - _REASONS_NAMED} more" if len(reasons) > _REASONS_NAMED else ""
    return "; ".join(reasons[:_REASONS_NAMED]) + more or "the review is not complete"
