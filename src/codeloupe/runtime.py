"""What outlives one call: a Runtime holds settings, agents, limits, budget, ledger and history for all its calls.

Command line, integrations and library make everything here. Reviews, sweeps, pipelines, publishing and the doctor load
with their first use: with reviews alone, an agent call would begin 0.13 s of CPU later, and it may take 0.2 s in all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from msgspec.structs import replace

from codeloupe.agents.calls.budget import Spent
from codeloupe.agents.calls.limiter import Timing
from codeloupe.calls import AgentCalls, agent_key, trust_of
from codeloupe.config.arguments import check_arguments
from codeloupe.config.schema import Settings
from codeloupe.errors import Cancelled, UsageError
from codeloupe.model.agent import AGENT_NAMES, AgentRequest, AgentResult, Availability, DefaultSeconds, Priority
from codeloupe.model.ports import Agent, AgentEventSink, EventSink, ReviewOptions
from codeloupe.planning.settings import configure
from codeloupe.system.process import uninterrupted

if TYPE_CHECKING:
    from codeloupe.forges.publishing import PublishRequest
    from codeloupe.model.pipeline import RunRecord
    from codeloupe.model.pipeline_preview import PipelinePreview
    from codeloupe.model.publication import Publication
    from codeloupe.model.review import Diagnosis, Preview, Review
    from codeloupe.model.scope import ScopeRequest
    from codeloupe.model.sweep import CommitQuery, CommitReview, CommitSweep, SweepPart
    from codeloupe.pipelines.run import Pipeline, RunOptions
    from codeloupe.store.interface import Database

__all__ = ["Runtime", "configure", "preview", "resume_run", "review", "review_commits", "run_agent", "run_pipeline"]

# A caller who sets no logging up hears nothing from us: events and results say all there is to say.
logging.getLogger("codeloupe").addHandler(logging.NullHandler())
_Outcome = TypeVar("_Outcome")


class Runtime:
    """Reviews, asks agents and runs pipelines, all under the same limits: `async with Runtime(settings) as runtime`.

    Concurrency, rate, budget, ledger and history are one for all its calls, in the one event loop that it is used in.
    Without `settings` each call loads those in force for its repository; limits and budget are those of the first call.
    Leaving the runtime ends the calls that are still running, agents included: whoever waits for one gets Cancelled. A
    call after that raises UsageError, as does an argument of a wrong type.

    `agents` are the caller's own, such as a `ScriptedAgent`. They are asked in their order in the place of `agents` of
    the settings, and can be named in pipelines; one with the name of a built-in agent takes its place. `environment` is
    where settings and agents find their variables, the process's own by default. `state_directory` is where ledger,
    history and runs are kept, the user's own by default. `database` is one that is open already, in the place of what
    the settings name. Where many processes share limits through it, calls of `priority` 0, for which a person waits, go
    before those of 1 (a pull request) and 2 (a sweep). `timing` is the clock of
    retries, limits and budget, for tests: without one it is real time, and a scripted agent's own, which skips waits.
    `fresh_since` is a time by the clock of the database: fresh reviews use answers that were stored since then, so that
    a review that is continued does not pay for its own answers again.
    """

    def __init__(  # noqa: PLR0913 - each is explained above
        self,
        settings: Settings | None = None,
        *,
        agents: Sequence[Agent] = (),
        environment: Mapping[str, str] | None = None,
        state_directory: Path | str | None = None,
        database: Database | None = None,
        priority: int = Priority.PERSON,
        timing: Timing | None = None,
        fresh_since: float | None = None,
    ) -> None:
        check_arguments(settings=settings, agents=agents, environment=environment)
        check_arguments(state_directory=state_directory, priority=priority, timing=timing)
        self._settings = settings
        self._running: set[asyncio.Future[Any]] = set()
        self._is_closed = False
        self._calls = AgentCalls(
            agents,
            environment=environment,
            state_directory=None if state_directory is None else Path(state_directory).absolute(),
            database=database or (None if settings is None else settings.database),
            priority=priority,
            timing=timing,
            fresh_since=fresh_since,
        )

    async def __aenter__(self) -> Self:
        self._refuse_if_closed()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        for call in self._running:
            call.cancel()
        cancelled: asyncio.CancelledError | None = None
        while running := [call for call in self._running if not call.done()]:
            try:
                await asyncio.wait(running)
            except asyncio.CancelledError as error:
                cancelled = error  # raised when nothing is left running
        # In a thread, because it may wait for a server that does not answer.
        await uninterrupted(asyncio.to_thread(self._calls.close))
        if cancelled is not None:
            raise cancelled

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise UsageError("this runtime is closed", hint="make its calls inside of `async with`, or open another")

    async def _run(self, call: Callable[[], Coroutine[Any, Any, _Outcome]], **arguments: object) -> _Outcome:
        """What a call with these arguments comes to, in a task of our own: leaving ends the call, not its caller."""
        self._refuse_if_closed()
        check_arguments(**arguments)
        running = asyncio.ensure_future(call())
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await running
        except asyncio.CancelledError as error:
            waiting = asyncio.current_task()
            if not self._is_closed or waiting is None or waiting.cancelling():
                raise
            hint = "await every call inside of `async with`"
            raise Cancelled("the runtime was closed while this call was running", agent="none", hint=hint) from error

    async def _settings_for(self, repo: Path | str) -> Settings:
        return self._settings or (await configure(repo=repo, environment=self._calls.environment)).settings

    @property
    def spent(self) -> Spent:
        """What all agent calls so far have taken; answers from the ledger took nothing."""
        return self._calls.spent

    @property
    def pause_seconds(self) -> float:
        """How long the services of this runtime's agents have asked to wait; 0 if none has."""
        return self._calls.pause_seconds

    async def review(
        self, scope: ScopeRequest | None = None, *, repo: Path | str = ".", **options: Unpack[ReviewOptions]
    ) -> Review:
        """Review a change and return the outcome; nothing is printed. `ReviewOptions` says what each option means.

        Raises UsageError for what the caller can mend and ProcessError when git fails; a reviewer that fails, for want
        of budget too, is in the outcome, which is then not complete.
        """
        from codeloupe import engine as run

        own: dict[str, Any] = {"repo": repo, "settings": self._settings, "calls": self._calls}
        return await self._run(lambda: run.review(scope, **own, **options), scope=scope, repo=repo, **options)

    async def preview(self, scope: ScopeRequest | None = None, *, repo: Path | str = ".") -> Preview:
        """What a review would look at and what not, without running it. Raises as `review` does."""
        from codeloupe.previews import preview as previewed

        own: dict[str, Any] = {"repo": repo, "settings": self._settings, "calls": self._calls}
        return await self._run(lambda: previewed(scope, **own), scope=scope, repo=repo)

    async def review_commits(
        self,
        query: CommitQuery | None = None,
        *,
        repo: Path | str = ".",
        strict: bool = False,
        fresh: bool = False,
        emit: EventSink = lambda _event: None,
    ) -> CommitSweep:
        """Review commits, each by itself with the experts of its category, and return what became of all of them.

        A commit whose review fails is in the outcome as one that could not be reviewed. What was bought before is not
        bought again, unless `fresh`: a sweep that was interrupted goes on where it was. With `strict` the exit code is
        1 for an open finding of high or above. Raises as `review` does.
        """
        from codeloupe.commits import sweep

        own: dict[str, Any] = {"settings": self._settings, "calls": self._calls}
        options: dict[str, Any] = {"repo": repo, "strict": strict, "fresh": fresh, "emit": emit}
        return await self._run(lambda: sweep.review_commits(query, **own, **options), query=query, **options)

    async def review_commit(
        self, part: SweepPart, *, repo: Path, fresh: bool = False, emit: EventSink = lambda _event: None
    ) -> CommitReview:
        """Review one commit of a sweep that is spread over machines, and conclude the sweep if it was the last."""
        from codeloupe.commits import sweep

        async def reviewed() -> CommitReview:
            settings = await self._settings_for(repo)
            options: dict[str, Any] = {"repo": repo, "settings": settings, "fresh": fresh, "emit": emit}
            outcome = await sweep.review_commit(part, calls=self._calls, **options)
            await sweep.finish_sweep(part, calls=self._calls, passes=settings.on_incomplete == "pass")
            return outcome

        return await self._run(reviewed, repo=repo, fresh=fresh, emit=emit)

    async def give_up_commit(self, part: SweepPart, reason: str, *, repo: Path) -> None:
        """Keep with its sweep that a commit could not be reviewed, and conclude the sweep if it was the last."""
        from codeloupe.commits import sweep

        async def kept() -> None:
            settings = await self._settings_for(repo)
            await sweep.give_up_commit(part, reason, repo=repo, calls=self._calls)
            await sweep.finish_sweep(part, calls=self._calls, passes=settings.on_incomplete == "pass")

        await self._run(kept, repo=repo)

    async def run_agent(
        self, request: AgentRequest, *, fresh: bool = False, emit: AgentEventSink = lambda _event: None
    ) -> AgentResult:
        """Ask the first agent that can be used, and return its answer.

        What the request leaves open, its model and its time, the settings say. The same question about the same files
        is bought once: a finished call comes from the ledger unless `fresh`. Raises an AgentError, whose kind says what
        happened and whether trying again makes sense, BudgetExhausted among them, or a StoreError.
        """
        from codeloupe.agents.calls.validation import validate_types

        async def answer() -> AgentResult:
            validate_types(request, agent="any agent")
            settings = await self._settings_for(request.working_dir)
            is_open = isinstance(request.timeout_seconds, DefaultSeconds)
            asked = replace(
                request,
                model=request.model or settings.model,
                timeout_seconds=settings.agent_timeout_seconds if is_open else request.timeout_seconds,
            )
            agents = [self._calls.agent(name, settings) for name in self._calls.names(settings)]
            key_of = await agent_key(asked, trust=trust_of(trusted=not settings.untrusted))
            return await self._calls.caller(settings, fresh=fresh, key_of=key_of).call(asked, agent=agents, emit=emit)

        return await self._run(answer, fresh=fresh, emit=emit)

    async def list_agents(self, *, repo: Path | str = ".") -> tuple[tuple[str, Availability], ...]:
        """Every built-in agent, and whether it can be used here. Costs nothing."""

        async def found() -> tuple[tuple[str, Availability], ...]:
            settings = await self._settings_for(repo)
            checks = await asyncio.gather(*(self._calls.agent(name, settings).check() for name in AGENT_NAMES))
            return tuple(zip(AGENT_NAMES, checks, strict=True))

        return await self._run(found, repo=repo)

    async def run_pipeline(
        self,
        pipeline: Pipeline,
        inputs: Mapping[str, str] | None = None,
        *,
        options: RunOptions | None = None,
        run_id: str | None = None,
    ) -> RunRecord:
        """Run a pipeline as `Pipeline.run` does, with what the runtime has; `options` may bring other settings."""
        check_arguments(pipeline=pipeline)
        own = self._with_settings(options)
        return await self._run(lambda: pipeline.run(inputs, options=own, run_id=run_id, calls=self._calls))

    async def preview_pipeline(
        self, pipeline: Pipeline, inputs: Mapping[str, str] | None = None, *, options: RunOptions | None = None
    ) -> PipelinePreview:
        """Return what a run would do, as `Pipeline.preview` does, with what the runtime has."""
        check_arguments(pipeline=pipeline)
        own = self._with_settings(options)
        return await self._run(lambda: pipeline.preview(inputs, options=own, calls=self._calls))

    async def resume_run(self, run_id: str, *, options: RunOptions | None = None) -> RunRecord:
        """Continue a run that waits, was interrupted or whose process died; finished work is not repeated.

        A run that has ended is returned unchanged, unless a person asked for a retry of one of its failed stages.
        Raises RunNotFound, RunBusy while another process works on the run, and UsageError if the pipeline's files have
        changed or an agent that it needs cannot be used.
        """
        from codeloupe.pipelines import run as pipelines

        own = self._with_settings(options)
        return await self._run(lambda: pipelines.resume_run(run_id, options=own, calls=self._calls))

    def _with_settings(self, options: RunOptions | None) -> RunOptions:
        from codeloupe.pipelines.run import RunOptions as Options

        check_arguments(options=options)
        given = options or Options()
        return given if given.settings is not None else replace(given, settings=self._settings)

    async def publish(self, request: PublishRequest) -> Publication:
        """Post a saved review on a pull request of GitHub. Raises UsageError, StoreError or ForgeError if it cannot."""
        from codeloupe.forges.publishing import publish_github

        own: dict[str, Any] = {"environment": self._calls.environment, "opened": self._calls.opened_history}
        return await self._run(lambda: publish_github(request, **own))

    async def doctor(self, *, repo: Path | str = ".") -> Diagnosis:
        """What is here, what is missing, and who would review. Costs nothing."""
        from codeloupe.doctor import diagnose

        async def call() -> Diagnosis:
            return await diagnose(await self._settings_for(repo), self._calls, repo=Path(repo))

        return await self._run(call, repo=repo)


