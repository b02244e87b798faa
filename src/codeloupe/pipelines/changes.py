"""A run whose pipeline's files have changed since it began: whether it can go on, and what it has to do again. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.model.pipeline import (
    ENDED_STATES,
    UNKNOWN_PART,
    AttemptRecord,
    CriticVerdict,
    GateDefinition,
    GateKind,
    PipelineDefinition,
    RunRecord,
    StageDefinition,
    StageRecord,
    StageState,
    WorkspaceKind,
)
from codeloupe.pipelines.definition import input_values
from codeloupe.pipelines.recovery import refused_at

_GATES_CHANGED = "its gates have changed since it finished, so they judge its work again"
_JUDGED_AGAIN = "the pipeline's files changed after gates had passed it, so its gates judge it again"


def new_stage_record(stage: StageDefinition) -> StageRecord:
    """A stage before it began."""
    judged = (gate.max_attempts for gate in stage.gates if gate.kind is not GateKind.APPROVAL)
    return StageRecord(name=stage.name, needs=stage.needs, max_attempts=max(judged, default=1))


def parts_now(stage: StageDefinition, inputs: Mapping[str, str]) -> Mapping[str, str]:
    """Digests of all that shapes the work of a stage, the values of its inputs included."""
    text = json.dumps(sorted(stage.given(inputs).items()))
    return {**stage.parts, "inputs": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]}


def reopened(stage: StageRecord, reason: str) -> StageRecord:
    """A stage that begins again: its attempts are history, and paid for."""
    return replace(
        stage,
        earlier=(*stage.earlier, *stage.attempts),
        attempts=(),
        attempts_before=0,
        failures_before=len(stage.failures),
        chosen=None,
        start_tree="",
        built_on={},
        outdated=(),
        wants_approval="",
        ended_at=None,
        reason=reason,
    )


def with_changes(
    record: RunRecord, definition: PipelineDefinition, *, accepted: bool
) -> tuple[RunRecord, tuple[str, ...]]:
    """The record under a definition that has changed, and notes on it.

    Finished work stays and is named where it was made by another definition; where gates have changed they judge it
    again. Whether what a stage builds on has changed is found when the run goes on. Raises UsageError when the changes
    are not accepted, or are such that the run cannot go on with them.
    """
    # Of a run that did not record which inputs were given, all of them count as given.
    wanted = {each.name for each in definition.inputs}
    names = record.inputs if record.given is None else record.given
    given = {name: record.inputs[name] for name in names if name in wanted}
    obstacles = tuple(_obstacles(record, definition, given))
    if not accepted or obstacles:
        with_them = f"`codeloupe pipeline resume {record.run_id} --accept-changes`"
        either = "or start a new run" if obstacles else f"start a new run, or continue with the changes: {with_them}"
        begun = f"{record.file}, or a file that it names, has changed since the run {record.run_id} began"
        raise UsageError("; ".join((begun, *obstacles)), hint=f"put the files back as they were, {either}")
    inputs = input_values(definition, given)
    known = {stage.name: stage for stage in record.stages}
    stages = []
    for each in definition.stages:
        new = new_stage_record(each)
        stage = known.get(each.name, new)
        if stage.attempts:
            now = parts_now(each, inputs)
            stage = replace(_judged_again(stage, each, now), outdated=_outdated_parts(stage, now))
        stages.append(replace(stage, needs=new.needs, max_attempts=new.max_attempts))
    changed = replace(record, stages=tuple(stages), digest=definition.digest, inputs=inputs)
    return changed, tuple(_input_notes(record, definition, inputs))


def _obstacles(record: RunRecord, definition: PipelineDefinition, given: Mapping[str, str]) -> Iterator[str]:
    wanted = {stage.name: stage for stage in definition.stages}
    # What has done, or paid for, something that would be lost with it.
    worked = [
        stage for stage in record.stages if stage.attempts or stage.earlier or stage.unanswered or stage.usage.requests
    ]
    if lost := [stage.name for stage in worked if stage.name not in wanted]:
        yield f"{', '.join(lost)} had begun and is no longer in it under that name"
    if definition.workspace is not record.workspace:
        yield f"its workspace was a {record.workspace.value} and is a {definition.workspace.value}"
    missing = [each.name for each in definition.inputs if each.required and not given.get(each.name, "").strip()]
    if new := [name for name in missing if name not in record.inputs]:
        yield f"its input {', '.join(new)} is new and has no default"
    if old := [name for name in missing if name in record.inputs]:
        yield f"its input {', '.join(old)} no longer has the default that was used"
    if record.workspace is WorkspaceKind.CHECKOUT:
        # With what they began was not recorded, and in a checkout no tree tells it.
        for stage in worked:
            if not stage.built_on and stage.name in wanted and set(stage.needs) != set(wanted[stage.name].needs):
                yield f"{stage.name} had begun and needs other stages now"


def _input_notes(record: RunRecord, definition: PipelineDefinition, inputs: Mapping[str, str]) -> Iterator[str]:
    for each in definition.inputs:
        before = record.inputs.get(each.name)
        if before is None:
            continue
        if inputs[each.name] != before:
            yield f"the input {each.name} has another default, which applies to what is still to run"
        elif record.given is None and each.default not in (None, before):
            yield f"the input {each.name} keeps its value: an older version did not note whether it was a default"


def kept_in_words(stage: StageRecord, run_id: str) -> str:
    """That a stage keeps work of another definition; nothing of one that does not."""
    if not (parts := stage.outdated_in_words):
        return ""
    unknown = ", and an older version did not note what it was asked" if stage.outdated == (UNKNOWN_PART,) else ""
    again = f"`codeloupe pipeline resume {run_id} --retry {stage.name}` runs it again"
    return f"it keeps the work that it did before {parts} changed{unknown}; {again}"


def _outdated_parts(stage: StageRecord, now: Mapping[str, str]) -> tuple[str, ...]:
    """The parts of a stage's definition that have changed since its last attempt; gates are judges, and no part."""
    if not stage.parts:
        return (UNKNOWN_PART,)
    return tuple(sorted(key for key, digest in now.items() if key != "gates" and stage.parts.get(key) != digest))


