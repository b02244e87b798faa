"""The small protocols between rooms, and the data that crosses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from codeloupe.model.agent import Usage
from codeloupe.model.change import Intent

# Every agent call and every review loads this module, and each of these costs a start some milliseconds.
if TYPE_CHECKING:
    from codeloupe.model.agent import AgentEvent, AgentLimits, AgentRequest, AgentResult, Availability
    from codeloupe.model.change import Change, FileChange, GuidanceFile, Moment, ScopeKind
    from codeloupe.model.events import Event
    from codeloupe.model.finding import Finding
    from codeloupe.model.history import (
        Dismissal,
        HistoryQuery,
        Listing,
        PruneRule,
        Removed,
        ReviewRecord,
        Sighting,
        SweepOutline,
        SweepRecord,
        TrendKey,
        Trends,
    )
    from codeloupe.model.pipeline import Approval, Critique, GateDefinition, PipelineEvent, RunRecord
    from codeloupe.model.review import FailedUnit, ReviewerInfo, ReviewError
    from codeloupe.model.sweep import CommitReview

EventSink = Callable[["Event"], None]
AgentEventSink = Callable[["AgentEvent"], None]
Transcript = Callable[[str, str], None]
"""Takes the prompts and raw answers of a review, each with a title."""

MomentOf = Callable[[str, bytes], Awaitable["Moment"]]
"""Tells how far a line of a file, given by its text, has got on its way to others."""


class ReviewTask(Struct, frozen=True):
    """What a reviewer gets: the change, the files to look at, and a directory with their new content.

    `snapshot` holds each reviewed file that exists after the change, byte for byte, symbolic links as text.
    `without_content` names the reviewed files whose whole content is not known (only a diff was given).
    `tree` is the whole reviewed tree, for an agent that reads more than the diff; None when there is none. When
    `tree_is_partial` it is the part around the change: what is not in it may exist all the same.
    `is_follow_up` when these are only the lines that are new since an earlier review of the same change.
    `moment_of` asks git how far a line has got; None when there is no repository to ask.
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


class History(Protocol):
    """Saved reviews and sweeps, and each finding's life across them. Safe between processes; raises StoreError.

    `repositories` are the names of one repository; None means all of them.
    """

    def save(self, record: ReviewRecord, *, raw_outputs: Mapping[str, str] = ...) -> None:
        """Save a review durably and whole, in the place of the one with its id."""

    def save_sweep(self, record: SweepRecord) -> None:
        """Save a sweep with its commits and their reviews."""

    def add_commit(self, record: SweepRecord, commit: CommitReview, *, raw_outputs: Mapping[str, str] = ...) -> None:
        """Save one more commit of a sweep that goes on."""

    def get(self, review_id: str) -> ReviewRecord | None:
        """A saved review, or None."""

    def raw_outputs(self, review_id: str) -> Mapping[str, str]:
        """What agents printed for a review, by unit."""

    def get_sweep(self, sweep_id: str) -> SweepRecord | None:
        """A saved sweep with its reviews, or None."""

    def outline(self, sweep_id: str) -> SweepOutline | None:
        """A saved sweep without the findings of its reviews, or None."""

    def last(
        self, repositories: Sequence[str], *, branch: str | None = None, scope: ScopeKind | None = None
    ) -> ReviewRecord | None:
        """The newest review of a repository, of a branch and a kind of scope; none of a sweep."""

    def list(self, query: HistoryQuery) -> Listing:
        """The newest entries; no payload is read."""

    def matching(self, prefix: str, *, limit: int = 10) -> Listing:
        """Reviews, also those of sweeps, and sweeps whose id begins so."""

    def findings_of(
        self, fingerprints: Sequence[str], *, repositories: Sequence[str] | None = None
    ) -> tuple[Sighting, ...]:
        """Every time these findings were seen, the oldest first."""

    def dismiss(self, dismissal: Dismissal) -> None:
        """Keep that a person set a finding aside, in the place of an earlier word on it."""

    def take_back(self, fingerprint: str, *, repositories: Sequence[str]) -> bool:
        """Forget that a finding was dismissed; False when it was not."""

    def dismissals(self, repositories: Sequence[str]) -> tuple[Dismissal, ...]:
        """What persons set aside in a repository, the oldest first."""

    def trends(self, by: Sequence[TrendKey], *, repositories: Sequence[str] | None = None) -> tuple[Trends, ...]:
        """Findings, cost, time and what was fixed, for each key by which they are wanted."""

    def prune(self, rule: PruneRule, *, dry_run: bool = False) -> Removed:
        """Remove what the rule names and tell what went; with `dry_run`, what would."""


