"""A script: steps that are taken in order, by a server or by an agent."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

Step = TypeVar("Step")


class Script(Generic[Step]):
    """Steps in order. Safe to use from any thread.

    When they are used up, the last one repeats, or comes `afterwards` where that is given. A script without steps
    gives `default`.
    """

    def __init__(self, steps: Iterable[Step], *, default: Step, afterwards: Step | None = None) -> None:
        self._waiting = deque(steps)
        self._afterwards = afterwards
        self._last = default if afterwards is None else afterwards
        self._lock = threading.Lock()

    def extend(self, steps: Iterable[Step]) -> None:
        """Add steps at the end."""
        with self._lock:
            self._waiting.extend(steps)

    def next_step(self) -> Step:
        """Take the next step."""
        with self._lock:
            if not self._waiting:
                return self._last
            step = self._waiting.popleft()
            if self._afterwards is None:
                self._last = step
            return step
