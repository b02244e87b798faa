"""Pipelines of agent stages as their files define them, and pipeline runs: stages, attempts, gates and costs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from codeloupe.model.agent import Usage
from codeloupe.model.frozen import FrozenDict, FrozenStruct

# A time zone is required. Otherwise the value would mean another moment on a machine with another time zone.
Moment = Annotated[datetime, Meta(tz=True)]
DEFAULT_ARTIFACTS = ("*.md", "*.json", "*.txt", "*.yaml", "*.yml")
# The reason of a run contains this phrase if its stages left nothing that could be merged.
NO_RESULT = "there is no result"
# The kind of failure if the files of a stage cannot be created or stored. No agent was called.
WORKSPACE_ERROR = "workspace_error"
# The kind of failure if an attempt was answered, but its files were lost before they were stored.
WORKSPACE_LOST = "workspace_lost"


# The kinds of checks that accept or reject the result of a stage.
GateKind = StrEnum("GateKind", "CRITIC REVIEW COMMAND APPROVAL")
# The verdict of a gate.
CriticVerdict = StrEnum("CriticVerdict", [("PASS", "PASS"), ("REWORK", "REWORK"), ("FAIL", "FAIL")])
# The workspace for the stages of a run. DIRECTORY is initially empty, and WORKTREE contains the repository at a commit.
# Both belong to the run. CHECKOUT is the user's own working tree, in which one stage works at a time.
WorkspaceKind = StrEnum("WorkspaceKind", "DIRECTORY WORKTREE CHECKOUT")
# The reaction of a run to a stage that has failed permanently: stop for the user, fail, or continue without the stage.
OnFailure = StrEnum("OnFailure", "ESCALATE FAIL CONTINUE")
# How the agent of a stage was called, in the order in which the steps are tried.
RecoveryStep = StrEnum("RecoveryStep", "FIRST RETRY RESUME FRESH")
# The user's decision about a stage that waits.
Decision = StrEnum("Decision", "APPROVE REJECT RETRY")
# The state of a stage, or of a whole run. `pipelines.state` has the table of allowed transitions.
StageState = StrEnum(
    "StageState",
    "PENDING RUNNING GATING REWORKING RECOVERING WAITING_FOR_QUOTA AWAITING_APPROVAL COMPLETED FAILED CANCELLED"
    " INTERRUPTED",
)
# Work is in progress, or was in progress when the process died.
WORKING_STATES = frozenset({StageState.RUNNING, StageState.GATING, StageState.REWORKING, StageState.RECOVERING})
ENDED_STATES = frozenset({StageState.COMPLETED, StageState.FAILED, StageState.CANCELLED})


class ArtifactRule(FrozenStruct, frozen=True, kw_only=True):
    """Which files in the workspace are a stage's artifacts. Only the top folder is searched, unless `recursive`.

    Every `required` artifact must exist. `schemas` are the JSON Schemas for JSON or YAML files. All are given by name
    or glob.
    """

    patterns: tuple[str, ...] = DEFAULT_ARTIFACTS
    recursive: bool = False
    required: tuple[str, ...] = ()
    schemas: Mapping[str, Mapping[str, Any]] = FrozenDict()


class GateDefinition(Struct, frozen=True, kw_only=True):
    """A gate of a stage. The kind determines which fields apply.

    `step` is the file with the critic's instructions and `step_text` its text, or None and empty for the built-in
    instructions. `command` is a program with its arguments, run without a shell. `min_score`, out of 100, applies to a
    critic; see `recovery.acceptable`. `digest` covers everything that shapes the gate's verdict.
    """

    kind: GateKind
    step: Path | None = None
    step_text: str = ""
    agent: str | None = None
    model: str | None = None
    command: tuple[str, ...] = ()
    prompt: str = ""
    fail_on: str | None = None
    experts: tuple[str, ...] = ()
    timeout_seconds: float = 600.0
    max_attempts: int = 3
    min_score: int = 40
    digest: str = ""


class StageDefinition(FrozenStruct, frozen=True, kw_only=True):
    """One stage. `step` and `agent_definition` are files. `needs` are the stages whose work this stage builds on.

    `step_text` and `agent_definition_text` are the texts of the files when the definition was loaded. A run uses these.

    If `agent` is None, the first usable agent from the settings is used. `retries` is how often a failed call is
    retried before its session is resumed. If `inputs` is None, the stage gets all inputs of the pipeline. `parts` are
    digests of everything that shapes the stage's work, by key in the file.
    """

    name: str
    step: Path
    step_text: str = ""
    agent_definition: Path | None = None
    agent_definition_text: str = ""
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
        """Return the run's inputs that the stage gets."""
        return inputs if self.inputs is None else {name: inputs[name] for name in self.inputs}

    @property
    def gate_keys(self) -> tuple[str, ...]:
        """Return the key of each gate, which changes if that gate or one of the gates before it changes."""
        total = hashlib.sha256()
        keys: list[str] = []
        for gate in self.gates:
            total.update(f"{gate.digest}\n".encode())
            keys.append(total.hexdigest()[:16])
        return tuple(keys)


