"""What is seen while a pipeline runs: a tree on a terminal that leaves nothing behind, lines elsewhere."""

import io
import re

import pytest

from codeloupe.cli.pipeline_display import PipelineDisplay
from codeloupe.cli.progress import ProgressMode
from codeloupe.model.pipeline import CriticVerdict, StageState
from tests.unit.cli.run_terminal import Screen, Terminal
from tests.unit.store.run_samples import attempt, critique, event, run, stage

S = StageState
GOING = run(
    1,
    stage("research", S.COMPLETED, attempt(1, critique()), chosen=1),
    stage("write", S.RUNNING, attempt(1, critique(CriticVerdict.REWORK, score=50, summary="No source."))),
    stage("print"),
)
STEP = event("begun", kind="stage_state", stage="write")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redrawn more often than for people, since a test waits for it."""
    monkeypatch.setattr("codeloupe.cli.progress._REFRESHES_PER_SECOND", 50)


def lines(record: object, *events: object) -> list[str]:
    stream = io.StringIO()
    with PipelineDisplay(stream=stream, mode=ProgressMode.PLAIN) as display:
        for each in events:
            display.watch(record, each)  # type: ignore[arg-type]  # some are no events at all
    return stream.getvalue().splitlines()


class TestLines:
    def test_each_step_has_one_line(self) -> None:
        record = run(1, stage("write", S.RUNNING, attempt(1)), state=S.RUNNING)
        facts = {"gate": "critic", "verdict": "REWORK", "score": 50}
        told = lines(
            record,
            event(kind="run_started"),
            event("sent back", kind="stage_state", stage="write"),
            event("No source.", kind="critique", stage="write", facts=facts),
            event("tests failed", kind="critique", stage="write", facts={**facts, "gate": "command", "score": None}),
            event("no room", kind="try_failed", stage="write"),
            event("the call is repeated", kind="recovery", stage="write"),
            event("a person approved it", kind="approval_given", stage="write"),
            event("odd", kind="a_later_kind", stage="write"),
            event("all done", kind="run_ended"),
        )
        assert told == [
            "codeloupe: run 00000001 started",
            "codeloupe: write: running attempt 2: sent back",
            "codeloupe: write: critic REWORK 50: No source.",
            "codeloupe: write: command REWORK: tests failed",
            "codeloupe: write: call failed: no room",
            "codeloupe: write: the call is repeated",
            "codeloupe: write: a person approved it",
            "codeloupe: write: odd",
            "codeloupe: run 00000001 running: all done",
        ]

    def test_a_long_reason_is_told_at_the_first_of_its_steps(self) -> None:
        reason = "the stage write got no answer: there is no such program on the PATH of this machine"
        told = lines(
            GOING,
            event(reason, kind="try_failed", stage="write"),
            event(reason, kind="stage_state", stage="write", facts={"state": "recovering"}),
            event("the call is repeated", kind="recovery", stage="write", facts={"step": "retry"}),
            event(reason, kind="try_failed", stage="write"),
            event(reason, kind="stage_state", stage="write", facts={"state": "recovering"}),
            event(f"{reason} (after 2 tries)", kind="recovery", stage="write", facts={"step": "escalate"}),
        )
        assert told == [
            f"codeloupe: write: call failed: {reason}",
            "codeloupe: write: the call is repeated",
            "codeloupe: write: call failed again, for the same reason",
        ]

    def test_what_the_next_state_tells_is_not_told_twice(self) -> None:
        kinds = ("attempt_started", "attempt_finished", "approval_wanted")
        asked = event("a person approved it", kind="critique", stage="write", facts={"gate": "approval"})
        assert lines(GOING, *(event("x", kind=kind, stage="write") for kind in kinds), asked) == []

    def test_nothing_that_an_agent_said_acts_on_the_terminal_or_the_log(self) -> None:
        [line] = lines(GOING, event("\x1b[2J\n::error::x\u202e", kind="note", stage="\x07write"))
        assert line == "codeloupe: \\x07write: \\x1b[2J ::error::x\\u202e"

    def test_a_stage_that_is_not_known_is_named(self) -> None:
        assert lines(GOING, event(kind="stage_state", stage="gone")) == ["codeloupe: gone"]


class TestTheTree:
    def test_it_is_drawn_again_and_again_and_leaves_nothing_behind(self, terminal: Terminal) -> None:
        with PipelineDisplay(stream=terminal.stream, mode=ProgressMode.LIVE) as display:
            display.watch(GOING, STEP)
            drawn = Screen(80, 12)
            drawn.feed(terminal.wait_for("1/3 stages", times=3))
            display.watch(run(1, stage("only", S.COMPLETED)), STEP)
            terminal.wait_for("1/1 stages", times=2)
        lines_drawn = drawn.lines()
        assert lines_drawn[0].startswith("  article  running  00000001 · ")
        assert "├─ ✔ research  completed" in lines_drawn[1]
        assert "├─ ▸ write     running    attempt 2 · last score 50" in lines_drawn[2]
        assert "critic REWORK 50: No source." in lines_drawn[3]
        assert re.match(r". 1/3 stages  \$0\.12  ", lines_drawn[5])
        screen = Screen(80, 12)
        screen.feed(terminal.text())
        assert screen.lines() == []
        assert screen.scrolled == 0

    def test_while_a_person_is_asked_nothing_is_drawn(self, terminal: Terminal) -> None:
        with PipelineDisplay(stream=terminal.stream, mode=ProgressMode.LIVE) as display:
            display.watch(GOING, STEP)
            terminal.wait_for("1/3 stages")
            with display.paused():
                # It comes to rest, which a line that is redrawn never does.
                drawn = terminal.settled().count("1/3 stages")
            terminal.wait_for("1/3 stages", times=drawn + 1)

    def test_a_tree_higher_than_the_terminal_shows_what_is_under_way_and_does_not_scroll(
        self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LINES", "24")
        done = [stage(f"done-{number}", S.COMPLETED) for number in range(30)]
        going = [stage(f"going-{number}", S.RUNNING) for number in range(3)]
        waiting = [stage(f"later-{number}") for number in range(20)]
        with PipelineDisplay(stream=terminal.stream, mode=ProgressMode.LIVE) as display:
            display.watch(run(1, *done, *going, *waiting), STEP)
            drawn = Screen(80, 24)
            drawn.feed(terminal.wait_for("30/53 stages"))
            display.watch(run(1, *(stage(f"all-{number}", S.RUNNING) for number in range(60))), STEP)
            terminal.wait_for("0/60 stages")
        lines_drawn = drawn.lines()
        assert [line.split()[2] for line in lines_drawn[1:4]] == ["going-0", "going-1", "going-2"]
        screen = Screen(80, 24)
        screen.feed(terminal.text())
        assert screen.lines() == []
        assert screen.scrolled == 0

    def test_a_terminal_without_signs_gets_plain_ones(self) -> None:
        opened = Terminal("ascii")
        try:
            with PipelineDisplay(stream=opened.stream, mode=ProgressMode.LIVE) as display:
                display.watch(GOING, STEP)
                drawn = Screen(80, 24)
                drawn.feed(opened.wait_for("1/3 stages"))
            assert opened.text().isascii()
        finally:
            opened.close()
        assert drawn.lines()[1].startswith("  |- + research  completed")

    def test_a_record_that_cannot_be_shown_has_no_rows(self) -> None:
        display = PipelineDisplay(stream=io.StringIO(), mode=ProgressMode.SILENT)
        display.run = run(1, stages=(object(),))
        assert display.above() == ()
