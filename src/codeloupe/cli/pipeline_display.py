"""The display of a pipeline run: a tree on a terminal or a line for each step, and questions for a person."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from codeloupe.cli.options import is_ascii_only, output_width
from codeloupe.cli.progress import Display, Row
from codeloupe.model import pipeline as model
from codeloupe.pipelines.files import read_run_file
from codeloupe.reports import pipeline as report
from codeloupe.reports.page import Page
from codeloupe.reports.wording import counted, duration
from codeloupe.store.interface import RunStore
from codeloupe.system.untrusted import log_line, terminal, without_log_commands

_AT_REST = (model.StageState.COMPLETED, model.StageState.PENDING, model.StageState.CANCELLED)
_NAMES_SHOWN = 12
_DIFF_LINES_SHOWN = 400
_SIGNS = "╰─✔▸↻·…"
# The state that follows such an event shows the same.
_SILENT = ("attempt_started", "attempt_finished", "approval_wanted")


class PipelineDisplay(Display):
    """A display for the events of a run: `watch=display.watch`. `run` is the last state that was seen, or None."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # A brief tree does not wrap; its rows are cut at the edge of the terminal.
        self._page = Page(width=100_000, ascii_only=self._shown(_SIGNS) != _SIGNS)
        self._reasons: dict[str, str] = {}
        self.run: model.RunRecord | None = None

    def watch(self, run: model.RunRecord, event: model.PipelineEvent) -> None:
        """Show an event of the run."""
        self.run = run
        self.tell(self._described(run, event))

    def _described(self, run: model.RunRecord, event: model.PipelineEvent) -> str:
        """Return an event as a line. The reason of a failed call is shown once, and again if its stage stops for it."""
        known, facts = self._reasons.get(event.stage), event.facts
        parts = [event.stage, event.message] if event.message else []
        if event.kind in ("try_failed", "note"):
            self._reasons[event.stage] = event.message
        match event.kind:
            case "try_failed" if event.message == known:
                parts = [event.stage, "call failed again, for the same reason"]
            case "try_failed":
                was_asked = facts.get("error") not in (model.WORKSPACE_ERROR, model.WORKSPACE_LOST)
                parts = [event.stage, "call failed" if was_asked else "", event.message]
            case "stage_state":
                stage = next((stage for stage in run.stages if stage.name == event.stage), None)
                state = "" if stage is None else report.stage_text(stage)
                if stage is not None and stage.state is model.StageState.RUNNING and stage.attempts:
                    state = f"{state} {report.attempt_text(stage)}"
                is_said = event.message and event.message == known and facts.get("state") in ("recovering", "pending")
                parts = [] if is_said else [event.stage, state, event.message]
            case "critique":
                # The decision of a person is shown once, not again as the verdict of a gate.
                words = (facts.get(name) for name in ("gate", "verdict", "score"))
                shown = [event.stage, " ".join(str(word) for word in words if word is not None), event.message]
                parts = [] if facts.get("gate") == model.GateKind.APPROVAL else shown
            case "run_started" | "run_resumed":
                parts = [f"run {run.run_id} {event.kind.removeprefix('run_')}", event.message]
            case "run_ended":
                ending = event.message
                for stage in run.stages:
                    ending = ending.replace(f": {stage.reason}", "") if stage.reason else ending
                parts = [f"run {run.run_id} {report.state_text(run.state)}", ending]
        # The state of a stage that was given up shows the reason.
        is_given_up = facts.get("step") in ("escalate", "fail", "continue")
        return "" if event.kind in _SILENT or is_given_up else ": ".join(filter(None, parts))

    def above(self) -> Sequence[Row]:
        """Return the run as a tree of rows; if it is too high for the terminal, only the stages at work."""
        if self.run is None or self._console is None:
            return ()
        try:
            size, draw = self._console.size, report.Tree(page=self._page, now=datetime.now(UTC), brief=True).rows
            # Below the tree is the live line, and a terminal that is full to its last line scrolls.
            if len(rows := draw(run := self.run)) > size.height - 2:
                under_way = tuple(stage for stage in run.stages if stage.state not in _AT_REST)
                rows = draw(replace(run, stages=under_way))[: size.height - 2]
            return [self._page.cut_line(row, size.width - 3).pieces for row in rows]
        except Exception:  # noqa: BLE001 - called by the thread that draws, which has no handler
            return ()

    def status(self) -> str:
        """Return the number of completed stages, their cost, and the time so far."""
        run = self.run
        if run is None:
            return "Starting"
        states = Counter(stage.state for stage in run.stages)
        waiting = states[model.StageState.AWAITING_APPROVAL]
        paused = states[model.StageState.WAITING_FOR_QUOTA]
        parts = (
            f"{states[model.StageState.COMPLETED]}/{len(run.stages)} stages",
            f"{waiting} waiting for a person" if waiting else "",
            f"{paused} waiting for a quota" if paused else "",
            report.spent_on(run.usage),
            duration(report.run_seconds(run, datetime.now(UTC))),
        )
        return "  ".join(filter(None, parts))


