"""What a person sees while a pipeline runs: a tree that is redrawn on a terminal, a line for each step elsewhere.

The display only listens and never raises into the run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Self, TextIO

from msgspec.structs import replace

from codeloupe.cli.live_line import LiveLine, ProgressMode
from codeloupe.cli.live_line import Row as LiveRow
from codeloupe.model.pipeline import WORKSPACE_ERROR, PipelineEvent, RunRecord, StageState
from codeloupe.model.pipeline_definition import GateKind
from codeloupe.reports.pipeline_rows import Row, Tree, cut_row
from codeloupe.reports.pipeline_words import attempt_in_words, run_seconds, spent_on, state_in_words, took
from codeloupe.reports.plain_table import Sheet
from codeloupe.system.untrusted import log_line

_LONGEST_MESSAGE = 2_000
# After these steps the state of the stage tells the reason.
_GIVEN_UP = ("escalate", "fail", "continue")
# A brief tree does not wrap; its rows are cut at the edge of the terminal.
_ENDLESS = 100_000
# Below the tree stands the live line, and a terminal that is full to its last line scrolls.
_LINES_BESIDE = 2
_INDENT = 2
# Before these states a failure, or a note, has told the reason.
_WHY_WAS_TOLD = (StageState.RECOVERING, StageState.PENDING)
_AT_REST = (StageState.COMPLETED, StageState.PENDING, StageState.CANCELLED)


class PipelineDisplay:
    """A sink for what happens in a run: `with PipelineDisplay(stream=…, mode=…) as display: … watch=display.watch`.

    `run` is the last state that was seen, or None.
    """

    def __init__(self, *, stream: TextIO, mode: ProgressMode, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = LiveLine(stream=stream, mode=mode, status=self.status, above=self.tree, clock=clock)
        self._mode = mode
        self._stream = stream
        self._sheet = Sheet(width=_ENDLESS, ascii_only=not _can_draw(stream))
        self._told: dict[str, str] = {}
        self.run: RunRecord | None = None

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def watch(self, run: RunRecord, event: PipelineEvent) -> None:
        """Take a step of the run. Cheap; never raises."""
        self.run = run
        try:
            self.tell(self._once(run, event))
        except Exception:  # noqa: BLE001 - whatever an event holds, a display that cannot show it ends no run
            return

    def _once(self, run: RunRecord, event: PipelineEvent) -> str:
        """A step in words. Why a call failed is told once, and once more where its stage comes to rest for it."""
        told = self._told.get(event.stage)
        match event.kind:
            case "try_failed":
                self._told[event.stage] = event.message
                if event.message == told:
                    return f"{event.stage}: call failed again, for the same reason"
            case "note":
                self._told[event.stage] = event.message
            case "stage_state" if event.message and event.message == told and _is_any(event, _WHY_WAS_TOLD):
                return ""
            case "recovery" if event.facts.get("step") in _GIVEN_UP:
                return ""
            case "run_ended":
                for stage in run.stages:
                    reason = f": {stage.reason}" if stage.reason else ""
                    event = replace(event, message=event.message.replace(reason, "") if reason else event.message)
        return event_in_words(run, event)

    def tell(self, words: str) -> None:
        """Tell a step that the tree shows, where there is no tree."""
        if self._mode is ProgressMode.PLAIN:
            self.say(words)

    def say(self, words: str) -> None:
        """Tell something that stays, whatever the mode but silence."""
        if self._mode is not ProgressMode.SILENT and words:
            self._line.print(f"codeloupe: {one_line(words)}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While a person is asked something, nothing is drawn."""
        self._line.__exit__(None, None, None)
        try:
            yield
        finally:
            self._line.__enter__()

    def tree(self) -> Sequence[LiveRow]:
        """The run as rows that have room on the terminal, for above the live line."""
        if self.run is None:
            return ()
        try:
            size = _size_of(self._stream)
            rows = self._rows(self.run, most=size.lines - _LINES_BESIDE)
            return [cut_row(row, self._sheet, size.columns - _INDENT - 1) for row in rows]
        except Exception:  # noqa: BLE001 - called by the thread that draws, where nobody could catch it
            return ()

    def _rows(self, run: RunRecord, *, most: int) -> list[Row]:
        """All of the tree, or of one that is too high what is neither done nor to come, and how much else there is."""
        draw = Tree(sheet=self._sheet, now=datetime.now(UTC), brief=True).rows
        if len(rows := draw(run)) <= most:
            return rows
        states = Counter(stage.state for stage in run.stages)
        under_way = tuple(stage for stage in run.stages if stage.state not in _AT_REST)
        rest = ", ".join(f"{states[state]} {state_in_words(state)}" for state in _AT_REST if states[state])
        return [*draw(replace(run, stages=under_way))[: most - 1], ((f"and {rest}", "dim"),)]

    def headline(self) -> str:
        """The run in one line, for when its tree is not shown."""
        return "" if self.run is None else f"{self.run.pipeline} {self.run.run_id}  {self.status()}"

    def status(self) -> str:
        """What the live line says: how many stages are done, what they cost, and the time so far."""
        run = self.run
        if run is None:
            return "Starting"
        done = sum(stage.state is StageState.COMPLETED for stage in run.stages)
        waiting = sum(stage.state is StageState.AWAITING_APPROVAL for stage in run.stages)
        parts = [
            f"{done}/{len(run.stages)} stages",
            f"{waiting} waiting for a person" if waiting else "",
            spent_on(run.usage),
            took(run_seconds(run, datetime.now(UTC))),
        ]
        return "  ".join(part for part in parts if part)


