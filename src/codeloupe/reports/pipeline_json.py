"""Runs of pipelines as JSON documents, version 1: fields are added, never changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from codeloupe.model.pipeline import RunRecord, StageRecord
from codeloupe.reports.json_v1 import TOOL, document, json_text, schema_of
from codeloupe.reports.pipeline import (
    Places,
    completed_stages,
    counted_attempt,
    exit_code_of,
    run_seconds,
    stage_seconds,
)


def run_schema() -> dict[str, Any]:
    """The JSON Schema of one run."""
    return schema_of("pipeline-run")


def list_schema() -> dict[str, Any]:
    """The JSON Schema of a list of runs."""
    return schema_of("pipeline-list")


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
        "pipeline-run",
        "RunV1",
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
    attempts = (*stage.earlier, *stage.attempts)
    return document(
        "pipeline-run",
        "StageV1",
        stage,
        max_attempts=stage.max_attempts or None,
        score=counted and counted.score,
        agent=counted.agent if counted else "",
        model=counted and counted.model,
        duration_seconds=seconds if seconds is not None and math.isfinite(seconds) else None,
        attempts=[document("pipeline-run", "AttemptV1", attempt) for attempt in attempts],
    )


def runs_json(
    runs: Sequence[RunRecord], problems: Mapping[str, str], *, busy: frozenset[str], now: datetime | None = None
) -> str:
    """A list of runs; `busy` names those that a process works on."""
    entries = [
        document(
            "pipeline-list",
            "RunEntryV1",
            run,
            exit_code=exit_code_of(run),
            busy=run.run_id in busy,
            duration_seconds=run_seconds(run, now or datetime.now(UTC)),
            stages={"total": len(run.stages), "completed": completed_stages(run)},
            cost_usd=run.usage.cost_usd if math.isfinite(run.usage.cost_usd) else 0.0,
            unknown_costs=run.usage.unknown_costs,
        )
        for run in runs
    ]
    unreadable = [{"name": name, "reason": problems[name]} for name in sorted(problems)]
    return json_text({"schema_version": 1, "tool": TOOL, "runs": entries, "problems": unreadable})
