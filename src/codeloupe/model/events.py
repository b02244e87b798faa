"""What happens during a review, for progress displays and logs."""

from __future__ import annotations

from dataclasses import dataclass

from codeloupe.model.review import ReviewerInfo


@dataclass(frozen=True, slots=True)
class ReviewerChosen:
    """The reviewer is known; always the first event."""

    reviewer: ReviewerInfo


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage of the review began: `reading`, `analysing`, `judging`; `detail` says on what."""

    stage: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LaneFinished:
    """One analyser or agent lane ended: how many findings, or why it failed."""

    lane: str
    findings: int
    seconds: float
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Warned:
    """Something degraded the review."""

    message: str


Event = ReviewerChosen | StageStarted | LaneFinished | Warned
