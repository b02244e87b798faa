"""Asking the person at the terminal about a stage that waits: what there is to see, and what becomes of it."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from codeloupe.cli.pipeline_display import PipelineDisplay
from codeloupe.model.pipeline import Approval, AttemptRecord, Decision, StageRecord
from codeloupe.reports.pipeline_words import agent_in_words, counted_attempt, critique_in_words, has_work, spent_on
from codeloupe.reports.wording import counted
from codeloupe.store.run_store import DirectoryRunStore
from codeloupe.system.untrusted import log_line, terminal, without_log_commands

_APPROVE = "[a]pprove  "
_CHOICES = "[r]eject  [t]ry again with a note  [d]iff  [l]ater: "
_WORDS = {
    "a": Decision.APPROVE,
    "approve": Decision.APPROVE,
    "yes": Decision.APPROVE,
    "r": Decision.REJECT,
    "reject": Decision.REJECT,
    "no": Decision.REJECT,
}
_POINTS_SHOWN = 8
_NAMES_SHOWN = 12
_LARGEST_DIFF_BYTES = 16 * 1024 * 1024
_DIFF_LINES_SHOWN = 400
_READ_BYTES = 65_536


class TerminalAsker:
    """Asks one question at a time, as an `ask_person` of a run. None is for `later`, and for the end of input."""

    def __init__(self, display: PipelineDisplay, store: DirectoryRunStore) -> None:
        self._display = display
        self._store = store
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, stage: StageRecord, question: str) -> Approval | None:
        """The person's word. To be cancelled at any time; then the terminal is as it was."""
        async with self._one_at_a_time:
            with self._display.paused():
                directory = self._directory()
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
                    _print(_line(self._later(stage)))
                return answer

    def _later(self, stage: StageRecord) -> str:
        run = "RUN" if self._display.run is None else self._display.run.run_id
        answer = f"approve {run} {stage.name}" if has_work(stage) else f"resume {run} --retry {stage.name}"
        return f"{stage.name} keeps waiting; `codeloupe pipeline {answer}` answers it, from any terminal"

    def _directory(self) -> Path | None:
        run = self._display.run
        return None if run is None else self._store.directory(run.run_id)


def can_ask() -> bool:
    """Whether a person sits before both ends: what is written to stderr is seen, and what is read was typed."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _answer(stage: StageRecord, directory: Path | None) -> Approval | None:
    while True:
        _print((_APPROVE if has_work(stage) else "") + _CHOICES, end="")
        typed = await _typed_line()
        if typed is None:
            _print("")
            return None
        word = typed.strip().lower()
        if word in _WORDS and (_WORDS[word] is not Decision.APPROVE or has_work(stage)):
            return Approval(stage=stage.name, decision=_WORDS[word])
        if word in ("t", "try", "retry"):
            _print("What should the next attempt do differently? ", end="")
            note = await _typed_line()
            return None if note is None else Approval(stage=stage.name, decision=Decision.RETRY, note=note.strip())
        if word in ("d", "diff"):
            _print(_diff_text(stage, directory))
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
    yield from _work(stage, attempt, directory)


def _work(stage: StageRecord, attempt: AttemptRecord, directory: Path | None) -> Iterator[str]:
    files = counted(len(attempt.files_changed), "file", "files")
    added, removed = _diff_size(_diff_of(attempt, directory))
    yield _line(f"  changed: {files}, {counted(added, 'line', 'lines')} added, {removed:,} removed")
    if attempt.artifacts:
        more = len(attempt.artifacts) - _NAMES_SHOWN
        names = ", ".join(attempt.artifacts[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        yield _line(f"  artifacts: {names}")
    if directory is not None:
        yield _line(f"  in {directory / 'stages' / stage.name / 'work'}")
    yield from (_line(f"  note: {note}") for note in attempt.notes[:_POINTS_SHOWN])


def _diff_text(stage: StageRecord, directory: Path | None) -> str:
    attempt = counted_attempt(stage)
    lines = _diff_of(attempt, directory).split("\n") if attempt is not None else []
    if not any(lines):
        return "There is no diff to show."
    shown = "\n".join(lines[:_DIFF_LINES_SHOWN])
    rest = len(lines) - _DIFF_LINES_SHOWN
    more = f"\n… and {rest:,} more lines" if rest > 0 else ""
    return without_log_commands(terminal(shown, keep_newlines=True)) + more


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


def _diff_size(diff: str) -> tuple[int, int]:
    lines = diff.split("\n")
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    return added, removed


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
    text = " ".join(words[:2_000].splitlines())
    return log_line(text)


def _print(text: str, end: str = "\n") -> None:
    with suppress(OSError):
        encoding = sys.stderr.encoding or "ascii"
        print(text.encode(encoding, "backslashreplace").decode(encoding), end=end, file=sys.stderr, flush=True)
