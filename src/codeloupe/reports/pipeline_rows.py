"""The tree of a run, line by line: the run, below it each stage, and below that what the gates said of it.

A row is pieces of clean text, each with its style, so that a terminal that is redrawn and a report share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from codeloupe.model.pipeline import (
    WORKSPACE_ERROR,
    AttemptRecord,
    CriticVerdict,
    Critique,
    FailedTry,
    RecoveryStep,
    RunRecord,
    StageRecord,
    StageState,
)
from codeloupe.reports.pipeline_words import (
    STYLES,
    VERDICT_STYLES,
    WORKING_STATES,
    agent_in_words,
    attempt_in_words,
    counted_attempt,
    critique_in_words,
    open_failures,
    outdated_in_words,
    run_seconds,
    sign_of,
    spent_on,
    stage_seconds,
    state_in_words,
    took,
)
from codeloupe.reports.plain_table import Sheet, cells
from codeloupe.reports.wording import counted

Row = tuple[tuple[str, str], ...]

_LONGEST_NAME_CELLS = 32
_SHORTEST_NAME_CELLS = 8
_NARROWEST = 20
_POINTS_SHOWN = 5
_DETAIL_INDENT = 3
# The branch, the sign, and the gaps between name, state and facts.
_HEAD_CELLS = 9
_ROOM_BESIDE_A_WORD = 30
_LEAST_OF_A_SUMMARY = 8
_STEPS = {
    RecoveryStep.FIRST: "call",
    RecoveryStep.RETRY: "retry",
    RecoveryStep.RESUME: "resumed session",
    RecoveryStep.FRESH: "fresh start",
}


class _Columns(NamedTuple):
    """How many cells the names and states of stages take, and whether the facts stand beside them."""

    name: int
    state: int
    with_facts: bool


class Tree(Struct, frozen=True, kw_only=True):
    """How to draw a run: where, at what moment, and how much. A `brief` one has at most two lines for each stage."""

    sheet: Sheet
    now: datetime
    brief: bool = False
    verbose: bool = False

    def rows(self, run: RunRecord) -> list[Row]:
        """The whole tree."""
        name_cells = max((cells(self._name(stage)) for stage in run.stages), default=0)
        state_cells = max((len(state_in_words(stage.state)) for stage in run.stages), default=0)
        columns = _Columns(name_cells, state_cells, with_facts=self._fits(run, name_cells + state_cells))
        rows = list(self._run(run))
        # What one of its stages says already is not said twice.
        told = any(stage.reason and stage.reason in run.reason for stage in run.stages)
        if run.reason and not self.brief and not told:
            rows += [((line, STYLES[run.state]),) for line in wrapped(self.sheet.clean(run.reason), self.sheet.width)]
        for position, stage in enumerate(run.stages):
            before = run.stages[position - 1].name if position else None
            branches = self._branches(is_last=position == len(run.stages) - 1)
            rows += self._stage(stage, self._facts(stage, before), columns=columns, branches=branches)
        return rows

    def _fits(self, run: RunRecord, taken: int) -> bool:
        """Whether the facts of every stage have room beside its state; one that is cut anyway needs none."""
        longest = max(
            (
                cells(self._facts(stage, before.name if before else None))
                for before, stage in zip((None, *run.stages), run.stages, strict=False)
            ),
            default=0,
        )
        return self.brief or taken + longest + _HEAD_CELLS <= self.sheet.width

    def _run(self, run: RunRecord) -> Iterator[Row]:
        state = state_in_words(run.state)
        name = self.sheet.cut(self.sheet.clean(run.pipeline), max(self.sheet.width - len(state) - 2, _NARROWEST))
        facts = self._joined([run.run_id, took(run_seconds(run, self.now)), spent_on(run.usage)])
        head: Row = ((name, "bold"), ("  ", ""), (state, STYLES[run.state]))
        if self.brief or cells(name) + len(state) + cells(facts) + 4 <= self.sheet.width:
            yield (*head, (f"  {facts}", "dim"))
        else:
            yield head
            yield from (((line, "dim"),) for line in wrapped(facts, self.sheet.width))

    def _stage(self, stage: StageRecord, facts: str, *, columns: _Columns, branches: tuple[str, str]) -> Iterator[Row]:
        branch, stem = branches
        name, state, style = self._name(stage), state_in_words(stage.state), STYLES[stage.state]
        head: Row = (
            (branch, "dim"),
            (f"{sign_of(stage.state, ascii_only=self.sheet.ascii_only)} ", style),
            (name + " " * (columns.name - cells(name)), "bold" if stage.state is not StageState.PENDING else "dim"),
            ("  ", ""),
            (f"{state:<{columns.state}}" if facts and columns.with_facts else state, style),
        )
        indent = (stem + " " * _DETAIL_INDENT, "dim")
        if columns.with_facts:
            yield (*head, (f"  {facts}" if facts else "", "dim"))
        else:
            yield head
            yield from ((indent, (line, "dim")) for line in self._wrapped(facts, stem) if line)
        yield from ((indent, *detail) for detail in self._details(stage))

    def _branches(self, *, is_last: bool) -> tuple[str, str]:
        if self.sheet.ascii_only:
            return ("`- " if is_last else "|- "), ("   " if is_last else "|  ")
        return ("╰─ " if is_last else "├─ "), ("   " if is_last else "│  ")

    def _name(self, stage: StageRecord) -> str:
        # Beside it stands a state, of which the longest has 17 cells.
        room = max(min(self.sheet.width - _HEAD_CELLS - 17, _LONGEST_NAME_CELLS), _SHORTEST_NAME_CELLS)
        return self.sheet.cut(self.sheet.clean(stage.name), room)

    def _facts(self, stage: StageRecord, previous: str | None) -> str:
        attempt = counted_attempt(stage)
        score = None if attempt is None else attempt.score
        # Of an attempt that is under way nothing is known yet.
        which = "last score" if stage.state in WORKING_STATES else "score"
        # That a stage follows the one above it goes without saying.
        follows = stage.needs not in ((), (previous,))
        return self._joined(
            [
                attempt_in_words(stage),
                "" if score is None else f"{which} {score}",
                spent_on(stage.usage),
                took(stage_seconds(stage, self.now)),
                agent_in_words(stage),
                f"after {', '.join(stage.needs)}" if follows else "",
            ]
        )

    def _details(self, stage: StageRecord) -> Iterator[Row]:
        if self.brief:
            yield from self._in_short(stage)
            return
        # The last failure says why, and what to do about it.
        open_ones = [] if stage.state is StageState.COMPLETED else open_failures(stage)
        last = open_ones[-1].message if open_ones else ""
        told = stage.state is not StageState.COMPLETED and last and stage.reason.startswith(last)
        if stage.reason and not told:
            yield from self._prose(stage.reason, STYLES[stage.state])
        if outdated := outdated_in_words(stage):
            yield from self._prose(outdated, "yellow")
        yield from self._failures(stage.failures if self.verbose else open_ones, stage)
        counted_one = counted_attempt(stage)
        for attempt in stage.attempts:
            label = f"attempt {attempt.number}: " if len(stage.attempts) > 1 else ""
            yield from self._attempt(attempt, label, whole=self.verbose or attempt is counted_one)

    def _in_short(self, stage: StageRecord) -> Iterator[Row]:
        """What a person who waits wants to know: why it stands still, or what the last gate missed."""
        if stage.state is StageState.COMPLETED:
            return
        if stage.reason:
            yield ((self.sheet.clean(stage.reason), STYLES[stage.state]),)
        elif stage.attempts and stage.attempts[-1].critiques:
            yield from self._critique(stage.attempts[-1].critiques[-1], "", whole=False)

    def _failures(self, told: Sequence[FailedTry], stage: StageRecord) -> Iterator[Row]:
        """Why it stands still; what has worked since is only counted."""
        shown = told if self.verbose else told[-_POINTS_SHOWN:]
        if rest := _calls_in(stage.failures) - _calls_in(shown):
            yield ((f"{counted(rest, 'earlier call', 'earlier calls')} failed", "dim"),)
        # What failed alike several times is told once.
        alike: dict[str, list[FailedTry]] = {}
        for failure in shown:
            alike.setdefault(_reason_in_words(failure), []).append(failure)
        for reason, failures in alike.items():
            yield from self._prose(f"{_failed_in_words(failures)}{reason}", "yellow")

    def _attempt(self, attempt: AttemptRecord, label: str, *, whole: bool) -> Iterator[Row]:
        for critique in attempt.critiques:
            yield from self._critique(critique, label, whole=whole)
            if whole and critique.verdict is not CriticVerdict.PASS:
                yield from self._points(critique.blockers, self._sign("✖", "x"))
                yield from self._points(critique.fixes, self._sign("→", "->"))
        if not whole:
            return
        for note in attempt.notes:
            yield from self._prose(f"note: {note}", "dim")
        if self.verbose and attempt.artifacts:
            yield from self._prose(f"{label}artifacts: {', '.join(attempt.artifacts)}", "dim")

    def _critique(self, critique: Critique, label: str, *, whole: bool) -> Iterator[Row]:
        """A gate's word, with its summary beside it; one line unless the whole of it is wanted."""
        summary, words = self.sheet.clean(critique.summary), critique_in_words(critique)
        head: Row = ((label, "dim"), (words, VERDICT_STYLES[critique.verdict]))
        beside = cells(label) + len(words) + 2
        room = self.sheet.width - 2 * _DETAIL_INDENT - beside
        if not summary or self.brief or not whole:
            told = summary if self.brief else self.sheet.cut(summary, room) if room >= _LEAST_OF_A_SUMMARY else ""
            yield (*head, (f": {told}" if told else "", ""))
        elif room < _ROOM_BESIDE_A_WORD:
            yield head
            yield from (((f"  {line}", ""),) for line in self._wrapped(summary, " " * (_DETAIL_INDENT + 2)))
        else:
            first, *rest = wrapped(summary, room)
            yield (*head, (f": {first}", ""))
            yield from (((" " * beside + line, ""),) for line in rest)

    def _points(self, points: Sequence[str], sign: str) -> Iterator[Row]:
        for point in points if self.verbose else points[:_POINTS_SHOWN]:
            lines = self._wrapped(self.sheet.clean(point), " " * (_DETAIL_INDENT + len(sign) + 3))
            yield from (
                (((f"  {sign if not number else ' ' * len(sign)} "), "dim"), (line, ""))
                for number, line in enumerate(lines)
            )
        rest = len(points) - _POINTS_SHOWN
        if rest > 0 and not self.verbose:
            yield ((f"  and {rest:,} more", "dim"),)

    def _prose(self, text: str, style: str) -> Iterator[Row]:
        yield from (((line, style),) for line in self._wrapped(self.sheet.clean(text), " " * _DETAIL_INDENT))

    def _wrapped(self, text: str, before: str) -> list[str]:
        return wrapped(text, self.sheet.width - _DETAIL_INDENT - cells(before))

    def _joined(self, facts: Sequence[str]) -> str:
        return self._sign(" · ", " - ").join(self.sheet.clean(fact) for fact in facts if fact)

    def _sign(self, sign: str, in_ascii: str) -> str:
        return in_ascii if self.sheet.ascii_only else sign


