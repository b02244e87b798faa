"""The state of a run: which transitions are allowed, written down at every step, and the files beside it.

Nothing is awaited between a change and its being saved, so no other stage sees one without the other, and a process
that dies has lost at most what it was about to write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from codeloupe.errors import ForbiddenTransition
from codeloupe.model.pipeline import Approval, PipelineEvent, PipelineEventKind, RunRecord, StageRecord, StageState
from codeloupe.store.interface import RunStore
from codeloupe.store.records import replace_file
from codeloupe.system.logs import log_failure

Watch = Callable[[RunRecord, PipelineEvent], None]
Mask = Callable[[str], str]
Fact = str | int | float | bool | None
Transitions = Mapping[StageState, frozenset[StageState]]


def _table(**rows: str) -> Transitions:
    return {StageState(before): frozenset(map(StageState, after.split())) for before, after in rows.items()}


STAGE_TRANSITIONS = _table(
    pending="running cancelled",
    running="gating recovering awaiting_approval failed cancelled interrupted",
    # A gate that could not decide is recovered from like a call that failed.
    gating="completed reworking recovering awaiting_approval failed cancelled interrupted",
    reworking="running failed cancelled interrupted",
    recovering="running gating awaiting_approval failed cancelled interrupted",
    # To gating when more gates follow the one that a person was asked by.
    # To pending when what it builds on has changed since it began, as from interrupted and completed.
    awaiting_approval="pending completed failed running gating cancelled interrupted",
    interrupted="pending running gating reworking recovering awaiting_approval failed cancelled",
    # To cancelled when what it builds on had to be made again, and failed.
    completed="pending cancelled",
    # Only a person puts back what failed, and with it what was given up for its sake.
    failed="pending",
    cancelled="pending",
)
RUN_TRANSITIONS = _table(
    pending="running failed cancelled interrupted",
    running="awaiting_approval completed failed cancelled interrupted",
    awaiting_approval="running failed cancelled interrupted",
    interrupted="running failed cancelled",
    # A person had one of its stages run again, or accepted changes that leave something to do.
    completed="running",
    failed="running",
    cancelled="",
)
_log = logging.getLogger(__name__)


def check_transition(transitions: Transitions, before: StageState, to: StageState, *, what: str, stage: str) -> None:
    """Raises ForbiddenTransition unless one state may follow another."""
    allowed = transitions[before]
    if to not in allowed:
        known = ", ".join(state.value for state in StageState if state in allowed)
        hint = f"from {before.value} it can go to {known}" if known else f"{before.value} is final"
        raise ForbiddenTransition(f"{what} cannot go from {before.value} to {to.value}", stage=stage, hint=hint)


class RunState:
    """The record of one run, whose lock the caller holds, saved with every change. `mask` masks messages."""

    def __init__(self, store: RunStore, run: RunRecord, *, watch: Watch, mask: Mask = str) -> None:
        self._store, self._watch, self._is_watch_broken = store, watch, False
        self.run, self.masked = run, mask

    @property
    def is_shared(self) -> bool:
        """Whether another machine may have to go on from any state that is saved."""
        return self._store.is_shared

    def stage(self, name: str) -> StageRecord:
        """A stage as it was saved last."""
        return self.run.stage(name)

    def left_answer(self, stage: str) -> Approval | None:
        """The answer that a person left on a stage, which is then gone."""
        return self._store.take_approval(self.run.run_id, stage)

    def event(self, kind: PipelineEventKind, message: str = "", *, stage: str = "", **facts: Fact) -> PipelineEvent:
        """Return an event that happened just now."""
        plain = {name: self.masked(fact) if isinstance(fact, str) else fact for name, fact in facts.items()}
        return PipelineEvent(at=datetime.now(UTC), kind=kind, stage=stage, message=self.masked(message), facts=plain)

    def put(self, record: StageRecord, *events: PipelineEvent) -> StageRecord:
        """Save what is known now of a stage. Its state is changed by `move` alone."""
        stages = tuple(record if known.name == record.name else known for known in self.run.stages)
        self._save(replace(self.run, stages=stages), events)
        return record

    def move(self, record: StageRecord, to: StageState, *events: PipelineEvent, **changes: Any) -> StageRecord:
        """Bring a stage to a state, by way of others where there is no direct way; `changes` belong to the last."""
        changes, name = self._without_secrets(changes), record.name
        if record.state is to:
            return self.put(replace(record, **changes), *events)
        for state in (*_way(record.state, to), to):
            check_transition(STAGE_TRANSITIONS, record.state, state, what=f"the stage {name!r}", stage=name)
            before, more = record.state.value, changes if state is to else {}
            record = replace(record, state=state, **more)
            said = self.event("stage_state", record.reason, stage=name, before=before, state=state.value)
            self.put(record, *(events if state is to else ()), said)
        return record

    def move_run(self, to: StageState, *events: PipelineEvent, **changes: Any) -> RunRecord:
        """Bring the run to a state; one that is there already is only changed."""
        if self.run.state is not to:
            check_transition(RUN_TRANSITIONS, self.run.state, to, what=f"the run {self.run.run_id}", stage="")
        self._save(replace(self.run, state=to, **self._without_secrets(changes)), events)
        return self.run

    def _without_secrets(self, changes: dict[str, Any]) -> dict[str, Any]:
        """What changes, with a reason that may be saved: it may quote a program or an agent."""
        return {**changes, "reason": self.masked(changes["reason"])} if "reason" in changes else changes

    def tell(self, kind: PipelineEventKind, words: str, *, stage: str = "", **facts: Fact) -> None:
        """Save an event that changes nothing."""
        self._save(self.run, (self.event(kind, words, stage=stage, **facts),))

    def _save(self, run: RunRecord, events: tuple[PipelineEvent, ...]) -> None:
        changed = replace(run, updated_at=datetime.now(UTC))
        self._store.save(changed, *events)
        self.run = changed
        for event in events:
            try:
                self._watch(changed, event)
            except Exception as error:  # noqa: BLE001 - a display may fail at anything, and the run is not lost for it
                if not self._is_watch_broken:
                    log_failure(_log, error, "cannot show an event of the run")
                self._is_watch_broken = True


def _way(before: StageState, to: StageState) -> tuple[StageState, ...]:
    """The working states on the shortest way from one state to another; none where there is no way."""
    running, gating, recovering = StageState.RUNNING, StageState.GATING, StageState.RECOVERING
    for way in ((), (gating,), (running,), (recovering,), (running, gating)):
        if all(state in STAGE_TRANSITIONS[last] for last, state in pairwise((before, *way, to))):
            return way
    return ()


class RunFiles:
    """The directory of one run. `checkout` is the user's own tree, where stages work in that. Methods raise OSError."""

    def __init__(self, directory: Path, *, checkout: Path | None = None) -> None:
        self._directory = directory
        self.checkout = checkout
        self.result = directory / "result"

    def of_stage(self, stage: str) -> Path:
        """The folder of a stage."""
        return self._directory / "stages" / stage

    def workspace(self, stage: str) -> Path:
        """Where the agent of a stage works."""
        return self.checkout or self.of_stage(stage) / "work"

    def made_workspace(self, stage: str) -> Path:
        """The same, and it is a directory of its own: what an agent put in its place is gone."""
        folder = self.workspace(stage)
        if self.checkout is None:
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                folder.unlink()
            _make(folder)
        return folder

    def attempt(self, stage: str, number: int, file: str) -> str:
        """The name of a file about an attempt, below the run's directory."""
        return f"stages/{stage}/attempt-{number}/{file}"

    def write(self, name: str, text: str) -> Path:
        """Write a file, in the place of an earlier one; where it is."""
        file = self._directory / name
        _make(file.parent)
        try:  # a patch has the bytes of its files, whatever they are
            data = text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = text.encode("utf-8", "backslashreplace")
        replace_file(file, data)
        return file

    def write_quietly(self, name: str, text: str) -> Path | None:
        """The same; None, and a line in the log, where that fails."""
        try:
            return self.write(name, text)
        except OSError as error:
            _log.warning("cannot write %s: %s", name, error)
            return None

    def read(self, name: str) -> str:
        """The text of a file of the run; nothing if it is not there, not in the run, or too large to be read."""
        file = (self._directory / name).resolve()
        try:
            is_ours = file.is_relative_to(self._directory.resolve()) and file.stat().st_size <= 64 * 1024 * 1024
            return file.read_bytes().decode("utf-8", "surrogateescape") if name and is_ours else ""
        except OSError:
            return ""


def _make(folder: Path) -> None:
    """Make a folder and those above it, for this user alone."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
