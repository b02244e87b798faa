"""What a person sees while something runs. A display only listens and never raises into what it shows."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TextIO, assert_never

from codeloupe.cli.pace import Pace
from codeloupe.model import agent, events
from codeloupe.model.change import Change
from codeloupe.model.finding import Claim, Finding, Proof, Severity
from codeloupe.model.review import Level
from codeloupe.model.sweep import CommitReview
from codeloupe.reports.wording import SEVERITY_STYLES, counted, dollars, duration, place_text, quota_text
from codeloupe.system.untrusted import encodable, log_line

if TYPE_CHECKING:
    from rich.console import Console, Group

# One line in pieces, each with its style.
Row = Sequence[tuple[str, str]]

_REFRESHES_PER_SECOND = 10
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LONGEST_TITLE = 200
# Without a terminal, the longest time without a line.
_SILENCE_SECONDS = 15.0


# How much is shown, and how.
ProgressMode = Enum("ProgressMode", "LIVE PLAIN SILENT")


def choose_mode(*, quiet: bool = False, logs: bool = False, stream: TextIO | None = None) -> ProgressMode:
    """Live on a terminal that can redraw a line, outside CI and without a log on it; plain lines elsewhere."""
    if quiet:
        return ProgressMode.SILENT
    in_ci = os.environ.get("CI", "").strip().lower() not in ("", "0", "false", "no", "off")
    is_dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    can_redraw = not (logs or in_ci or is_dumb) and (stream or sys.stderr).isatty()
    return ProgressMode.LIVE if can_redraw else ProgressMode.PLAIN


class Display:
    """Lines on a stream (stderr by default), and on a terminal a line below them that changes. A context.

    A subclass says in `status` what is in that line, and in `above` which rows are over it. They are gone and the
    cursor is back when the block ends. NO_COLOR is respected. Without a terminal, the status is printed whenever
    nothing was printed for 15 seconds, so that a long step does not look like a program that hangs.
    """

    def __init__(
        self, *, mode: ProgressMode, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mode = mode
        self._stream = stream or sys.stderr
        self._clock = clock
        self._started = clock()
        self._console: Console | None = None
        self._live = ExitStack()
        self._printed = threading.Event()

    def status(self) -> str:
        """What the line says that changes."""
        return ""

    def above(self) -> Sequence[Row]:
        """A few rows above that line."""
        return ()

    def __enter__(self) -> Self:
        if self._mode is ProgressMode.LIVE:
            # rich takes tens of milliseconds to load, and only a live line needs it.
            from rich.console import Console
            from rich.live import Live

            self._console = Console(file=self._stream, markup=False, emoji=False, highlight=False)
            how: dict[str, Any] = {"transient": True, "refresh_per_second": _REFRESHES_PER_SECOND}
            how |= {"redirect_stdout": False, "redirect_stderr": False}
            self._live.enter_context(Live(get_renderable=self._drawn, console=self._console, **how))
        elif self._mode is ProgressMode.PLAIN:
            self._live.enter_context(self._breaking_silence())
        return self

    def __exit__(self, *_: object) -> None:
        self._live.close()
        self._console = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While a person is asked something, nothing is drawn."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    @contextmanager
    def _breaking_silence(self) -> Iterator[None]:
        """Print the status from a thread of its own whenever nothing was printed for a while."""
        is_over = False

        def watch() -> None:
            while not is_over:
                if self._printed.wait(_SILENCE_SECONDS):
                    self._printed.clear()
                else:
                    self.say(self.status().replace("  ", ", "))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_over = True
            self._printed.set()
            watcher.join()

    def say(self, words: str) -> None:
        """Write a line that stays, whatever the mode but silence."""
        if words and self._mode is not ProgressMode.SILENT:
            self._print(f"codeloupe: {one_line(words)}")

    def tell(self, words: str) -> None:
        """Write a line that stays, unless the live line and what is above it show the same."""
        if self._mode is ProgressMode.PLAIN:
            self.say(words)

    def _shown(self, text: str) -> str:
        """The text as the encoding can hold it: with plainer signs, and the rest written as escapes."""
        encoding = self._stream.encoding or "utf-8"
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return encodable(text, encoding)
        return text

    def _print(self, line: str) -> None:
        line = self._shown(line)
        if self._console is not None:
            self._console.print(line, style="yellow", soft_wrap=True)
        else:
            self._stream.write(f"{line}\n")
            self._stream.flush()
            self._printed.set()

    def _drawn(self) -> Group | str:
        if self._console is None:
            return ""
        from rich.console import Group
        from rich.text import Text

        frames = _FRAMES if self._shown(_FRAMES) == _FRAMES else "|/-\\"
        frame = frames[int(self._clock() * _REFRESHES_PER_SECOND) % len(frames)]
        rows = [*([("  ", ""), *row] for row in self.above()), [(frame, "cyan"), (f" {self.status()}", "")]]
        pieces = ([(self._shown(text), style) for text, style in row] for row in rows)
        return Group(*(Text.assemble(*row, no_wrap=True, overflow="ellipsis") for row in pieces))


class ProgressDisplay(Display):
    """Shows and counts the events of a review or a sweep: `with ProgressDisplay(mode=…) as display: … display.emit`.

    On a terminal, one line that changes, below the latest findings; elsewhere a line for each unit and each finding.
    No line repeats a sentence of the report, which may go to the same place. `answers_stored` counts the answers that
    the ledger has. Another thread reads at any time, so that nothing it iterates over is changed in place.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.change: Change | None = None
        self.units_planned = self.units_done = self.units_failed = 0
        self.answers_stored = 0
        self.commits_total = self.commits_done = self.commits_failed = 0
        self._stage, self._doing, self._warned = "Starting", "", ""
        self._latest: tuple[Row, ...] = ()
        self._reviewers: dict[str, tuple[str, ...]] = {"done": (), "failed": ()}
        self._found: Counter[str] = Counter()
        # The calls under way: whether each runs or waits, and what it has cost so far.
        self._calls: dict[tuple[str, str], str] = {}
        self._costs: dict[tuple[str, str], float] = {}
        self._pace = Pace(self._started)

    def emit(self, event: events.Event) -> None:
        """Take an event. Cheap; never raises."""
        try:
            self._take(event)
        except Exception:  # noqa: BLE001 - whatever an event holds, a display that cannot show it ends no review
            self._doing = ""

    def _take(self, event: events.Event) -> None:  # noqa: C901 - one case for each kind of event
        match event:
            case events.ReviewerChosen():
                model = f" with {event.reviewer.model}" if event.reviewer.model else ""
                self.tell(f"Reviewer: {event.reviewer.type}{model}")
            case events.StageStarted():
                self._pace.begin(self._clock())
                self._stage, self._doing = one_line(f"{event.stage.capitalize()} {event.detail}"), ""
                self.tell(self._stage)
            case events.ChangeRead():
                self.change = event.change
                self.tell(f"Read {counted(len(event.change.files), 'changed file')}")
            case events.Warned():
                self._warned = event.message
                word = "warning" if event.level is Level.PROBLEM else "note"
                self.say(f"{word}: {event.message}")
            case events.UnitsPlanned():
                self._pace.begin(self._clock())
                self.units_planned += event.units
                units = counted(event.units, "unit")
                self.tell(f"{event.lane}: {units}, about {event.tokens:,} tokens of diff")
            case events.LaneFinished():
                outcome = "done" if event.failure is None else "failed"
                self._reviewers = {**self._reviewers, outcome: (*self._reviewers[outcome], event.lane)}
                self.tell(f"{event.lane} {self._ended(event, event.findings)}")
            case events.UnitFinished():
                self._take_unit(event)
            case events.FindingVerified():
                self._found["refuted"] += event.proof == Proof.REFUTED
                proof = event.proof.replace("_", " ")
                self.tell(f"{proof}: {'  '.join(_parts(event.finding))}")
            case events.AgentActivity():
                self._take_activity(event.unit, event.event)
            case events.CommitReviewed():
                self._take_commit(event)
            case _:
                assert_never(event)

    def _take_unit(self, event: events.UnitFinished) -> None:
        self.units_done += 1
        self.units_failed += event.failure is not None
        if not event.from_ledger:
            self._pace.take_unit()
        total = max(self.units_done, self.units_planned)
        # Up to 50 units have a line each; of more, every twentieth, and each that found something or failed.
        is_listed = total <= 50 or self.units_done in (1, total) or not self.units_done % 20
        if is_listed or event.failure or event.claims:
            ended = self._ended(event, len(event.claims), from_ledger=event.from_ledger)
            self.tell(f"unit {self.units_done:,}/{total:,} {event.unit} {ended}{self._in_brackets()}")
        self._list(event.claims)

    def _take_commit(self, event: events.CommitReviewed) -> None:
        """Print `commit 3/200 1a2b3c4d5e FIX 0.70, 1 finding: subject ($0.30 so far, about 9 min 0 s and $20 left)`."""
        outcome = event.outcome
        if _is_work(outcome):
            self._pace.take_unit()
        findings = () if outcome.review is None else outcome.review.findings
        self.commits_done, self.commits_total = event.number, event.total
        self.commits_failed += outcome.verdict is None
        score = "" if outcome.score is None else f" {outcome.score:.2f}"
        found = counted(len(findings), "finding")
        words = f"{outcome.verdict}{score}, {found}: {outcome.commit.subject[:_LONGEST_TITLE]}"
        if outcome.verdict is None:
            words = f"could not be reviewed: {outcome.failure}"
        self.tell(f"commit {event.number:,}/{event.total:,} {outcome.commit.sha[:10]} {words}{self._in_brackets()}")
        self._list(findings)

    def _take_activity(self, unit: str, event: agent.AgentEvent) -> None:
        # What the live line says of a call: what it reads, and what holds it up.
        is_shown = isinstance(event, agent.ToolUsed | agent.AttemptFailed | agent.QuotaEnded | agent.FellBack)
        self._doing = one_line(f"{unit}: {_describe(event)}") if is_shown else ""
        if isinstance(event, agent.DatabaseUnreachable | agent.DatabaseReachable):
            self.tell(f"note: {_describe(event)}")
        elif _holds_up(event):
            self.tell(f"warning: {unit}: {_agent_of(event)}: {_describe(event)}")
        # Several agents may review a unit of the same name.
        call = (unit, _agent_of(event))
        others = {known: state for known, state in self._calls.items() if known != call}
        match event:
            case agent.AttemptStarted():
                self._calls = {**others, call: "running"}
            case agent.QuotaEnded(waiting=True):
                self._calls = {**others, call: "waiting"}
            case agent.AttemptFailed():
                self._calls = others
            case agent.TokensSpent(cost_usd=float() as cost):
                self._costs = {**self._costs, call: cost}
            case agent.AgentFinished():
                self.answers_stored += event.stored
                self._calls = others
                self._costs = {known: cost for known, cost in self._costs.items() if known != call}
                self._pace.take_call(event)

    def _cost(self) -> str:
        cost = self._pace.spent + sum(self._costs.values())
        return dollars(cost) if cost else ""

    def _left(self) -> str:
        """Return the estimate of the rest: of the commits in a sweep, of the units in a review."""
        units = self.units_planned - self.units_done
        if self.commits_total:
            units = self.commits_total - self.commits_done
        return self._pace.left(units, self._clock())

    def _in_brackets(self) -> str:
        """Return the cost so far and the estimate of the rest, for the end of a line."""
        cost = self._cost()
        so_far = f"{cost} so far" if cost else ""
        words = ", ".join(filter(None, (so_far, self._left())))
        return f" ({words})" if words else ""

    def _ended(self, event: Any, findings: int, *, from_ledger: bool = False) -> str:
        if event.failure is None:
            how = "from the ledger" if from_ledger else f"done in {duration(event.seconds)}"
            return f"{how}, {counted(findings, 'finding')}"
        # The last warning may have given the reason already.
        is_known = bool(event.failure) and self._warned.endswith(event.failure)
        return f"failed after {duration(event.seconds)}{'' if is_known else f': {event.failure}'}"

    def _list(self, findings: Sequence[Finding] | Sequence[Claim]) -> None:
        self._found.update(finding.severity.label for finding in findings)
        rows = []
        for finding in findings[-5:]:
            label, place, title = _parts(finding)
            rows.append(
                ((f"{label:<8}", SEVERITY_STYLES[finding.severity]), (f"  {place}", "cyan"), (f"  {title}", ""))
            )
        self._latest = (*self._latest, *rows)[-5:]
        if self._mode is ProgressMode.PLAIN:
            for finding in findings[:50]:
                self._print(f"  {'  '.join(_parts(finding))}")
            if len(findings) > 50:
                self._print(f"  and {len(findings) - 50:,} more")

    def status(self) -> str:
        """Return the stage, how far it is, cost and time so far, the estimate, and what an agent does just now."""
        words = (*(step.label for step in Severity), "refuted")
        calls = Counter(self._calls.values())
        parts = (
            self._stage,
            _share("commits", self.commits_done, self.commits_total, self.commits_failed, "could not be reviewed"),
            _share("units", self.units_done, self.units_planned, self.units_failed, "failed"),
            *(
                f"{', '.join(names) if len(names) <= 4 else f'{len(names):,} reviewers'} {outcome}"
                for outcome, names in self._reviewers.items()
                if names
            ),
            ", ".join(f"{self._found[word]:,} {word}" for word in words if self._found[word]),
            self._cost(),
            f"{counted(calls['running'], 'call')} running" if calls["running"] else "",
            f"{calls['waiting']:,} waiting for quota" if calls["waiting"] else "",
            duration(self._clock() - self._started),
            self._left(),
            self._doing,
        )
        return "  ".join(log_line(part) for part in parts if part)

    def above(self) -> Sequence[Row]:
        """The latest findings."""
        return self._latest


