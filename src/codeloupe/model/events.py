"""What happens during a review, for progress displays and logs."""

from __future__ import annotations

from codeloupe.model.agent import AgentEvent
from codeloupe.model.change import Change
from codeloupe.model.event import EventBase
from codeloupe.model.finding import Claim, Finding
from codeloupe.model.review import Level, ReviewerInfo
from codeloupe.model.sweep import CommitReview


class ReviewerChosen(EventBase, frozen=True):
    """A reviewer was chosen. This is the first event, once for each reviewer."""

    reviewer: ReviewerInfo


class StageStarted(EventBase, frozen=True):
    """A stage began: `reading`, `searching`, `analysing`, `verifying`, or in a sweep `reviewing`.

    `detail` says what it works on.
    """

    stage: str
    detail: str = ""


class ChangeRead(EventBase, frozen=True):
    """The change was read. `change` contains the whole diff, so the event can be large."""

    change: Change


class LaneFinished(EventBase, frozen=True):
    """One analyser, agent or external reviewer ended. `failure` says why it failed, or is None."""

    lane: str
    findings: int
    seconds: float
    failure: str | None = None


class Warned(EventBase, frozen=True):
    """A problem degraded the review, or there is a note for its reader; `level` says which."""

    message: str
    level: Level = Level.PROBLEM


class UnitsPlanned(EventBase, frozen=True):
    """A reviewer divided the change into units, one agent call each. `tokens` estimates all of them together."""

    lane: str
    units: int
    tokens: int


class UnitFinished(EventBase, frozen=True):
    """A unit ended. Its `claims` are not merged or verified yet. `failure` says why it is incomplete, or is None."""

    lane: str
    unit: str
    claims: tuple[Claim, ...]
    seconds: float
    from_ledger: bool = False
    failure: str | None = None


class FindingVerified(EventBase, frozen=True):
    """The claims of a finding were verified. `proof` is the worst result, or `not_verified`."""

    finding: Finding
    proof: str


class AgentActivity(EventBase, frozen=True):
    """Something happened in the agent call of a unit. `event` is an agent event."""

    unit: str
    event: AgentEvent


class CommitReviewed(EventBase, frozen=True):
    """One commit of a sweep ended, as the `number`th of `total`, reviewed or not."""

    outcome: CommitReview
    number: int
    total: int


_OfUnit = UnitsPlanned | UnitFinished | FindingVerified | AgentActivity
Event = ReviewerChosen | StageStarted | ChangeRead | LaneFinished | Warned | _OfUnit | CommitReviewed
