"""The small protocols between rooms, and the data that crosses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict

from msgspec import Struct

from codeloupe.model.agent import Usage
from codeloupe.model.change import Intent

# Every agent call and every review loads this module, and each of these costs a start some milliseconds.
if TYPE_CHECKING:
    from codeloupe.model.agent import AgentEvent, AgentLimits, AgentRequest, AgentResult, Availability
    from codeloupe.model.change import Change, FileChange, GuidanceFile, Moment
    from codeloupe.model.events import Event
    from codeloupe.model.finding import Finding
    from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError

EventSink = Callable[["Event"], None]
AgentEventSink = Callable[["AgentEvent"], None]
Transcript = Callable[[str, str], None]
"""Takes the prompts and raw answers of a review, each with a title."""

Clock = Callable[[], float]
MomentOf = Callable[[str, bytes], Awaitable["Moment"]]
"""Tells how far a line of a file, given by its text, has got on its way to others."""
AskAgent = Callable[["AgentRequest", AgentEventSink], Awaitable["AgentResult"]]
"""One question to one agent, with retries, limits, budget and ledger. Raises an AgentError or a StoreError."""


class ReviewTask(Struct, frozen=True):
    """What a reviewer gets: the change, the files to look at, and a directory with their new content.

    `snapshot` holds each reviewed file that exists after the change, byte for byte, symbolic links as text.
    `without_content` names the reviewed files whose whole content is not known (only a diff was given).
    `tree` is the whole reviewed tree, for an agent that reads more than the diff, or the part around the change
    (`tree_is_partial`). `is_follow_up` when these are only the lines that are new since an earlier review.
    """

    change: Change
    files: tuple[FileChange, ...]
    snapshot: Path
    trusted: bool
    timeout_seconds: float
    without_content: frozenset[str] = frozenset()
    tree: Path | None = None
    intent: Intent = Intent()
    guidance: tuple[GuidanceFile, ...] = ()
    earlier: tuple[Finding, ...] = ()
    is_follow_up: bool = False
    tree_is_partial: bool = False
    moment_of: MomentOf | None = None


class ReviewerOutcome(Struct, frozen=True):
    """What a reviewer found, and what it could not do. `unreviewed` names the files about which it can say nothing."""

    findings: tuple[Finding, ...] = ()
    units_total: int = 0
    units_failed: tuple[FailedUnit, ...] = ()
    errors: tuple[ReviewError, ...] = ()
    usage: Usage = Usage()
    unreviewed: frozenset[str] = frozenset()


class ReviewOptions(TypedDict, total=False):
    """How one review is done, beside its settings.

    `context` is what the reviewers should know beside the change, as data. What an agent saw in the last review of
    this branch, and what was paid for before, is not asked again, unless `fresh`; `since_last` leaves out of the
    outcome what the last review saw. `transcript` gets every prompt and raw answer, before secrets are masked.
    `session_id` names the caller's session to an external gate. `own_patterns` says which of `include` and `exclude`
    the caller chose for this review: only those may leave nothing of an untrusted change. Where no agent can be used,
    the analysers review and `errors` say so; with `needs_agent` that is a failure.
    """

    emit: EventSink
    context: str
    fresh: bool
    since_last: bool
    transcript: Transcript | None
    session_id: str | None
    own_patterns: frozenset[str]
    needs_agent: bool


class Reviewer(Protocol):
    """Turns a change into findings. A failure of a part is in the outcome; only cancellation is raised."""

    @property
    def info(self) -> ReviewerInfo:
        """Its type, model and why it was chosen."""

    async def review(self, task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """Review the task's files."""


class Verifier(Protocol):
    """Tries to refute findings, each alone with its code. A failure is in the outcome; only cancellation is raised."""

    async def verify(self, findings: Sequence[Finding], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """All the findings, in order: the refuted marked, the unproven lowered one step, the others as they were."""


class Agent(Protocol):
    """Answers a prompt. One call is one attempt: retries, budgets and the ledger are built around it."""

    @property
    def name(self) -> str:
        """Its short name: agent_sdk, claude_cli, codex, gemini, api or scripted."""

    @property
    def limits(self) -> AgentLimits:
        """What it can take and do."""

    async def run(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """Run one attempt. Raises an AgentError; a cancellation is raised as it came, the agent being gone."""

    async def check(self) -> Availability:
        """Whether it can be used here. Costs nothing and never raises."""
