"""What is seen while a review, a sweep or an agent call runs, and that no event and no stream can disturb it."""

import io
import time
from datetime import UTC, datetime
from typing import TextIO

import pytest
from msgspec.structs import replace

from codeloupe.cli.main import _Forgiving
from codeloupe.cli.progress import AgentProgress, ProgressDisplay, ProgressMode, choose_mode
from codeloupe.model import agent, events
from codeloupe.model.finding import Severity
from codeloupe.model.review import ReviewerInfo
from tests.endings import comes_to_pass
from tests.rows import each
from tests.unit.cli.run_terminal import Terminal
from tests.unit.commits import sweep_samples as sweep
from tests.unit.reports.examples import finding

EVENTS: list[events.Event] = [
    events.ReviewerChosen(ReviewerInfo("offline", "as requested")),
    events.StageStarted("reading", "the change"),
    events.StageStarted("analysing", "12 files"),
    events.LaneFinished("ruff", 3, 0.42),
    events.LaneFinished("ast-grep", 0, 61.0, failure="timed out"),
    events.Warned("ast-grep timed out"),
]
CLAIM = finding().main_claim
NIT = finding(severity=Severity.LOW, title="Nit").main_claim
FOUND = events.UnitFinished("agent_sdk", "app/db.py", (CLAIM, NIT), 4.2)
REVIEWING: list[events.Event] = [
    events.UnitsPlanned("agent_sdk", 23, 34_000),
    events.StageStarted("reviewing", "12 files"),
    FOUND,
    events.UnitFinished("agent_sdk", "a.py:1-40", (), 0.01, from_ledger=True),
    events.UnitFinished("agent_sdk", "b.py", (), 60.0, failure="timeout: no answer in time"),
    events.FindingVerified(finding(), "refuted"),
]
PARTLY = sweep.failed_review(findings=(sweep.finding(Severity.LOW),))
COMMITS: list[events.Event] = [
    events.CommitReviewed(sweep.reviewed(1), 1, 1200),
    events.CommitReviewed(sweep.reviewed(2, sweep.finding(Severity.HIGH, title="Wrong\x1b[2J sum")), 2, 1200),
    events.CommitReviewed(sweep.not_reviewed(3, "timeout\n::error::x"), 3, 1200),
    events.CommitReviewed(sweep.not_reviewed(4, "invalid answer", review=PARTLY), 4, 1200),
]
FINISHED = agent.AgentFinished("codex", success=True, attempts=1, duration_ms=5, cost_usd=0.5)
DONE = events.UnitFinished("codex", "a.py", (), 1.0)
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return terminal


def shown(mode: ProgressMode, *events: events.Event, stream: TextIO | None = None) -> str:
    target = stream or io.StringIO()
    with ProgressDisplay(stream=target, mode=mode, clock=lambda: 0.0) as display:
        for event in events:
            display.emit(event)
    return target.getvalue() if isinstance(target, io.StringIO) else ""


def lines(*events: events.Event) -> list[str]:
    return shown(ProgressMode.PLAIN, *events).splitlines()


def counted(*events: events.Event) -> ProgressDisplay:
    """A display that shows nothing, after some events."""
    display = ProgressDisplay(stream=io.StringIO(), mode=ProgressMode.SILENT, clock=lambda: 0.0)
    for event in events:
        display.emit(event)
    return display


def tally(*events: events.Event) -> list[str]:
    """The parts of the live line between its stage and its time."""
    parts = counted(*events).status().split("  ")
    return parts[1 : parts.index("0.0 s")]


def calls(unit: str, *happened: agent.AgentEvent) -> list[events.Event]:
    return [events.AgentActivity(unit, event) for event in happened]


