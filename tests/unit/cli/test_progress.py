from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from codeloupe.cli.progress import ProgressDisplay, ProgressMode, choose_mode
from codeloupe.model.agent import AttemptFailed, AttemptStarted, FellBack, QuotaEnded, ToolUsed, TurnTaken
from codeloupe.model.events import (
    AgentActivity,
    Event,
    FindingVerified,
    LaneFinished,
    ReviewerChosen,
    StageStarted,
    UnitFinished,
    UnitsPlanned,
    Warned,
)
from codeloupe.model.finding import FindingStatus, Severity
from codeloupe.model.review import ReviewerInfo
from tests.endings import comes_to_pass
from tests.rows import each
from tests.unit.reports.examples import finding

EVENTS: list[Event] = [
    ReviewerChosen(ReviewerInfo("offline", "as requested")),
    StageStarted("reading", "the change"),
    StageStarted("analysing", "12 files"),
    LaneFinished("ruff", 3, 0.42),
    LaneFinished("ast-grep", 0, 61.0, failure="timed out"),
    Warned("ast-grep timed out"),
]
FOUND = UnitFinished("agent_sdk", "app/db.py", (finding(), finding(severity=Severity.LOW, title="Nit")), 4.2)
REVIEWING: list[Event] = [
    UnitsPlanned("agent_sdk", 23, 34_000),
    StageStarted("reviewing", "12 files"),
    FOUND,
    UnitFinished("agent_sdk", "a.py:1-40", (), 0.01, from_ledger=True),
    UnitFinished("agent_sdk", "b.py", (), 60.0, failure="timeout: no answer in time"),
    FindingVerified(finding(status=FindingStatus.REFUTED), "refuted"),
]
SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


