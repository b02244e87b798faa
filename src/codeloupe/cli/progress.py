"""What a person sees while a review runs. The display only listens and never raises into the review."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, assert_never, cast

from codeloupe.model.agent import (
    AgentEvent,
    AgentFinished,
    AgentStarted,
    AttemptFailed,
    AttemptStarted,
    FellBack,
    QuotaEnded,
    TokensSpent,
    ToolUsed,
    TurnTaken,
)
from codeloupe.model.events import (
    AgentActivity,
    ChangeRead,
    CommitReviewed,
    Event,
    FindingVerified,
    LaneFinished,
    ReviewerChosen,
    StageStarted,
    UnitFinished,
    UnitsPlanned,
    Warned,
)
from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.reports.wording import counted, dollars, duration, place_in_words, reviewer_in_words
from codeloupe.system.untrusted import log_line, plain_signs

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text

_LONGEST_MESSAGE = 500


def in_words(event: AgentEvent) -> str:
    """One line, safe on a terminal and in a CI log."""
    return log_line(" ".join(_event_words(event)[:_LONGEST_MESSAGE].split()))


def _event_words(event: AgentEvent) -> str:  # noqa: PLR0911 - one return for each kind of event
    match event:
        case AgentStarted():
            return f"asked{f' for {event.model}' if event.model else ''}{f' ({event.label})' if event.label else ''}"
        case AttemptStarted():
            return f"attempt {event.attempt} of {event.of}" if event.attempt > 1 else "working"
        case AttemptFailed():
            again = f"; again in {duration(event.retry_in_seconds)}" if event.retry_in_seconds is not None else ""
            return f"attempt {event.attempt} failed: {event.message}{again}"
        case TurnTaken():
            return f"turn {event.turn}"
        case ToolUsed():
            return f"{event.tool} {event.detail}"
        case TokensSpent():
            cost = f", ${event.cost_usd:.2f}" if event.cost_usd is not None else ""
            return f"{event.input_tokens:,} tokens in, {event.output_tokens:,} out{cost}"
        case QuotaEnded():
            opens = f"opens again at {event.opens_at:%Y-%m-%d %H:%M %Z}" if event.opens_at else "opens again later"
            return f"its quota ended; it {opens}{', waiting for it' if event.waiting else ''}"
        case FellBack():
            return f"takes over from {event.from_agent}: {event.reason}"
        case AgentFinished():
            outcome = "answered" if event.success else "gave no answer"
            source = " (from an earlier call)" if event.from_ledger else ""
            return f"{outcome} after {duration(event.duration_ms / 1000)}{source}"
        case _:
            assert_never(event)


# One line in pieces, each with its style.
Row = Sequence[tuple[str, str]]

_DUMB_TERMINALS = ("", "dumb", "unknown")
_FALSE_WORDS = ("", "0", "false", "no", "off")
_REFRESHES_PER_SECOND = 10
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"


class ProgressMode(Enum):
    """How much is shown, and how."""

    LIVE = "live"
    PLAIN = "plain"
    SILENT = "silent"


def choose_mode(*, quiet: bool, stream: TextIO, environment: Mapping[str, str]) -> ProgressMode:
    """Silent when asked to be quiet; live on a terminal that can redraw a line, outside CI; plain lines elsewhere."""
    if quiet:
        return ProgressMode.SILENT
    in_ci = environment.get("CI", "").strip().lower() not in _FALSE_WORDS
    if in_ci or environment.get("TERM", "") in _DUMB_TERMINALS or not stream.isatty():
        return ProgressMode.PLAIN
    return ProgressMode.LIVE


def _nothing() -> Sequence[Row]:
    return ()


class LiveLine:
    """The line, as a context; `status` says what stands in it, `above` gives a few rows that stand over it.

    It is gone and the cursor back when the block ends. NO_COLOR is respected.
    """

    def __init__(
        self,
        *,
        stream: TextIO,
        mode: ProgressMode,
        status: Callable[[], str],
        above: Callable[[], Sequence[Row]] = _nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = _LastingStream(stream)
        self._mode = mode
        self._status = status
        self._above = above
        self._clock = clock
        self._console: Console | None = None
        self._live = ExitStack()
        self._frames = _FRAMES if self._stream.shown(_FRAMES) == _FRAMES else _ASCII_FRAMES

    def __enter__(self) -> Self:
        if self._mode is ProgressMode.LIVE:
            self._start_live_line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.close()
        self._console = None

    def print(self, line: str) -> None:
        """Write a line that stays, above the live one."""
        shown = self._stream.shown(line)
        if self._console is not None:
            self._console.print(shown, style="yellow", soft_wrap=True)
        else:
            self._stream.write(f"{shown}\n")
            self._stream.flush()

    def _start_live_line(self) -> None:
        # rich takes tens of milliseconds to load, and only a live line needs it.
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=cast("TextIO", self._stream), markup=False, emoji=False, highlight=False)
        live = Live(
            get_renderable=self._live_line,
            console=self._console,
            transient=True,
            refresh_per_second=_REFRESHES_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.enter_context(live)

    def _live_line(self) -> Group | str:
        if self._console is None:
            return ""
        from rich.console import Group

        frame = self._frames[int(self._clock() * _REFRESHES_PER_SECOND) % len(self._frames)]
        status = self._fitted([(frame, "cyan"), (f" {self._status()}", "")])
        return Group(*(self._fitted([("  ", ""), *row]) for row in self._above()), status)

    def _fitted(self, row: Row) -> Text:
        from rich.text import Text

        pieces = [(self._stream.shown(text), style) for text, style in row]
        return Text.assemble(*pieces, no_wrap=True, overflow="ellipsis")


class _LastingStream:
    """A stream that takes what is written to it even when it is closed or its reader has left.

    The live line is drawn by a thread of rich's, where a failure could not be caught otherwise.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding or "utf-8"

    def shown(self, text: str) -> str:
        """The text as the encoding can hold it: with plainer signs, and the rest written as escapes."""
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            return plain_signs(text).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return text

    def write(self, text: str) -> int:
        # OSError: the reader or the terminal is gone. ValueError: the stream is closed. Nobody would see it.
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        return not self._stream.closed and self._stream.isatty()


