"""Decisions about the stages of a run that follow from its record alone: which can start, which never will, the end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import TopologicalSorter

from msgspec.structs import replace

from codeloupe.model.pipeline import OnFailure, PipelineDefinition, RunRecord, StageRecord, StageState

# No task works on a stage in one of these states.
_UNENDED = (
    StageState.PENDING,
    StageState.INTERRUPTED,
    StageState.WAITING_FOR_QUOTA,
    StageState.AWAITING_APPROVAL,
)


def ready(definition: PipelineDefinition, run: RunRecord, settled: Collection[str]) -> tuple[str, ...]:
    """Return the stages, in the order of the file, that can start: all stages that they need are settled."""
    if failing_stage(definition, run) is not None:
        return ()
    names: list[str] = []
    for stage in definition.stages:
        can_start = run.stage(stage.name).state in (StageState.PENDING, StageState.INTERRUPTED)
        if can_start and set(settled).issuperset(stage.needs):
            names.append(stage.name)
    return tuple(names)


def failing_stage(definition: PipelineDefinition, run: RunRecord) -> StageRecord | None:
    """Return the first stage whose failure fails the run, or None; after it no stage starts."""
    tolerated = {stage.name for stage in definition.stages if stage.on_failure is OnFailure.CONTINUE}
    for stage in run.stages:
        if stage.state is StageState.FAILED and stage.name not in tolerated:
            return stage
    return None


def given_up(definition: PipelineDefinition, run: RunRecord) -> Mapping[str, str]:
    """Return the stages that have not started and never will, each with the reason."""
    failing = failing_stage(definition, run)
    if failing is not None:
        reason = f"not run, because the run failed at {failing.name}"
        return {stage.name: reason for stage in run.stages if stage.state is StageState.PENDING}
    lost = {stage.name for stage in run.stages if stage.state in (StageState.FAILED, StageState.CANCELLED)}
    reasons: dict[str, str] = {}
    needs = {stage.name: stage.needs for stage in definition.stages}
    for name in TopologicalSorter(needs).static_order():
        missing = [needed for needed in needs[name] if needed in lost]
        if not missing:
            continue
        lost.add(name)
        stage = run.stage(name)
        if stage.state in _UNENDED and not stage.attempts:
            reasons[name] = f"not run, {_why_missing(run, missing)}"
        elif stage.state in _UNENDED or stage.state is StageState.COMPLETED:
            reasons[name] = f"its earlier work is not used, {_why_missing(run, missing)}"
    return reasons


def _why_missing(run: RunRecord, missing: list[str]) -> str:
    fate = "was not run"
    if any(run.stage(name).state is StageState.FAILED for name in missing):
        fate = "failed"
    return f"because it needs {' and '.join(missing)}, which {fate}"


def revived(definition: PipelineDefinition, run: RunRecord) -> tuple[str, ...]:
    """Return the cancelled stages that can run after all, because the stages that they need have changed."""
    cancelled = [stage.name for stage in run.stages if stage.state is StageState.CANCELLED]
    stages: list[StageRecord] = []
    for stage in run.stages:
        if stage.state is StageState.CANCELLED:
            stages.append(replace(stage, state=StageState.PENDING))
        else:
            stages.append(stage)
    lost = given_up(definition, replace(run, stages=tuple(stages)))
    return tuple(name for name in cancelled if name not in lost)


def accepted_tree(run: RunRecord) -> str:
    """Return the tree of a checkout that has been accepted, which is the initial tree if no stage is completed.

    Each completed stage leads from the tree with which it began to another, if the former has been accepted.
    """
    accepted = [run.base_tree]
    completed = [stage for stage in run.stages if stage.state is StageState.COMPLETED]
    completed.sort(key=lambda stage: stage.ended_at or run.started_at)
    for stage in completed:
        chosen = stage.chosen_attempt
        if chosen is not None and stage.start_tree in accepted:
            accepted.append(chosen.tree)
    return accepted[-1]


def conclusion(definition: PipelineDefinition, run: RunRecord) -> tuple[StageState, str]:
    """Return the state of a run in which no stage can continue, and the reason."""
    failing = failing_stage(definition, run)
    if failing is not None:
        return StageState.FAILED, f"{failing.name} failed: {failing.reason}"
    paused = [stage for stage in run.stages if stage.state is StageState.WAITING_FOR_QUOTA]
    if paused:
        # The run continues automatically, even if another stage waits for a person.
        words = "; ".join(f"{stage.name}: {stage.reason}" for stage in paused)
        return StageState.WAITING_FOR_QUOTA, f"waiting for a quota: {words}"
    waiting = [stage for stage in run.stages if stage.state is StageState.AWAITING_APPROVAL]
    if waiting:
        words = "; ".join(f"{stage.name}: {stage.reason}" for stage in waiting)
        return StageState.AWAITING_APPROVAL, f"waiting for a person to decide on {words}"
    reasons: list[str] = []
    failed = _names_in(run, StageState.FAILED)
    if failed:
        reasons.append(f"without {failed}, which failed")
    cancelled = _names_in(run, StageState.CANCELLED)
    if cancelled:
        reasons.append(f"{cancelled} not run")
    completed = [stage for stage in run.stages if stage.state is StageState.COMPLETED]
    outdated = ", ".join(stage.name for stage in completed if stage.outdated)
    if outdated:
        reasons.append(f"with the work that {outdated} did before the pipeline's files changed")
    return StageState.COMPLETED, "; ".join(reasons)


def _names_in(run: RunRecord, state: StageState) -> str:
    return ", ".join(stage.name for stage in run.stages if stage.state is state)
