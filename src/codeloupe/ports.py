"""The small protocols between rooms, and the data that crosses them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from codeloupe.model.agent import AgentLimits, AgentRequest, AgentResult, Availability
from codeloupe.model.agent_events import AgentEvent
from codeloupe.model.change import Change, FileChange
from codeloupe.model.events import Event
from codeloupe.model.finding import Finding
from codeloupe.model.material import GuidanceFile, Intent
from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError
from codeloupe.model.usage import Usage

EventSink = Callable[[Event], None]
AgentEventSink = Callable[[AgentEvent], None]


@dataclass(frozen=True, slots=True)
class ReviewTask:
    """What a reviewer gets: the change, the files to look at, and a directory with their new content.

    `snapshot` holds each reviewed file that exists after the change, byte for byte, symbolic links as text.
    `without_content` names the reviewed files whose whole content is not known (only a diff was given).
    `tree` is the whole reviewed tree, for an agent that reads more than the diff; None when there is none.
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


class Verifier(Protocol):
    """Tries to refute findings, each alone with its code. A failure is in the outcome; only cancellation is raised."""

    async def verify(self, findings: Sequence[Finding], task: ReviewTask, emit: EventSink) -> ReviewerOutcome:
        """All the findings, in order: the refuted marked, the unproven lowered one step, the others as they were."""


class AskAgent(Protocol):
    """One question to one agent, with everything around the call: retries, limits, budget, ledger."""

    async def __call__(self, request: AgentRequest, emit: AgentEventSink) -> AgentResult:
        """The answer. Raises an AgentError or a StoreError."""


class Clock(Protocol):
    """Monotonic seconds, so that tests can own the time."""

    def __call__(self) -> float:
        """Seconds since some fixed moment."""


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


class Ledger(Protocol):
    """Finished calls by content key: what was paid for is never bought again. Safe between processes."""

    def get(self, key: str) -> AgentResult | None:
        """A finished call, or None."""

    def claim(self, key: str, *, lease_seconds: float) -> bool:
        """Claim a key for buying; False while another process holds a claim that has not run out."""

    def renew(self, key: str, *, lease_seconds: float) -> None:
        """Extend our own claim."""

    def put(self, key: str, result: AgentResult) -> None:
        """Store a result durably and end our claim; to be called before the result is used."""

    def release(self, key: str) -> None:
        """End our claim without a result."""