class TestPlainLines:
    def test_each_event_has_one(self) -> None:
        assert lines(*EVENTS) == [
            "codeloupe: Reviewer: offline",
            "codeloupe: Reading the change",
            "codeloupe: Analysing 12 files",
            "codeloupe: ruff done in 0.4 s, 3 findings",
            "codeloupe: ast-grep failed after 1 min 1 s: timed out",
            "codeloupe: warning: ast-grep timed out",
        ]
        assert lines(*REVIEWING) == [
            "codeloupe: agent_sdk: 23 units, about 34,000 tokens of diff",
            "codeloupe: Reviewing 12 files",
            "codeloupe: unit 1/23 app/db.py done in 4.2 s, 2 findings",
            "  high  app/db.py:42  Statement is built from a variable",
            "  low  app/db.py:42  Nit",
            "codeloupe: unit 2/23 a.py:1-40 from the ledger, 0 findings",
            "codeloupe: unit 3/23 b.py failed after 1 min 0 s: timeout: no answer in time",
            "codeloupe: refuted: high app/db.py:42 Statement is built from a variable",
        ]
        assert lines(*COMMITS) == [
            "codeloupe: commit 1/1,200 0000001ccc LEAVE 1.00, 0 findings: fix: number 1",
            "codeloupe: commit 2/1,200 0000002ccc FIX 0.70, 1 finding: fix: number 2",
            "  high  app/db.py:42  Wrong\\x1b[2J sum",
            "codeloupe: commit 3/1,200 0000003ccc could not be reviewed: timeout ::error::x",
            "codeloupe: commit 4/1,200 0000004ccc could not be reviewed: invalid answer (about 1 s left)",
            "  low  app/db.py:42  Statement is built from a variable",
        ]

    @pytest.mark.defect("E24")
    def test_cost_and_estimate_are_in_the_lines_of_units_and_commits(self) -> None:
        planned = events.UnitsPlanned("codex", 9, 100)
        asked = [*calls("a.py", FINISHED), DONE]
        stored = [*calls("a.py", replace(FINISHED, from_ledger=True)), replace(DONE, from_ledger=True)]
        units = [line for line in lines(planned, *stored * 3, *asked * 3) if "unit " in line]
        assert [line.partition("findings")[2] for line in units] == [
            *("", "", ""),
            *(" ($0.50 so far)", " ($1.00 so far)", " ($1.50 so far, about 1 s and $1.50 left)"),
        ]
        swept = [events.CommitReviewed(sweep.reviewed(number), number, 9) for number in range(1, 10)]
        ends = [line.partition(f"number {number}")[2] for number, line in enumerate(lines(*swept), start=1)]
        assert ends == ["", "", *[" (about 1 s left)"] * 6, ""]

    @pytest.mark.defect("E20")
    def test_a_line_follows_when_nothing_was_printed_for_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("codeloupe.cli.progress._SILENCE_SECONDS", 0.01)
        stream = io.StringIO()
        with ProgressDisplay(stream=stream, mode=ProgressMode.PLAIN, clock=lambda: 0.0) as display:
            display.emit(EVENTS[2])
            assert comes_to_pass(lambda: "codeloupe: Analysing 12 files, 0.0 s\n" in stream.getvalue())
        written = stream.getvalue()
        time.sleep(0.05)
        assert stream.getvalue() == written

    def test_hundreds_of_findings_or_units_do_not_fill_the_log(self) -> None:
        found = lines(events.UnitFinished("codex", "a.py", (CLAIM,) * 1_234, 1.0))
        assert (len(found), found[-1]) == (52, "  and 1,184 more")
        quiet = [events.UnitFinished("codex", f"{number}.py", (), 1.0) for number in range(1, 500)]
        troubled = events.UnitFinished("codex", "bad.py", (), 1.0, failure="timeout")
        many = lines(events.UnitsPlanned("codex", 502, 1_000_000), *quiet, FOUND, troubled, quiet[0])
        units = [line for line in many if "unit " in line]
        assert 20 < len(units) < 40
        assert "unit 502/502" in units[-1]
        assert any("app/db.py" in line for line in many)
        assert any("bad.py failed" in line for line in many)

    def test_a_reason_that_a_warning_gave_is_not_repeated(self) -> None:
        warning = events.Warned("agent_sdk could not review b.py: timeout: no answer in time")
        assert lines(warning, REVIEWING[4])[1] == "codeloupe: unit 1/1 b.py failed after 1 min 0 s"
        lane = events.LaneFinished("codex", 0, 1.0, failure="no key")
        warned = lines(events.Warned("codex could not review b.py: no key"), lane)
        assert warned[1] == "codeloupe: codex failed after 1.0 s"
        assert lines(lane) == ["codeloupe: codex failed after 1.0 s: no key"]

    def test_of_a_call_only_what_holds_it_up_is_said(self) -> None:
        activity = calls(
            "a.py",
            agent.AttemptStarted("codex", 1, 3),
            agent.TurnTaken("codex", 1),
            agent.ToolUsed("codex", "Read", "b.py"),
            agent.AttemptFailed("codex", 1, "Overloaded", "no room", 2.0),
            agent.AttemptFailed("codex", 2, "Overloaded", "no room"),
            agent.QuotaEnded("codex", None, waiting=True),
            agent.FellBack("codex", "gemini", "not logged in"),
        )
        assert lines(*activity) == [
            "codeloupe: warning: a.py: codex: attempt 1 failed: no room; again in 2.0 s",
            "codeloupe: warning: a.py: codex: waiting for quota",
            "codeloupe: warning: a.py: gemini: takes over from codex: not logged in",
        ]

    @pytest.mark.defect("M2")
    def test_an_outage_of_the_database_is_shown_with_its_end(self) -> None:
        since = datetime(2026, 11, 18, 14, 3, 5, tzinfo=UTC)
        activity = calls(
            "a.py",
            agent.DatabaseUnreachable(since, 3, "cannot be reached"),
            agent.DatabaseUnreachable(since, 1, "disk is full", is_reached=True),
            agent.DatabaseReachable(3),
        )
        assert lines(*activity) == [
            "codeloupe: note: database unreachable since 14:03:05, 3 answers stored locally",
            "codeloupe: note: database cannot store answers since 14:03:05, 1 answer stored locally",
            "codeloupe: note: database reachable again; 3 answers stored",
        ]

    def test_no_string_of_an_event_is_obeyed(self) -> None:
        hostile = finding(title="::error::\n::add-mask::x\x9b" + "y" * 9_999, file="##[x")
        text = shown(
            ProgressMode.PLAIN,
            events.Warned("\x1b[2J::error::a\n::add-mask::b\u202e"),
            events.LaneFinished("##[group]x", 1, 0.1),
            events.StageStarted("\x07", "\x9b"),
            events.Warned("x" * 100_000),
            events.UnitFinished("c", "\x1b[2J", hostile.claims, 1.0),
            events.AgentActivity("::u", agent.FellBack("\x07", "##[group]", "\u202e\n")),
            events.ReviewerChosen(ReviewerInfo("\x1b", "::stop")),
        )
        written = text.split("\n")
        assert written[0] == "codeloupe: warning: \\x1b[2J::error::a ::add-mask::b\\u202e"
        assert written[1].startswith("codeloupe: ## [group]x done")
        assert not [character for character in text if character != "\n" and not character.isprintable()]
        assert not [line for line in written if line.lstrip().startswith("::") or "##[" in line]
        assert len(written) == 9
        assert len(text) < 3_500


