"""The small protocols between rooms, and the data that crosses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from codeloupe.model.change import Change, FileChange
from codeloupe.model.events import Event
from codeloupe.model.finding import Finding
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError
from codeloupe.model.usage import Usage

EventSink = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class ReviewTask:
    """What a reviewer gets: the change, the files to look at, and a directory with their new content.

    `snapshot` holds each reviewed file that exists after the change, byte for byte, symbolic links as text.
    `without_content` names the reviewed files whose whole content is not known (only a diff was given).
    """

    change: Change
    files: tuple[FileChange, ...]
    snapshot: Path
    trusted: bool
    timeout_seconds: float
    without_content: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReviewerOutcome:
    """What a reviewer found, and what it could not do."""

    findings: tuple[Finding, ...] = ()
    units_total: int = 0
    units_failed: tuple[FailedUnit, ...] = ()
    errors: tuple[ReviewError, ...] = ()
    usage: Usage = Usage()


class Reviewer(Protocol):
    """Turns a change into findings. A failure of a part is in the outcome; only cancellation is raised."""

    @property
    def info(self) -> ReviewerInfo:
        """Its type, model and why it was chosen."""

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review the task's files."""


class Clock(Protocol):
    """Monotonic seconds, so that tests can own the time."""

    def __call__(self) -> float:
        """Seconds since some fixed moment."""