class InputDefinition(Struct, frozen=True, kw_only=True):
    """An input of a run. It is required if it has no default. The value of a `secret` input is never shown."""

    name: str
    description: str = ""
    default: str | None = None
    secret: bool = False


class PipelineDefinition(FrozenStruct, frozen=True, kw_only=True):
    """A checked pipeline definition: stage names are unique, and needs exist and have no cycles.

    `file` is absolute. `digest` identifies the content of the file and of every file it refers to. `texts` contains
    those files by the names in the definition, and the definition itself under "".
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
    """A gate's verdict on an attempt. Only a critic returns a `score`. `gate_key` is the key of the gate."""

    verdict: CriticVerdict
    gate: GateKind
    gate_key: str = ""
    score: int | None = None
    summary: str = ""
    blockers: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()
    confidence: float | None = None
    usage: Usage = Usage()


class AttemptRecord(FrozenStruct, frozen=True, kw_only=True):
    """One attempt of a stage: an execution that produced a result, and the gates' verdicts on the result.

    `tree` identifies the content of the workspace after the attempt, in the workspace store. `notes` list differences
    from the request, such as a skipped file. If the attempt left no artifact, `saved_answer` is the name of the file
    with the answer, in the workspace unless that is the user's own. Files are under the run's folder. Until `tree` is
    known, the content is only in the workspace at `home`, the machine and state directory where the agent answered.
    `critiques` are the verdicts of the stage's gates, in their order. The `superseded` ones are of gates that the
    pipeline no longer has: they do not count, but their cost does. `parts` are digests of the definition that shaped
    the attempt.
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
    superseded: tuple[Critique, ...] = ()
    notes: tuple[str, ...] = ()
    output_file: str = ""
    saved_answer: str = ""
    home: str = ""
    parts: Mapping[str, str] = FrozenDict()

    @property
    def score(self) -> int | None:
        """Return the lowest score from a critic, or None if there is none."""
        return min((critique.score for critique in self.critiques if critique.score is not None), default=None)


class StageRequest(FrozenStruct, frozen=True, kw_only=True):
    """The question for a stage. `agent_definition` is optional. `prior_artifacts` are paths in the workspace.

    `step_text` and `agent_definition_text` are the texts of the two files. A file whose text is empty is read.
    `prior_answers` are answers from earlier stages, by name, that the agent cannot read from its workspace. Mappings
    are copied and frozen.
    """

    stage: str
    step_file: Path
    step_text: str = ""
    agent_definition: Path | None = None
    agent_definition_text: str = ""
    prior_artifacts: tuple[Path, ...] = ()
    elicitation_context: Mapping[str, str] = FrozenDict()
    attempt_history: tuple[AttemptRecord, ...] = ()
    prior_answers: Mapping[str, str] = FrozenDict()


class FailedTry(Struct, frozen=True, kw_only=True):
    """A failed call in a stage: the kind of error, its message and its cost.

    `gate` is the position of the gate that returned no verdict, and `gate_key` its key; None and empty for the stage's
    own call. `tree` is the content of the workspace after the call, stored if its session can be resumed.
    """

    step: RecoveryStep
    kind: str
    message: str
    hint: str = ""
    session_id: str = ""
    usage: Usage = Usage()
    attempt: int = 0
    gate: int | None = None
    gate_key: str = ""
    agent: str = ""
    retryable: bool = False
    resumable: bool = False
    tree: str = ""


class StageRecord(FrozenStruct, frozen=True, kw_only=True):
    """The state of one stage of a run. `chosen` is the number of the attempt whose work is used.

    If the gates of a completed stage changed, `kept` is the attempt whose work was used, until a gate refuses it.

    `wants_approval` is "gate" for an approval gate, or "escalation" after everything else failed. `questions` is the
    number of questions that the user was asked, and `question_key` identifies the last one. `retries` is how often the
    user had the agent called again, the last time with `person_note`; the `attempts_before` and `failures_before` do
    not count towards the limits. `earlier` attempts were discarded. `built_on` identifies the work of each needed stage
    by name, and the initial tree of the run under "". `outdated` lists the parts of the definition that have changed
    since the attempt that is used. `unanswered` counts requests in progress. `lost` is the cost of calls whose outcome
    was not saved. A stage that waits for a quota continues at `quota_until`.
    """

    name: str
    state: StageState = StageState.PENDING
    attempts: tuple[AttemptRecord, ...] = ()
    failures: tuple[FailedTry, ...] = ()
    chosen: int | None = None
    kept: int | None = None
    start_tree: str = ""
    reason: str = ""
    wants_approval: str = ""
    questions: int = 0
    question_key: str = ""
    started_at: Moment | None = None
    ended_at: Moment | None = None
    person_note: str = ""
    retries: int = 0
    attempts_before: int = 0
    failures_before: int = 0
    needs: tuple[str, ...] = ()
    max_attempts: int = 0
    earlier: tuple[AttemptRecord, ...] = ()
    built_on: Mapping[str, str] = FrozenDict()
    outdated: tuple[str, ...] = ()
    unanswered: int = 0
    lost: Usage = Usage()
    quota_until: Moment | None = None

    @property
    def usage(self) -> Usage:
        """Return the usage of all calls and gates of the stage."""
        attempts = (*self.earlier, *self.attempts)
        gates = (critique.usage for each in attempts for critique in (*each.critiques, *each.superseded))
        calls = (each.usage for some in (attempts, self.failures) for each in some)
        return reduce(Usage.plus, (*calls, *gates), self.lost)

    @property
    def chosen_attempt(self) -> AttemptRecord | None:
        """Return the attempt whose work is used, or None."""
        return None if self.chosen is None else self.attempt(self.chosen)

    def attempt(self, number: int) -> AttemptRecord | None:
        """Return the attempt with a number, unless it was discarded."""
        return next((attempt for attempt in self.attempts if attempt.number == number), None)

    @property
    def outdated_text(self) -> str:
        """Return the parts that changed after the stored work, such as `its step and its model`, or an empty string."""
        if not self.outdated or not self.attempts:
            return ""
        names = [f"its {part.replace('_', ' ')}" for part in self.outdated]
        return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


class RunRecord(FrozenStruct, frozen=True, kw_only=True):
    """The state of one run, written as a whole after every transition. `stages` are in the order of the pipeline.

    `digest` is the digest of the definition when the run started. `repository` is the source of a worktree or checkout.
    `agent` and `model` are for stages that do not choose their own. `given` lists the inputs that are not defaults.
    `home` is the machine and state directory where the run started, on which its paths are valid, and `host` is that
    machine's name. `origin` is the address of its repository. The stages start from `base_tree`, the tree of
    `base_commit`, and `result_tree` is the merged result. `checkout_tree` is the tree of the stage that was completed
    last. A run that was handed to workers (`on_workers`) continues on workers.
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
    given: tuple[str, ...] = ()
    secret_inputs: tuple[str, ...] = ()
    home: str = ""
    host: str = ""
    origin: str = ""
    base_commit: str = ""
    object_format: str = "sha1"
    result_tree: str = ""
    checkout_tree: str = ""
    on_workers: bool = False
    version: int = 1

    @property
    def usage(self) -> Usage:
        """Return the usage of all stages."""
        return reduce(Usage.plus, (stage.usage for stage in self.stages), Usage())

    def stage(self, name: str) -> StageRecord:
        """Return the stage with this name. Raises KeyError."""
        return {stage.name: stage for stage in self.stages}[name]


class Approval(Struct, frozen=True, kw_only=True):
    """The user's decision about a stage. A retried stage receives `note` in its next attempt.

    `question` is the number of the last question that the stage had asked when the user decided. A decision about an
    earlier question does not count.
    """

    stage: str
    decision: Decision
    note: str = ""
    question: int = 0


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
    """An event of a run, for its journal and for progress displays. `kind` determines the `facts`."""

    at: Moment
    kind: PipelineEventKind
    stage: str = ""
    message: str = ""
    facts: Mapping[str, str | int | float | bool | None] = FrozenDict()
