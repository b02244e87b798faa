"""Runs of pipelines as JSON documents, version 1: fields are added, never changed.

The JSON Schemas are made of these types, and what is said here is said there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypedDict

from codeloupe.model.pipeline import RunRecord, StageRecord, StageState
from codeloupe.reports.json_v1 import TOOL, UsageV1, document, json_text, schema_of
from codeloupe.reports.pipeline import Places, counted_attempt, exit_code_of, run_seconds, stage_seconds

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


def run_schema() -> dict[str, Any]:
    """The JSON Schema of one run."""
    return schema_of(RunV1)


def list_schema() -> dict[str, Any]:
    """The JSON Schema of a list of runs."""
    return schema_of(RunListV1)


def run_json(
    run: RunRecord,
    places: Places,
    *,
    busy: bool,
    process_id: int | None = None,
    exit_code: int | None = None,
    now: datetime | None = None,
) -> str:
    """One run, with every attempt. `exit_code` is for a run that was stopped by an error of its own."""
    moment = now or datetime.now(UTC)
    whole = document(
        RunV1,
        run,
        schema_version=1,
        tool=TOOL,
        exit_code=exit_code_of(run) if exit_code is None else exit_code,
        busy=busy,
        process_id=process_id,
        inputs=[{"name": name, "value": value} for name, value in run.inputs.items()],
        duration_seconds=run_seconds(run, moment),
        directory=str(places.directory),
        result=places.result and str(places.result),
        patch=places.patch and str(places.patch),
        stages=[_stage(stage, moment) for stage in run.stages],
    )
    return json_text(whole)


def _stage(stage: StageRecord, now: datetime) -> dict[str, Any]:
    counted, seconds = counted_attempt(stage), stage_seconds(stage, now)
    return document(
        StageV1,
        stage,
        max_attempts=stage.max_attempts or None,
        score=counted and counted.score,
        agent=counted.agent if counted else "",
        model=counted and counted.model,
        duration_seconds=seconds if seconds is not None and math.isfinite(seconds) else None,
        attempts=[document(AttemptV1, attempt) for attempt in (*stage.earlier, *stage.attempts)],
    )


def runs_json(
    runs: Sequence[RunRecord], problems: Mapping[str, str], *, busy: frozenset[str], now: datetime | None = None
) -> str:
    """A list of runs; `busy` names those that a process works on."""
    entries = [
        document(
            RunEntryV1,
            run,
            exit_code=exit_code_of(run),
            busy=run.run_id in busy,
            duration_seconds=run_seconds(run, now or datetime.now(UTC)),
            stages={
                "total": len(run.stages),
                "completed": sum(stage.state is StageState.COMPLETED for stage in run.stages),
            },
            cost_usd=run.usage.cost_usd if math.isfinite(run.usage.cost_usd) else 0.0,
            unknown_costs=run.usage.unknown_costs,
        )
        for run in runs
    ]
    unreadable = [{"name": name, "reason": problems[name]} for name in sorted(problems)]
    return json_text({"schema_version": 1, "tool": TOOL, "runs": entries, "problems": unreadable})
