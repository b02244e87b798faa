"""The events of a review, for progress displays and logs."""

from __future__ import annotations

from codeloupe.model.agent import AgentEvent
from codeloupe.model.change import Change
from codeloupe.model.event import EventBase
from codeloupe.model.finding import Claim, Finding
from codeloupe.model.review import Level, ReviewerInfo
from codeloupe.model.sweep import CommitReview


class ReviewerChosen(EventBase, frozen=True):
    """A reviewer was chosen. A review starts with one of these events for each reviewer."""

    reviewer: ReviewerInfo


class StageStarted(EventBase, frozen=True):
    """A stage of the review started: `reading`, `searching`, `analysing` or `verifying`, or `reviewing` in a sweep.

    `detail` describes the work.
    """

    stage: str
    detail: str = ""


class ChangeRead(EventBase, frozen=True):
    """The change was read. `change` contains the whole diff, so the event can be large."""

    change: Change


class LaneFinished(EventBase, frozen=True):
    """One analyser, agent or external reviewer finished. `failure` is the reason if it failed, or None."""

    lane: str
    findings: int
    seconds: float
    failure: str | None = None


class Warned(EventBase, frozen=True):
    """The review reported a problem or a note for the user. `level` distinguishes the two."""

    message: str
    level: Level = Level.PROBLEM


class UnitsPlanned(EventBase, frozen=True):
    """A reviewer split the change into units, with one agent call for each. `tokens` is an estimate for all units."""

    lane: str
    units: int
    tokens: int


class UnitFinished(EventBase, frozen=True):
    """A unit finished. Its `claims` are not merged or verified yet. `failure` is the reason if it failed, or None."""

    lane: str
    unit: str
    claims: tuple[Claim, ...]
    seconds: float
    from_ledger: bool = False
    failure: str | None = None


class FindingVerified(EventBase, frozen=True):
    """The claims in a finding were verified. `proof` is the worst result, or `not_verified`."""

    finding: Finding
    proof: str


class AgentActivity(EventBase, frozen=True):
    """An agent event occurred in the call for a unit."""

    unit: str
    event: AgentEvent


class CommitReviewed(EventBase, frozen=True):
    """A sweep finished processing a commit, whether or not the commit could be reviewed.

    It was commit `number` of `total`.
    """

    outcome: CommitReview
    number: int
    total: int


_OfUnit = UnitsPlanned | UnitFinished | FindingVerified | AgentActivity
Event = ReviewerChosen | StageStarted | ChangeRead | LaneFinished | Warned | _OfUnit | CommitReviewed
