"""One line on a terminal that is redrawn while something runs, plain lines elsewhere, or nothing.

It only shows. A stream that cannot be written to any more disturbs nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO, cast

from codeloupe.system.untrusted import plain_signs

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text

# One line in pieces, each with its style.
Row = Sequence[tuple[str, str]]

_DUMB_TERMINALS = ("", "dumb", "unknown")
_FALSE_WORDS = ("", "0", "false", "no", "off")
_REFRESHES_PER_SECOND = 10
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"


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


def _nothing() -> Sequence[Row]:
    return ()


class LiveLine:
    """The line, as a context; `status` says what stands in it, `above` gives a few rows that stand over it.

    It is gone and the cursor back when the block ends. NO_COLOR is respected.
    """

    def __init__(
        self,
        *,
        stream: TextIO,
        mode: ProgressMode,
        status: Callable[[], str],
        above: Callable[[], Sequence[Row]] = _nothing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = _LastingStream(stream)
        self._mode = mode
        self._status = status
        self._above = above
        self._clock = clock
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

    def print(self, line: str) -> None:
        """Write a line that stays, above the live one."""
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

    def _live_line(self) -> Group | str:
        if self._console is None:
            return ""
        from rich.console import Group

        frame = self._frames[int(self._clock() * _REFRESHES_PER_SECOND) % len(self._frames)]
        status = self._fitted([(frame, "cyan"), (f" {self._status()}", "")])
        return Group(*(self._fitted([("  ", ""), *row]) for row in self._above()), status)

    def _fitted(self, row: Row) -> Text:
        from rich.text import Text

        pieces = [(self._stream.shown(text), style) for text, style in row]
        return Text.assemble(*pieces, no_wrap=True, overflow="ellipsis")


class _LastingStream:
    """A stream that takes what is written to it even when it is closed or its reader has left.

    The live line is drawn by a thread of rich's, where a failure could not be caught otherwise.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding or "utf-8"

    def shown(self, text: str) -> str:
        """The text as the encoding can hold it: with plainer signs, and the rest written as escapes."""
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            return plain_signs(text).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return text

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
