"""What a running review has come to so far, counted from its events."""

from __future__ import annotations

from collections import Counter

from codeloupe.model.agent import AgentEvent, AgentFinished, AttemptFailed, AttemptStarted, QuotaEnded, TokensSpent
from codeloupe.model.events import (
    AgentActivity,
    CommitReviewed,
    Event,
    FindingVerified,
    LaneFinished,
    UnitFinished,
    UnitsPlanned,
)
from codeloupe.model.finding import FindingStatus
from codeloupe.model.severity import Severity
from codeloupe.reports.wording import counted, dollars

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