class AgentProgress(Display):
    """Shows the events of one agent call: `with AgentProgress(mode=…) as progress: … progress.emit`."""

    _agent, _doing, _spent = "", "starting", ""

    def emit(self, event: agent.AgentEvent) -> None:
        """Take an event. Cheap; never raises."""
        self._agent, words = _agent_of(event), _describe(event)
        if isinstance(event, agent.TokensSpent):
            self._spent = words
        else:
            self._doing = words
        # What happens often is only for the live line; a last failure is that of the whole call, which reports it.
        if _holds_up(event):
            self.say(f"{self._agent}: {words}")
        elif not isinstance(event, agent.TurnTaken | agent.ToolUsed | agent.TokensSpent | agent.AttemptFailed):
            self.tell(f"{self._agent}: {words}")

    def status(self) -> str:
        """The agent, what it does, what it spent, the time so far."""
        elapsed = duration(self._clock() - self._started)
        return "  ".join(part for part in (self._agent, self._doing, self._spent, elapsed) if part)


def _is_work(outcome: CommitReview) -> bool:
    """Return whether a commit was reviewed now: it was read, and not every answer came from the ledger."""
    if outcome.review is None:
        return False
    usage = outcome.review.usage
    return usage.requests > 0 or not usage.cached


def _share(what: str, done: int, total: int, failed: int, how: str) -> str:
    return f"{done:,}/{total:,} {what}{f', {failed:,} {how}' if failed else ''}" if total else ""


