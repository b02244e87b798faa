"""What a person sees while an agent works. The display only listens and never raises into the call."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO, assert_never

from codeloupe.cli.live_line import LiveLine, ProgressMode
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
from codeloupe.reports.wording import duration
from codeloupe.system.sanitise import log_line

_LONGEST_MESSAGE = 500
# What happens often is only for the live line; as plain lines it would fill a log.
_FLEETING = (TurnTaken, ToolUsed, TokensSpent)


class AgentProgress:
    """A sink for the events of one agent call: `with AgentProgress(stream=…, mode=…) as progress: … progress.emit`."""

    def __init__(self, *, stream: TextIO, mode: ProgressMode, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = LiveLine(stream=stream, mode=mode, status=self.status, clock=clock)
        self._mode = mode
        self._clock = clock
        self._started = clock()
        self._agent = ""
        self._doing = "starting"
        self._spent = ""

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.__exit__(kind, error, trace)

    def emit(self, event: AgentEvent) -> None:
        """Take an event. Cheap; never raises."""
        if self._mode is ProgressMode.SILENT:
            return
        self._agent = event.to_agent if isinstance(event, FellBack) else event.agent
        if isinstance(event, TokensSpent):
            self._spent = in_words(event)
        else:
            self._doing = in_words(event)
        # A last failure is told by the agent that takes over, or as the outcome of the call.
        if isinstance(event, AttemptFailed) and event.retry_in_seconds is None:
            return
        stays = isinstance(event, (AttemptFailed, QuotaEnded, FellBack))
        if stays or (self._mode is ProgressMode.PLAIN and not isinstance(event, _FLEETING)):
            self._line.print(f"codeloupe: {log_line(self._agent)}: {in_words(event)}")

    def status(self) -> str:
        """What the live line says: the agent, what it does, what it spent, the time so far."""
        elapsed = duration(self._clock() - self._started)
        return "  ".join(part for part in (self._agent, self._doing, self._spent, elapsed) if part)


def in_words(event: AgentEvent) -> str:
    """One line, safe on a terminal and in a CI log."""
    return log_line(" ".join(_words(event)[:_LONGEST_MESSAGE].split()))


def _words(event: AgentEvent) -> str:  # noqa: PLR0911 - one return for each kind of event
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
