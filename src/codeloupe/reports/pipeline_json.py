"""Runs of pipelines as JSON documents, version 1; `pipeline_json_types` says what each field is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from codeloupe import __version__
from codeloupe.model.pipeline import AttemptRecord, Critique, FailedTry, RunRecord, StageRecord, StageState
from codeloupe.reports.json_types import schema_of
from codeloupe.reports.json_usage import finite, usage_v1
from codeloupe.reports.pipeline_json_types import (
    AttemptV1,
    CritiqueV1,
    FailureV1,
    InputV1,
    RunEntryV1,
    RunListV1,
    RunV1,
    StagesV1,
    StageV1,
    ToolV1,
    UnreadableV1,
)
from codeloupe.reports.pipeline_text import Places
from codeloupe.reports.pipeline_words import counted_attempt, exit_code_of, run_seconds, stage_seconds
from codeloupe.system.untrusted import json_document


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
    """One run, with every attempt. Always valid JSON that can be encoded as UTF-8, whatever agents wrote.

    `exit_code` is for a run that was stopped by an error of its own.
    """
    moment = now or datetime.now(UTC)
    document = RunV1(
        schema_version=1,
        tool=_tool(),
        run_id=run.run_id,
        pipeline=run.pipeline,
        file=str(run.file),
        digest=run.digest,
        state=run.state.value,
        reason=run.reason,
        exit_code=exit_code_of(run) if exit_code is None else exit_code,
        busy=busy,
        process_id=process_id,
        workspace=run.workspace.value,
        repository=_path(run.repository),
        inputs=[InputV1(name=name, value=value) for name, value in run.inputs.items()],
        started_at=_moment(run.started_at),
        updated_at=_moment(run.updated_at),
        duration_seconds=run_seconds(run, moment),
        directory=str(places.directory),
        result=_path(places.result),
        patch=_path(places.patch),
        stages=[_stage(stage, moment) for stage in run.stages],
        usage=usage_v1(run.usage),
    )
    return _written(document)


def runs_json(
    runs: Sequence[RunRecord], problems: Mapping[str, str], *, busy: frozenset[str], now: datetime | None = None
) -> str:
    """A list of runs; `busy` names those that a process works on."""
    moment = now or datetime.now(UTC)
    document = RunListV1(
        schema_version=1,
        tool=_tool(),
        runs=[_entry(run, moment, busy=run.run_id in busy) for run in runs],
        problems=[UnreadableV1(name=name, reason=problems[name]) for name in sorted(problems)],
    )
    return _written(document)


def _written(document: object) -> str:
    return json_document(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _tool() -> ToolV1:
    return ToolV1(name="codeloupe", version=__version__)


def _entry(run: RunRecord, now: datetime, *, busy: bool) -> RunEntryV1:
    completed = sum(stage.state is StageState.COMPLETED for stage in run.stages)
    return RunEntryV1(
        run_id=run.run_id,
        pipeline=run.pipeline,
        file=str(run.file),
        state=run.state.value,
        reason=run.reason,
        exit_code=exit_code_of(run),
        busy=busy,
        started_at=_moment(run.started_at),
        updated_at=_moment(run.updated_at),
        duration_seconds=run_seconds(run, now),
        stages=StagesV1(total=len(run.stages), completed=completed),
        cost_usd=finite(run.usage.cost_usd),
        unknown_costs=run.usage.unknown_costs,
    )


def _stage(stage: StageRecord, now: datetime) -> StageV1:
    counted = counted_attempt(stage)
    return StageV1(
        name=stage.name,
        state=stage.state.value,
        reason=stage.reason,
        wants_approval=stage.wants_approval,
        needs=list(stage.needs),
        max_attempts=stage.max_attempts or None,
        chosen=stage.chosen,
        score=None if counted is None else counted.score,
        agent="" if counted is None else counted.agent,
        model=None if counted is None else counted.model,
        started_at=None if stage.started_at is None else _moment(stage.started_at),
        ended_at=None if stage.ended_at is None else _moment(stage.ended_at),
        duration_seconds=_known(stage_seconds(stage, now)),
        attempts=[_attempt(attempt) for attempt in (*stage.earlier, *stage.attempts)],
        failures=[_failure(failure) for failure in stage.failures],
        outdated=list(stage.outdated),
        usage=usage_v1(stage.usage),
    )


def _attempt(attempt: AttemptRecord) -> AttemptV1:
    return AttemptV1(
        number=attempt.number,
        step=attempt.step.value,
        score=attempt.score,
        artifacts=list(attempt.artifacts),
        files_changed=list(attempt.files_changed),
        diff_file=attempt.diff_file,
        output_file=attempt.output_file,
        session_id=attempt.session_id,
        agent=attempt.agent,
        model=attempt.model,
        duration_seconds=finite(attempt.duration_seconds),
        critiques=[_critique(critique) for critique in attempt.critiques],
        notes=list(attempt.notes),
        usage=usage_v1(attempt.usage),
    )


def _critique(critique: Critique) -> CritiqueV1:
    return CritiqueV1(
        gate=critique.gate.value,
        verdict=critique.verdict.value,
        score=critique.score,
        summary=critique.summary,
        blockers=list(critique.blockers),
        fixes=list(critique.fixes),
        confidence=_known(critique.confidence),
        usage=usage_v1(critique.usage),
    )


def _failure(failure: FailedTry) -> FailureV1:
    return FailureV1(
        step=failure.step.value,
        kind=failure.kind,
        message=failure.message,
        hint=failure.hint,
        session_id=failure.session_id,
        attempt=failure.attempt,
        usage=usage_v1(failure.usage),
    )


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _known(number: float | None) -> float | None:
    return number if number is None or math.isfinite(number) else None