def _parts(finding: Finding | Claim) -> tuple[str, str, str]:
    """`high`, `a.py:12` and the title. Each part is cleaned by itself, so that none can reach into the next."""
    return finding.severity.label, one_line(place_text(finding)), one_line(finding.title[:_LONGEST_TITLE])


def one_line(words: str) -> str:
    """The beginning of a text, safe on a terminal and in a CI log."""
    return log_line(" ".join(words[:2_000].split()))


def _agent_of(event: agent.AgentEvent) -> str:
    if isinstance(event, agent.DatabaseUnreachable | agent.DatabaseReachable):
        return ""
    return event.to_agent if isinstance(event, agent.FellBack) else event.agent


def _holds_up(event: agent.AgentEvent) -> bool:
    """Whether an event is worth a line in a log. A last failure is that of the whole call, which reports it."""
    if isinstance(event, agent.AttemptFailed):
        return event.retry_in_seconds is not None
    return isinstance(event, agent.QuotaEnded | agent.FellBack)


def _describe(event: agent.AgentEvent) -> str:  # noqa: C901 - one case for each kind of event
    match event:
        case agent.AgentStarted(model=model, label=label):
            text = f"asked{f' for {model}' if model else ''}{f' ({label})' if label else ''}"
        case agent.AttemptStarted():
            text = f"attempt {event.attempt} of {event.of}" if event.attempt > 1 else "working"
        case agent.AttemptFailed(retry_in_seconds=seconds):
            again = "" if seconds is None else f"; again in {duration(seconds)}"
            text = f"attempt {event.attempt} failed: {event.message}{again}"
        case agent.TurnTaken():
            text = f"turn {event.turn}"
        case agent.ToolUsed():
            text = f"{event.tool} {event.detail}"
        case agent.TokensSpent(cost_usd=usd):
            cost = "" if usd is None else f", ${usd:.2f}"
            text = f"{event.input_tokens:,} tokens in, {event.output_tokens:,} out{cost}"
        case agent.QuotaEnded():
            text = quota_text(event.opens_at, waiting=event.waiting)
        case agent.FellBack():
            text = f"takes over from {event.from_agent}: {event.reason}"
        case agent.DatabaseUnreachable() | agent.DatabaseReachable():
            text = event.summary
        case agent.AgentFinished():
            outcome = "answered" if event.success else "gave no answer"
            source = " (from an earlier call)" if event.from_ledger else ""
            text = f"{outcome} after {duration(event.duration_ms / 1000)}{source}"
        case _:
            assert_never(event)
    return one_line(text[:500])
