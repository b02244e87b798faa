"""The functions of the library for a program without an event loop: each returns the result in place of a coroutine.

Each takes the same arguments as the function without `_sync` in its name. They run in any thread, but not inside a
running event loop. Ctrl-C ends the agents of the call and is raised as KeyboardInterrupt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from codeloupe import runtime
from codeloupe.config.schema import Settings
from codeloupe.errors import UsageError
from codeloupe.model.agent import AgentRequest, AgentResult
from codeloupe.model.ports import Agent, AgentEventSink, EventSink, ReviewOptions

if TYPE_CHECKING:
    from codeloupe.agents.calls.limiter import Timing
    from codeloupe.model.pipeline import RunRecord
    from codeloupe.model.review import Preview, Review
    from codeloupe.model.scope import ScopeRequest
    from codeloupe.model.sweep import CommitQuery, CommitSweep
    from codeloupe.pipelines.run import Pipeline, RunOptions

_Outcome = TypeVar("_Outcome")


def review_sync(
    scope: ScopeRequest | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    **options: Unpack[ReviewOptions],
) -> Review:
    """Review a change and return the outcome, as `await codeloupe.review(...)` does."""
    return _result("review", lambda: runtime.review(scope, repo=repo, settings=settings, **options))


def preview_sync(
    scope: ScopeRequest | None = None, *, repo: Path | str = ".", settings: Settings | None = None
) -> Preview:
    """Return what a review would cover, without running it, as `await codeloupe.preview(...)` does."""
    return _result("preview", lambda: runtime.preview(scope, repo=repo, settings=settings))


def review_commits_sync(
    query: CommitQuery | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    strict: bool = False,
    fresh: bool = False,
    emit: EventSink = lambda _event: None,
) -> CommitSweep:
    """Review each of many commits on its own, as `await codeloupe.review_commits(...)` does."""
    return _result(
        "review_commits",
        lambda: runtime.review_commits(query, repo=repo, settings=settings, strict=strict, fresh=fresh, emit=emit),
    )


def run_agent_sync(
    request: AgentRequest,
    *,
    settings: Settings | None = None,
    agents: Sequence[Agent] = (),
    fresh: bool = False,
    emit: AgentEventSink = lambda _event: None,
    timing: Timing | None = None,
) -> AgentResult:
    """Ask an agent and return its answer, as `await codeloupe.run_agent(...)` does."""
    return _result(
        "run_agent",
        lambda: runtime.run_agent(request, settings=settings, agents=agents, fresh=fresh, emit=emit, timing=timing),
    )


def run_pipeline_sync(
    pipeline: Pipeline,
    inputs: Mapping[str, str] | None = None,
    *,
    options: RunOptions | None = None,
    run_id: str | None = None,
) -> RunRecord:
    """Run a pipeline and return the record of the run, as `await codeloupe.run_pipeline(...)` does."""
    return _result("run_pipeline", lambda: runtime.run_pipeline(pipeline, inputs, options=options, run_id=run_id))


def resume_run_sync(run_id: str, *, options: RunOptions | None = None) -> RunRecord:
    """Continue a run of a pipeline, as `await codeloupe.resume_run(...)` does."""
    return _result("resume_run", lambda: runtime.resume_run(run_id, options=options))


def _result(name: str, call: Callable[[], Coroutine[Any, Any, _Outcome]]) -> _Outcome:
    """Run a call to its end. Raise UsageError inside a running event loop, where asyncio cannot start another one."""
    if _has_running_loop():
        raise UsageError(
            f"codeloupe.{name}_sync was called inside a running event loop, such as that of a notebook",
            hint=f"use `await codeloupe.{name}(...)` instead",
        )
    return asyncio.run(call())


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
