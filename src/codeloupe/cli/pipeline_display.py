"""What a person sees and answers while a pipeline runs.

A tree that is redrawn on a terminal, a line for each step elsewhere, and questions about stages that wait.

The display only listens and never raises into the run.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from msgspec.structs import replace

from codeloupe.cli.progress import LiveLine, ProgressMode
from codeloupe.cli.progress import Row as LiveRow
from codeloupe.model.pipeline import (
    WORKSPACE_ERROR,
    Approval,
    AttemptRecord,
    Decision,
    GateKind,
    PipelineEvent,
    RunRecord,
    StageRecord,
    StageState,
)
from codeloupe.reports.pipeline import (
    Row,
    Tree,
    agent_in_words,
    attempt_in_words,
    counted_attempt,
    critique_in_words,
    cut_row,
    has_work,
    run_seconds,
    spent_on,
    state_in_words,
)
from codeloupe.reports.plain_table import Sheet
from codeloupe.reports.wording import counted, duration
from codeloupe.store.runs import DirectoryRunStore
from codeloupe.system.untrusted import log_line, terminal, without_log_commands

_LONGEST_MESSAGE = 2_000
# After these steps the state of the stage tells the reason.
_GIVEN_UP = ("escalate", "fail", "continue")
# A brief tree does not wrap; its rows are cut at the edge of the terminal.
_ENDLESS = 100_000
# Below the tree is the live line, and a terminal that is full to its last line scrolls.
_LINES_BESIDE = 2
_INDENT = 2
# Before these states a failure, or a note, has told the reason.
_WHY_WAS_TOLD = (StageState.RECOVERING.value, StageState.PENDING.value)
_AT_REST = (StageState.COMPLETED, StageState.PENDING, StageState.CANCELLED)
_CHOICES = "[r]eject  [t]ry again with a note  [d]iff  [l]ater: "
_DECISIONS = {
    **dict.fromkeys(("a", "approve", "yes"), Decision.APPROVE),
    **dict.fromkeys(("r", "reject", "no"), Decision.REJECT),
}
_POINTS_SHOWN = 8
_NAMES_SHOWN = 12
_LARGEST_DIFF_BYTES = 16 * 1024 * 1024
_DIFF_LINES_SHOWN = 400
_READ_BYTES = 65_536


class PipelineDisplay:
    """A sink for what happens in a run: `with PipelineDisplay(stream=…, mode=…) as display: … watch=display.watch`.

    `run` is the last state that was seen, or None.
    """

    def __init__(self, *, stream: TextIO, mode: ProgressMode, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = LiveLine(stream=stream, mode=mode, status=self.status, above=self.tree, clock=clock)
        self._mode = mode
        self._stream = stream
        try:
            "╰─✔▸↻·…".encode(stream.encoding or "ascii")
            ascii_only = False
        except (UnicodeEncodeError, LookupError):
            ascii_only = True
        self._sheet = Sheet(width=_ENDLESS, ascii_only=ascii_only)
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
            case "stage_state" if event.message and event.message == told:
                if event.facts.get("state") in _WHY_WAS_TOLD:
                    return ""
            case "recovery" if event.facts.get("step") in _GIVEN_UP:
                return ""
            case "run_ended":
                for stage in run.stages:
                    if stage.reason:
                        event = replace(event, message=event.message.replace(f": {stage.reason}", ""))
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
        parts = (
            f"{done}/{len(run.stages)} stages",
            f"{waiting} waiting for a person" if waiting else "",
            spent_on(run.usage),
            duration(run_seconds(run, datetime.now(UTC))),
        )
        return "  ".join(filter(None, parts))


def event_in_words(run: RunRecord, event: PipelineEvent) -> str:
    """One line about a step: `write: gating`, `write: critic REWORK 50: No source.`; empty for what others tell.

    That an attempt begins or ends, and that a person is wanted, is told by the state that follows it, and what a person
    said once, not again as the verdict of a gate.
    """
    parts: list[str] = []
    match event.kind:
        case "attempt_started" | "attempt_finished" | "approval_wanted":
            pass
        case "critique" if event.facts.get("gate") == GateKind.APPROVAL:
            pass
        case "run_started" | "run_resumed":
            parts = [f"run {run.run_id} {event.kind.removeprefix('run_')}", event.message]
        case "run_ended":
            parts = [f"run {run.run_id} {state_in_words(run.state)}", event.message]
        case "stage_state":
            stage = next((stage for stage in run.stages if stage.name == event.stage), None)
            state = "" if stage is None else state_in_words(stage.state)
            if stage is not None and stage.state is StageState.RUNNING and stage.attempts:
                state = f"{state} {attempt_in_words(stage)}"
            parts = [event.stage, state, event.message]
        case "critique":
            words = (event.facts.get(name) for name in ("gate", "verdict", "score"))
            parts = [event.stage, " ".join(str(word) for word in words if word is not None), event.message]
        case "try_failed":
            was_asked = event.facts.get("error") != WORKSPACE_ERROR
            parts = [event.stage, "call failed" if was_asked else "", event.message]
        case _ if event.message:
            parts = [event.stage, event.message]
    return ": ".join(filter(None, parts))


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
    width = int(columns) if columns.isdecimal() else known.columns or 80
    return os.terminal_size((width, int(lines) if lines.isdecimal() else known.lines or 24))


class TerminalAsker:
    """Asks one question at a time, as an `ask_person` of a run. None is for `later`, and for the end of input."""

    def __init__(self, display: PipelineDisplay, store: DirectoryRunStore) -> None:
        self._display = display
        self._store = store
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, stage: StageRecord, question: str) -> Approval | None:
        """The person's answer. To be cancelled at any time; then the terminal is as it was."""
        async with self._one_at_a_time:
            with self._display.paused():
                run = self._display.run
                directory = None if run is None else self._store.directory(run.run_id)
                _print("\n".join(["", _line(self._display.headline()), *_about(stage, question, directory)]))
                # What was typed before the question was there is no answer to it.
                with suppress(termios.error):
                    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
                try:
                    answer = await _answer(stage, directory)
                except asyncio.CancelledError:
                    # Somebody answered elsewhere, or the run ends: what comes next begins on a line of its own.
                    _print("")
                    raise
                if answer is None:
                    name = "RUN" if run is None else run.run_id
                    verb = f"approve {name} {stage.name}" if has_work(stage) else f"resume {name} --retry {stage.name}"
                    later = f"`codeloupe pipeline {verb}` answers it, from any terminal"
                    _print(_line(f"{stage.name} keeps waiting; {later}"))
                return answer


