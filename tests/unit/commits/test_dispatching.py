import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from codeloupe.commits.dispatch import AgentDispatcher, Assignment
from codeloupe.commits.sweep import judged
from codeloupe.errors import GitFailed, NotLoggedIn, TimedOut
from codeloupe.model.change import Change
from codeloupe.model.finding import Severity
from codeloupe.model.review import Coverage, Review, SkippedFile, SkipReason
from codeloupe.model.sweep import CommitReview, CommitVerdict
from tests.rows import each
from tests.unit.commits.sweep_samples import assignment, commit, failed_review, finding, given, not_reviewed, review

Work = Callable[[CommitReview, Change], Awaitable[Review]]


def answering(answers: dict[int, Review | BaseException]) -> Work:
    """A reviewer that has an answer for some commits, by their number, and finds nothing in the others."""
    by_sha = {commit(number).sha: answer for number, answer in answers.items()}

    async def work(one: CommitReview, _change: Change) -> Review:
        answer = by_sha.get(one.commit.sha, review())
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return work


def dispatch(work: Work, count: int, *, max_concurrent: int = 5) -> tuple[CommitReview, ...]:
    dispatcher = AgentDispatcher(work, judge=judged, max_concurrent=max_concurrent)
    return asyncio.run(dispatcher.dispatch(given(map(assignment, range(count)))))


@pytest.mark.requirement("D2")
@each(("options", "most"), [({"max_concurrent": 1}, 1), ({}, 5), ({"max_concurrent": 20}, 20)])
def test_at_most_so_many_run_at_a_time_and_all_places_are_used_and_the_loop_goes_on(
    options: dict[str, Any], most: int
) -> None:
    running = seen = ticks = 0
    # Nobody goes on before every place is taken, and one more than there are places would be seen.
    full = asyncio.Barrier(most)

    async def work(_commit: CommitReview, _change: Change) -> Review:
        nonlocal running, seen
        running += 1
        seen = max(seen, running)
        await full.wait()
        before = ticks
        while ticks == before:  # noqa: ASYNC110 - the number has no event
            await asyncio.sleep(0.001)
        running -= 1
        return review()

    async def main() -> tuple[CommitReview, ...]:
        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        outcomes = await AgentDispatcher(work, judge=judged, **options).dispatch(
            given(map(assignment, range(3 * most)))
        )
        ticking.cancel()
        return outcomes

    assert [outcome.commit.sha for outcome in asyncio.run(main())] == [commit(number).sha for number in range(3 * most)]
    assert seen == most


@pytest.mark.requirement("D2")
def test_none_at_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 1, not 0"):
        AgentDispatcher(answering({}), judge=judged, max_concurrent=0)


def test_a_commit_is_read_only_when_somebody_is_free_for_it() -> None:
    begun = 0
    ahead: list[int] = []

    async def counting() -> AsyncGenerator[Assignment]:
        for number in range(20):
            ahead.append(number - begun)
            yield assignment(number)

    async def work(_commit: CommitReview, _change: Change) -> Review:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0.002)
        return review()

    asyncio.run(AgentDispatcher(work, judge=judged, max_concurrent=3).dispatch(counting()))
    assert max(ahead) <= 3


