"""What is known of a run, written down at every step: the state whole, the event behind it, then whoever watches.

In one event loop. Nothing is awaited between a change and its being saved, so no other stage sees one without the
other, and a process that dies has lost at most what it was about to write.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from codeloupe.model.pipeline import PipelineEvent, RunRecord, StageRecord, StageState
from codeloupe.pipeline.states import LIVE_STATES, STAGE_TRANSITIONS, moved, run_moved, with_stage
from codeloupe.store.interface import RunStore

Watch = Callable[[RunRecord, PipelineEvent], None]
Mask = Callable[[str], str]
Fact = str | int | float | bool | None

_WORKING_STATES = LIVE_STATES - {StageState.AWAITING_APPROVAL}
_log = logging.getLogger(__name__)


class Logbook:
    """The record of one run, whose lock the caller holds. `mask` takes secrets out of what is written in words.

    Methods raise StoreError, and ForbiddenTransition for a move that the table of states does not have.
    """

    def __init__(self, store: RunStore, run: RunRecord, *, watch: Watch, mask: Mask = str) -> None:
        self._store = store
        self._run = run
        self._watch = watch
        self._mask = mask
        self._is_watch_broken = False

    @property
    def run(self) -> RunRecord:
        """The run as it was written last."""
        return self._run

    def stage(self, name: str) -> StageRecord:
        """A stage as it was written last."""
        return self._run.stage(name)

    def masked(self, text: str) -> str:
        """A text as it may be written down."""
        return self._mask(text)

    def event(self, kind: str, message: str = "", *, stage: str = "", **facts: Fact) -> PipelineEvent:
        """Something that happened just now."""
        plain = {name: self._mask(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}
        return PipelineEvent(at=_now(), kind=kind, stage=stage, message=self._mask(message), facts=plain)

    def put(self, record: StageRecord, *events: PipelineEvent) -> StageRecord:
        """Write what is known now of a stage, whose state is as it was."""
        if record.state is not self.stage(record.name).state:
            raise ValueError(f"the stage {record.name} changes its state by a move")
        self._save(with_stage(self._run, record), events)
        return record

    def move(self, record: StageRecord, to: StageState, *events: PipelineEvent, **changes: Any) -> StageRecord:
        """Bring a stage to a state, by way of others where the table has no direct one; each is written.

        `changes`, and the events, belong to the last of these moves. A stage that is there already is only changed.
        """
        changes = self._without_secrets(changes)
        if record.state is to:
            return self.put(replace(record, **changes), *events)
        for state in _path(record.state, to)[:-1]:
            record = self._moved(record, state, (), {})
        return self._moved(record, to, events, changes)

    def _moved(
        self, record: StageRecord, to: StageState, events: tuple[PipelineEvent, ...], changes: dict[str, Any]
    ) -> StageRecord:
        before = record.state
        after = moved(record, to, **changes)
        told = self.event("stage_state", after.reason, stage=record.name, before=before.value, state=to.value)
        self._save(with_stage(self._run, after), (*events, told))
        return after

    def move_run(self, to: StageState, *events: PipelineEvent, **changes: Any) -> RunRecord:
        """Bring the run to a state; one that is there already is only changed."""
        changes = self._without_secrets(changes)
        run = replace(self._run, **changes) if self._run.state is to else run_moved(self._run, to, **changes)
        self._save(run, events)
        return self._run

    def _without_secrets(self, changes: dict[str, Any]) -> dict[str, Any]:
        """What changes, with a reason that may be written down: it may tell what a program or an agent said."""
        return {**changes, "reason": self._mask(changes["reason"])} if "reason" in changes else changes

    def tell(self, *events: PipelineEvent) -> None:
        """Write events that change nothing."""
        self._save(self._run, events)

    def _save(self, run: RunRecord, events: tuple[PipelineEvent, ...]) -> None:
        changed = replace(run, updated_at=_now())
        self._store.save(changed, *events)
        self._run = changed
        for event in events:
            self._show(event)

    def _show(self, event: PipelineEvent) -> None:
        try:
            self._watch(self._run, event)
        except Exception:  # noqa: BLE001 - a display may fail at anything, and the run is not lost for it
            if not self._is_watch_broken:
                _log.warning("an event of the run could not be shown", exc_info=True)
            self._is_watch_broken = True


def _path(before: StageState, to: StageState) -> tuple[StageState, ...]:
    """The states on the shortest way to another, on which a stage is at work; the target alone where there is none."""
    ways: deque[tuple[StageState, tuple[StageState, ...]]] = deque([(before, ())])
    seen = {before}
    while ways:
        state, way = ways.popleft()
        if to in STAGE_TRANSITIONS[state]:
            return (*way, to)
        for step in sorted((STAGE_TRANSITIONS[state] & _WORKING_STATES) - seen):
            seen.add(step)
            ways.append((step, (*way, step)))
    return (to,)


def _now() -> datetime:
    return datetime.now(UTC)
