"""The state of a run: the allowed transitions, and a save after every change.

Nothing is awaited between a change and its save, so no other stage sees one without the other. A process that dies
loses at most the change that it was about to save.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from codeloupe.errors import AnswerReplaced, ForbiddenTransition
from codeloupe.model.pipeline import (
    Approval,
    Decision,
    PipelineEvent,
    PipelineEventKind,
    RunRecord,
    StageRecord,
    StageState,
)
from codeloupe.pipelines.files import RunFiles
from codeloupe.store.interface import RunStore
from codeloupe.system.logs import log_failure

Watch = Callable[[RunRecord, PipelineEvent], None]
Mask = Callable[[str], str]
Fact = str | int | float | bool | None
Transitions = Mapping[StageState, frozenset[StageState]]


def _table(**rows: str) -> Transitions:
    table: dict[StageState, frozenset[StageState]] = {}
    for before, after in rows.items():
        table[StageState(before)] = frozenset(map(StageState, after.split()))
    return table


STAGE_TRANSITIONS = _table(
    pending="running cancelled",
    running="gating recovering waiting_for_quota awaiting_approval failed cancelled interrupted",
    # A gate that could not decide is retried like a call that failed.
    gating="completed reworking recovering waiting_for_quota awaiting_approval failed cancelled interrupted",
    reworking="running failed cancelled interrupted",
    recovering="running gating awaiting_approval failed cancelled interrupted",
    waiting_for_quota="pending running gating failed cancelled interrupted",
    # To gating if more gates follow the one that asked a person. To pending if the work that the stage builds on has
    # changed since it began, as from interrupted and completed.
    awaiting_approval="pending completed failed running gating cancelled interrupted",
    interrupted="pending running gating reworking recovering awaiting_approval failed cancelled",
    # To cancelled if a stage that it needs was run again and failed.
    completed="pending cancelled",
    # Only a person can have a failed stage run again, and with it the stages that were cancelled because of it.
    failed="pending",
    cancelled="pending",
)
RUN_TRANSITIONS = _table(
    pending="running failed cancelled interrupted",
    running="waiting_for_quota awaiting_approval completed failed cancelled interrupted",
    waiting_for_quota="running failed cancelled interrupted",
    awaiting_approval="running failed cancelled interrupted",
    interrupted="running failed cancelled",
    # A person had a stage run again, or accepted changes of the pipeline that add work.
    completed="running",
    failed="running",
    cancelled="",
)
_DECISION_WORDS = {
    Decision.APPROVE: "a person approved it",
    Decision.RETRY: "a person asked for another attempt",
    Decision.REJECT: "a person rejected it",
}
_log = logging.getLogger(__name__)


def check_transition(transitions: Transitions, before: StageState, to: StageState, *, what: str, stage: str) -> None:
    """Raise ForbiddenTransition unless one state may follow another."""
    allowed = transitions[before]
    if to in allowed:
        return
    known = ", ".join(state.value for state in StageState if state in allowed)
    hint = f"from {before.value} it can go to {known}"
    if not known:
        hint = f"{before.value} is final"
    raise ForbiddenTransition(f"{what} cannot go from {before.value} to {to.value}", stage=stage, hint=hint)


class RunState:
    """The record of one run, whose lock the caller holds, saved with every change. `mask` redacts messages.

    A save also stores the files that were written since the last one.
    """

    def __init__(self, store: RunStore, run: RunRecord, files: RunFiles, *, watch: Watch, mask: Mask = str) -> None:
        self._store = store
        self._files = files
        self._watch = watch
        self._is_watch_broken = False
        self.run = run
        self.masked = mask

    @property
    def home(self) -> str:
        """The machine and state directory of this process, as records name them."""
        return self._store.home

    def stage(self, name: str) -> StageRecord:
        """Return a stage as it was saved last."""
        return self.run.stage(name)

    def answer(self, stage: str) -> Approval | None:
        """Return the answer of a person to the last question of a stage, or None.

        It stays stored until a save has its effect. An answer to an earlier question is removed, with a note.
        """
        answer = self._store.approval(self.run.run_id, stage)
        if answer is not None and answer.question != self.stage(stage).questions:
            self.drop(answer, self.outdated(answer))
            return None
        return answer

    def given(self, answer: Approval) -> PipelineEvent:
        """Return the event for a person's decision, with the note."""
        words = _with_note(answer)
        return self.event("approval_given", words, stage=answer.stage, decision=answer.decision.value)

    def outdated(self, answer: Approval) -> PipelineEvent:
        """Return a note on an answer that does not count: it must not decide about work that no person saw."""
        words = f"{_with_note(answer)}, but the question or the work has changed since, so this does not count"
        return self.event("note", words, stage=answer.stage)

    def event(self, kind: PipelineEventKind, message: str = "", *, stage: str = "", **facts: Fact) -> PipelineEvent:
        """Return an event that happens now."""
        masked: dict[str, Fact] = {}
        for name, fact in facts.items():
            masked[name] = self.masked(fact) if isinstance(fact, str) else fact
        return PipelineEvent(at=datetime.now(UTC), kind=kind, stage=stage, message=self.masked(message), facts=masked)

    def put(self, record: StageRecord, *events: PipelineEvent, answered: Approval | None = None) -> StageRecord:
        """Save a stage whose state has not changed; `move` changes states. `answered` is an answer that is applied."""
        stages = [record if known.name == record.name else known for known in self.run.stages]
        run = replace(self.run, stages=tuple(stages))
        chosen = record.chosen_attempt
        if record.state is StageState.COMPLETED and chosen is not None:
            run = replace(run, checkout_tree=chosen.tree)
        self._save(run, events, answered=answered)
        return record

    def move(
        self,
        record: StageRecord,
        to: StageState,
        *events: PipelineEvent,
        answered: Approval | None = None,
        **changes: Any,
    ) -> StageRecord:
        """Bring a stage to a state, through other states if there is no direct way.

        The events, the `changes` and the answer that is applied belong to the last save.
        """
        changes = self._redacted(changes)
        if record.state is to:
            return self.put(replace(record, **changes), *events, answered=answered)
        if record.state is StageState.AWAITING_APPROVAL and answered is None:
            # A stage that leaves its question by another way needs no answer any more.
            answered = self._store.approval(self.run.run_id, record.name)
            if answered is not None:
                events = (*events, self.outdated(answered))
        for state in _way(record.state, to):
            record = self._step(record, state)
        return self._step(record, to, *events, answered=answered, **changes)

    def _step(
        self,
        record: StageRecord,
        to: StageState,
        *events: PipelineEvent,
        answered: Approval | None = None,
        **changes: Any,
    ) -> StageRecord:
        name = record.name
        before = record.state
        check_transition(STAGE_TRANSITIONS, before, to, what=f"the stage {name!r}", stage=name)
        moved = replace(record, state=to, **changes)
        event = self.event("stage_state", moved.reason, stage=name, before=before.value, state=to.value)
        return self.put(moved, *events, event, answered=answered)

    def move_run(self, to: StageState, *events: PipelineEvent, **changes: Any) -> RunRecord:
        """Bring the run to a state; if it is in this state, only change it."""
        if self.run.state is not to:
            check_transition(RUN_TRANSITIONS, self.run.state, to, what=f"the run {self.run.run_id}", stage="")
        self._save(replace(self.run, state=to, **self._redacted(changes)), events)
        return self.run

    def _redacted(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Return changes with a masked reason, because a reason may quote a program or an agent."""
        if "reason" not in changes:
            return changes
        return {**changes, "reason": self.masked(changes["reason"])}

    def report(self, kind: PipelineEventKind, words: str, *, stage: str = "", **facts: Fact) -> None:
        """Save an event that changes nothing."""
        self._save(self.run, (self.event(kind, words, stage=stage, **facts),))

    def drop(self, answer: Approval, *events: PipelineEvent) -> None:
        """Remove an answer that changes nothing, and save why, unless the person has answered again."""
        with suppress(AnswerReplaced):
            self._save(self.run, events, answered=answer)

    def _save(self, run: RunRecord, events: tuple[PipelineEvent, ...], *, answered: Approval | None = None) -> None:
        changed = replace(run, updated_at=datetime.now(UTC))
        files = self._files.unsaved
        self._store.save(changed, *events, files=files, answered=answered)
        self._files.forget(files)
        self.run = changed
        for event in events:
            self._show(event)

    def _show(self, event: PipelineEvent) -> None:
        try:
            self._watch(self.run, event)
        except Exception as error:  # noqa: BLE001 - a display may fail in any way, and that must not end the run
            if not self._is_watch_broken:
                log_failure(_log, error, "cannot show an event of the run")
            self._is_watch_broken = True


def _with_note(answer: Approval) -> str:
    words = _DECISION_WORDS[answer.decision]
    note = answer.note.strip()
    if note:
        words = f"{words}: {note}"
    return words


def _way(before: StageState, to: StageState) -> tuple[StageState, ...]:
    """Return the states between two states on the shortest allowed way; none if there is no way."""
    running = StageState.RUNNING
    gating = StageState.GATING
    recovering = StageState.RECOVERING
    for way in ((), (gating,), (running,), (recovering,), (running, gating)):
        steps = pairwise((before, *way, to))
        if all(after in STAGE_TRANSITIONS[last] for last, after in steps):
            return way
    return ()