class Terminal:
    """A pseudo-terminal: what a program writes to `stream` can be read back at the end."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._master, slave = os.openpty()
        self.stream: TextIO = os.fdopen(slave, "w", encoding=encoding, errors="strict")
        self._received = bytearray()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._master, 65536):
                self._received += chunk
        except OSError:
            return  # Linux says EIO when the last writer has left

    def has(self, words: str) -> bool:
        return words.encode() in bytes(self._received)

    def text(self) -> str:
        if not self.stream.closed:
            self.stream.close()
        self._reader.join()
        return self._received.decode("utf-8", "replace")

    def close(self) -> None:
        self.text()
        os.close(self._master)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    device = Terminal()
    yield device
    device.close()


def shown(mode: ProgressMode, *events: Event, stream: TextIO | None = None) -> str:
    target = stream or io.StringIO()
    with ProgressDisplay(stream=target, mode=mode) as display:
        for event in events:
            display.emit(event)
    return target.getvalue() if isinstance(target, io.StringIO) else ""


def test_plain_mode_writes_one_line_for_each_event() -> None:
    assert shown(ProgressMode.PLAIN, *EVENTS).split("\n") == [
        "codeloupe: Offline review: as requested (lint, security and hygiene; not an AI review)",
        "codeloupe: Reading the change",
        "codeloupe: Analysing 12 files",
        "codeloupe: ruff done in 0.4 s, 3 findings",
        "codeloupe: ast-grep failed after 1 min 1 s: timed out",
        "codeloupe: warning: ast-grep timed out",
        "",
    ]


def test_plain_mode_tells_each_unit_and_each_finding_as_it_appears() -> None:
    assert shown(ProgressMode.PLAIN, *REVIEWING).split("\n") == [
        "codeloupe: agent_sdk: 23 units, about 34,000 tokens of diff",
        "codeloupe: Reviewing 12 files",
        "codeloupe: unit 1/23 app/db.py done in 4.2 s, 2 findings",
        "  high  app/db.py:42  Statement is built from a variable",
        "  low  app/db.py:42  Nit",
        "codeloupe: unit 2/23 a.py:1-40 from the ledger, 0 findings",
        "codeloupe: unit 3/23 b.py failed after 1 min 0 s: timeout: no answer in time",
        "codeloupe: refuted: high app/db.py:42 Statement is built from a variable",
        "",
    ]


def test_a_finding_without_a_place_is_told_without_a_line() -> None:
    unit = UnitFinished("codex", "a.py", (finding(anchored=False), finding(file="", line_start=0)), 1.0)
    text = shown(ProgressMode.PLAIN, unit)
    assert "\n  high  app/db.py  Statement" in text
    assert "\n  high  ?  Statement" in text


def test_a_unit_with_endless_findings_does_not_fill_the_log() -> None:
    lines = shown(ProgressMode.PLAIN, UnitFinished("codex", "a.py", (finding(),) * 1_234, 1.0)).split("\n")
    assert (len(lines), lines[-2]) == (53, "  and 1,184 more")


def test_hundreds_of_units_do_not_fill_the_log() -> None:
    quiet = [UnitFinished("codex", f"{number}.py", (), 1.0) for number in range(1, 500)]
    troubled = UnitFinished("codex", "bad.py", (), 1.0, failure="timeout")
    text = shown(ProgressMode.PLAIN, UnitsPlanned("codex", 502, 1_000_000), *quiet, FOUND, troubled, quiet[0])
    lines = [line for line in text.split("\n") if "unit " in line]
    assert 20 < len(lines) < 40
    assert "app/db.py" in text
    assert "bad.py failed" in text
    assert "unit 502/502" in lines[-1]


def test_why_a_unit_failed_is_not_told_twice_when_a_warning_told_it() -> None:
    warning = Warned("agent_sdk could not review b.py: timeout: no answer in time")
    lines = shown(ProgressMode.PLAIN, warning, REVIEWING[4]).split("\n")
    assert lines[0] == "codeloupe: warning: agent_sdk could not review b.py: timeout: no answer in time"
    assert lines[1] == "codeloupe: unit 1/1 b.py failed after 1 min 0 s"


def test_why_a_lane_failed_is_not_told_twice_either() -> None:
    warning = Warned("codex could not review b.py: not logged in: no key")
    lane = LaneFinished("codex", 0, 1.0, failure="not logged in: no key")
    assert shown(ProgressMode.PLAIN, warning, lane).split("\n")[1] == "codeloupe: codex failed after 1.0 s"
    assert shown(ProgressMode.PLAIN, lane) == "codeloupe: codex failed after 1.0 s: not logged in: no key\n"


def test_plain_mode_tells_of_a_call_only_what_holds_it_up() -> None:
    activity: list[Event] = [
        AgentActivity("a.py", event)
        for event in (
            AttemptStarted("codex", 1, 3),
            TurnTaken("codex", 1),
            ToolUsed("codex", "Read", "b.py"),
            AttemptFailed("codex", 1, "Overloaded", "no room", 2.0),
            AttemptFailed("codex", 2, "Overloaded", "no room"),
            QuotaEnded("codex", None, waiting=True),
            FellBack("codex", "gemini", "not logged in"),
        )
    ]
    assert shown(ProgressMode.PLAIN, *activity).split("\n") == [
        "codeloupe: warning: a.py: codex: attempt 1 failed: no room; again in 2.0 s",
        "codeloupe: warning: a.py: codex: its quota ended; it opens again later, waiting for it",
        "codeloupe: warning: a.py: gemini: takes over from codex: not logged in",
        "",
    ]


def test_an_event_that_cannot_be_shown_disturbs_nobody() -> None:
    broken: list[Event] = [
        UnitFinished("codex", "a.py", (None,), 1.0),  # type: ignore[arg-type]  # that it is survived is the test
        LaneFinished("ruff", 1, None),  # type: ignore[arg-type]  # as above
        None,  # type: ignore[list-item]  # as above
        Warned("still here"),
    ]
    assert shown(ProgressMode.PLAIN, *broken).endswith("codeloupe: warning: still here\n")


def test_what_is_said_stays_in_every_mode_but_silence() -> None:
    for mode, text in ((ProgressMode.PLAIN, "codeloupe: a\\x1bb\n"), (ProgressMode.SILENT, "")):
        stream = io.StringIO()
        with ProgressDisplay(stream=stream, mode=mode) as display:
            display.say("a\x1bb")
        assert stream.getvalue() == text


def test_silent_mode_writes_nothing_not_even_warnings() -> None:
    assert shown(ProgressMode.SILENT, *EVENTS) == ""


def test_plain_mode_obeys_no_string_of_an_event() -> None:
    text = shown(
        ProgressMode.PLAIN,
        Warned("\x1b[2J::error::a\n::add-mask::b\u202e"),
        LaneFinished("##[group]x", 1, 0.1),
        StageStarted("\x07", "\x9b"),
        Warned("x" * 100_000),
        UnitFinished("c", "\x1b[2J", (finding(title="::error::\n::add-mask::x\x9b" + "y" * 9_999, file="##[x"),), 1.0),
        AgentActivity("::u", FellBack("\x07", "##[group]", "\u202e\n")),
        ReviewerChosen(ReviewerInfo("\x1b", "::stop")),
    )
    lines = text.split("\n")
    assert lines[0] == "codeloupe: warning: \\x1b[2J::error::a ::add-mask::b\\u202e"
    assert lines[1].startswith("codeloupe: ## [group]x done")
    assert not [character for character in text if character != "\n" and not character.isprintable()]
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line]
    assert len(lines) == 9
    assert len(text) < 3_500


def test_plain_lines_fit_the_encoding_of_the_stream() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    shown(ProgressMode.PLAIN, Warned("日本 é"), stream=stream)
    assert raw.getvalue() == b"codeloupe: warning: \\u65e5\\u672c \\xe9\n"


def test_a_closed_stream_does_not_disturb_the_review() -> None:
    stream = io.StringIO()
    with ProgressDisplay(stream=stream, mode=ProgressMode.PLAIN) as display:
        stream.close()
        for event in EVENTS:
            display.emit(event)
    assert "ruff done" in display.status(), "what cannot be shown is counted all the same"


def test_a_reader_that_left_does_not_disturb_the_review() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    with ProgressDisplay(stream=stream, mode=ProgressMode.PLAIN) as display:
        for event in EVENTS:
            display.emit(event)
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_terminal_that_goes_away_does_not_disturb_the_review(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codeloupe.cli.progress._REFRESHES_PER_SECOND", 50)
    with ProgressDisplay(stream=terminal.stream, mode=ProgressMode.LIVE) as display:
        terminal.stream.close()
        for event in EVENTS:
            display.emit(event)
        time.sleep(0.1)  # the live line is drawn anew meanwhile
    shown(ProgressMode.LIVE, *EVENTS, stream=terminal.stream)


def test_the_live_line_says_stage_lanes_and_time(terminal: Terminal) -> None:
    seconds = iter([10.0, *[12.5] * 10_000])
    with ProgressDisplay(stream=terminal.stream, mode=ProgressMode.LIVE, clock=lambda: next(seconds)) as display:
        for event in EVENTS[1:5]:
            display.emit(event)
        assert display.status() == "Analysing 12 files  ruff done  ast-grep failed  2.5 s"


def test_the_live_line_says_units_findings_calls_and_what_an_agent_does() -> None:
    display = ProgressDisplay(stream=io.StringIO(), mode=ProgressMode.PLAIN, clock=lambda: 0.0)
    for event in REVIEWING[:3]:
        display.emit(event)
    display.emit(AgentActivity("c.py", AttemptStarted("codex", 1, 3)))
    assert display.status() == "Reviewing 12 files  1/23 units  1 high, 1 low  1 call running  0.0 s"
    display.emit(AgentActivity("c.py", ToolUsed("codex", "Read", "src/\x1b.py")))
    assert display.status().endswith("1 call running  0.0 s  c.py: Read src/\\x1b.py")
    display.emit(StageStarted("verifying", "1 finding"))
    assert display.status() == "Verifying 1 finding  1/23 units  1 high, 1 low  1 call running  0.0 s"


def test_the_live_line_has_only_the_latest_findings_above_it() -> None:
    display = ProgressDisplay(stream=io.StringIO(), mode=ProgressMode.PLAIN, clock=lambda: 0.0)
    for number in range(9):
        display.emit(UnitFinished("codex", "a.py", (finding(title=f"Number {number}"),), 1.0))
    rows = ["".join(text for text, _ in row) for row in display.above()]
    assert rows == [f"high      app/db.py:42  Number {number}" for number in range(4, 9)]


def test_findings_appear_above_the_live_line_and_are_gone_at_the_end(terminal: Terminal) -> None:
    with ProgressDisplay(stream=terminal.stream, mode=ProgressMode.LIVE) as display:
        display.emit(FOUND)
        assert comes_to_pass(lambda: terminal.has("Statement is built from a variable"))
    text = terminal.text()
    assert "Statement is built from a variable" in text
    assert "codeloupe: unit" not in text
    assert text.endswith("\x1b[2K")


def test_the_live_line_is_drawn_and_gone_at_the_end_with_the_cursor_back(terminal: Terminal) -> None:
    shown(ProgressMode.LIVE, *EVENTS[:3], stream=terminal.stream)
    text = terminal.text()
    assert "Analysing 12 files" in text or "Starting" in text
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)
    assert text.endswith("\x1b[2K")


@pytest.mark.parametrize("problem", [KeyboardInterrupt, RuntimeError])
def test_the_terminal_is_restored_after_an_error_or_an_interrupt(
    terminal: Terminal, problem: type[BaseException]
) -> None:
    def broken_review() -> None:
        with ProgressDisplay(stream=terminal.stream, mode=ProgressMode.LIVE) as display:
            display.emit(EVENTS[2])
            raise problem

    with pytest.raises(problem):
        broken_review()
    text = terminal.text()
    assert text.rindex(SHOW_CURSOR) > text.rindex(HIDE_CURSOR)
    assert text.endswith("\x1b[2K")
    for thread in threading.enumerate():
        if "Refresh" in type(thread).__name__:
            thread.join(timeout=30)
            assert not thread.is_alive()


def test_warnings_stay_above_the_live_line(terminal: Terminal) -> None:
    shown(ProgressMode.LIVE, *EVENTS, Warned("\x1b[2Jsecond"), stream=terminal.stream)
    text = terminal.text()
    assert "codeloupe: warning: ast-grep timed out" in text
    assert "warning: \\x1b[2Jsecond" in text
    assert "\x1b[2J" not in text
    assert "codeloupe: Reading" not in text


def test_no_color_is_respected(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shown(ProgressMode.LIVE, Warned("plain"), stream=terminal.stream)
    assert "\x1b[33m" not in terminal.text()


def test_warnings_are_yellow_where_colour_is_wanted(terminal: Terminal) -> None:
    shown(ProgressMode.LIVE, Warned("yellow"), stream=terminal.stream)
    assert "\x1b[33m" in terminal.text()


def test_a_terminal_that_is_not_utf_8_gets_a_plain_spinner(terminal: Terminal) -> None:
    device = Terminal(encoding="ascii")
    shown(ProgressMode.LIVE, Warned("日本"), StageStarted("reading", "日本"), stream=device.stream)
    text = device.text()
    device.close()
    assert text.isascii()
    assert "\\u65e5" in text


@pytest.mark.parametrize(
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
    terminal: Terminal, environment: dict[str, str], mode: ProgressMode
) -> None:
    assert choose_mode(quiet=False, stream=terminal.stream, environment=environment) is mode
    assert choose_mode(quiet=True, stream=terminal.stream, environment=environment) is ProgressMode.SILENT
    assert choose_mode(logs=True, stream=terminal.stream, environment=environment) is ProgressMode.PLAIN


def test_what_is_no_terminal_gets_plain_lines() -> None:
    assert choose_mode(quiet=False, stream=io.StringIO(), environment={"TERM": "xterm"}) is ProgressMode.PLAIN


@each("mode", ["PLAIN", "SILENT"])
def test_rich_is_not_loaded_without_a_live_line(mode: str) -> None:
    program = (
        "import sys\n"
        "from codeloupe.cli.progress import ProgressDisplay, ProgressMode\n"
        "from codeloupe.model.events import Warned\n"
        f"with ProgressDisplay(stream=sys.stderr, mode=ProgressMode.{mode}) as display:\n"
        "    display.emit(Warned('x'))\n"
        "print('rich' in sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "False\n"
    assert ended.stderr == ("codeloupe: warning: x\n" if mode == "PLAIN" else "")
