"""A finding: one defect, with its place, severity, evidence and identity."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from codeloupe.model.baseline import Suppression
from codeloupe.model.severity import Severity


class FindingStatus(StrEnum):
    """Where a finding is in its life across reviews."""

    NEW = "new"
    OPEN = "open"
    FIXED = "fixed"
    REFUTED = "refuted"
    DISMISSED = "dismissed"
    REGRESSED = "regressed"


class Source(StrEnum):
    """Who produced a finding. It never changes: what an analyser found, no model removes or lowers."""

    ANALYSER = "analyser"
    AGENT = "agent"
    EXTERNAL = "external"


# How the `verification` of a finding begins that could be neither shown nor refuted.
UNPROVEN_PREFIX = "unproven:"
# Who reports as an analyser. Version 0.1.0 saved findings without their source: it is told by these.
ANALYSER_NAMES = frozenset({"ruff", "ast-grep", "detect-secrets", "dataflow", "lock-files"})


class Finding(Struct, frozen=True, kw_only=True):
    """One defect. Lines are those of the new file and start at 1; `evidence` is a verbatim quote of them.

    One that is not `anchored` could not be placed in the code: its `evidence` is what the reviewer claims to have seen,
    and it has no lines, whatever it was made with.
    `seen_by` names each independent look that found it (reviewer, expert, pass); `agreement` counts them.
    `source` is who produced it, for life. `replacement` is the new code for exactly the quoted lines, where a small fix
    exists; `suggestion` is advice in words. `verification` is what the attempt to refute it showed, or empty when none
    was made.
    `surroundings` stands for the code around it when it was last seen: its definition and both neighbours, in short.
    A finding with a `suppression` is kept and shown as suppressed, and does not count.
    """

    file: str
    line_start: int | None
    line_end: int | None
    severity: Severity
    category: str
    title: str
    body: str
    evidence: str
    reviewer: str
    source: Source = Source.AGENT
    rule: str | None = None
    suggestion: str | None = None
    replacement: str | None = None
    confidence: float | None = None
    expert: str | None = None
    commit_sha: str | None = None
    fingerprint: str = ""
    anchored: bool = True
    outside_change: bool = False
    status: FindingStatus = FindingStatus.NEW
    agreement: int = 1
    seen_by: tuple[str, ...] = ()
    verification: str = ""
    suppression: Suppression | None = None
    surroundings: str = ""

    def __post_init__(self) -> None:
        # Reviews that were stored before lines could be unknown have invented ones.
        if not self.anchored:
            force_setattr(self, "line_start", None)
            force_setattr(self, "line_end", None)

    @property
    def first_line(self) -> int:
        """The first line, or 0 where none is known: for order and distance, never to be shown."""
        return self.line_start or 0

    @property
    def last_line(self) -> int:
        """The last line, or 0 where none is known."""
        return self.line_end or self.first_line

    @property
    def is_open(self) -> bool:
        """Whether it still counts towards the verdict."""
        counting = (FindingStatus.NEW, FindingStatus.OPEN, FindingStatus.REGRESSED)
        return self.suppression is None and self.status in counting

    @property
    def claimed_severity(self) -> Severity:
        """How severe it was called before a verification found it unproven, which lowers it one step."""
        lowered = self.verification.startswith(UNPROVEN_PREFIX) and self.severity is not Severity.CRITICAL
        return Severity(self.severity.priority - 1) if lowered else self.severity

    @property
    def can_block(self) -> bool:
        """Whether it may fail a review: open, and its evidence was found in the reviewed file."""
        return self.is_open and self.anchored

    def is_unsettled(self, fail_on: Severity) -> bool:
        """Whether it would block, had it a place in the code: nobody refuted it, so it must not pass for nothing."""
        return self.is_open and not self.anchored and self.severity.at_least(fail_on)