class TestNobodyIsDisturbed:
    def test_by_an_event_that_cannot_be_shown(self) -> None:
        broken: list[events.Event] = [
            events.UnitFinished("codex", "a.py", (None,), 1.0),  # type: ignore[arg-type]  # that it is survived is the test
            events.LaneFinished("ruff", 1, None),  # type: ignore[arg-type]  # as above
            None,  # type: ignore[list-item]  # as above
            events.Warned("still here"),
        ]
        assert lines(*broken)[-1] == "codeloupe: warning: still here"

    def test_by_a_terminal_that_goes_away(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("codeloupe.cli.progress._REFRESHES_PER_SECOND", 50)
        stream = _Forgiving(terminal.stream)
        with ProgressDisplay(stream=stream, mode=ProgressMode.LIVE) as display:
            terminal.stream.close()
            for event in EVENTS:
                display.emit(event)
            time.sleep(0.1)  # the live line is drawn anew meanwhile
        shown(ProgressMode.LIVE, *EVENTS, stream=stream)


class TestTheLiveLine:
    def test_it_says_units_findings_calls_and_what_an_agent_does(self) -> None:
        display = counted(*REVIEWING[:3], *calls("c.py", agent.AttemptStarted("codex", 1, 3)))
        assert display.status() == "Reviewing 12 files  1/23 units  1 high, 1 low  1 call running  0.0 s"
        display.emit(events.AgentActivity("c.py", agent.ToolUsed("codex", "Read", "src/\x1b.py")))
        assert display.status().endswith("1 call running  0.0 s  c.py: Read src/\\x1b.py")
        display.emit(events.StageStarted("verifying", "1 finding"))
        assert display.status() == "Verifying 1 finding  1/23 units  1 high, 1 low  1 call running  0.0 s"

    def test_it_counts_commits(self) -> None:
        display = counted(*COMMITS)
        assert "4/1,200 commits, 2 could not be reviewed  1 high, 1 low" in display.status()
        assert [row[1][0].strip() for row in display.above()] == ["app/db.py:42", "app/db.py:42"]
        assert (display.commits_done, display.commits_failed) == (4, 2)

    @each(
        ("events", "words"),
        [
            ([events.StageStarted("reading", "x"), events.Warned("x")], []),
            (
                [events.UnitsPlanned("codex", 3, 100), events.UnitsPlanned("gemini", 1_200, 100), DONE],
                ["1/1,203 units"],
            ),
            ([events.UnitsPlanned("codex", 9, 100), DONE, REVIEWING[4]], ["2/9 units, 1 failed"]),
            ([FOUND, FOUND], ["2 high, 2 low"]),
            ([FOUND, REVIEWING[5], events.FindingVerified(finding(), "confirmed")], ["1 high, 1 low, 1 refuted"]),
            (EVENTS[3:5], ["ruff done", "ast-grep failed"]),
            ([events.LaneFinished(f"number {number}", 0, 0.1) for number in range(7)], ["7 reviewers done"]),
        ],
    )
    def test_it_counts_units_findings_and_reviewers(self, events: list[events.Event], words: list[str]) -> None:
        assert tally(*events) == words

    def test_only_stored_answers_count_as_stored(self) -> None:
        display = ProgressDisplay(mode=ProgressMode.SILENT)
        stored = replace(FINISHED, stored=True)
        for event in calls("a", stored, FINISHED, stored):
            display.emit(event)
        assert display.answers_stored == 2

    def test_a_call_runs_from_its_attempt_on_and_not_while_it_waits(self) -> None:
        started, attempt = agent.AgentStarted("codex", None), agent.AttemptStarted("codex", 1, 3)
        assert tally(*calls("a", started)) == []
        running = [*calls("a", started, attempt), *calls("b", attempt)]
        assert tally(*running) == ["2 calls running"]
        failed = agent.AttemptFailed("codex", 1, "Overloaded", "busy", 1.0)
        assert tally(*running, *calls("a", failed)) == ["1 call running"]
        assert tally(*running, *calls("a", FINISHED), *calls("b", FINISHED)) == ["$1.00"]
        opens = datetime(2030, 1, 1, tzinfo=UTC)
        waiting = calls("a", agent.QuotaEnded("codex", opens, waiting=True))
        assert tally(*waiting) == ["1 waiting for quota"]
        assert tally(*calls("a", agent.QuotaEnded("codex", opens, waiting=False))) == []
        assert tally(*waiting, *calls("a", attempt)) == ["1 call running"]
        gone = replace(FINISHED, success=False, cost_usd=None)
        assert tally(*waiting, *calls("a", gone)) == []

    def test_the_cost_is_what_calls_have_said_so_far_and_the_ledger_is_free(self) -> None:
        from_ledger = replace(FINISHED, from_ledger=True)
        spent = agent.TokensSpent("codex", 5, 5, 0.25)
        assert tally(*calls("a", agent.TokensSpent("codex", 5, 5))) == tally(*calls("a", from_ledger)) == []
        assert tally(*calls("a", spent, agent.TokensSpent("codex", 9, 9, 0.75))) == ["$0.75"]
        assert tally(*calls("a", spent, FINISHED)) == ["$0.50"]
        assert tally(*calls("a", agent.TokensSpent("codex", 5, 5, 0.001))) == ["$0.0010"]

    def test_findings_and_warnings_appear_above_it_and_it_is_gone_at_the_end(self, terminal: Terminal) -> None:
        with ProgressDisplay(stream=terminal.stream, mode=ProgressMode.LIVE) as display:
            for event in (FOUND, *EVENTS, events.Warned("\x1b[2Jsecond")):
                display.emit(event)
            assert comes_to_pass(lambda: "Statement is built from a variable" in terminal.so_far())
        text = terminal.text()
        assert "codeloupe: warning: ast-grep timed out" in text
        assert "warning: \\x1b[2Jsecond" in text
        assert "\x1b[33m" in text, "warnings are yellow"
        assert "\x1b[2J" not in text
        assert "codeloupe: unit" not in text
        assert "codeloupe: Reading" not in text
        assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)
        assert text.endswith("\x1b[2K")


