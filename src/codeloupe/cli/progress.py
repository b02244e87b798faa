"""What a person sees while a review runs. The display only listens and never raises into the review."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO, assert_never

from codeloupe.cli.live_line import LiveLine, ProgressMode, choose_mode
from codeloupe.model.events import Event, LaneFinished, ReviewerChosen, StageStarted, Warned
from codeloupe.report.sanitise import log_line
from codeloupe.report.wording import counted, duration, reviewer_in_words

__all__ = ["ProgressDisplay", "ProgressMode", "choose_mode"]

_LANES_NAMED = 4
_LONGEST_MESSAGE = 2_000


class ProgressDisplay:
    """A sink for the events of one review: `with ProgressDisplay(stream=…, mode=…) as display: … emit=display.emit`."""

    def __init__(self, *, stream: TextIO, mode: ProgressMode, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = LiveLine(stream=stream, mode=mode, status=self.status, clock=clock)
        self._mode = mode
        self._clock = clock
        self._started = clock()
        self._stage = "Starting"
        self._lanes: list[LaneFinished] = []

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
        if isinstance(event, StageStarted):
            self._stage = _in_words(event)
        elif isinstance(event, LaneFinished):
            self._lanes.append(event)
        if self._mode is ProgressMode.PLAIN or isinstance(event, Warned):
            self._line.print(f"codeloupe: {_in_words(event)}")

    def status(self) -> str:
        """What the live line says: the stage, the lanes that ended, the time so far."""
        done = _lanes_in_words([lane for lane in self._lanes if lane.failure is None], "done")
        failed = _lanes_in_words([lane for lane in self._lanes if lane.failure is not None], "failed")
        elapsed = duration(self._clock() - self._started)
        return "  ".join(part for part in (self._stage, done, failed, elapsed) if part)


def _in_words(event: Event) -> str:
    """One line, safe on a terminal and in a CI log."""
    match event:
        case ReviewerChosen():
            words = reviewer_in_words(event.reviewer)
        case StageStarted():
            words = f"{event.stage.capitalize()} {event.detail}"
        case LaneFinished(failure=None):
            words = f"{event.lane} done in {duration(event.seconds)}, {counted(event.findings, 'finding', 'findings')}"
        case LaneFinished():
            words = f"{event.lane} failed after {duration(event.seconds)}: {event.failure}"
        case Warned():
            words = f"warning: {event.message}"
        case _:
            assert_never(event)
    return log_line(" ".join(words[:_LONGEST_MESSAGE].split()))


def _lanes_in_words(lanes: list[LaneFinished], outcome: str) -> str:
    if len(lanes) > _LANES_NAMED:
        return f"{len(lanes):,} lanes {outcome}"
    return f"{log_line(', '.join(lane.lane for lane in lanes))} {outcome}" if lanes else ""
