"""Which state may follow which: every pair is tried, and what is not in the table is refused in words."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from codeloupe.errors import ForbiddenTransition
from codeloupe.model.pipeline import StageState
from codeloupe.pipeline.states import (
    ENDED_STATES,
    LIVE_STATES,
    RUN_TRANSITIONS,
    STAGE_TRANSITIONS,
    moved,
    run_moved,
    with_stage,
)
from tests.unit.store.run_samples import run, stage

S = StageState
PAIRS = list(product(StageState, StageState))

# Written out once more, by hand: a slip of the pen in the table is found here.
STAGES = {
    "pending": "running cancelled",
    "running": "gating recovering awaiting_approval failed cancelled interrupted",
    "gating": "completed reworking recovering awaiting_approval failed cancelled interrupted",
    "reworking": "running failed cancelled interrupted",
    "recovering": "running gating awaiting_approval failed cancelled interrupted",
    "awaiting_approval": "pending completed failed running gating cancelled interrupted",
    "interrupted": "pending running gating reworking recovering awaiting_approval failed cancelled",
    "completed": "pending cancelled",
    "failed": "pending",
    "cancelled": "pending",
}
RUNS = {
    "pending": "running failed cancelled interrupted",
    "running": "awaiting_approval completed failed cancelled interrupted",
    "awaiting_approval": "running failed cancelled interrupted",
    "interrupted": "running failed cancelled",
    "completed": "running",
    "failed": "running",
    "cancelled": "",
}


@pytest.mark.requirement("S9")
@pytest.mark.parametrize(("before", "to"), PAIRS)
def test_a_stage_goes_where_the_table_says_and_nowhere_else(before: StageState, to: StageState) -> None:
    record = stage("write", before, reason="old")
    if to.value in STAGES[before.value].split():
        assert moved(record, to, reason="new") == replace(record, state=to, reason="new")
        return
    with pytest.raises(ForbiddenTransition) as raised:
        moved(record, to)
    assert raised.value.message == f"the stage 'write' cannot go from {before.value} to {to.value}"
    assert raised.value.stage == "write"
    assert raised.value.hint
    assert record.state is before


@pytest.mark.requirement("S9")
@pytest.mark.parametrize(("before", "to"), PAIRS)
def test_a_run_goes_where_the_table_says_and_nowhere_else(before: StageState, to: StageState) -> None:
    record = run(7, state=before)
    if to.value in RUNS.get(before.value, "").split():
        assert run_moved(record, to, reason="why") == replace(record, state=to, reason="why")
        return
    with pytest.raises(ForbiddenTransition, match=f"the run 00000007 cannot go from {before.value} to {to.value}"):
        run_moved(record, to)


def test_the_hint_names_the_ways_that_are_open_or_that_there_are_none() -> None:
    with pytest.raises(ForbiddenTransition) as raised:
        moved(stage("a", S.PENDING), S.COMPLETED)
    assert raised.value.hint == "from pending it can go to running, cancelled"
    with pytest.raises(ForbiddenTransition) as raised:
        run_moved(run(7, state=S.CANCELLED), S.RUNNING)
    assert raised.value.hint == "cancelled is an end"


def test_every_state_is_in_the_tables_and_none_can_be_changed() -> None:
    assert set(STAGE_TRANSITIONS) == set(StageState)
    # What is between two attempts is of a stage alone.
    of_a_run = set(StageState) - {S.GATING, S.REWORKING, S.RECOVERING}
    assert set(RUN_TRANSITIONS) == of_a_run
    assert all(after <= of_a_run for after in RUN_TRANSITIONS.values())
    with pytest.raises(TypeError):
        STAGE_TRANSITIONS[S.COMPLETED] = frozenset({S.RUNNING})  # type: ignore[index]  # what is tried


def test_whatever_is_live_can_be_interrupted_and_taken_up_again() -> None:
    for state in LIVE_STATES:
        stopped = moved(stage("a", state), S.INTERRUPTED)
        assert moved(stopped, state).state is state


def test_every_stage_can_come_to_an_end() -> None:
    for begin in StageState:
        reached, open_states = {begin}, [begin]
        while open_states:
            after = STAGE_TRANSITIONS[open_states.pop()] - reached
            reached |= after
            open_states += after
        assert reached & ENDED_STATES


def test_nothing_is_completed_without_a_gate_or_a_person() -> None:
    assert {before for before, after in STAGE_TRANSITIONS.items() if S.COMPLETED in after} == {
        S.GATING,
        S.AWAITING_APPROVAL,
    }


def test_one_stage_of_a_run_is_replaced_and_the_order_stays() -> None:
    before = run(1, stage("a"), stage("b"), stage("c"))
    after = with_stage(before, stage("b", S.RUNNING), reason="begun")
    assert [(each.name, each.state) for each in after.stages] == [("a", S.PENDING), ("b", S.RUNNING), ("c", S.PENDING)]
    assert after.reason == "begun"
    with pytest.raises(KeyError):
        with_stage(before, stage("d"))