def test_of_one_agent_call_a_last_failure_is_said_only_by_whoever_takes_over() -> None:
    stream = io.StringIO()
    with AgentProgress(stream=stream, mode=ProgressMode.PLAIN, clock=lambda: 0.0) as progress:
        for event in (
            agent.AgentStarted("codex", None),
            agent.AttemptFailed("codex", 1, "Overloaded", "no room", 2.0),
            agent.AttemptStarted("codex", 1, 3),
            agent.AttemptFailed("codex", 1, "NotLoggedIn", "codex has no login"),
            agent.FellBack("codex", "gemini", "codex has no login"),
            agent.AttemptFailed("gemini", 1, "NotLoggedIn", "gemini has no login"),
            agent.AgentFinished("gemini", success=False, attempts=1, duration_ms=100, cost_usd=None),
        ):
            progress.emit(event)
    assert stream.getvalue().splitlines() == [
        "codeloupe: codex: asked",
        "codeloupe: codex: attempt 1 failed: no room; again in 2.0 s",
        "codeloupe: codex: working",
        "codeloupe: gemini: takes over from codex: codex has no login",
        "codeloupe: gemini: gave no answer after 0.1 s",
    ]


@each(
    ("environment", "mode"),
    [
        ({"TERM": "xterm"}, ProgressMode.LIVE),
        ({"TERM": "xterm", "CI": "false"}, ProgressMode.LIVE),
        ({"TERM": "xterm", "CI": "true"}, ProgressMode.PLAIN),
        ({"TERM": "xterm", "CI": "1"}, ProgressMode.PLAIN),
        ({"TERM": "dumb"}, ProgressMode.PLAIN),
        ({}, ProgressMode.PLAIN),
    ],
)
def test_on_a_terminal_the_environment_decides(
    terminal: Terminal, environment: dict[str, str], mode: ProgressMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "CI"):
        monkeypatch.setenv(name, environment.get(name, ""))
    assert choose_mode(stream=terminal.stream) is mode
    assert choose_mode(quiet=True, stream=terminal.stream) is ProgressMode.SILENT
    assert choose_mode(logs=True, stream=terminal.stream) is ProgressMode.PLAIN
    assert choose_mode(stream=io.StringIO()) is ProgressMode.PLAIN
