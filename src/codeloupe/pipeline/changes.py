"""A run whose pipeline's files have changed since it began: whether it can go on, and what it has to do again. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from codeloupe.errors import UsageError
from codeloupe.model.pipeline import AttemptRecord, RunRecord, StageRecord, StageState
from codeloupe.model.pipeline_definition import GateKind, PipelineDefinition, StageDefinition
from codeloupe.pipeline.choosing import refused_at
from codeloupe.pipeline.definition import input_values
from codeloupe.pipeline.states import ENDED_STATES

_JUDGED_AGAIN = "the pipeline's files changed after gates had passed it, so all its gates judge it again"


def new_stage_record(stage: StageDefinition) -> StageRecord:
    """A stage before it began, with what a display tells of its place and its limit."""
    judged = (gate.max_attempts for gate in stage.gates if gate.kind is not GateKind.APPROVAL)
    return StageRecord(name=stage.name, needs=stage.needs, max_attempts=max(judged, default=1))


def with_changes(record: RunRecord, definition: PipelineDefinition, *, accepted: bool) -> RunRecord:
    """The record under a definition that has changed. What is finished stays; what is not faces the gates of now.

    Raises UsageError when the changes are not accepted, or are such that the run cannot go on with them.
    """
    obstacles = tuple(_obstacles(record, definition))
    if not accepted or obstacles:
        wish = "or begin a new run" if obstacles else "begin a new run, or resume this one with the changes accepted"
        begun = f"{record.file}, or a file that it names, has changed since the run {record.run_id} began"
        raise UsageError("; ".join((begun, *obstacles)), hint=f"put the files back as they were, {wish}")
    known = {stage.name: stage for stage in record.stages}
    new = [new_stage_record(stage) for stage in definition.stages]
    stages = tuple(
        replace(_judged_again(known.get(stage.name, stage)), needs=stage.needs, max_attempts=stage.max_attempts)
        for stage in new
    )
    wanted = {each.name for each in definition.inputs}
    given = {name: value for name, value in record.inputs.items() if name in wanted}
    return replace(record, stages=stages, digest=definition.digest, inputs=input_values(definition, given))


def _obstacles(record: RunRecord, definition: PipelineDefinition) -> Iterator[str]:
    wanted = {stage.name for stage in definition.stages}
    begun = (stage.name for stage in record.stages if stage.state is not StageState.PENDING)
    if lost := [name for name in begun if name not in wanted]:
        yield f"{', '.join(lost)} had begun and is no longer in it"
    if definition.workspace is not record.workspace:
        yield f"its workspace was a {record.workspace.value} and is a {definition.workspace.value}"
    new = (each.name for each in definition.inputs if each.required and not record.inputs.get(each.name, "").strip())
    if missing := list(new):
        yield f"its input {', '.join(missing)} is new and has no default"


def _judged_again(stage: StageRecord) -> StageRecord:
    """A stage whose last attempt has no word of a gate on it, unless it was sent back or the stage is at its end.

    A gate is known by its place alone, and at that place there may be another one now.
    """
    last = stage.attempts[-1] if stage.attempts else None
    if last is None or not last.critiques or stage.state in ENDED_STATES or refused_at(last) is not None:
        return stage
    return replace(stage, attempts=(*stage.attempts[:-1], _unjudged(last)))


def _unjudged(attempt: AttemptRecord) -> AttemptRecord:
    usage = attempt.usage
    for critique in attempt.critiques:
        usage = usage.plus(critique.usage)
    return replace(attempt, critiques=(), usage=usage, notes=(*attempt.notes, _JUDGED_AGAIN))
