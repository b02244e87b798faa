"""A run of a pipeline: what a stage is asked and gives, what gates say of it, and what is known of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from codeloupe.model.agent import Usage
from codeloupe.model.pipeline_definition import (
    GateKind,
    WorkspaceKind,
)

# How the reason of a run begins, or goes on, whose stages left nothing that could be joined.
NO_RESULT = "there is no result"
# The kind of a failure to make or keep the files of a stage: no agent was asked.
WORKSPACE_ERROR = "workspace_error"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class CriticVerdict(StrEnum):
    """What a gate says of a result."""

    PASS = "PASS"  # noqa: S105 - a verdict
    REWORK = "REWORK"
    FAIL = "FAIL"


class Critique(Struct, frozen=True, kw_only=True):
    """A gate's word on one attempt. `score` is None where the gate gives none (a command, an approval).

    `gate_digest` names the definition of the gate that said it, empty where that is not known.
    """

    verdict: CriticVerdict
    gate: GateKind
    score: int | None = None
    summary: str = ""
    blockers: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    confidence: float | None = None
    usage: Usage = Usage()
    gate_digest: str = ""


class PastAttempt(Struct, frozen=True, kw_only=True):
    """An earlier attempt as the next one is told of it: what was wrong with it."""

    number: int
    critiques: tuple[Critique, ...] = ()
    error: str = ""


class StageRequest(Struct, frozen=True, kw_only=True):
    """What a stage is asked. `agent_definition` may be absent; `prior_artifacts` are paths, not contents.

    `prior_answers` are texts by name: answers of earlier stages that lie where the agent cannot read them.
    """

    stage: str
    step_file: Path
    agent_definition: Path | None = None
    prior_artifacts: tuple[Path, ...] = ()
    elicitation_context: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    attempt_history: tuple[PastAttempt, ...] = ()
    prior_answers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        force_setattr(self, "elicitation_context", MappingProxyType(dict(self.elicitation_context)))


class StageStatus(StrEnum):
    """How an execution ended. One that failed raises instead."""

    COMPLETED = "completed"


class StageResult(Struct, frozen=True, kw_only=True):
    """What a stage gave. `artifacts` are absolute paths, sorted. `session_id` is empty where the agent has none.

    `notes` say in words what was not as asked, such as a file that was left out and why. `saved_answer` is the name
    under which the answer was saved, in the workspace unless that is the user's own; empty when the agent left
    artifacts itself.
    """

    status: StageStatus
    artifacts: tuple[Path, ...]
    session_id: str
    duration_seconds: float
    usage: Usage
    output: str = ""
    agent: str = ""
    model: str | None = None
    notes: tuple[str, ...] = ()
    saved_answer: str = ""


class StageState(StrEnum):
    """Where a stage, or a whole run, is. `pipeline.states` has the table of allowed transitions."""

    PENDING = "pending"
    RUNNING = "running"
    GATING = "gating"
    REWORKING = "reworking"
    RECOVERING = "recovering"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class RecoveryStep(StrEnum):
    """How a try of a stage was made, in the order in which they are taken."""

    FIRST = "first"
    RETRY = "retry"
    RESUME = "resume"
    FRESH = "fresh"


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """One attempt of a stage: an execution that gave a result, and what the gates said of it.

    `tree` names in the workspace store what the workspace held after it; `artifacts` are relative to the workspace.
    `saved_answer` is the one that we made of its answer, if there was no other. Files are below the run's directory.
    """

    number: int
    step: RecoveryStep
    tree: str = ""
    artifacts: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    diff_file: str = ""
    session_id: str = ""
    agent: str = ""
    model: str | None = None
    duration_seconds: float = 0.0
    usage: Usage = Usage()
    critiques: tuple[Critique, ...] = ()
    notes: tuple[str, ...] = ()
    output_file: str = ""
    saved_answer: str = ""

    @property
    def score(self) -> int | None:
        """The lowest score that a gate gave it, or None when none did."""
        scores = [critique.score for critique in self.critiques if critique.score is not None]
        return min(scores) if scores else None


class FailedTry(Struct, frozen=True, kw_only=True):
    """A call of a stage that gave no result: what kind of error, in words, and what it cost.

    `attempt` is the number of the attempt it was made for. `gate` is the place of the gate that could not decide, None
    for the stage's own call. `tree` is what the call left in the workspace, kept where its session can be resumed.
    """

    step: RecoveryStep
    kind: str
    message: str
    hint: str = ""
    session_id: str = ""
    usage: Usage = Usage()
    attempt: int = 0
    gate: int | None = None
    agent: str = ""
    retryable: bool = False
    resumable: bool = False
    tree: str = ""


class StageRecord(Struct, frozen=True, kw_only=True):
    """What is known of one stage of a run. `chosen` is the number of the attempt whose work goes on.

    `start_tree` is what the workspace held before its first attempt. `reason` says why it waits, failed or stopped.
    `wants_approval` names what a person has to decide: "gate" for an approval gate, "escalation" after all else.
    `person_note` is what a person said who had it tried again; the attempts and failures before that, whose numbers are
    `attempts_before` and `failures_before`, no longer count towards its limits. `needs` and `max_attempts` are those of
    its definition when the run began; 0 is not known.

    `earlier` are attempts that were set aside, because what the stage builds on has changed since or a person had the
    finished stage run again: they are history, and paid for. `built_on` is what it began with: the tree of each stage
    it needs by name, and under "" the tree with which the run began; empty is not known. `parts` are digests of its
    definition, part by part, when its last attempt was made; `outdated` names those that have changed since.
    `unanswered` counts requests that were sent and whose outcome is not known yet; `lost` is what requests cost whose
    outcome never will be, since the process was stopped.
    """

    name: str
    state: StageState = StageState.PENDING
    attempts: tuple[AttemptRecord, ...] = ()
    failures: tuple[FailedTry, ...] = ()
    chosen: int | None = None
    start_tree: str = ""
    reason: str = ""
    wants_approval: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    person_note: str = ""
    attempts_before: int = 0
    failures_before: int = 0
    needs: tuple[str, ...] = ()
    max_attempts: int = 0
    earlier: tuple[AttemptRecord, ...] = ()
    built_on: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    parts: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    outdated: tuple[str, ...] = ()
    unanswered: int = 0
    lost: Usage = Usage()

    @property
    def usage(self) -> Usage:
        """All that its calls and gates cost."""
        total = self.lost
        for attempt in (*self.earlier, *self.attempts):
            total = total.plus(attempt.usage)
            for critique in attempt.critiques:
                total = total.plus(critique.usage)
        for failure in self.failures:
            total = total.plus(failure.usage)
        return total


class RunRecord(Struct, frozen=True, kw_only=True):
    """What is known of one run. Written whole after every transition; `stages` keep the order of the pipeline.

    `digest` is the definition's when the run began. `repository` is where a worktree or a checkout comes from. `agent`
    and `model` are for stages that name none, as they were wished for last; None leaves that to the settings. `given`
    names the inputs that were given, the others being defaults; None is not known. `secret_inputs` are never shown.
    """

    run_id: str
    pipeline: str
    file: Path
    digest: str
    state: StageState
    stages: tuple[StageRecord, ...]
    inputs: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    workspace: WorkspaceKind = WorkspaceKind.DIRECTORY
    repository: Path | None = None
    base_tree: str = ""
    reason: str = ""
    started_at: datetime
    updated_at: datetime
    agent: str | None = None
    model: str | None = None
    given: tuple[str, ...] | None = None
    secret_inputs: tuple[str, ...] = ()
    version: int = 1

    @property
    def usage(self) -> Usage:
        """All that its stages cost."""
        total = Usage()
        for stage in self.stages:
            total = total.plus(stage.usage)
        return total

    def stage(self, name: str) -> StageRecord:
        """The stage of that name. Raises KeyError."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)


class Decision(StrEnum):
    """What a person decided about a stage that waits."""

    APPROVE = "approve"
    REJECT = "reject"
    RETRY = "retry"


class Approval(Struct, frozen=True, kw_only=True):
    """A person's word on a stage that waits. `note` goes to the next attempt of a stage that is to be tried again."""

    stage: str
    decision: Decision
    note: str = ""


class PipelineEvent(Struct, frozen=True, kw_only=True):
    """Something that happened in a run, as the journal keeps it and a display shows it.

    `kind` is one of: run_started, run_resumed, stage_state, attempt_started, attempt_finished, try_failed, recovery,
    critique, approval_wanted, approval_given, note, run_ended. `facts` are plain values.
    """

    at: datetime
    kind: str
    stage: str = ""
    message: str = ""
    facts: Mapping[str, str | int | float | bool | None] = field(default_factory=lambda: _NOTHING)