def cut_row(row: Row, sheet: Sheet, width: int) -> Row:
    """The row in at most so many cells."""
    pieces: list[tuple[str, str]] = []
    room = width
    for text, style in row:
        pieces.append((sheet.cut(text, room), style))
        room -= cells(text)
        if room <= 0:
            break
    return tuple(pieces)


def wrapped(text: str, room: int) -> list[str]:
    """Clean text in lines of at most so many cells, broken between words; a word that is longer is broken too."""
    room = max(room, _NARROWEST)
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and cells(line) + 1 + cells(word) <= room:
            line += f" {word}"
            continue
        lines += [line] if line else []
        line = word
        while cells(line) > room:
            head = _beginning(line, room)
            lines.append(head)
            line = line[len(head) :]
    return [*lines, line] if line else lines or [""]


def _beginning(word: str, room: int) -> str:
    taken = 0
    for index, character in enumerate(word):
        taken += cells(character)
        if taken > room:
            return word[: max(index, 1)]
    return word


def _calls_in(failures: Sequence[FailedTry]) -> int:
    return sum(failure.kind != WORKSPACE_ERROR for failure in failures)


def _failed_in_words(failures: Sequence[FailedTry]) -> str:
    """`retry failed`; of several for the same reason `call, retry and fresh start failed`."""
    gate = failures[0].gate
    if failures[0].kind == WORKSPACE_ERROR:
        return ""
    if gate is not None:
        return f"gate {gate + 1} could not decide{'' if len(failures) == 1 else f', {len(failures)} times'}: "
    steps = list(dict.fromkeys(_STEPS[failure.step] for failure in failures))
    words = " and ".join(filter(None, (", ".join(steps[:-1]), steps[-1])))
    return f"{words} failed{'' if len(failures) == len(steps) else f', {len(failures)} times in all'}: "


def _reason_in_words(failure: FailedTry) -> str:
    kind = "" if failure.kind == WORKSPACE_ERROR else f"{failure.kind}: "
    return f"{kind}{failure.message}{f' ({failure.hint})' if failure.hint else ''}"