@pytest.mark.requirement("D7")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            TimedOut("no answer within 300 s", agent="claude_cli", hint="Allow more time."),
            "no answer within 300 s (Allo",
        ),
        (RuntimeError("lost\nthe plot"), "unexpected error: RuntimeError: lost the plot"),
        (asyncio.CancelledError(), "the reviewer cancelled itself"),
        (ExceptionGroup("both", [ValueError("x")]), "unexpected error: ExceptionGroup: both"),
    ],
)
def test_whatever_one_review_raises_degrades_that_commit_alone(
    error: BaseException, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad = commit(2).sha
    with caplog.at_level(logging.WARNING, "codeloupe"):
        outcomes = dispatch(answering({2: error}), 5)
    (failed,) = [outcome for outcome in outcomes if not outcome.reviewed]
    assert failed.commit.sha == bad
    assert failed.failure.startswith(reason)
    assert (failed.score, failed.verdict, failed.review, failed.plan) == (None, None, None, ())
    assert [outcome.verdict for outcome in outcomes].count(CommitVerdict.LEAVE) == 4
    assert any(record.levelno == logging.WARNING and bad[:12] in record.getMessage() for record in caplog.records)


@pytest.mark.requirement("D7")
@pytest.mark.requirement("D8")
def test_a_review_with_a_failed_unit_is_no_verdict_and_keeps_what_was_found(caplog: pytest.LogCaptureFixture) -> None:
    failed = failed_review("agent crashed: it was ended by signal 9", findings=(finding(Severity.HIGH),))
    with caplog.at_level(logging.WARNING, "codeloupe"):
        (outcome,) = dispatch(answering({0: failed}), 1)
    assert not outcome.reviewed
    assert (outcome.score, outcome.verdict) == (None, None)
    assert outcome.failure == "agent crashed: it was ended by signal 9"
    assert outcome.review is not None
    assert len(outcome.review.findings) == 1
    assert [step.phase for step in outcome.plan] == ["red", "green", "refactor"]
    assert "could not be reviewed: agent crashed" in caplog.text


def test_the_reasons_of_an_incomplete_review_are_told_once_and_not_all_of_many() -> None:
    skipped = tuple(SkippedFile(f"{number}.py", SkipReason.TOO_LARGE) for number in range(9))
    incomplete = review(complete=False, coverage=Coverage(files_total=9, skipped=skipped))
    (outcome,) = dispatch(answering({0: incomplete}), 1)
    assert outcome.failure == "0.py: too large; 1.py: too large; 2.py: too large; and 6 more"


def test_a_commit_that_cannot_be_read_is_not_handed_to_anybody() -> None:
    unread = (not_reviewed(1, "its parent is not here"), None)
    first, second = asyncio.run(AgentDispatcher(answering({}), judge=judged).dispatch(given([unread, assignment(2)])))
    assert (first.failure, first.reviewed, second.reviewed) == ("its parent is not here", False, True)


@each("error", [GitFailed("no", program="git", status=128), KeyError("a mistake of ours")])
def test_what_the_source_raises_comes_as_it_is_when_the_begun_reviews_have_ended(error: Exception) -> None:
    ended: list[str] = []

    async def broken() -> AsyncGenerator[Assignment]:
        yield assignment(1)
        yield assignment(2)
        raise error

    async def work(one: CommitReview, _change: Change) -> Review:
        await asyncio.sleep(0.02)
        ended.append(one.commit.sha)
        return review()

    with pytest.raises(type(error)) as raised:
        asyncio.run(AgentDispatcher(work, judge=judged).dispatch(broken()))
    assert raised.value is error
    assert len(ended) == 2


class Counting:
    """A reviewer that answers by number, and counts how often it was asked."""

    def __init__(self, *answers: Review | Exception, then: Review | Exception) -> None:
        self.asked = 0
        self._answers = answers
        self._then = then

    async def __call__(self, _commit: CommitReview, _change: Change) -> Review:
        answer = self._answers[self.asked] if self.asked < len(self._answers) else self._then
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


@each(
    ("work", "asked"),
    [
        (Counting(then=failed_review("not logged in: run /login", kind="not_logged_in")), 1),
        (Counting(then=failed_review("not installed: x", kind="not_installed")), 1),
        (Counting(review(), then=failed_review("ledger failed: x", kind="ledger_failed")), 2),
        (Counting(then=failed_review("invalid request: no such model", kind="invalid_request")), 2),
        (Counting(review(), then=failed_review("invalid request: refused", kind="invalid_request")), 21),
        (Counting(then=failed_review("overloaded: 529", kind="overloaded")), 20),
        (Counting(then=RuntimeError("always")), 20),
        (Counting(then=NotLoggedIn("no", agent="x")), 20),
        # What refuses by itself, at no cost, is asked on: what was bought before is free.
        (Counting(then=failed_review("budget exhausted: $1", kind="budget_exhausted")), 30),
        # A part of it was reviewed, or nothing was asked.
        (Counting(then=failed_review("not logged in: x", kind="not_logged_in", reviewed=1)), 30),
        (Counting(then=review(complete=False, coverage=Coverage(files_total=1))), 30),
        (Counting(*[failed_review()] * 19, review(), then=failed_review()), 30),
    ],
)
def test_a_failure_that_stays_ends_the_asking_and_no_commit_is_lost(work: Counting, asked: int) -> None:
    work.asked = 0
    outcomes = dispatch(work, 30, max_concurrent=1)
    assert work.asked == asked
    assert len(outcomes) == 30
    not_begun = outcomes[asked:]
    assert all(outcome.failure.startswith("not started: ") and outcome.verdict is None for outcome in not_begun)
