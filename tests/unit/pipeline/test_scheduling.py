from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from codeloupe.model.pipeline import RunRecord, StageRecord, StageState
from codeloupe.model.pipeline_definition import OnFailure, PipelineDefinition, StageDefinition
from codeloupe.pipeline import scheduling
from codeloupe.pipeline.scheduling import conclusion, given_up, revived

NOW = datetime(2024, 1, 1, tzinfo=UTC)
S = StageState


def pipeline(needs: dict[str, tuple[str, ...]], **on_failure: OnFailure) -> PipelineDefinition:
    stages = tuple(
        StageDefinition(name=name, step=Path("s.md"), needs=need, on_failure=on_failure.get(name, OnFailure.ESCALATE))
        for name, need in needs.items()
    )
    return PipelineDefinition(name="p", file=Path("/p.yaml"), stages=stages)


def run(definition: PipelineDefinition, **states: StageState) -> RunRecord:
    stages = tuple(
        StageRecord(name=stage.name, state=states.get(stage.name, S.PENDING), reason=f"why {stage.name}")
        for stage in definition.stages
    )
    return RunRecord(
        run_id="r",
        pipeline="p",
        file=Path("/p"),
        digest="",
        state=S.RUNNING,
        stages=stages,
        started_at=NOW,
        updated_at=NOW,
    )


def ready(definition: PipelineDefinition, record: RunRecord) -> tuple[str, ...]:
    """What may begin where all that is completed holds."""
    settled = [stage.name for stage in record.stages if stage.state is S.COMPLETED]
    return scheduling.ready(definition, record, settled)


DIAMOND: dict[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c"), "e": ()}


def test_stages_begin_when_all_that_they_need_is_completed() -> None:
    definition = pipeline(DIAMOND)
    assert ready(definition, run(definition)) == ("a", "e")
    assert ready(definition, run(definition, a=S.COMPLETED, e=S.RUNNING)) == ("b", "c")
    assert ready(definition, run(definition, a=S.COMPLETED, b=S.COMPLETED, c=S.RUNNING, e=S.COMPLETED)) == ()
    assert ready(definition, run(definition, a=S.INTERRUPTED, e=S.COMPLETED)) == ("a",)


def test_a_stage_that_waits_for_a_person_keeps_nobody_else_back() -> None:
    definition = pipeline(DIAMOND)
    assert ready(definition, run(definition, a=S.AWAITING_APPROVAL)) == ("e",)


@pytest.mark.parametrize("on_failure", [OnFailure.FAIL, OnFailure.ESCALATE])
def test_after_a_failure_nothing_new_begins_and_each_stage_says_why(on_failure: OnFailure) -> None:
    definition = pipeline(DIAMOND, b=on_failure)
    failed = run(definition, a=S.COMPLETED, b=S.FAILED)
    assert ready(definition, failed) == ()
    why = "not run, since the run failed at b"
    assert given_up(definition, failed) == {"c": why, "d": why, "e": why}
    assert conclusion(definition, failed).state is S.FAILED
    assert conclusion(definition, failed).reason == "b failed: why b"


def test_a_tolerated_failure_costs_only_the_stages_that_need_it() -> None:
    definition = pipeline({**DIAMOND, "f": ("d",)}, b=OnFailure.CONTINUE)
    failed = run(definition, a=S.COMPLETED, b=S.FAILED)
    assert ready(definition, failed) == ("c", "e")
    assert given_up(definition, failed) == {
        "d": "not run, since it needs b, which failed",
        "f": "not run, since it needs d, which was not run",
    }
    done = run(definition, a=S.COMPLETED, b=S.FAILED, c=S.COMPLETED, d=S.CANCELLED, e=S.COMPLETED, f=S.CANCELLED)
    assert conclusion(definition, done).state is S.COMPLETED
    assert conclusion(definition, done).reason == "without b, which failed; d, f not run"


def test_what_was_given_up_comes_back_with_what_it_was_given_up_for() -> None:
    definition = pipeline({**DIAMOND, "f": ("d",)}, b=OnFailure.CONTINUE)
    given = {"a": S.COMPLETED, "c": S.COMPLETED, "d": S.CANCELLED, "e": S.COMPLETED, "f": S.CANCELLED}
    assert revived(definition, run(definition, b=S.FAILED, **given)) == ()
    assert revived(definition, run(definition, b=S.PENDING, **given)) == ("d", "f")


def test_a_run_that_waits_names_whom_it_waits_for_but_a_failure_goes_first() -> None:
    definition = pipeline(DIAMOND)
    waiting = run(definition, a=S.AWAITING_APPROVAL, e=S.COMPLETED)
    assert conclusion(definition, waiting).state is S.AWAITING_APPROVAL
    assert conclusion(definition, waiting).reason == "waiting for a person to decide on a: why a"
    assert conclusion(definition, run(definition, a=S.AWAITING_APPROVAL, e=S.FAILED)).state is S.FAILED


def test_a_run_without_gaps_has_nothing_to_say() -> None:
    definition = pipeline({"a": ()})
    assert conclusion(definition, run(definition, a=S.COMPLETED)).reason == ""
