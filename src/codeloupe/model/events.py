"""What happens during a review, for progress displays and logs."""

from __future__ import annotations

from codeloupe.model.agent_events import AgentEvent
from codeloupe.model.change import Change
from codeloupe.model.finding import Finding
from codeloupe.model.records import dataclass
from codeloupe.model.review import ReviewerInfo
from codeloupe.model.sweep import CommitReview


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
class ChangeRead:
    """The change under review is known, with its lines: reports show findings among them."""

    change: Change


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


@dataclass(frozen=True, slots=True)
class UnitsPlanned:
    """A reviewer cut the change into so many agent calls, of about so many tokens in all."""

    lane: str
    units: int
    tokens: int


@dataclass(frozen=True, slots=True)
class UnitFinished:
    """One agent call ended. `findings` are anchored, but not merged or verified yet; `failure` says why it failed."""

    lane: str
    unit: str
    findings: tuple[Finding, ...]
    seconds: float
    from_ledger: bool = False
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class FindingVerified:
    """One finding was tried to be refuted; `finding` is what became of it."""

    finding: Finding
    proof: str


@dataclass(frozen=True, slots=True)
class AgentActivity:
    """Something happened inside the agent call of a unit."""

    unit: str
    event: AgentEvent


@dataclass(frozen=True, slots=True)
class CommitReviewed:
    """One commit of a sweep is done, well or not: the `number`th of `total`, in the order in which they ended."""

    outcome: CommitReview
    number: int
    total: int


Event = (
    ChangeRead
    | ReviewerChosen
    | StageStarted
    | LaneFinished
    | Warned
    | UnitsPlanned
    | UnitFinished
    | FindingVerified
    | AgentActivity
    | CommitReviewed
)
