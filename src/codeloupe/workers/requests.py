"""What a person at a repository asks of workers: from a pull request, a range or a query to jobs in the queue."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

from codeloupe.commits.queries import describe, with_whole_days
from codeloupe.config.files import repository_root
from codeloupe.config.loading import LoadedSettings, OriginKind, user_settings
from codeloupe.config.schema import USER_KEYS, plain_values
from codeloupe.errors import UsageError
from codeloupe.git.command import try_git
from codeloupe.git.commits import list_commits
from codeloupe.git.pull_request import RemoteAddress, locate_pull_request, parse_remote
from codeloupe.git.repository import Repository, open_repository, origin_url
from codeloupe.git.scopes import resolve_scope
from codeloupe.model.agent import Priority
from codeloupe.model.pipeline import RunRecord
from codeloupe.model.scope import CommitScope, PullRequestScope, RangeScope, ScopeRequest
from codeloupe.model.sweep import CommitQuery, SweepPart
from codeloupe.store.history import name_work_tree
from codeloupe.workers.jobs import Job, JobKind
from codeloupe.workers.queue import JobQueue


def chosen(loaded: LoadedSettings) -> dict[str, Any]:
    """The settings that are not the usual ones, for workers to apply; what is for one machine alone stays here."""
    values = plain_values(loaded.settings)
    kinds = {key: origin.kind for key, origin in loaded.origins.items()}
    return {key: values[key] for key, kind in kinds.items() if kind is not OriginKind.DEFAULT and key not in USER_KEYS}


async def ask_for_pull_request(
    queue: JobQueue,
    scope: PullRequestScope,
    *,
    repo: Path,
    flags: dict[str, Any],
    priority: Priority = Priority.PERSON,
    **more: Any,
) -> int:
    """Have a pull request reviewed, as it is now; the number of the job. Settings are its base's, and `flags`."""
    address, number, head = await locate_pull_request(scope, repo=repo)
    job = Job(
        kind=JobKind.REVIEW,
        repository=address.url,
        description=f"pull request {number} of {address.name}",
        flags=flags,
        pull_request=str(number),
        base=scope.base,
        head=head,
        work_tree=_work_tree(repo),
        **more,
    )
    return queue.ask(job, priority=priority)[0]


async def ask_for_scope(
    queue: JobQueue, scope: ScopeRequest, loaded: LoadedSettings, *, repo: Path, **more: Any
) -> int:
    """Queue the review of a commit or range of the remote; return the job number. Raise UsageError for other scopes."""
    if not isinstance(scope, CommitScope | RangeScope):
        hint = "give --pr, --commit or A..B, or review it on this machine"
        raise UsageError("workers can only review commits that are on the remote", hint=hint)
    repository = await open_repository(repo)
    address = await _address(repository)
    sides = await resolve_scope(repository, scope, base_branch=loaded.settings.base_branch)
    head = sides.scope.head or ""
    await _check_pushed(repository, head, address)
    is_commit = isinstance(scope, CommitScope)
    job = Job(
        kind=JobKind.REVIEW,
        repository=address.url,
        description=f"{sides.scope.description} of {address.name}",
        flags=chosen(loaded),
        commit=head if is_commit else None,
        range=None if is_commit else f"{sides.base}..{head}",
        work_tree=_work_tree(repo),
        **more,
    )
    return queue.ask(job, priority=Priority.PERSON)[0]


async def ask_for_commits(
    queue: JobQueue, query: CommitQuery, loaded: LoadedSettings, *, repo: Path, strict: bool, **more: Any
) -> tuple[str, int]:
    """Have commits reviewed, each as a job of its own; the id of the sweep, and how many there are."""
    repository = await open_repository(repo)
    address = await _address(repository)
    commits = await list_commits(repository, with_whole_days(query))
    sweep_id = uuid.uuid4().hex
    if not commits:
        return sweep_id, 0
    newest = commits[0].sha
    await _check_pushed(repository, newest, address)
    revision = newest
    if ".." in query.revision:
        sides = await resolve_scope(repository, RangeScope(query.revision), base_branch=None)
        revision = f"{sides.base}..{sides.scope.head}"
    jobs = [
        Job(
            kind=JobKind.COMMIT,
            repository=address.url,
            description=f"commit {commit.sha[:12]} of {address.name}: {' '.join(commit.subject.split())[:80]}",
            flags=chosen(loaded),
            sweep=SweepPart(
                sweep_id=sweep_id,
                description=describe(query),
                commit=commit.sha,
                newest=newest,
                revision=revision,
                total=len(commits),
                position=position,
                work_tree=_work_tree(repo),
                merges=query.looks_into_merges,
                strict=strict,
            ),
            **more,
        )
        for position, commit in enumerate(commits)
    ]
    queue.ask(*jobs, priority=Priority.SWEEP)
    return sweep_id, len(jobs)


def queue_run(queue: JobQueue, run: RunRecord, *, accept_changes: bool = False) -> int:
    """Queue a pipeline run for a worker, which continues it until it ends or waits for a person; return the job."""
    job = Job(
        kind=JobKind.PIPELINE,
        repository=run.origin,
        description=f"run {run.run_id} of the pipeline {run.pipeline}",
        tenant=user_settings(os.environ).team or "",
        run_id=run.run_id,
        accept_changes=accept_changes,
    )
    return queue.ask(job, priority=Priority.PERSON)[0]


def _work_tree(repo: Path) -> str:
    """Return the name of the work tree in which a job is asked for, so that its review is found from there."""
    return name_work_tree(repository_root(repo), shared=True)


async def _address(repository: Repository) -> RemoteAddress:
    url = await origin_url(repository)
    if url is None:
        hint = "add a remote `origin` that workers can reach"
        raise UsageError(f"{repository.root} has no remote, so no worker can fetch it", hint=hint)
    return parse_remote(url, repository.root)


async def _check_pushed(repository: Repository, commit: str, address: RemoteAddress) -> None:
    found = await try_git(repository.place, "rev-list", "--max-count=1", commit, "--not", "--remotes=origin", "--")
    if found.exit_code or found.stdout.strip():
        hint = "push it, or run `git fetch` if it is already there"
        raise UsageError(f"the commit {commit[:12]} does not seem to be on {address.name}", hint=hint)
