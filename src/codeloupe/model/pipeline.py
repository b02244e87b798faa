"""A pipeline of agent stages as its file defines it, and a run of it: stages, attempts, gates, what each cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from codeloupe.model.agent import Usage
from codeloupe.model.frozen import FrozenDict, FrozenStruct

# With a time zone: without one it would be another moment on a machine with another clock.
Moment = Annotated[datetime, Meta(tz=True)]
DEFAULT_ARTIFACTS = ("*.md", "*.json", "*.txt", "*.yaml", "*.yml")
# How the reason of a run begins, or goes on, whose stages left nothing that could be joined.
NO_RESULT = "there is no result"
# The kind of a failure to make or keep the files of a stage: no agent was asked.
WORKSPACE_ERROR = "workspace_error"
# In the place of the name of a part of a definition where nobody knows which part it was.
UNKNOWN_PART = "definition"


# What decides whether the result of a stage is accepted.
GateKind = StrEnum("GateKind", "CRITIC REVIEW COMMAND APPROVAL")
# What a gate decides.
CriticVerdict = StrEnum("CriticVerdict", [("PASS", "PASS"), ("REWORK", "REWORK"), ("FAIL", "FAIL")])
# Where the stages of a run work. DIRECTORY is empty at first; WORKTREE holds the repository at a commit; both are the
# run's own. CHECKOUT is the user's own working tree, in which one stage works at a time.
WorkspaceKind = StrEnum("WorkspaceKind", "DIRECTORY WORKTREE CHECKOUT")
# What becomes of a run when a stage failed for good: stop for a person, fail, or go on without the stage.
OnFailure = StrEnum("OnFailure", "ESCALATE FAIL CONTINUE")
# How a call of a stage was made, in the order in which these are tried.
RecoveryStep = StrEnum("RecoveryStep", "FIRST RETRY RESUME FRESH")
# What a person decided about a stage that waits.
Decision = StrEnum("Decision", "APPROVE REJECT RETRY")
# The state of a stage, or of a whole run. `pipelines.state` has the table of allowed transitions.
StageState = StrEnum(
    "StageState",
    "PENDING RUNNING GATING REWORKING RECOVERING AWAITING_APPROVAL COMPLETED FAILED CANCELLED INTERRUPTED",
)
# Something is under way, or was when the process died.
WORKING_STATES = frozenset({StageState.RUNNING, StageState.GATING, StageState.REWORKING, StageState.RECOVERING})
ENDED_STATES = frozenset({StageState.COMPLETED, StageState.FAILED, StageState.CANCELLED})


class ArtifactRule(FrozenStruct, frozen=True, kw_only=True):
    """Which files of the workspace are a stage's artifacts, at its top only unless `recursive`.

    Each of `required` must be there; `schemas` are JSON Schemas of JSON or YAML. All by name or glob.
    """

    patterns: tuple[str, ...] = DEFAULT_ARTIFACTS
    recursive: bool = False
    required: tuple[str, ...] = ()
    schemas: Mapping[str, Mapping[str, Any]] = FrozenDict()


class GateDefinition(Struct, frozen=True, kw_only=True):
    """A gate of a stage. Which fields count depends on the kind.

    `step` is the critic's file of instructions, None for the built-in one. `command` is a program with its arguments,
    which no shell reads. `min_score`, of 100, is a critic's: see `recovery.acceptable`.
    """

    kind: GateKind
    step: Path | None = None
    agent: str | None = None
    model: str | None = None
    command: tuple[str, ...] = ()
    prompt: str = ""
    fail_on: str | None = None
    experts: tuple[str, ...] = ()
    timeout_seconds: float = 600.0
    max_attempts: int = 3
    min_score: int = 40


class StageDefinition(FrozenStruct, frozen=True, kw_only=True):
    """One stage. `step` and `agent_definition` are files; `needs` are the stages whose work it builds on.

    `agent` None is the first usable one of the settings. `retries` is how often a failed call is tried again before
    its session is resumed. `inputs` None is all those of the pipeline. `parts` are digests of what shapes its work, by
    key of the file.
    """

    name: str
    step: Path
    agent_definition: Path | None = None
    agent: str | None = None
    model: str | None = None
    writes: bool = True
    tools: tuple[str, ...] | None = None
    needs: tuple[str, ...] = ()
    inputs: tuple[str, ...] | None = None
    artifacts: ArtifactRule = ArtifactRule()
    output_schema: Mapping[str, Any] | None = None
    timeout_seconds: float = 1800.0
    max_budget_usd: float | None = None
    max_turns: int | None = None
    retries: int = 1
    gates: tuple[GateDefinition, ...] = ()
    on_failure: OnFailure = OnFailure.ESCALATE
    parts: Mapping[str, str] = FrozenDict()

    def given(self, inputs: Mapping[str, str]) -> Mapping[str, str]:
        """Those of the run's inputs that the stage gets."""
        return inputs if self.inputs is None else {name: inputs[name] for name in self.inputs}


