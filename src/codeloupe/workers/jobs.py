"""A job: the request, its state, its progress and its result. This module contains data only."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.agent import Priority
from codeloupe.model.review import Review
from codeloupe.model.sweep import SweepPart

REVIEWS = "reviews"
SWEEPS = "sweeps"
PIPELINES = "pipelines"
QUEUES = (REVIEWS, SWEEPS, PIPELINES)
# The reason of a job that waits until a quota resets.
WAITING_FOR_QUOTA = "waiting for quota"


class JobKind(StrEnum):
    """The kind of work. Each kind has its own queue, and a worker may serve some queues only."""

    REVIEW = "review"
    COMMIT = "commit"
    PIPELINE = "pipeline"

    @property
    def queue(self) -> str:
        """Return the queue in which a job of this kind waits."""
        return {JobKind.REVIEW: REVIEWS, JobKind.COMMIT: SWEEPS, JobKind.PIPELINE: PIPELINES}[self]


class Job(Struct, frozen=True, kw_only=True):
    """A request to the workers.

    `repository` is the address of a remote that workers can reach. A review sets one of `pull_request`, `range` and
    `commit`; a commit of a sweep sets `sweep`; a pipeline sets `run_id`. `flags` are settings that the client has
    chosen, except those that decide which programs run on a worker and where keys are sent. `head` is the commit of a
    pull request at the time of the request, if it is known. `work_tree` names the work tree of the client. A `fresh`
    job uses no answer that was stored before `fresh_since`, the time of the request by the clock of the database.
    """

    kind: JobKind
    repository: str
    description: str
    priority: Priority = Priority.PERSON
    tenant: str = ""
    flags: dict[str, Any] = {}
    pull_request: str | None = None
    base: str | None = None
    head: str = ""
    work_tree: str = ""
    range: str | None = None
    commit: str | None = None
    context: str = ""
    fresh: bool = False
    fresh_since: float | None = None
    sweep: SweepPart | None = None
    run_id: str | None = None
    accept_changes: bool = False

    @property
    def subject(self) -> str | None:
        """Return the name of the pull request or run that only one job at a time may work on."""
        if self.pull_request is not None:
            return f"pull request {self.pull_request} of {self.repository}"
        if self.run_id is not None:
            return f"run {self.run_id}"
        return None

    @property
    def options(self) -> str | None:
        """Return a digest that is the same for requests that may share a waiting job, or None without a subject.

        The client, its work tree, its team, the priority and the commit do not matter. The newest request counts for a
        run, because all of them continue the same run.
        """
        if self.subject is None:
            return None
        if self.run_id is not None:
            return ""
        shared = replace(
            self,
            priority=Priority.PERSON,
            tenant="",
            description="",
            head="",
            work_tree="",
            fresh_since=None,
        )
        return hashlib.sha256(as_json(shared)).hexdigest()


class JobState(StrEnum):
    """The state of a job. A DEAD job has failed and is not retried; its reason says why."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """Return whether the job stays in this state until a user changes it."""
        return self not in (JobState.WAITING, JobState.RUNNING)


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a running job: its stage, and how many of its parts, such as agent calls, are done."""

    stage: str = ""
    done: int = 0
    total: int = 0
    failed: int = 0
    findings: int = 0


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a job: the exit code of the same command without workers, and where its data is stored.

    `review` is set for a review that is not in the history, because nothing was changed.
    """

    exit_code: int
    summary: str = ""
    review_id: str | None = None
    review: Review | None = None
    sweep_id: str | None = None
    run_id: str | None = None


class JobRecord(Struct, frozen=True, kw_only=True):
    """A job as it is stored. `reason` explains its state; `again_at` is the time of the next attempt."""

    job_id: int
    job: Job
    state: JobState
    priority: Priority
    attempts: int = 0
    asked_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    again_at: datetime | None = None
    worker: str = ""
    progress: Progress = Progress()
    outcome: Outcome | None = None
    reason: str = ""


def as_json(value: Job | Progress | Outcome) -> bytes:
    """Return a value as JSON. Halves of characters, which a path or a subject may contain, are replaced."""
    return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode("utf-8", "replace")
