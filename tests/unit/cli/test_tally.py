from __future__ import annotations

from datetime import UTC, datetime

from codeloupe.cli.progress import ProgressDisplay, ProgressMode
from codeloupe.model.agent import (
    AgentEvent,
    AgentFinished,
    AgentStarted,
    AttemptFailed,
    AttemptStarted,
    QuotaEnded,
    TokensSpent,
    ToolUsed,
)
from codeloupe.model.events import (
    AgentActivity,
    Event,
    FindingVerified,
    LaneFinished,
    StageStarted,
    UnitFinished,
    UnitsPlanned,
    Warned,
)
from codeloupe.model.finding import FindingStatus, Severity
from tests.rows import each
from tests.unit.reports.examples import finding

FINISHED = AgentFinished("codex", success=True, attempts=1, duration_ms=5, cost_usd=0.5)


def tally(*events: Event) -> list[str]:
    """The parts of the live line between its stage and its time."""
    display = ProgressDisplay(mode=ProgressMode.SILENT, clock=lambda: 0.0)
    for event in events:
        display.emit(event)
    parts = display.status().split("  ")
    return parts[1 : parts.index("0.0 s")]


def activities(unit: str, *events: AgentEvent) -> list[Event]:
    return [AgentActivity(unit, event) for event in events]


def test_nothing_has_nothing_to_say() -> None:
    assert tally() == []
    assert tally(StageStarted("reading", "x"), Warned("x")) == []


def test_units_of_all_lanes_are_counted_together() -> None:
    done = UnitFinished("codex", "a.py", (), 1.0)
    failed = UnitFinished("codex", "b.py", (), 1.0, failure="timeout")
    planned = [UnitsPlanned("codex", 3, 100), UnitsPlanned("gemini", 1_200, 100)]
    assert tally(*planned, done) == ["1/1,203 units"]
    assert tally(*planned, done, failed) == ["2/1,203 units, 1 failed"]


def test_findings_are_counted_by_severity_worst_first() -> None:
    found = UnitFinished("codex", "a.py", (finding(severity=Severity.LOW), finding(), finding()), 1.0)
    assert tally(found, found) == ["4 high, 2 low"]


def test_refuted_findings_are_told_beside_the_others() -> None:
    found = UnitFinished("codex", "a.py", (finding(), finding()), 1.0)
    refuted = FindingVerified(finding(status=FindingStatus.REFUTED), "refuted")
    assert tally(found, refuted, FindingVerified(finding(), "confirmed")) == ["2 high, 1 refuted"]


def test_lanes_are_named_while_they_are_few() -> None:
    lanes = [LaneFinished("ruff", 3, 0.4), LaneFinished("ast-grep", 0, 61.0, failure="timed out")]
    assert tally(*lanes) == ["ruff done", "ast-grep failed"]
    assert tally(*(LaneFinished(f"lane {number}", 0, 0.1) for number in range(7))) == ["7 reviewers done"]


def test_a_call_runs_from_its_attempt_on_and_not_while_it_waits_for_a_place() -> None:
    started = AgentStarted("codex", None)
    assert tally(*activities("a", started)) == []
    running = [
        *activities("a", started, AttemptStarted("codex", 1, 3)),
        *activities("b", AttemptStarted("codex", 1, 3)),
    ]
    assert tally(*running) == ["2 calls running"]
    assert tally(*running, *activities("a", AttemptFailed("codex", 1, "Overloaded", "busy", 1.0))) == ["1 call running"]
    assert tally(*running, *activities("a", FINISHED), *activities("b", FINISHED)) == ["$1.00"]


def test_waiting_for_a_quota_ends_with_the_next_attempt_or_the_call() -> None:
    opens = datetime(2030, 1, 1, tzinfo=UTC)
    waiting = activities("a", QuotaEnded("codex", opens, waiting=True))
    assert tally(*waiting) == ["1 waiting for quota"]
    assert tally(*activities("a", QuotaEnded("codex", opens, waiting=False))) == []
    assert tally(*waiting, *activities("a", AttemptStarted("codex", 1, 3))) == ["1 call running"]
    gone = AgentFinished("codex", success=False, attempts=1, duration_ms=5, cost_usd=None)
    assert tally(*waiting, *activities("a", gone)) == []


@each(
    ("events", "words"),
    [
        ([TokensSpent("codex", 5, 5)], []),
        ([TokensSpent("codex", 5, 5, 0.25), TokensSpent("codex", 9, 9, 0.75)], ["$0.75"]),
        ([TokensSpent("codex", 5, 5, 0.25), FINISHED], ["$0.50"]),
        ([TokensSpent("codex", 5, 5, 0.001)], ["$0.0010"]),
        ([AgentFinished("codex", success=True, attempts=1, duration_ms=5, cost_usd=0.5, from_ledger=True)], []),
        ([ToolUsed("codex", "Read", "a.py")], []),
    ],
)
def test_the_cost_is_what_calls_have_told_so_far_and_the_ledger_is_free(
    events: list[AgentEvent], words: list[str]
) -> None:
    assert tally(*activities("a", *events)) == words