def can_ask() -> bool:
    """Whether a person sits before both ends: what is written to stderr is seen, and what is read was typed."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _answer(stage: StageRecord, directory: Path | None) -> Approval | None:
    while True:
        _print(("[a]pprove  " if has_work(stage) else "") + _CHOICES, end="")
        typed = await _typed_line()
        if typed is None:
            _print("")
            return None
        word = typed.strip().lower()
        if word in _DECISIONS and (_DECISIONS[word] is not Decision.APPROVE or has_work(stage)):
            return Approval(stage=stage.name, decision=_DECISIONS[word])
        if word in ("t", "try", "retry"):
            _print("What should the next attempt do differently? ", end="")
            note = await _typed_line()
            return None if note is None else Approval(stage=stage.name, decision=Decision.RETRY, note=note.strip())
        if word in ("d", "diff"):
            attempt = counted_attempt(stage)
            lines = _diff_of(attempt, directory).split("\n") if attempt is not None else []
            rest = len(lines) - _DIFF_LINES_SHOWN
            shown = without_log_commands(terminal("\n".join(lines[:_DIFF_LINES_SHOWN]), keep_newlines=True))
            more = f"\n… and {rest:,} more lines" if rest > 0 else ""
            _print(shown + more if any(lines) else "There is no diff to show.")
        elif word in ("l", "later"):
            return None


def _about(stage: StageRecord, question: str, directory: Path | None) -> Iterator[str]:
    yield _line(f"{stage.name} waits for you{f': {question}' if question else ''}")
    if stage.reason and stage.reason != question:
        yield _line(f"  {stage.reason}")
    attempt = counted_attempt(stage)
    if attempt is None:
        yield "  it produced no result"
        return
    score = "" if attempt.score is None else f"score {attempt.score}"
    facts = [f"attempt {attempt.number}", score, agent_in_words(stage), spent_on(stage.usage)]
    yield _line(f"  {', '.join(fact for fact in facts if fact)}")
    for critique in attempt.critiques:
        summary = f": {critique.summary}" if critique.summary else ""
        yield _line(f"  {critique_in_words(critique)}{summary}")
        yield from (_line(f"    - {point}") for point in critique.blockers[:_POINTS_SHOWN])
        if len(critique.blockers) > _POINTS_SHOWN:
            yield f"    and {len(critique.blockers) - _POINTS_SHOWN} more"
    lines = _diff_of(attempt, directory).split("\n")
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    files = counted(len(attempt.files_changed), "file", "files")
    yield _line(f"  changed: {files}, {counted(added, 'line', 'lines')} added, {removed:,} removed")
    if attempt.artifacts:
        more = len(attempt.artifacts) - _NAMES_SHOWN
        names = ", ".join(attempt.artifacts[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield _line(f"  artifacts: {names}")
    if directory is not None:
        yield _line(f"  in {directory / 'stages' / stage.name / 'work'}")
    yield from (_line(f"  note: {note}") for note in attempt.notes[:_POINTS_SHOWN])


def _diff_of(attempt: AttemptRecord, directory: Path | None) -> str:
    """The text of an attempt's diff; empty when there is none, or it lies outside the run."""
    if directory is None or not attempt.diff_file:
        return ""
    path = directory / attempt.diff_file
    try:
        if not path.resolve().is_relative_to(directory.resolve()):
            return ""
        with path.open("rb") as file:
            return file.read(_LARGEST_DIFF_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


async def _typed_line() -> str | None:
    """A line that is typed, without blocking what else runs; None at the end of input."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()
    read: asyncio.Future[bytes] = loop.create_future()

    def take() -> None:
        if not read.done():
            try:
                read.set_result(os.read(descriptor, _READ_BYTES))
            except OSError:  # the terminal is gone
                read.set_result(b"")

    loop.add_reader(descriptor, take)
    try:
        data = await read
    finally:
        loop.remove_reader(descriptor)
    return data.decode("utf-8", "replace") if data else None


def _line(words: str) -> str:
    return log_line(" ".join(words[:_LONGEST_MESSAGE].splitlines()))


def _print(text: str, end: str = "\n") -> None:
    with suppress(OSError):
        encoding = sys.stderr.encoding or "ascii"
        print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, file=sys.stderr, flush=True)
