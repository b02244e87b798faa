"""Real plans for external reviewers: the change of a real repository, taken in as a review takes it in."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.model.events import Event
from codeloupe.model.ports import Plan, Reviewer, ReviewerResult
from codeloupe.model.review import ReviewerInfo
from codeloupe.model.scope import ScopeRequest
from codeloupe.planning.prepare import prepare

INFO = ReviewerInfo(type="command", why="as requested")


async def reviewed(
    reviewer: Reviewer,
    scope: ScopeRequest,
    repo: Path,
    *,
    exclude: tuple[str, ...] = (),
    events: list[Event] | None = None,
    **changes: Any,
) -> ReviewerResult:
    """What a reviewer makes of a scope; `changes` replaces any field of the plan."""
    async with prepare(scope, repo, Settings(exclude=exclude)) as intake:
        heard: list[Event] = [] if events is None else events
        return await reviewer.review(replace(intake, **{"timeout_seconds": 40.0, **changes}), heard.append)


def failure(outcome: ReviewerResult) -> str:
    """Why its one unit failed."""
    [unit] = outcome.units_failed
    return unit.reason


@contextmanager
def taken_in(scope: ScopeRequest, repo: Path) -> Iterator[Plan]:
    """The plan of a scope, for any number of reviewers."""
    with asyncio.Runner() as runner:
        taking = prepare(scope, repo, Settings())
        yield replace(runner.run(taking.__aenter__()), timeout_seconds=40.0)
        runner.run(taking.__aexit__(None, None, None))


def review_now(reviewer: Reviewer, scope: ScopeRequest, repo: Path, **more: Any) -> ReviewerResult:
    """The same, in an event loop of its own."""
    return asyncio.run(reviewed(reviewer, scope, repo, **more))