def event_in_words(run: RunRecord, event: PipelineEvent) -> str:
    """One line about a step: `write: gating`, `write: critic REWORK 50: No source.`; empty for what others tell.

    That an attempt begins or ends, and that a person is wanted, is told by the state that follows it, and what a person
    said once, not again as the word of a gate.
    """
    match event.kind:
        case "attempt_started" | "attempt_finished" | "approval_wanted":
            return ""
        case "critique" if event.facts.get("gate") == GateKind.APPROVAL:
            return ""
        case "run_started" | "run_resumed":
            parts = [f"run {run.run_id} {event.kind.removeprefix('run_')}", event.message]
        case "run_ended":
            parts = [f"run {run.run_id} {state_in_words(run.state)}", event.message]
        case "stage_state":
            parts = [event.stage, _state_of(run, event), event.message]
        case "critique":
            words = (event.facts.get(name) for name in ("gate", "verdict", "score"))
            parts = [event.stage, " ".join(str(word) for word in words if word is not None), event.message]
        case "try_failed":
            was_asked = event.facts.get("error") != WORKSPACE_ERROR
            parts = [event.stage, "call failed" if was_asked else "", event.message]
        case _:
            parts = [event.stage, event.message] if event.message else []
    return ": ".join(part for part in parts if part)


def _is_any(event: PipelineEvent, states: Sequence[StageState]) -> bool:
    return event.facts.get("state") in [state.value for state in states]


def _state_of(run: RunRecord, event: PipelineEvent) -> str:
    try:
        stage = run.stage(event.stage)
    except KeyError:
        return ""
    is_later = stage.state is StageState.RUNNING and stage.attempts
    return f"{state_in_words(stage.state)} {attempt_in_words(stage)}" if is_later else state_in_words(stage.state)


def one_line(words: str) -> str:
    """Safe on a terminal and in a CI log."""
    return log_line(" ".join(words[:_LONGEST_MESSAGE].split()))


def _size_of(stream: TextIO) -> os.terminal_size:
    try:
        known = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        known = os.terminal_size((80, 24))
    # As whoever draws sees it: the environment has the first word.
    columns, lines = (os.environ.get(name, "") for name in ("COLUMNS", "LINES"))
    return os.terminal_size(
        (
            int(columns) if columns.isdecimal() else known.columns or 80,
            int(lines) if lines.isdecimal() else known.lines or 24,
        )
    )


def _can_draw(stream: TextIO) -> bool:
    try:
        "╰─✔▸↻·…".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
