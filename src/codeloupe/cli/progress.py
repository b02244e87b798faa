"""What a person sees while a review runs. The display only listens and never raises into the review."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TextIO, assert_never

from codeloupe.cli.agent_progress import in_words as activity_in_words
from codeloupe.cli.live_line import LiveLine, ProgressMode, Row, choose_mode
from codeloupe.cli.tally import Tally
from codeloupe.model.agent import AgentEvent, AttemptFailed, FellBack, QuotaEnded, ToolUsed
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
from codeloupe.model.finding import Finding
from codeloupe.model.severity import Severity
from codeloupe.reports.wording import counted, duration, place_in_words, reviewer_in_words
from codeloupe.system.sanitise import log_line

__all__ = ["ProgressDisplay", "ProgressMode", "choose_mode"]

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
    return _one_line(f"warning: {event.unit}: {agent}: {activity_in_words(event.event)}")


def _doing(event: AgentActivity) -> str:
    """What the live line tells of a call: what it reads, and what holds it up."""
    if not isinstance(event.event, ToolUsed | AttemptFailed | QuotaEnded | FellBack):
        return ""
    return _one_line(f"{event.unit}: {activity_in_words(event.event)}")