_LANES_NAMED = 4


class Tally:
    """Counts of one review. Another thread may read it at any time: what it reads is never changed in place."""

    def __init__(self) -> None:
        self.units_planned = 0
        self.units_done = 0
        self.units_failed = 0
        self.commits_done = 0
        self.commits_failed = 0
        self.commits_total = 0
        self._lanes: tuple[LaneFinished, ...] = ()
        self._by_severity: Counter[Severity] = Counter()
        self._refuted = 0
        self._running: frozenset[str] = frozenset()
        self._waiting: frozenset[str] = frozenset()
        self._spent = 0.0
        self._under_way: dict[str, float] = {}
        self._cost = 0.0

    def take(self, event: Event) -> None:
        """Count an event; those that count for nothing are let through."""
        match event:
            case UnitsPlanned():
                self.units_planned += event.units
            case UnitFinished():
                self.units_done += 1
                self.units_failed += event.failure is not None
                self._by_severity.update(finding.severity for finding in event.findings)
            case CommitReviewed():
                self._take_commit(event)
            case LaneFinished():
                self._lanes = (*self._lanes, event)
            case FindingVerified():
                self._refuted += event.finding.status is FindingStatus.REFUTED
            case AgentActivity():
                self._take_activity(event.unit, event.event)
            case _:
                pass

    def _take_commit(self, event: CommitReviewed) -> None:
        self.commits_done, self.commits_total = event.number, event.total
        self.commits_failed += event.outcome.verdict is None
        if event.outcome.review is not None:
            self._by_severity.update(finding.severity for finding in event.outcome.review.findings)

    def _take_activity(self, unit: str, event: AgentEvent) -> None:
        match event:
            case AttemptStarted():
                self._running |= {unit}
                self._waiting -= {unit}
            case AttemptFailed():
                self._running -= {unit}
            case QuotaEnded(waiting=True):
                self._waiting |= {unit}
            case TokensSpent(cost_usd=float() as cost):
                self._under_way[unit] = cost
            case AgentFinished():
                self._running -= {unit}
                self._waiting -= {unit}
                self._under_way.pop(unit, None)
                self._spent += 0.0 if event.from_ledger else event.cost_usd or 0.0
            case _:
                return
        self._cost = self._spent + sum(self._under_way.values())

    def in_words(self) -> list[str]:
        """The parts of a line on how far it is: commits, units or lanes, findings, cost, calls."""
        parts = [
            self._commits(),
            *self._progress(),
            self._findings(),
            dollars(self._cost) if self._cost else "",
            *self._calls(),
        ]
        return [part for part in parts if part]

    def _commits(self) -> str:
        failed = f", {self.commits_failed:,} could not be reviewed" if self.commits_failed else ""
        return f"{self.commits_done:,}/{self.commits_total:,} commits{failed}" if self.commits_total else ""

    def _progress(self) -> list[str]:
        failed = f", {self.units_failed:,} failed" if self.units_failed else ""
        units = f"{self.units_done:,}/{self.units_planned:,} units{failed}" if self.units_planned else ""
        good = [lane.lane for lane in self._lanes if lane.failure is None]
        bad = [lane.lane for lane in self._lanes if lane.failure is not None]
        return [units, _named(good, "done"), _named(bad, "failed")]

    def _findings(self) -> str:
        counts = [f"{self._by_severity[step]:,} {step.label}" for step in Severity if self._by_severity[step]]
        refuted = [f"{self._refuted:,} refuted"] if self._refuted else []
        return ", ".join([*counts, *refuted])

    def _calls(self) -> list[str]:
        running, waiting = len(self._running), len(self._waiting)
        return [
            f"{counted(running, 'call', 'calls')} running" if running else "",
            f"{waiting:,} waiting for quota" if waiting else "",
        ]