class InputDefinition(Struct, frozen=True, kw_only=True):
    """A value that a run is given; required without a default. The value of a `secret` one is never shown."""

    name: str
    description: str = ""
    default: str | None = None
    secret: bool = False


class PipelineDefinition(FrozenStruct, frozen=True, kw_only=True):
    """A pipeline as its `file` says, checked: stage names are unique, needs exist and have no cycle.

    `file` is absolute. `digest` names the content of the file and of every file that it names; `texts` are those, as
    they are named there, and its own under "".
    """

    name: str
    file: Path
    stages: tuple[StageDefinition, ...]
    description: str = ""
    inputs: tuple[InputDefinition, ...] = ()
    workspace: WorkspaceKind = WorkspaceKind.DIRECTORY
    max_parallel: int = 4
    max_budget_usd: float | None = None
    digest: str = ""
    texts: Mapping[str, str] = FrozenDict()


class Critique(Struct, frozen=True, kw_only=True):
    """A gate's verdict on an attempt. Only a critic gives a `score`."""

    verdict: CriticVerdict
    gate: GateKind
    score: int | None = None
    summary: str = ""
    blockers: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    confidence: float | None = None
    usage: Usage = Usage()


class AttemptRecord(Struct, frozen=True, kw_only=True):
    """One attempt of a stage: an execution that produced a result, and the verdicts of the gates on it.

    `tree` names in the workspace store what the workspace held after it. `notes` say what was not as asked, such as a
    file that was left out. `saved_answer` is the name under which its answer was saved, if it left no artifact; in the
    workspace unless that is the user's own. Files are below the run's folder. `left_tree` is the tree of a run that may
    go on elsewhere, before anything else is known of it.
    """

    number: int = 1
    step: RecoveryStep = RecoveryStep.FIRST
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
    left_tree: str = ""

    @property
    def score(self) -> int | None:
        """Return the lowest score that a critic gave it, or None when none did."""
        return min((critique.score for critique in self.critiques if critique.score is not None), default=None)


class StageRequest(FrozenStruct, frozen=True, kw_only=True):
    """The question to a stage. `agent_definition` may be absent; `prior_artifacts` are paths, not contents.

    `prior_answers` are texts by name: answers of earlier stages that lie where the agent cannot read them. Mappings are
    copied and frozen.
    """

    stage: str
    step_file: Path
    agent_definition: Path | None = None
    prior_artifacts: tuple[Path, ...] = ()
    elicitation_context: Mapping[str, str] = FrozenDict()
    attempt_history: tuple[AttemptRecord, ...] = ()
    prior_answers: Mapping[str, str] = FrozenDict()


