"""The fields of the JSON documents about runs of pipelines, version 1: fields are added, never changed.

The JSON Schemas are made of these types, and what is said here is said there.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from codeloupe.model.pipeline import StageState
from codeloupe.reports.json_v1 import UsageV1

State = Annotated[str, {"enum": [state.value for state in StageState]}]
_MOMENT = {"format": "date-time", "description": "a moment in UTC, in the form of ISO 8601"}
Moment = Annotated[str, _MOMENT]
MomentOrNone = Annotated[str | None, _MOMENT]
Score = Annotated[int | None, {"minimum": 0, "maximum": 100}]


class ToolV1(TypedDict):
    """What wrote the document."""

    name: Literal["codeloupe"]
    version: str


class CritiqueV1(TypedDict):
    """A gate's word on an attempt."""

    gate: str
    verdict: Annotated[str, {"enum": ["PASS", "REWORK", "FAIL"]}]
    score: Score
    summary: str
    blockers: list[str]
    fixes: list[str]
    confidence: float | None
    usage: UsageV1


class AttemptV1(TypedDict):
    """An execution of a stage that gave a result. Files are relative: of the run's directory, artifacts of the stage's.

    `score` is the lowest that a gate gave it.
    """

    number: int
    step: str
    score: Score
    artifacts: list[str]
    files_changed: list[str]
    diff_file: str
    output_file: str
    session_id: str
    agent: str
    model: str | None
    duration_seconds: float
    critiques: list[CritiqueV1]
    notes: list[str]
    usage: UsageV1


class FailureV1(TypedDict):
    """A call of a stage that gave no result."""

    step: str
    kind: str
    message: str
    hint: str
    session_id: str
    attempt: int
    usage: UsageV1


class StageV1(TypedDict):
    """One stage. `score`, `agent` and `model` are those of the chosen attempt, else of the last one.

    `wants_approval` is "gate" or "escalation" for a stage that waits for a person, else empty. `outdated` names the
    parts of its definition that have changed since its last attempt; "definition" where that is not known.
    """

    name: str
    state: State
    reason: str
    wants_approval: str
    needs: list[str]
    max_attempts: int | None
    chosen: int | None
    score: Score
    agent: str
    model: str | None
    started_at: MomentOrNone
    ended_at: MomentOrNone
    duration_seconds: float | None
    attempts: list[AttemptV1]
    failures: list[FailureV1]
    outdated: list[str]
    usage: UsageV1


class InputV1(TypedDict):
    """A value that the run was given; `[redacted]` for a secret."""

    name: str
    value: str


class RunV1(TypedDict):
    """One run of a pipeline. `state` is as it really is: a run whose process is gone is interrupted.

    `exit_code` is what `pipeline run` ended with, or would, and null while the run goes on. `process_id` is the process
    that works on it. `result` and `patch` are null as long as they are not there.
    """

    schema_version: Literal[1]
    tool: ToolV1
    run_id: str
    pipeline: str
    file: str
    digest: str
    state: State
    reason: str
    exit_code: int | None
    busy: bool
    process_id: int | None
    workspace: str
    repository: str | None
    inputs: list[InputV1]
    started_at: Moment
    updated_at: Moment
    duration_seconds: float
    directory: str
    result: str | None
    patch: str | None
    stages: list[StageV1]
    usage: UsageV1


class StagesV1(TypedDict):
    """How many stages a run has, and how many are completed."""

    total: int
    completed: int


class RunEntryV1(TypedDict):
    """One run in a list."""

    run_id: str
    pipeline: str
    file: str
    state: State
    reason: str
    exit_code: int | None
    busy: bool
    started_at: Moment
    updated_at: Moment
    duration_seconds: float
    stages: StagesV1
    cost_usd: float
    unknown_costs: int


class UnreadableV1(TypedDict):
    """What lies among the runs and cannot be read."""

    name: str
    reason: str


class RunListV1(TypedDict):
    """All runs, the newest first."""

    schema_version: Literal[1]
    tool: ToolV1
    runs: list[RunEntryV1]
    problems: list[UnreadableV1]
