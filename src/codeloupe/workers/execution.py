"""The execution of a job: in a mirror of its repository, with its settings, by the same runtime as without workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from codeloupe.commits.queries import scope_of
from codeloupe.config.schema import ABOUT, USER_KEYS, Settings
from codeloupe.errors import RunBusy, UsageError
from codeloupe.git.mirrors import MirrorCache
from codeloupe.git.pull_request import RemoteAddress, parse_remote
from codeloupe.git.repository import private_directory
from codeloupe.model.events import ChangeRead, Event, FindingVerified, StageStarted, UnitFinished, UnitsPlanned
from codeloupe.model.pipeline import RunRecord, StageState
from codeloupe.model.review import Review
from codeloupe.model.scope import CommitScope, PullRequestScope, RangeScope, ScopeRequest
from codeloupe.model.sweep import CommitQuery, CommitReview
from codeloupe.pipelines.run import RunOptions
from codeloupe.planning.prepare import fetch
from codeloupe.planning.settings import configure
from codeloupe.runtime import Runtime
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.workers.failures import JobFailed, JobPaused
from codeloupe.workers.jobs import Job, JobKind, Outcome, Progress
from codeloupe.workers.worker import Report

# How long a job waits for a quota whose time of reset is not known.
_UNKNOWN_QUOTA_SECONDS = 300.0
# Kinds of errors that may have passed at the next attempt, which uses the stored answers.
_PASSING = frozenset(("rate_limited", "overloaded", "connection_failed", "timeout", "ledger_failed", "history"))


class JobExecutor:
    """Does jobs, each in its own runtime, on repositories that are mirrored once for all jobs."""

    def __init__(
        self, database: PostgresDatabase, mirrors: MirrorCache, *, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._database = database
        self._mirrors = mirrors
        self._environment = environment

    async def execute(self, job: Job, report: Report) -> Outcome:
        """Do a job. Raise JobFailed or another error if it did not finish."""
        wrong = sorted(key for key in job.flags if key in USER_KEYS or key not in ABOUT)
        if wrong:
            raise UsageError(f"a job cannot set {', '.join(wrong)}", hint="set it on the machine of the worker")
        match job.kind:
            case JobKind.REVIEW:
                return await self._review(job, report)
            case JobKind.COMMIT:
                return await self._review_commit(job, report)
            case JobKind.PIPELINE:
                return await self._run_pipeline(job, report)

    async def give_up(self, job: Job, reason: str) -> None:
        """Record that a job is not retried, so that its sweep does not wait for it."""
        if job.sweep is not None:
            opened = self._mirrors.opened(_address(job), revisions=[job.sweep.commit])
            async with opened as place, self._runtime(Settings(), job) as runtime:
                await runtime.give_up_commit(job.sweep, reason, repo=place)

    def _runtime(self, settings: Settings, job: Job) -> Runtime:
        # The team of the client pays.
        paid = replace(settings, team=job.tenant or settings.team)
        return Runtime(
            paid,
            environment=self._environment,
            database=self._database,
            priority=job.priority,
            fresh_since=job.fresh_since,
        )

    async def _settings(self, scope: ScopeRequest, place: Path, job: Job) -> Settings:
        loaded = await configure(scope, repo=place, flags=job.flags, environment=self._environment)
        # The job itself waits for a quota, without its slot.
        return replace(loaded.settings, wait_for_quota=False)

    async def _review(self, job: Job, report: Report) -> Outcome:
        scope, revisions = _scope(job)
        report(Progress(stage="fetching"))
        async with self._mirrors.opened(_address(job), revisions=revisions) as mirror:
            with private_directory() as directory:
                place = mirror
                if isinstance(scope, PullRequestScope):
                    scope, place = await fetch(scope, repo=mirror, into=directory)
                settings = await self._settings(scope, place, job)
                async with self._runtime(settings, job) as runtime:
                    review = await runtime.review(
                        scope,
                        repo=place,
                        emit=_listener(report),
                        context=job.context,
                        fresh=job.fresh,
                        work_tree=job.work_tree,
                    )
                    pause_seconds = runtime.pause_seconds
        outcome = Outcome(exit_code=review.exit_code, summary=review.summary, review_id=review.review_id)
        if review.is_empty:
            outcome = replace(outcome, review=review, review_id=None)
        reason = _retry_reason(review)
        if reason:
            raise self._retry_error(reason, review, outcome, pause_seconds)
        return outcome

    def _retry_error(
        self, reason: str, review: Review, outcome: Outcome, pause_seconds: float
    ) -> JobFailed | JobPaused:
        """Return the error of a review that is made again, for a reason that may pass."""
        if any(error.kind == "rate_limited" for error in review.errors):
            return JobPaused(self._database.clock() + (pause_seconds or _UNKNOWN_QUOTA_SECONDS))
        return JobFailed(reason, retryable=True, outcome=outcome)

    async def _review_commit(self, job: Job, report: Report) -> Outcome:
        part = job.sweep
        if part is None:
            raise UsageError(f"the job {job.description!r} names no commit", hint="cancel it and create a new one")
        query = CommitQuery(revision=part.revision, merges=part.merges)
        report(Progress(stage="fetching"))
        wanted = [part.commit, part.newest, *(name for name in part.revision.split("..") if name)]
        async with self._mirrors.opened(_address(job), revisions=wanted) as place:
            settings = await self._settings(scope_of(query), place, job)
            async with self._runtime(settings, job) as runtime:
                reviewed = await runtime.review_commit(part, repo=place, fresh=job.fresh, emit=_listener(report))
                pause_seconds = runtime.pause_seconds
        exit_code = 0 if reviewed.reviewed else 3
        outcome = Outcome(exit_code=exit_code, summary=_summary(reviewed), sweep_id=part.sweep_id)
        if reviewed.review is not None:
            reason = _retry_reason(reviewed.review)
            if reason:
                raise self._retry_error(reason, reviewed.review, outcome, pause_seconds)
        return outcome

    async def _run_pipeline(self, job: Job, report: Report) -> Outcome:
        def watch(run: RunRecord, _event: object) -> None:
            report(_run_progress(run))

        # A person may take days to decide. The slot is needed meanwhile, and a new job continues the run.
        options = RunOptions(wait_for_approval=False, watch=watch, accept_changes=job.accept_changes)
        environment = dict(self._environment)
        if job.tenant:
            environment["CODELOUPE_TEAM"] = job.tenant
        # The settings are those that the run was started with.
        runtime = Runtime(environment=environment, database=self._database, priority=job.priority)
        try:
            async with runtime:
                run = await runtime.resume_run(job.run_id or "", options=options)
        except RunBusy as error:
            # The run of a worker that died becomes free after a while.
            raise JobFailed(error.message, retryable=True) from error
        if run.state is StageState.WAITING_FOR_QUOTA:
            raise JobPaused(self._database.clock() + _seconds_until_reset(run))
        code = 0 if run.state in (StageState.COMPLETED, StageState.AWAITING_APPROVAL) else 1
        return Outcome(exit_code=code, summary=f"{run.state.value}: {run.reason}".rstrip(": "), run_id=run.run_id)


def _seconds_until_reset(run: RunRecord) -> float:
    """Return how long it takes until the first stage that waits for a quota can continue."""
    waiting = [stage.quota_until for stage in run.stages if stage.state is StageState.WAITING_FOR_QUOTA]
    now = datetime.now(UTC)
    first = min((moment for moment in waiting if moment is not None), default=now)
    return max((first - now).total_seconds(), 1.0)


def _address(job: Job) -> RemoteAddress:
    return parse_remote(job.repository, Path("/"))


def _scope(job: Job) -> tuple[ScopeRequest, list[str]]:
    """Return the scope of a review, and the commits that the mirror must have for it."""
    if job.pull_request is not None:
        return PullRequestScope(job.pull_request, job.base), []
    if job.commit is not None:
        return CommitScope(job.commit), [job.commit]
    if job.range is None:
        raise UsageError(f"the job {job.description!r} has nothing to review", hint="cancel it and create a new one")
    return RangeScope(job.range), [name for name in job.range.replace("...", "..").split("..") if name]


def _run_progress(run: RunRecord) -> Progress:
    current = ""
    done = 0
    for stage in run.stages:
        if stage.state is StageState.COMPLETED:
            done += 1
        elif stage.state is StageState.RUNNING and not current:
            current = stage.name
    return Progress(stage=current, done=done, total=len(run.stages))


def _listener(report: Report) -> Callable[[Event], None]:
    """Return a listener that reports the events of a review as the progress of its job."""
    done = 0
    total = 0
    failed = 0
    findings = 0
    stage = "reading"

    def report_event(event: Event) -> None:
        nonlocal stage, done, total, failed, findings
        match event:
            case StageStarted(name):
                stage = name
            case ChangeRead():
                stage = "reviewing"
            case UnitsPlanned(units=units):
                total += units
            case UnitFinished(claims=found, failure=failure):
                done += 1
                failed += bool(failure)
                findings += len(found)
            case FindingVerified():
                stage = "verifying"
            case _:
                return
        report(Progress(stage=stage, done=done, total=total, failed=failed, findings=findings))

    return report_event


def _retry_reason(review: Review) -> str:
    """Return why a review should be retried; an empty text if that would change nothing."""
    passing = [error.message for error in review.errors if error.kind in _PASSING]
    is_lost = any(error.kind == "history" for error in review.errors)
    if passing and (is_lost or not review.complete):
        return passing[0]
    return ""


def _summary(commit: CommitReview) -> str:
    if commit.failure:
        return commit.failure
    if commit.verdict is None:
        return "nothing to review"
    return commit.verdict.value
