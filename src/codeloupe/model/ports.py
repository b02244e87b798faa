"""The small protocols between packages, and the data that crosses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict

from msgspec import Struct

from codeloupe.model.agent import Usage
from codeloupe.model.change import Intent
from codeloupe.model.frozen import FrozenDict, FrozenStruct

# Every agent call and every review loads this module, and each of these costs a start some milliseconds.
if TYPE_CHECKING:
    from codeloupe.model.agent import AgentEvent, AgentLimits, AgentRequest, AgentResult, Availability
    from codeloupe.model.change import Change, FileChange, GuidanceFile, Moment, Unit
    from codeloupe.model.events import Event
    from codeloupe.model.finding import Claim, Finding, Proof
    from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError, UnitRecord

EventSink = Callable[["Event"], None]
AgentEventSink = Callable[["AgentEvent"], None]
Transcript = Callable[[str, str], None]
"""Receives each prompt and raw answer of a review, with a title."""

Clock = Callable[[], float]
MomentOf = Callable[[str, bytes], Awaitable["Moment"]]
"""Tells how far a line of a file, given by its text, has got on its way to others."""
AskAgent = Callable[["AgentRequest", "Agent", AgentEventSink], Awaitable["AgentResult"]]
"""Puts one question to one agent, with retries, limits, budget and ledger. Raises an AgentError or a StoreError."""


class Plan(Struct, frozen=True, kw_only=True):
    """The input of reviewers: the change, the files to review, the units for agents, guidance, trust and directories.

    `snapshot` holds each reviewed file that exists after the change, byte for byte, symbolic links as text.
    `without_content` names the reviewed files whose whole content is not known (only a diff was given). `tree` is the
    whole reviewed tree, for an agent that reads more than the diff, or the part around the change if
    `tree_is_partial`. `units` are the parts of the change that agents are asked about, `lock_files` the files that an
    analyser reads in place of the reviewers. `known` are the open findings
    of earlier rounds; in a follow-up the units hold only code that is new since the last one.
    """

    change: Change
    files: tuple[FileChange, ...]
    snapshot: Path
    trusted: bool
    timeout_seconds: float
    units: tuple[Unit, ...] = ()
    lock_files: tuple[FileChange, ...] = ()
    without_content: frozenset[str] = frozenset()
    tree: Path | None = None
    tree_is_partial: bool = False
    intent: Intent = Intent()
    guidance: tuple[GuidanceFile, ...] = ()
    known: tuple[Finding, ...] = ()
    is_follow_up: bool = False
    moment_of: MomentOf | None = None


# The name of all agents in `ReviewerResult.completed`: any agent may repeat another agent's claim.
AGENTS = "agents"


class ReviewerResult(FrozenStruct, frozen=True, kw_only=True):
    """The result of a reviewer: valid claims, anchored where possible; failed units; usage.

    `completed` maps each reporter to the files that it reviewed completely. `units` records who answered each unit.
    """

    claims: tuple[Claim, ...] = ()
    completed: Mapping[str, frozenset[str]] = FrozenDict()
    units: tuple[UnitRecord, ...] = ()
    units_total: int = 0
    units_failed: tuple[FailedUnit, ...] = ()
    errors: tuple[ReviewError, ...] = ()
    usage: Usage = Usage()


class ClaimProof(Struct, frozen=True, kw_only=True):
    """The proof of one claim; a confirmed claim may come with a fix."""

    proof: Proof
    reason: str
    suggestion: str | None = None
    replacement: str | None = None


class Verification(Struct, frozen=True, kw_only=True):
    """The proofs of the claims that were asked about, in their order, or the problem why there are none."""

    proofs: tuple[ClaimProof, ...] = ()
    problem: str = ""


class VerifierResult(Struct, frozen=True, kw_only=True):
    """The verification of each finding, in order, and what they cost."""

    verifications: tuple[Verification, ...] = ()
    errors: tuple[ReviewError, ...] = ()
    usage: Usage = Usage()


class ReviewOptions(TypedDict, total=False):
    """How one review is done, beside its settings.

    `context` is what the reviewers should know beside the change, as data. What an agent saw in the last review of
    this branch, and what was paid for before, is not asked again, unless `fresh`; `since_last` leaves out of the
    outcome what the last review saw. `transcript` gets every prompt and raw answer, before secrets are masked.
    `session_id` names the caller's session to an external gate. `own_patterns` says which of `include` and `exclude`
    the caller chose for this review: only those may leave nothing of an untrusted change. Where no agent can be used,
    the analysers review and `errors` say so; with `needs_agent` that is a failure. `work_tree` names the work tree in
    which the review was asked for, if that is on another machine.
    """

    emit: EventSink
    context: str
    fresh: bool
    since_last: bool
    transcript: Transcript | None
    session_id: str | None
    own_patterns: frozenset[str]
    needs_agent: bool
    work_tree: str


class Reviewer(Protocol):
    """Turns a plan into claims. A failure of a part is in the result; only cancellation is raised."""

    @property
    def info(self) -> ReviewerInfo:
        """Its type, model and why it was chosen."""

    async def review(self, plan: Plan, emit: EventSink) -> ReviewerResult:
        """Review the files of the plan."""


class Verifier(Protocol):
    """Tries to refute claims with their code. A failure is in the result; only cancellation is raised."""

    async def verify(self, findings: Sequence[Finding], plan: Plan, emit: EventSink) -> VerifierResult:
        """Verify all claims of each finding; each finding holds only those that need a proof."""


class Agent(Protocol):
    """Answers a prompt. One call is one attempt: retries, budgets and the ledger are built around it.

    An agent that loads packages late may also have `async def prepare(request)`, which loads them. It is called before
    a request counts against a limit, so that the request is sent as soon as it counts. A failure in it is ignored,
    because `run` reports the same one.
    """

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
