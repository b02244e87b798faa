"""What happens during a review, for progress displays and logs."""

from __future__ import annotations

from msgspec import Struct

from codeloupe.model.agent import AgentEvent
from codeloupe.model.change import Change
from codeloupe.model.finding import Claim, Finding
from codeloupe.model.review import Level, ReviewerInfo
from codeloupe.model.sweep import CommitReview


class ReviewerChosen(Struct, frozen=True):
    """The reviewer is known; always the first event."""

    reviewer: ReviewerInfo


class StageStarted(Struct, frozen=True):
    """A stage of the review began, such as `reading`, `searching` or `analysing`; `detail` says on what."""

    stage: str
    detail: str = ""


class ChangeRead(Struct, frozen=True):
    """The change under review is known, with its lines: reports show findings among them."""

    change: Change


class LaneFinished(Struct, frozen=True):
    """One analyser or agent ended: how many findings, or why it failed."""

    lane: str
    findings: int
    seconds: float
    failure: str | None = None


class Warned(Struct, frozen=True):
    """A problem that degraded the review, or a note for the reader of the verdict."""

    message: str
    level: Level = Level.PROBLEM


class UnitsPlanned(Struct, frozen=True):
    """A reviewer cut the change into so many agent calls, of about so many tokens in all."""

    lane: str
    units: int
    tokens: int


class UnitFinished(Struct, frozen=True):
    """A unit ended. `claims` are anchored, but not merged or verified yet; `failure` says why it is incomplete."""

    lane: str
    unit: str
    claims: tuple[Claim, ...]
    seconds: float
    from_ledger: bool = False
    failure: str | None = None


class FindingVerified(Struct, frozen=True):
    """An agent tried to refute the claims of one finding; `proof` is the worst result, or `not_verified`."""

    finding: Finding
    proof: str


class AgentActivity(Struct, frozen=True):
    """Something happened inside the agent call of a unit."""

    unit: str
    event: AgentEvent


class CommitReviewed(Struct, frozen=True):
    """One commit of a sweep is done, well or not: the `number`th of `total`, in the order in which they ended."""

    outcome: CommitReview
    number: int
    total: int


_OfUnit = UnitsPlanned | UnitFinished | FindingVerified | AgentActivity
Event = ChangeRead | ReviewerChosen | StageStarted | LaneFinished | Warned | _OfUnit | CommitReviewed