class KeptTree(Struct, frozen=True):
    """What a workspace held, by name in its store, and the files that are not in it, each with the reason."""

    tree: str
    left_out: Mapping[str, str]


class WorkspaceStore(Protocol):
    """Keeps what the workspaces of one run hold, by content. Methods raise WorkspaceError in words."""

    async def beginning(self) -> str:
        """The tree with which the run begins: empty, or the repository's."""

    async def merged(self, base: str, trees: Sequence[str]) -> str:
        """One tree with what each of `trees` changed since `base`.

        Raises WorkspaceError, which names the files, when two changed the same one differently.
        """

    async def put(self, tree: str, directory: Path) -> None:
        """Make a directory hold exactly a tree; whatever else was in it is gone."""

    async def keep(self, directory: Path) -> KeptTree:
        """Keep what a directory holds now. Links that leave it, special files and too large ones are left out."""

    async def without(self, tree: str, paths: Sequence[str]) -> str:
        """A tree that lacks some files."""

    async def changed(self, before: str, after: str) -> tuple[str, ...]:
        """The files that differ between two trees, sorted."""

    async def diff(self, before: str, after: str, *, without: Sequence[str] = ()) -> str:
        """The difference of two trees as a patch that `git apply` takes, `without` some files."""


class RunStore(Protocol):
    """The runs of pipelines on disk. Methods raise StoreError, or RunNotFound for an unknown run."""

    def create(self, run: RunRecord) -> Path:
        """Make a new run's directory, which is returned, with its first state. Raises StoreError if it is there."""

    def directory(self, run_id: str) -> Path:
        """Where a run keeps its files."""

    def save(self, run: RunRecord, *events: PipelineEvent) -> None:
        """Write the state atomically and durably, then append to the journal; whoever calls holds the lock."""

    def load(self, run_id: str) -> RunRecord:
        """A run's last state."""

    def journal(self, run_id: str) -> tuple[PipelineEvent, ...]:
        """What happened, the oldest first; a torn last line is left out."""

    def list(self) -> tuple[tuple[RunRecord, ...], Mapping[str, str]]:
        """All runs, the newest first, and the runs that cannot be read, each with the reason."""

    def put_approval(self, run_id: str, approval: Approval) -> None:
        """Leave a person's word for a run, also while another process holds the lock."""

    def take_approval(self, run_id: str, stage: str) -> Approval | None:
        """The word that was left on a stage, which is then gone; None when there is none."""

    def lock(self, run_id: str) -> AbstractContextManager[None]:
        """Keep other processes off a run; freed when this process dies. Raises RunBusy, which names the other."""


class GateTask(Struct, frozen=True, kw_only=True):
    """What a gate judges: an attempt's workspace, what changed in it, and what the stage was to do.

    `start_tree` and `tree` name in the workspace store what the stage began with and what the attempt left. Of a
    repository they, and what changed, are without the answers that we saved there ourselves.
    """

    stage: str
    attempt: int
    workspace: Path
    requirements: str
    artifacts: tuple[Path, ...]
    files_changed: tuple[str, ...]
    diff: str
    output: str
    earlier: tuple[Critique, ...] = ()
    start_tree: str = ""
    tree: str = ""


class Gate(Protocol):
    """Decides on one attempt. Raises a CodeloupeError when it could not decide, which is never a PASS."""

    async def __call__(self, gate: GateDefinition, task: GateTask) -> Critique:
        """Its word on the attempt."""