def _named(lanes: list[str], outcome: str) -> str:
    if len(lanes) > _LANES_NAMED:
        return f"{len(lanes):,} lanes {outcome}"
    return f"{', '.join(lanes)} {outcome}" if lanes else ""


_LONGEST_MESSAGE = 2_000
_LONGEST_TITLE = 200
_FINDINGS_SHOWN = 5
_FINDINGS_TOLD = 50
# In a log, so many units have a line each; of more, every twentieth, and each that found something or failed.
_UNITS_TOLD = 50
_UNITS_APART = 20
_SHORT_SHA = 10
_SEVERITY_CELLS = max(len(step.label) for step in Severity)
_STYLES = {
    Severity.CRITICAL: "bold red",
    Severity.HIGH: "bold red",
    Severity.MEDIUM: "bold yellow",
    Severity.LOW: "bold bright_blue",
}


class ProgressDisplay:
    """A sink for the events of one review: `with ProgressDisplay(stream=…, mode=…) as display: … emit=display.emit`.

    On a terminal, one line that changes, below the latest findings; elsewhere a line for each unit and each finding.
    """

    def __init__(self, *, stream: TextIO, mode: ProgressMode, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = LiveLine(stream=stream, mode=mode, status=self.status, above=self.latest, clock=clock)
        self._mode = mode
        self._clock = clock
        self._started = clock()
        self._stage = "Starting"
        self._doing = ""
        self._warned = ""
        self._latest: tuple[Row, ...] = ()
        self.tally = Tally()

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def emit(self, event: Event) -> None:
        """Take an event. Cheap; never raises."""
        if self._mode is ProgressMode.SILENT:
            return
        try:
            self._take(event)
        except Exception:  # noqa: BLE001 - whatever an event holds, a display that cannot show it ends no review
            self._doing = ""

    def say(self, words: str) -> None:
        """Tell something that stays, whatever the mode but silence."""
        if self._mode is not ProgressMode.SILENT:
            self._line.print(f"codeloupe: {_one_line(words)}")

    def _take(self, event: Event) -> None:
        self.tally.take(event)
        match event:
            case StageStarted():
                self._stage, self._doing = _one_line(_words(event)), ""
            case AgentActivity():
                self._doing = _doing(event)
            case UnitFinished():
                self._show(event.findings)
            case CommitReviewed():
                self._show(_findings(event))
            case _:
                pass
        if self._mode is ProgressMode.PLAIN:
            for line in self._plain_lines(event):
                self._line.print(line)
        elif isinstance(event, Warned):
            self.say(_words(event))
        if isinstance(event, Warned):
            self._warned = event.message

    def _show(self, findings: Sequence[Finding]) -> None:
        self._latest = (*self._latest, *map(_row, findings[-_FINDINGS_SHOWN:]))[-_FINDINGS_SHOWN:]

    def _plain_lines(self, event: Event) -> list[str]:
        if isinstance(event, AgentActivity):
            return [f"codeloupe: {_activity(event)}"] if _is_worth_a_line(event.event) else []
        if isinstance(event, CommitReviewed):
            return [f"codeloupe: {_one_line(_words(event))}", *_told(_findings(event))]
        if isinstance(event, LaneFinished):
            return [f"codeloupe: {_one_line(_lane(event, with_reason=not self._is_known(event.failure)))}"]
        if not isinstance(event, UnitFinished):
            return [f"codeloupe: {_one_line(_words(event))}"]
        total = max(self.tally.units_done, self.tally.units_planned)
        is_told = (
            total <= _UNITS_TOLD or self.tally.units_done in (1, total) or not self.tally.units_done % _UNITS_APART
        )
        if not (is_told or event.failure or event.findings):
            return []
        number = f"{self.tally.units_done:,}/{total:,}"
        unit = _one_line(f"unit {number} {_unit(event, with_reason=not self._is_known(event.failure))}")
        return [f"codeloupe: {unit}", *_told(event.findings)]

    def _is_known(self, failure: str | None) -> bool:
        """Whether the last warning has told already why a unit or a lane failed."""
        return bool(failure) and self._warned.endswith(failure or "")

    def status(self) -> str:
        """What the live line says: the stage, how far it is, the time so far, and what an agent does just now."""
        elapsed = duration(self._clock() - self._started)
        parts = [self._stage, *map(log_line, self.tally.in_words()), elapsed, self._doing]
        return "  ".join(part for part in parts if part)

    def latest(self) -> Sequence[Row]:
        """The latest findings, for above the live line."""
        return self._latest


def _one_line(words: str) -> str:
    """Safe on a terminal and in a CI log."""
    return log_line(" ".join(words[:_LONGEST_MESSAGE].split()))


def _words(event: Event) -> str:  # noqa: C901, PLR0911 - one case for each kind of event
    match event:
        case ReviewerChosen():
            return reviewer_in_words(event.reviewer)
        case StageStarted():
            return f"{event.stage.capitalize()} {event.detail}"
        case ChangeRead():
            return f"Read {counted(len(event.change.files), 'changed file', 'changed files')}"
        case LaneFinished():
            return _lane(event, with_reason=True)
        case Warned():
            return f"warning: {event.message}"
        case UnitsPlanned():
            return f"{event.lane}: {counted(event.units, 'unit', 'units')}, about {event.tokens:,} tokens of diff"
        case UnitFinished():
            return f"unit {_unit(event, with_reason=True)}"
        case FindingVerified():
            return f"{event.proof}: {_finding(event.finding)}"
        case AgentActivity():
            return _activity(event)
        case CommitReviewed():
            return _commit(event)
        case _:
            assert_never(event)


def _lane(event: LaneFinished, *, with_reason: bool) -> str:
    if event.failure is not None:
        reason = f": {event.failure}" if with_reason else ""
        return f"{event.lane} failed after {duration(event.seconds)}{reason}"
    return f"{event.lane} done in {duration(event.seconds)}, {counted(event.findings, 'finding', 'findings')}"


def _unit(event: UnitFinished, *, with_reason: bool) -> str:
    if event.failure is not None:
        reason = f": {event.failure}" if with_reason else ""
        return f"{event.unit} failed after {duration(event.seconds)}{reason}"
    how = "from the ledger" if event.from_ledger else f"done in {duration(event.seconds)}"
    return f"{event.unit} {how}, {counted(len(event.findings), 'finding', 'findings')}"


def _commit(event: CommitReviewed) -> str:
    """`commit 3/200 1a2b3c4d5e FIX 0.70, 1 finding: subject`."""
    outcome = event.outcome
    number = f"commit {event.number:,}/{event.total:,} {outcome.commit.sha[:_SHORT_SHA]}"
    if outcome.verdict is None:
        return f"{number} could not be reviewed: {outcome.failure}"
    found = counted(len(_findings(event)), "finding", "findings")
    score = "" if outcome.score is None else f" {outcome.score:.2f}"
    return f"{number} {outcome.verdict.value}{score}, {found}: {outcome.commit.subject[:_LONGEST_TITLE]}"


def _findings(event: CommitReviewed) -> tuple[Finding, ...]:
    return event.outcome.review.findings if event.outcome.review is not None else ()


def _told(findings: Sequence[Finding]) -> list[str]:
    told = [f"  {_finding(finding)}" for finding in findings[:_FINDINGS_TOLD]]
    rest = len(findings) - len(told)
    return [*told, *([f"  and {rest:,} more"] if rest else [])]


def _finding(finding: Finding) -> str:
    """`high  a.py:12  title`. Each part is cleaned by itself, so that none can reach into the next."""
    place, title = _one_line(place_in_words(finding)), _one_line(finding.title[:_LONGEST_TITLE])
    return f"{finding.severity.label}  {place}  {title}"


def _row(finding: Finding) -> Row:
    label = f"{finding.severity.label:<{_SEVERITY_CELLS}}"
    place, title = _one_line(place_in_words(finding)), _one_line(finding.title[:_LONGEST_TITLE])
    return (label, _STYLES[finding.severity]), (f"  {place}", "cyan"), (f"  {title}", "")


def _is_worth_a_line(event: AgentEvent) -> bool:
    """What happens often is only for the live line, and a last failure is told as that of its unit."""
    if isinstance(event, AttemptFailed):
        return event.retry_in_seconds is not None
    return isinstance(event, QuotaEnded | FellBack)


def _activity(event: AgentActivity) -> str:
    agent = event.event.to_agent if isinstance(event.event, FellBack) else event.event.agent
    return _one_line(f"warning: {event.unit}: {agent}: {in_words(event.event)}")


def _doing(event: AgentActivity) -> str:
    """What the live line tells of a call: what it reads, and what holds it up."""
    if not isinstance(event.event, ToolUsed | AttemptFailed | QuotaEnded | FellBack):
        return ""
    return _one_line(f"{event.unit}: {in_words(event.event)}")
