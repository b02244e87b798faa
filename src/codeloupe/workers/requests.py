"""Requests to the workers: from a pull request, a range, a query or a run to jobs in the queue."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

from msgspec import Struct

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
from codeloupe.model.change import Commit
from codeloupe.model.pipeline import RunRecord
from codeloupe.model.scope import CommitScope, PullRequestScope, RangeScope, ScopeRequest
from codeloupe.model.sweep import CommitQuery, SweepPart
from codeloupe.store.history import name_work_tree
from codeloupe.workers.jobs import Job, JobKind
from codeloupe.workers.queue import JobQueue


class Client(Struct, frozen=True, kw_only=True):
    """The options of a request: the clone of the client, its team, and the context of a review."""

    repo: Path
    tenant: str = ""
    context: str = ""
    fresh: bool = False


def chosen(loaded: LoadedSettings) -> dict[str, Any]:
    """Return the settings that differ from the defaults, for workers to apply; not those of one machine."""
    values = plain_values(loaded.settings)
    found: dict[str, Any] = {}
    for key, origin in loaded.origins.items():
        if origin.kind is not OriginKind.DEFAULT and key not in USER_KEYS:
            found[key] = values[key]
    return found


async def ask_for_pull_request(
    queue: JobQueue, scope: PullRequestScope, client: Client, *, flags: dict[str, Any]
) -> int:
    """Queue the review of a pull request; return the job number. The settings are those of its base, and `flags`."""
    address, number, head = await locate_pull_request(scope, repo=client.repo)
    job = Job(
        kind=JobKind.REVIEW,
        repository=address.url,
        description=f"pull request {number} of {address.name}",
        tenant=client.tenant,
        flags=flags,
        pull_request=str(number),
        base=scope.base,
        head=head,
        work_tree=_work_tree(client.repo),
        context=client.context,
        fresh=client.fresh,
    )
    return queue.ask(job, priority=Priority.PULL_REQUEST)[0]


async def ask_for_scope(queue: JobQueue, scope: ScopeRequest, client: Client, *, loaded: LoadedSettings) -> int:
    """Queue the review of a commit or range of the remote; return the job number. Raise UsageError for other scopes."""
    if not isinstance(scope, CommitScope | RangeScope):
        hint = "give --pr, --commit or A..B, or review it on this machine"
        raise UsageError("workers can only review commits that are on the remote", hint=hint)
    repository = await open_repository(client.repo)
    address = await _address(repository)
    sides = await resolve_scope(repository, scope, base_branch=loaded.settings.base_branch)
    head = sides.scope.head or ""
    await _check_pushed(repository, head, address)
    is_commit = isinstance(scope, CommitScope)
    job = Job(
        kind=JobKind.REVIEW,
        repository=address.url,
        description=f"{sides.scope.description} of {address.name}",
        tenant=client.tenant,
        flags=chosen(loaded),
        commit=head if is_commit else None,
        range=None if is_commit else f"{sides.base}..{head}",
        work_tree=_work_tree(client.repo),
        context=client.context,
        fresh=client.fresh,
    )
    return queue.ask(job, priority=Priority.PERSON)[0]


async def ask_for_commits(
    queue: JobQueue, query: CommitQuery, client: Client, *, loaded: LoadedSettings, strict: bool
) -> tuple[str, int]:
    """Queue the review of each commit as its own job; return the id of the sweep and the number of commits."""
    repository = await open_repository(client.repo)
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
    work_tree = _work_tree(client.repo)
    flags = chosen(loaded)
    jobs: list[Job] = []
    for position, commit in enumerate(commits):
        part = SweepPart(
            sweep_id=sweep_id,
            description=describe(query),
            commit=commit.sha,
            newest=newest,
            revision=revision,
            total=len(commits),
            position=position,
            work_tree=work_tree,
            merges=query.looks_into_merges,
            strict=strict,
        )
        jobs.append(_commit_job(commit, part, address, client, flags))
    queue.ask(*jobs, priority=Priority.SWEEP)
    return sweep_id, len(jobs)


def queue_run(queue: JobQueue, run: RunRecord, *, accept_changes: bool = False) -> int:
    """Queue a pipeline run, which a worker continues until it ends or waits for a person; return the job number."""
    job = Job(
        kind=JobKind.PIPELINE,
        repository=run.origin,
        description=f"run {run.run_id} of the pipeline {run.pipeline}",
        tenant=user_settings(os.environ).team or "",
        run_id=run.run_id,
        accept_changes=accept_changes,
    )
    return queue.ask(job, priority=Priority.PERSON)[0]


def _commit_job(commit: Commit, part: SweepPart, address: RemoteAddress, client: Client, flags: dict[str, Any]) -> Job:
    subject = " ".join(commit.subject.split())[:80]
    return Job(
        kind=JobKind.COMMIT,
        repository=address.url,
        description=f"commit {commit.sha[:12]} of {address.name}: {subject}",
        tenant=client.tenant,
        flags=flags,
        fresh=client.fresh,
        sweep=part,
    )


def _work_tree(repo: Path) -> str:
    """Return the name of the client's work tree, so that the review is found from there."""
    return name_work_tree(repository_root(repo))


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