def _judged_again(stage: StageRecord, definition: StageDefinition, now: Mapping[str, str]) -> StageRecord:
    """The stage without the verdicts of gates that are others now; the same where none is, or it was sent back."""
    if not _have_gates_changed(stage, definition.gates, now):
        return stage
    parts = {**stage.parts, "gates": now["gates"]} if stage.parts else stage.parts
    if stage.state is StageState.COMPLETED:
        kept = stage.chosen_attempt or stage.attempts[-1]
        return replace(
            reopened(stage, _GATES_CHANGED),
            state=StageState.PENDING,
            start_tree=stage.start_tree,
            built_on=stage.built_on,
            attempts=(_unjudged(kept, definition.gates),),
            earlier=(*stage.earlier, *(attempt for attempt in stage.attempts if attempt is not kept)),
            parts=parts,
        )
    last = stage.attempts[-1]
    if not last.critiques or stage.state in ENDED_STATES or refused_at(last) is not None:
        return replace(stage, parts=parts)
    return replace(stage, attempts=(*stage.attempts[:-1], _unjudged(last, definition.gates)), parts=parts)


def _have_gates_changed(stage: StageRecord, gates: tuple[GateDefinition, ...], now: Mapping[str, str]) -> bool:
    if (known := stage.parts.get("gates")) is not None:
        return known != now["gates"]
    # An older version recorded of a gate only its kind and its position.
    if stage.state is not StageState.COMPLETED:
        return True
    chosen = stage.chosen_attempt or stage.attempts[-1]
    words, kinds = [critique.gate for critique in chosen.critiques], [gate.kind for gate in gates]
    is_taken = refused_at(chosen) is not None
    return words != (kinds[: len(words)] if is_taken else kinds)


def _unjudged(attempt: AttemptRecord, gates: tuple[GateDefinition, ...]) -> AttemptRecord:
    """An attempt with the verdicts of those first gates alone that passed it and are the same now."""
    kept = 0
    for critique, gate in zip(attempt.critiques, gates, strict=False):
        if critique.verdict is not CriticVerdict.PASS or not gate.digest or critique.gate_digest != gate.digest:
            break
        kept += 1
    if kept == len(attempt.critiques):
        return attempt
    usage = attempt.usage
    for critique in attempt.critiques[kept:]:
        usage = usage.plus(critique.usage)
    return replace(attempt, critiques=attempt.critiques[:kept], usage=usage, notes=(*attempt.notes, _JUDGED_AGAIN))
