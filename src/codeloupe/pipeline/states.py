"""Which state of a stage, and of a run, may follow which. Pure; a record is never changed, a moved one is made.

What counts as the same state again is no transition: whoever only learns more of a stage replaces its other fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from codeloupe.errors import ForbiddenTransition
from codeloupe.model.pipeline import RunRecord, StageRecord, StageState

_PENDING, _RUNNING, _GATING = StageState.PENDING, StageState.RUNNING, StageState.GATING
_REWORKING, _RECOVERING, _AWAITING = StageState.REWORKING, StageState.RECOVERING, StageState.AWAITING_APPROVAL
_COMPLETED, _FAILED = StageState.COMPLETED, StageState.FAILED
_CANCELLED, _INTERRUPTED = StageState.CANCELLED, StageState.INTERRUPTED

Transitions = Mapping[StageState, frozenset[StageState]]

# Something is under way, or was when the process died.
LIVE_STATES = frozenset({_RUNNING, _GATING, _REWORKING, _RECOVERING, _AWAITING})
ENDED_STATES = frozenset({_COMPLETED, _FAILED, _CANCELLED})

_STOPPED = (_CANCELLED, _INTERRUPTED)

STAGE_TRANSITIONS: Transitions = MappingProxyType(
    {
        _PENDING: frozenset({_RUNNING, _CANCELLED}),
        _RUNNING: frozenset({_GATING, _RECOVERING, _AWAITING, _FAILED, *_STOPPED}),
        # A gate that could not decide is recovered from like a call that failed.
        _GATING: frozenset({_COMPLETED, _REWORKING, _RECOVERING, _AWAITING, _FAILED, *_STOPPED}),
        _REWORKING: frozenset({_RUNNING, _FAILED, *_STOPPED}),
        _RECOVERING: frozenset({_RUNNING, _GATING, _AWAITING, _FAILED, *_STOPPED}),
        # To gating when more gates follow the one that a person was asked by.
        # To pending when what it builds on has changed since it began, as from interrupted and completed.
        _AWAITING: frozenset({_PENDING, _COMPLETED, _FAILED, _RUNNING, _GATING, *_STOPPED}),
        _INTERRUPTED: frozenset({_PENDING, _RUNNING, _GATING, _REWORKING, _RECOVERING, _AWAITING, _FAILED, _CANCELLED}),
        # To cancelled when what it builds on had to be made again, and failed.
        _COMPLETED: frozenset({_PENDING, _CANCELLED}),
        # Only a person puts back what failed, and with it what was given up for its sake.
        _FAILED: frozenset({_PENDING}),
        _CANCELLED: frozenset({_PENDING}),
    }
)
RUN_TRANSITIONS: Transitions = MappingProxyType(
    {
        _PENDING: frozenset({_RUNNING, _FAILED, *_STOPPED}),
        _RUNNING: frozenset({_AWAITING, _COMPLETED, _FAILED, *_STOPPED}),
        _AWAITING: frozenset({_RUNNING, _FAILED, *_STOPPED}),
        _INTERRUPTED: frozenset({_RUNNING, _FAILED, _CANCELLED}),
        # A person had one of its stages run again, or accepted changes that leave something to do.
        _COMPLETED: frozenset({_RUNNING}),
        _FAILED: frozenset({_RUNNING}),
        _CANCELLED: frozenset(),
    }
)


def moved(record: StageRecord, to: StageState, **changes: Any) -> StageRecord:
    """The stage in another state, with other fields changed too. Raises ForbiddenTransition."""
    _check(STAGE_TRANSITIONS, record.state, to, what=f"the stage {record.name!r}", stage=record.name)
    return replace(record, state=to, **changes)


def run_moved(run: RunRecord, to: StageState, **changes: Any) -> RunRecord:
    """The run in another state, with other fields changed too. Raises ForbiddenTransition."""
    _check(RUN_TRANSITIONS, run.state, to, what=f"the run {run.run_id}", stage="")
    return replace(run, state=to, **changes)


def with_stage(run: RunRecord, stage: StageRecord, **changes: Any) -> RunRecord:
    """The run with what is known now of one stage. Raises KeyError when it has no stage of that name."""
    run.stage(stage.name)
    stages = tuple(stage if known.name == stage.name else known for known in run.stages)
    return replace(run, stages=stages, **changes)


def _check(transitions: Transitions, before: StageState, to: StageState, *, what: str, stage: str) -> None:
    allowed = transitions.get(before, frozenset())
    if to in allowed:
        return
    known = ", ".join(state.value for state in StageState if state in allowed)
    raise ForbiddenTransition(
        f"{what} cannot go from {before.value} to {to.value}",
        stage=stage,
        hint=f"from {before.value} it can go to {known}" if known else f"{before.value} is an end",
    )