async def review(
    scope: ScopeRequest | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    **options: Unpack[ReviewOptions],
) -> Review:
    """Review a change in a runtime of its own, as `Runtime.review` does. Without `settings` they are loaded."""
    async with Runtime(settings) as runtime:
        return await runtime.review(scope, repo=repo, **options)


async def preview(
    scope: ScopeRequest | None = None, *, repo: Path | str = ".", settings: Settings | None = None
) -> Preview:
    """What a review would look at and what not, without running it. Raises as `review` does."""
    async with Runtime(settings) as runtime:
        return await runtime.preview(scope, repo=repo)


async def review_commits(
    query: CommitQuery | None = None,
    *,
    repo: Path | str = ".",
    settings: Settings | None = None,
    strict: bool = False,
    fresh: bool = False,
    emit: EventSink = lambda _event: None,
) -> CommitSweep:
    """Review commits in a runtime of their own, as `Runtime.review_commits` does."""
    async with Runtime(settings) as runtime:
        return await runtime.review_commits(query, repo=repo, strict=strict, fresh=fresh, emit=emit)


async def run_agent(
    request: AgentRequest,
    *,
    settings: Settings | None = None,
    agents: Sequence[Agent] = (),
    fresh: bool = False,
    emit: AgentEventSink = lambda _event: None,
    timing: Timing | None = None,
) -> AgentResult:
    """Ask an agent in a runtime of its own, as `Runtime.run_agent` does: limits and budget apply to this one call."""
    async with Runtime(settings, agents=agents, timing=timing) as runtime:
        return await runtime.run_agent(request, fresh=fresh, emit=emit)


async def run_pipeline(
    pipeline: Pipeline,
    inputs: Mapping[str, str] | None = None,
    *,
    options: RunOptions | None = None,
    run_id: str | None = None,
) -> RunRecord:
    """Run a pipeline in a runtime of its own, as `Runtime.run_pipeline` does."""
    async with _runtime_for(options) as runtime:
        return await runtime.run_pipeline(pipeline, inputs, options=options, run_id=run_id)


async def resume_run(run_id: str, *, options: RunOptions | None = None) -> RunRecord:
    """Continue a run of a pipeline in a runtime of its own, as `Runtime.resume_run` does."""
    async with _runtime_for(options) as runtime:
        return await runtime.resume_run(run_id, options=options)


def _runtime_for(options: RunOptions | None) -> Runtime:
    """Return a runtime that stores where the options of a run say."""
    check_arguments(options=options)
    return Runtime(state_directory=None if options is None else options.state_directory)
