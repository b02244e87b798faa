"""Which stages may begin, which never will, and what the stages make of the run. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.pipeline import RunRecord, StageRecord, StageState
from codeloupe.model.pipeline_definition import OnFailure, PipelineDefinition


class Conclusion(Struct, frozen=True):
    """What a run comes to when nothing in it goes on."""

    state: StageState
    reason: str = ""


def ready(definition: PipelineDefinition, run: RunRecord, settled: Collection[str]) -> tuple[str, ...]:
    """The stages, in the order of the file, that can begin: all that they need is settled, and the run goes on.

    `settled` are the completed stages whose work is made of what the stages that they need have left.
    """
    if failing_stage(definition, run) is not None:
        return ()
    done = set(settled)
    waiting = {stage.name for stage in run.stages if stage.state in (StageState.PENDING, StageState.INTERRUPTED)}
    return tuple(stage.name for stage in definition.stages if stage.name in waiting and done.issuperset(stage.needs))


def failing_stage(definition: PipelineDefinition, run: RunRecord) -> StageRecord | None:
    """The first stage whose failure fails the run, or None: after it nothing new is begun."""
    tolerated = {stage.name for stage in definition.stages if stage.on_failure is OnFailure.CONTINUE}
    failed = (stage for stage in run.stages if stage.state is StageState.FAILED)
    return next((stage for stage in failed if stage.name not in tolerated), None)


def given_up(definition: PipelineDefinition, run: RunRecord) -> Mapping[str, str]:
    """The stages that have not begun and never will, each with the reason."""
    failing = failing_stage(definition, run)
    if failing is not None:
        why = f"not run, since the run failed at {failing.name}"
        return {stage.name: why for stage in run.stages if stage.state is StageState.PENDING}
    lost = {stage.name for stage in run.stages if stage.state in (StageState.FAILED, StageState.CANCELLED)}
    reasons: dict[str, str] = {}
    left = list(definition.stages)
    while hopeless := [stage for stage in left if lost.intersection(stage.needs)]:
        for stage in hopeless:
            lost.add(stage.name)
            left.remove(stage)
            state = run.stage(stage.name).state
            if state in (StageState.PENDING, StageState.COMPLETED):
                missing = [name for name in stage.needs if name in lost]
                what = "not run" if state is StageState.PENDING else "its earlier work is left out"
                reasons[stage.name] = f"{what}, since it needs {' and '.join(missing)}, which {_fate(missing, run)}"
    return reasons


def revived(definition: PipelineDefinition, run: RunRecord) -> tuple[str, ...]:
    """The stages that were given up for the sake of others, and need not have been as things are now."""
    cancelled = {stage.name for stage in run.stages if stage.state is StageState.CANCELLED}
    stages = (replace(stage, state=StageState.PENDING) if stage.name in cancelled else stage for stage in run.stages)
    lost = given_up(definition, replace(run, stages=tuple(stages)))
    return tuple(stage.name for stage in run.stages if stage.name in cancelled and stage.name not in lost)


def _fate(names: Iterable[str], run: RunRecord) -> str:
    failed = any(run.stage(name).state is StageState.FAILED for name in names)
    return "failed" if failed else "was not run"


def conclusion(definition: PipelineDefinition, run: RunRecord) -> Conclusion:
    """The state of a run in which nothing goes on any more."""
    failing = failing_stage(definition, run)
    if failing is not None:
        return Conclusion(StageState.FAILED, f"{failing.name} failed: {failing.reason}")
    waiting = [stage for stage in run.stages if stage.state is StageState.AWAITING_APPROVAL]
    if waiting:
        words = "; ".join(f"{stage.name}: {stage.reason}" for stage in waiting)
        return Conclusion(StageState.AWAITING_APPROVAL, f"waiting for a person to decide on {words}")
    failed = [stage.name for stage in run.stages if stage.state is StageState.FAILED]
    without = [stage.name for stage in run.stages if stage.state is StageState.CANCELLED]
    outdated = [stage.name for stage in run.stages if stage.state is StageState.COMPLETED and stage.outdated]
    return Conclusion(StageState.COMPLETED, "; ".join(_left_out(failed, without, outdated)))


def _left_out(failed: list[str], without: list[str], outdated: list[str]) -> Iterator[str]:
    if failed:
        yield f"without {', '.join(failed)}, which failed"
    if without:
        yield f"{', '.join(without)} not run"
    if outdated:
        yield f"with the work that {', '.join(outdated)} did before the pipeline's files changed"
