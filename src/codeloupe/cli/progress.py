"""What a person sees while a review runs: one live line on a terminal, plain lines elsewhere, or nothing.

The display only listens. It never raises into the review, and it writes to one stream, never to the result's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, assert_never, cast

from codeloupe.model.events import Event, LaneFinished, ReviewerChosen, StageStarted, Warned
from codeloupe.report.sanitise import log_line
from codeloupe.report.wording import counted, duration, reviewer_in_words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_DUMB_TERMINALS = ("", "dumb", "unknown")
_FALSE_WORDS = ("", "0", "false", "no", "off")
_REFRESHES_PER_SECOND = 10
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"
_LANES_NAMED = 4
_LONGEST_MESSAGE = 2_000


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


class ProgressDisplay:
    """A sink for the events of one review: `with ProgressDisplay(stream=…, mode=…) as display: … emit=display.emit`.

    The live line is gone and the cursor back when the block ends, however it ends. NO_COLOR is respected. A stream
    that cannot be written to any more does not disturb the review.
    """

    def __init__(self, *, stream: TextIO, mode: ProgressMode, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = _LastingStream(stream)
        self._mode = mode
        self._clock = clock
        self._started = clock()
        self._stage = "Starting"
        self._lanes: list[LaneFinished] = []
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

    def emit(self, event: Event) -> None:
        """Take an event. Cheap; never raises."""
        if self._mode is ProgressMode.SILENT:
            return
        if isinstance(event, StageStarted):
            self._stage = _in_words(event)
        elif isinstance(event, LaneFinished):
            self._lanes.append(event)
        if self._mode is ProgressMode.PLAIN or isinstance(event, Warned):
            self._print(f"codeloupe: {_in_words(event)}")

    def status(self) -> str:
        """What the live line says: the stage, the lanes that ended, the time so far."""
        done = _lanes_in_words([lane for lane in self._lanes if lane.failure is None], "done")
        failed = _lanes_in_words([lane for lane in self._lanes if lane.failure is not None], "failed")
        elapsed = duration(self._clock() - self._started)
        return "  ".join(part for part in (self._stage, done, failed, elapsed) if part)

    def _print(self, line: str) -> None:
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

    def _live_line(self) -> Text | str:
        if self._console is None:
            return ""
        frame = self._frames[int(self._clock() * _REFRESHES_PER_SECOND) % len(self._frames)]
        line = self._console.render_str(self._stream.shown(f"{frame} {self.status()}"), overflow="ellipsis")
        line.no_wrap = True
        line.stylize("cyan", 0, 1)
        return line


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


class _LastingStream:
    """A stream that takes what is written to it even when it is closed or its reader has left.

    The live line is drawn by a thread of rich's, where a failure could not be caught otherwise.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding or "utf-8"

    def shown(self, text: str) -> str:
        """The text with what the encoding cannot hold written as escapes."""
        return text.encode(self.encoding, "backslashreplace").decode(self.encoding)

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
