"""Ordinary runs of pipelines for the tests."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from codeloupe.model.agent import Usage
from codeloupe.model.pipeline import (
    AttemptRecord,
    CriticVerdict,
    Critique,
    FailedTry,
    GateKind,
    PipelineEvent,
    RecoveryStep,
    RunRecord,
    StageRecord,
    StageState,
)

START = datetime(2026, 3, 14, 9, 12, tzinfo=UTC)


def at(**elapsed: float) -> datetime:
    """So much later than the start."""
    return START + timedelta(**elapsed)


def critique(verdict: CriticVerdict = CriticVerdict.PASS, **changes: Any) -> Critique:
    """A critic's word."""
    values = {"verdict": verdict, "gate": GateKind.CRITIC, "score": 82, "summary": "Sound.", "confidence": 0.8}
    return Critique(**{**values, "usage": Usage(requests=1, cost_usd=0.01), **changes})


def attempt(number: int = 1, *critiques: Critique, **changes: Any) -> AttemptRecord:
    """An attempt that these gates spoke about."""
    values = {
        "number": number,
        "step": RecoveryStep.FIRST,
        "tree": f"{number:040x}",
        "artifacts": ("notes.md",),
        "files_changed": ("notes.md", "data/facts.json"),
        "diff_file": f"stages/write/attempt-{number}/diff.patch",
        "session_id": "s-1",
        "agent": "claude_cli",
        "model": "sonnet",
        "duration_seconds": 12.5,
        "usage": Usage(requests=1, input_tokens=1200, output_tokens=340, cost_usd=0.05),
        "critiques": critiques,
    }
    return AttemptRecord(**{**values, **changes})


def failed_try(**changes: Any) -> FailedTry:
    """A call that gave nothing."""
    values = {"step": RecoveryStep.FIRST, "kind": "Overloaded", "message": "no room now", "usage": Usage(requests=1)}
    return FailedTry(**{**values, **changes})


def stage(name: str, state: StageState = StageState.PENDING, *attempts: AttemptRecord, **changes: Any) -> StageRecord:
    """A stage."""
    began = None if state is StageState.PENDING else START
    return StageRecord(**{"name": name, "state": state, "attempts": attempts, "started_at": began, **changes})


def run(number: int = 1, *stages: StageRecord, **changes: Any) -> RunRecord:
    """A run, an hour after the one before it."""
    values = {
        "run_id": f"{number:08x}",
        "pipeline": "article",
        "file": Path("/pipelines/article.yaml"),
        "digest": "d" * 64,
        "state": StageState.RUNNING,
        "stages": stages or (stage("research"), stage("write")),
        "inputs": {"topic": "otters"},
        "started_at": at(hours=number % 1000),
        "updated_at": at(hours=number % 1000, minutes=2),
    }
    return RunRecord(**{**values, **changes})


def event(message: str = "", *, kind: str = "note", **changes: Any) -> PipelineEvent:
    """Something that happened."""
    return PipelineEvent(**{"at": START, "kind": kind, "message": message, **changes})
