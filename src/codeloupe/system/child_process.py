"""Child processes that run until they are stopped, such as workers and servers, and that end with their parent."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

_LIBC = ctypes.CDLL(None)
_SET_PARENT_DEATH_SIGNAL = 1


def ends_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return a `preexec_fn` after which a child gets a signal if the thread that started it ends.

    Only Linux supports this. On other systems, the children of a killed process must be ended by hand.
    """

    def request() -> None:
        if hasattr(_LIBC, "prctl"):
            _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, number)

    return request


class ChildProcess:
    """One process, in its own session: Ctrl-C in a terminal reaches only its parent, which passes it on."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own program and words
            words,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            preexec_fn=ends_with_parent(signal.SIGTERM),  # noqa: PLW1509 - it only calls into libc
        )

    @property
    def process_id(self) -> int:
        """Return its number."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether it has not ended."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self._process.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.is_running:
            self._process.send_signal(number)