class TerminalAsker:
    """Asks one question at a time, as an `ask_person` of a run. None means later, or the end of input."""

    def __init__(self, display: PipelineDisplay, store: RunStore) -> None:
        self._display, self._store = display, store
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, stage: model.StageRecord, question: str) -> model.Approval | None:
        """Return the person's answer. A cancellation leaves the terminal as it was."""
        async with self._one_at_a_time:
            run = self._display.run
            if run is None:
                return None
            with self._display.paused():
                _print("\n".join(["", *map(_line, self._about(run, stage, question))]))
                # Text that was typed before the question is not an answer to it.
                with suppress(termios.error):
                    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
                try:
                    answer = await self._answer(run.run_id, stage)
                except asyncio.CancelledError:
                    # The question was answered elsewhere, or the run ends. The next output begins on a new line.
                    _print("")
                    raise
                if answer is None:
                    words = "approve {} {}" if report.has_work(stage) else "resume {} --retry {}"
                    later = f"`codeloupe pipeline {words.format(run.run_id, stage.name)}` answers it, from any terminal"
                    _print(_line(f"{stage.name} keeps waiting; {later}"))
                return answer

    async def _answer(self, run_id: str, stage: model.StageRecord) -> model.Approval | None:
        """Return the decision that a person types, or None for later and at the end of input."""
        approve = "[a]pprove  " if report.has_work(stage) else ""
        while True:
            _print(f"{approve}[r]eject  [t]ry again with a note  [d]iff  [l]ater: ", end="")
            typed = await _typed_line()
            if typed is None:
                _print("")
                return None
            match typed.strip().lower():
                case "a" | "approve" | "yes" if approve:
                    return model.Approval(stage=stage.name, decision=model.Decision.APPROVE)
                case "r" | "reject" | "no":
                    return model.Approval(stage=stage.name, decision=model.Decision.REJECT)
                case "t" | "try" | "retry":
                    _print("What should the next attempt do differently? ", end="")
                    note = await _typed_line()
                    if note is None:
                        return None
                    return model.Approval(stage=stage.name, decision=model.Decision.RETRY, note=note.strip())
                case "d" | "diff":
                    _print(_shown_diff(self._diff_lines(run_id, stage)))
                case "l" | "later":
                    return None

    def _diff_lines(self, run_id: str, stage: model.StageRecord) -> list[str]:
        attempt = report.counted_attempt(stage)
        if attempt is None:
            return []
        return read_run_file(self._store, run_id, attempt.diff_file).split("\n")

    def _about(self, run: model.RunRecord, stage: model.StageRecord, question: str) -> Iterator[str]:
        """Yield the facts for a decision: the stage as the report shows it, its changes, and where to look."""
        yield f"{stage.name} waits for you{f': {question}' if question else ''}"
        asked = replace(stage, reason="" if stage.reason == question else stage.reason)
        tree = report.Tree(page=Page(width=output_width(), ascii_only=is_ascii_only()), now=datetime.now(UTC))
        yield from (row.plain for row in tree.rows(replace(run, stages=(asked,), reason="")))
        attempt = report.counted_attempt(stage)
        if attempt is None:
            yield "  it produced no result"
            return
        lines = self._diff_lines(run.run_id, stage)
        added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
        removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
        files = counted(len(attempt.files_changed), "file", "files")
        yield f"  changed: {files}, {counted(added, 'line', 'lines')} added, {removed:,} removed"
        if attempt.artifacts:
            names = ", ".join(attempt.artifacts[:_NAMES_SHOWN])
            more = len(attempt.artifacts) - _NAMES_SHOWN
            yield f"  artifacts: {names}{f' and {more} more' if more > 0 else ''}"
        yield f"  in {self._store.directory(run.run_id) / 'stages' / stage.name / 'work'}"


def can_ask() -> bool:
    """Return whether a person is at the terminal: stderr is shown, and stdin is typed."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _shown_diff(lines: list[str]) -> str:
    if not any(lines):
        return "There is no diff to show."
    shown = without_log_commands(terminal("\n".join(lines[:_DIFF_LINES_SHOWN]), keep_newlines=True))
    rest = len(lines) - _DIFF_LINES_SHOWN
    return f"{shown}\n… and {rest:,} more lines" if rest > 0 else shown


async def _typed_line() -> str | None:
    """Return a typed line without blocking other work; None at the end of input."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    read: asyncio.Future[bytes] = loop.create_future()

    def take() -> None:
        if not read.done():
            try:
                read.set_result(os.read(descriptor, 65_536))
            except OSError:  # the terminal is gone
                read.set_result(b"")

    loop.add_reader(descriptor, take)
    try:
        data = await read
    finally:
        loop.remove_reader(descriptor)
    return data.decode("utf-8", "replace") if data else None


def _line(words: str) -> str:
    return log_line(" ".join(words[:2_000].splitlines()))


def _print(text: str, end: str = "\n") -> None:
    with suppress(OSError):
        encoding = sys.stderr.encoding or "ascii"
        print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, file=sys.stderr, flush=True)
