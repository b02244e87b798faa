"""From a job to what it came to: a mirror of the repository, the settings, and the same runtime as everywhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
from codeloupe.store.limits import SharedLimits
from codeloupe.store.postgres import PostgresDatabase
from codeloupe.workers.jobs import Job, JobKind, Outcome, Progress
from codeloupe.workers.worker import JobFailed, Report

# What may have passed when a job is tried again: nothing that was answered is asked again then.
_PASSING = frozenset(("rate_limited", "overloaded", "connection_failed", "timeout", "ledger_failed", "history"))


class JobExecutor:
    """Does jobs, each in a runtime of its own, on repositories that are mirrored once for all of them."""

    def __init__(
        self, database: PostgresDatabase, mirrors: MirrorCache, *, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._database, self._mirrors, self._environment = database, mirrors, environment

    async def execute(self, job: Job, report: Report) -> Outcome:
        """Do a job. Raises JobFailed or another error when it did not come to its end."""
        if wrong := sorted(USER_KEYS.intersection(job.flags) | set(job.flags).difference(ABOUT)):
            raise UsageError(f"a job cannot set {', '.join(wrong)}", hint="set it on the machine of the worker")
        match job.kind:
            case JobKind.REVIEW:
                return await self._review(job, report)
            case JobKind.COMMIT:
                return await self._review_commit(job, report)
            case JobKind.PIPELINE:
                return await self._run_pipeline(job, report)

    async def give_up(self, job: Job, reason: str) -> None:
        """Let others know that a job is not tried again: its sweep does not wait for it."""
        if job.sweep is not None:
            opened = self._mirrors.opened(_address(job), revisions=[job.sweep.commit])
            async with opened as place, self._runtime(Settings(), job) as runtime:
                await runtime.give_up_commit(job.sweep, reason, repo=place)

    def _runtime(self, settings: Settings, job: Job) -> Runtime:
        # Whoever asks pays.
        paid = replace(settings, team=job.tenant or settings.team)
        return Runtime(paid, environment=self._environment, database=self._database, priority=job.priority)

    async def _settings(self, scope: ScopeRequest, place: Path, job: Job) -> Settings:
        return (await configure(scope, repo=place, flags=job.flags, environment=self._environment)).settings

    async def _review(self, job: Job, report: Report) -> Outcome:
        scope, revisions = _scope(job)
        options: dict[str, Any] = {"emit": _listening(report), "context": job.context, "fresh": job.fresh}
        options["work_tree"] = job.work_tree
        report(Progress(stage="fetching"))
        async with self._mirrors.opened(_address(job), revisions=revisions) as mirror:
            with private_directory() as directory:
                place = mirror
                if isinstance(scope, PullRequestScope):
                    scope, place = await fetch(scope, repo=mirror, into=directory)
                settings = await self._settings(scope, place, job)
                async with self._runtime(settings, job) as runtime:
                    review = await runtime.review(scope, repo=place, **options)
        outcome = Outcome(exit_code=review.exit_code, summary=review.summary, review_id=review.review_id)
        if review.is_empty:
            outcome = replace(outcome, review=review, review_id=None)
        if reason := _why_again(review):
            raise await self._failed(reason, review, outcome)
        return outcome

    async def _failed(self, reason: str, review: Review, outcome: Outcome) -> JobFailed:
        """A job that is tried again: under a rate limit when the service opens again, if that is known."""
        wait = 0.0
        if any(error.kind == "rate_limited" for error in review.errors):
            wait = await asyncio.to_thread(SharedLimits(self._database).seconds_until_open)
        return JobFailed(reason, retryable=True, outcome=outcome, wait_seconds=wait)

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
                reviewed = await runtime.review_commit(part, repo=place, fresh=job.fresh, emit=_listening(report))
        outcome = Outcome(exit_code=_exit_code(reviewed), summary=_in_short(reviewed), sweep_id=part.sweep_id)
        if reviewed.review is not None and (reason := _why_again(reviewed.review)):
            raise await self._failed(reason, reviewed.review, outcome)
        return outcome

    async def _run_pipeline(self, job: Job, report: Report) -> Outcome:
        def watch(run: RunRecord, _event: object) -> None:
            done = sum(stage.state is StageState.COMPLETED for stage in run.stages)
            now = next((stage.name for stage in run.stages if stage.state is StageState.RUNNING), "")
            report(Progress(stage=now, done=done, total=len(run.stages)))

        # A person may take days to decide, and the place is needed: then the run goes on by a job of its own.
        options = RunOptions(wait_for_approval=False, watch=watch, accept_changes=job.accept_changes)
        environment = {**self._environment, **({"CODELOUPE_TEAM": job.tenant} if job.tenant else {})}
        # The settings are those that the run has kept from where it began.
        runtime = Runtime(environment=environment, database=self._database, priority=job.priority)
        try:
            async with runtime:
                run = await runtime.resume_run(job.run_id or "", options=options)
        except RunBusy as error:
            # That of a worker which died is free after a while.
            raise JobFailed(error.message, retryable=True) from error
        code = 0 if run.state in (StageState.COMPLETED, StageState.AWAITING_APPROVAL) else 1
        return Outcome(exit_code=code, summary=f"{run.state.value}: {run.reason}".rstrip(": "), run_id=run.run_id)


def _address(job: Job) -> RemoteAddress:
    return parse_remote(job.repository, Path("/"))


def _scope(job: Job) -> tuple[ScopeRequest, list[str]]:
    """What is to be reviewed, and the commits that the mirror must have for it."""
    if job.pull_request is not None:
        return PullRequestScope(job.pull_request, job.base), []
    if job.commit is not None:
        return CommitScope(job.commit), [job.commit]
    if job.range is None:
        raise UsageError(f"the job {job.description!r} has nothing to review", hint="cancel it and create a new one")
    return RangeScope(job.range), [name for name in job.range.replace("...", "..").split("..") if name]


def _listening(report: Report) -> Callable[[Event], None]:
    """What makes a job's progress of the events of a review."""
    done = total = failed = findings = 0
    stage = "reading"

    def take(event: Event) -> None:
        nonlocal stage, done, total, failed, findings
        match event:
            case StageStarted(name):
                stage = name
            case ChangeRead():
                stage = "reviewing"
            case UnitsPlanned(units=units):
                total += units
            case UnitFinished(claims=found, failure=failure):
                done, failed, findings = done + 1, failed + bool(failure), findings + len(found)
            case FindingVerified():
                stage = "verifying"
            case _:
                return
        report(Progress(stage=stage, done=done, total=total, failed=failed, findings=findings))

    return take


def _why_again(review: Review) -> str:
    """Why a review should be tried again; empty when that would change nothing."""
    passing = [error.message for error in review.errors if error.kind in _PASSING]
    is_lost = any(error.kind == "history" for error in review.errors)
    return passing[0] if passing and (is_lost or not review.complete) else ""


def _exit_code(commit: CommitReview) -> int:
    return 0 if commit.reviewed else 3


def _in_short(commit: CommitReview) -> str:
    return commit.failure or (f"{commit.verdict.value}" if commit.verdict else "nothing to review")
