"""Changes of a pipeline's files after a run started: their effect on its stages, and changes that are refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from codeloupe.errors import UsageError
from codeloupe.model.pipeline import (
    AttemptRecord,
    GateKind,
    PipelineDefinition,
    RunRecord,
    StageDefinition,
    StageRecord,
    StageState,
)
from codeloupe.pipelines.definition import input_values


def new_stage_record(stage: StageDefinition) -> StageRecord:
    """Return the record of a stage that has not begun."""
    most = [gate.max_attempts for gate in stage.gates if gate.kind is not GateKind.APPROVAL]
    return StageRecord(name=stage.name, needs=stage.needs, max_attempts=max(most, default=1))


def parts_now(stage: StageDefinition, inputs: Mapping[str, str]) -> Mapping[str, str]:
    """Return digests of everything that shapes the work of a stage, the values of its inputs included."""
    text = json.dumps(sorted(stage.given(inputs).items()))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return {**stage.parts, "inputs": digest[:16]}


def with_changes(
    record: RunRecord, definition: PipelineDefinition, *, accepted: bool
) -> tuple[RunRecord, tuple[str, ...]]:
    """Return the record under a changed definition, and notes. Raise UsageError unless the changes are acceptable."""
    given = {each.name: record.inputs[each.name] for each in definition.inputs if each.name in record.given}
    obstacles = tuple(_obstacles(record, definition, given))
    if not accepted or obstacles:
        raise _refusal(record, obstacles)
    inputs = input_values(definition, given)
    known = {stage.name: stage for stage in record.stages}
    stages: list[StageRecord] = []
    for each in definition.stages:
        new = new_stage_record(each)
        stage = known.get(each.name, new)
        if stage.attempts:
            stage = _under(each, stage, parts_now(each, inputs))
        stages.append(replace(stage, needs=new.needs, max_attempts=new.max_attempts))
    notes = ["the changes of the pipeline's files were accepted"]
    for name, value in inputs.items():
        if record.inputs.get(name, value) != value:
            notes.append(f"the input {name} has a new default, which applies to the remaining stages")
    return replace(record, stages=tuple(stages), digest=definition.digest, inputs=inputs), tuple(notes)


def _refusal(record: RunRecord, obstacles: tuple[str, ...]) -> UsageError:
    again = f"`codeloupe pipeline resume {record.run_id} --accept-changes`"
    hint = f"restore the files, start a new run, or continue with the changes: {again}"
    if obstacles:
        hint = "restore the files, or start a new run"
    changed = f"{record.file}, or a file that it names, has changed since the run {record.run_id} started"
    return UsageError("; ".join((changed, *obstacles)), hint=hint)


def _obstacles(record: RunRecord, definition: PipelineDefinition, given: Mapping[str, str]) -> Iterator[str]:
    """Yield the reasons why changes cannot be accepted."""
    names = {stage.name for stage in definition.stages}
    # The work of these stages, or its cost, would be lost.
    lost = [stage.name for stage in record.stages if _has_worked(stage) and stage.name not in names]
    if lost:
        yield f"{', '.join(lost)} had started, but is no longer in the pipeline under that name"
    if definition.workspace is not record.workspace:
        yield f"its workspace was a {record.workspace.value} and is a {definition.workspace.value}"
    for each in definition.inputs:
        if each.default is not None or given.get(each.name, "").strip():
            continue
        if each.name in record.inputs:
            yield f"its input {each.name} no longer has the default that the run used"
        else:
            yield f"its input {each.name} is new and has no default"


def _has_worked(stage: StageRecord) -> bool:
    return bool(stage.attempts or stage.earlier or stage.unanswered or stage.usage.requests)


def outdated_parts(attempt: AttemptRecord, now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parts of a definition that have changed since they shaped an attempt, sorted."""
    # Gates judge the work; they do not shape it.
    changed = [part for part, digest in now.items() if part != "gates" and attempt.parts.get(part) != digest]
    return tuple(sorted(changed))


def kept_note(stage: StageRecord, run_id: str) -> str:
    """Return a note that a stage uses work of another definition; empty if it does not."""
    parts = stage.outdated_text
    if not parts:
        return ""
    again = f"`codeloupe pipeline resume {run_id} --retry {stage.name}` runs it again"
    return f"its work is from before {parts} changed; {again}"


def _under(definition: StageDefinition, stage: StageRecord, now: Mapping[str, str]) -> StageRecord:
    """Return a stage with attempts under a changed definition, whose parts have the digests `now`.

    A verdict counts only for the gate that gave it, and only if no gate before it has changed. So a changed gate, and
    every gate after it, judges the work again. A completed stage continues, because its work needs their verdicts.
    """
    used = stage.chosen_attempt or stage.attempts[-1]
    stage = replace(stage, outdated=outdated_parts(used, now))
    if all(attempt.parts.get("gates") == now["gates"] for attempt in stage.attempts):
        return stage
    attempts = [_with_verdicts_of(definition.gate_keys, attempt, now["gates"]) for attempt in stage.attempts]
    stage = replace(stage, attempts=tuple(attempts))
    if stage.state is not StageState.COMPLETED:
        return stage
    reason = "its gates have changed since it finished, so they judge its work again"
    return replace(stage, state=StageState.PENDING, chosen=None, kept=used.number, reason=reason, ended_at=None)


def _with_verdicts_of(gate_keys: Sequence[str], attempt: AttemptRecord, gates: str) -> AttemptRecord:
    """Return an attempt whose verdicts are those of the first gates with these keys; `gates` is their digest."""
    count = 0
    for critique, key in zip(attempt.critiques, gate_keys, strict=False):
        if critique.gate_key != key:
            break
        count += 1
    attempt = replace(attempt, parts={**attempt.parts, "gates": gates})
    if count == len(attempt.critiques):
        return attempt
    note = "the pipeline's gates have changed, so earlier verdicts on this attempt do not count"
    return replace(
        attempt,
        critiques=attempt.critiques[:count],
        superseded=(*attempt.superseded, *attempt.critiques[count:]),
        notes=(*attempt.notes, note),
    )