class FailedTry(Struct, frozen=True, kw_only=True):
    """A call of a stage that produced no result: the kind of error, its message, and what it cost.

    `gate` is the position of the gate that could not decide, None for the stage's own call. `tree` is what the call
    left, kept where its session can be resumed.
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


class StageRecord(FrozenStruct, frozen=True, kw_only=True):
    """What is known of one stage of a run. `chosen` is the number of the attempt whose work goes on.

    `wants_approval` is "gate" for an approval gate, "escalation" after all else. After a person had it tried again, by
    `person_note`, the `attempts_before` and `failures_before` count towards no limit; `earlier` ones were set aside.
    `built_on` is the tree of each stage it needs by name, and under "" that with which the run began. `parts` are
    digests of its definition when its last attempt was made; `outdated` names those that have changed since.
    `unanswered` counts requests that are out; `lost` is the cost of those whose outcome never will be known.
    """

    name: str
    state: StageState = StageState.PENDING
    attempts: tuple[AttemptRecord, ...] = ()
    failures: tuple[FailedTry, ...] = ()
    chosen: int | None = None
    start_tree: str = ""
    reason: str = ""
    wants_approval: str = ""
    started_at: Moment | None = None
    ended_at: Moment | None = None
    person_note: str = ""
    attempts_before: int = 0
    failures_before: int = 0
    needs: tuple[str, ...] = ()
    max_attempts: int = 0
    earlier: tuple[AttemptRecord, ...] = ()
    built_on: Mapping[str, str] = FrozenDict()
    parts: Mapping[str, str] = FrozenDict()
    outdated: tuple[str, ...] = ()
    unanswered: int = 0
    lost: Usage = Usage()

    @property
    def usage(self) -> Usage:
        """What all its calls and gates cost."""
        attempts = (*self.earlier, *self.attempts)
        gates = (critique.usage for attempt in attempts for critique in attempt.critiques)
        calls = (each.usage for some in (attempts, self.failures) for each in some)
        return reduce(Usage.plus, (*calls, *gates), self.lost)

    @property
    def chosen_attempt(self) -> AttemptRecord | None:
        """The attempt whose work goes on, or None."""
        return next((attempt for attempt in self.attempts if attempt.number == self.chosen), None)

    @property
    def outdated_text(self) -> str:
        """Before what changed it did the work that it keeps: `its step and its model`; empty where it keeps none."""
        if not self.outdated or not self.attempts:
            return ""
        if self.outdated == (UNKNOWN_PART,):
            return "the pipeline's files"
        names = [f"its {part.replace('_', ' ')}" for part in self.outdated]
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


class RunRecord(FrozenStruct, frozen=True, kw_only=True):
    """What is known of one run. Written whole after every transition; `stages` keep the order of the pipeline.

    `digest` is the definition's when the run began, `repository` where a worktree or a checkout comes from. `agent` and
    `model` are for stages that name none. `given` names the inputs that are no defaults; None is not known. Of a run
    that any machine can go on with, `home` says where its paths mean something, and `host` how that machine is called;
    elsewhere a clone of `origin` with the commit `base_commit` has what it began with.
    """

    run_id: str
    pipeline: str
    file: Path
    digest: str
    state: StageState
    stages: tuple[StageRecord, ...]
    inputs: Mapping[str, str] = FrozenDict()
    workspace: WorkspaceKind = WorkspaceKind.DIRECTORY
    repository: Path | None = None
    base_tree: str = ""
    reason: str = ""
    started_at: Moment
    updated_at: Moment
    agent: str | None = None
    model: str | None = None
    given: tuple[str, ...] | None = None
    secret_inputs: tuple[str, ...] = ()
    home: str = ""
    host: str = ""
    origin: str = ""
    base_commit: str = ""
    version: int = 1

    @property
    def usage(self) -> Usage:
        """What all its stages cost."""
        return reduce(Usage.plus, (stage.usage for stage in self.stages), Usage())

    def stage(self, name: str) -> StageRecord:
        """The stage of that name. Raises KeyError."""
        return {stage.name: stage for stage in self.stages}[name]


class Approval(Struct, frozen=True, kw_only=True):
    """A person's answer on a stage that waits. `note` goes to the next attempt of a stage that is tried again."""

    stage: str
    decision: Decision
    note: str = ""


PipelineEventKind = Literal[
    "run_started",
    "run_resumed",
    "run_ended",
    "stage_state",
    "attempt_started",
    "attempt_finished",
    "try_failed",
    "recovery",
    "critique",
    "approval_wanted",
    "approval_given",
    "note",
]


class PipelineEvent(FrozenStruct, frozen=True, kw_only=True):
    """Something that happened in a run, as its journal stores it and a display shows it. `facts` depend on `kind`."""

    at: Moment
    kind: PipelineEventKind
    stage: str = ""
    message: str = ""
    facts: Mapping[str, str | int | float | bool | None] = FrozenDict()
