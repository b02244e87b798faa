"""What a job is: what is asked, how it goes, and what it came to. Data alone."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from codeloupe.model.agent import Priority
from codeloupe.model.review import Review
from codeloupe.model.sweep import SweepPart

REVIEWS, SWEEPS, PIPELINES = QUEUES = ("reviews", "sweeps", "pipelines")


class JobKind(StrEnum):
    """What is to be done. Each is in a queue of its own, which a worker may serve or not."""

    REVIEW = "review"
    COMMIT = "commit"
    PIPELINE = "pipeline"

    @property
    def queue(self) -> str:
        """The queue that it waits in."""
        return {JobKind.REVIEW: REVIEWS, JobKind.COMMIT: SWEEPS, JobKind.PIPELINE: PIPELINES}[self]


class Job(Struct, frozen=True, kw_only=True):
    """What is asked of a worker.

    `repository` is the address of a remote that workers can reach. Of a review, one of `pull_request`, `range` and
    `commit` is set; of a commit of a sweep, `sweep`; of a pipeline, `run_id`. `flags` are settings that whoever asks
    has chosen, none of those that decide what runs on a worker and where keys go. `head` is the commit that a pull
    request had when it was asked for, where that is known. `work_tree` names the work tree in which a review was asked
    for.
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
    sweep: SweepPart | None = None
    run_id: str | None = None
    accept_changes: bool = False

    @property
    def alone(self) -> str | None:
        """What only one job at a time may be about: a pull request, or a run."""
        if self.pull_request is not None:
            return f"pull request {self.pull_request} of {self.repository}"
        return None if self.run_id is None else f"run {self.run_id}"


class JobState(StrEnum):
    """Where a job is. DEAD has failed and is not tried again; its reason says why."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self not in (JobState.WAITING, JobState.RUNNING)


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a running job is: its stage, and of so many parts, such as agent calls, how many are done."""

    stage: str = ""
    done: int = 0
    total: int = 0
    failed: int = 0
    findings: int = 0


class Outcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a job: the exit code that the same command would have ended with, and where the rest is.

    `review` is a review that the history does not have, because nothing was changed.
    """

    exit_code: int
    summary: str = ""
    review_id: str | None = None
    review: Review | None = None
    sweep_id: str | None = None
    run_id: str | None = None


class JobRecord(Struct, frozen=True, kw_only=True):
    """A job as it is now. `again_at` is when it is tried again after a failure, whose `reason` is known."""

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
