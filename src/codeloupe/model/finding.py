"""A finding: one defect, with its place, severity, evidence and identity."""

from __future__ import annotations

import re
from datetime import date
from enum import Enum, StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

SuppressionKind = StrEnum("SuppressionKind", "BASELINE INLINE")


class Suppression(Struct, frozen=True, kw_only=True):
    """One reason to leave a finding out of the verdict; `entry` is the fingerprint of the entry of the baseline."""

    kind: SuppressionKind
    reason: str
    owner: str = ""
    expires: date | None = None
    entry: str = ""


class Severity(Enum):
    """How bad a finding is; the value is the priority, so P0 is the worst."""

    CRITICAL = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3

    @property
    def label(self) -> str:
        """The word used in reports and JSON."""
        return self.name.lower()

    @property
    def priority(self) -> int:
        """The number in P0 to P3."""
        return self.value

    def at_least(self, threshold: Severity) -> bool:
        """Whether this is as bad as the threshold, or worse."""
        return self.value <= threshold.value

    @classmethod
    def parse(cls, text: object) -> Severity:
        """Read any accepted spelling: P0-P3, 0-3, [P1], critical/high/medium/low, error/warning/suggestion/info.

        Raises ValueError for anything else, so that the caller can drop that one finding and say so.
        """
        if isinstance(text, Severity):
            return text
        is_word = isinstance(text, (int, str)) and not isinstance(text, bool)
        word = str(text).strip().strip("[]").strip().lower() if is_word else ""
        if numbered := re.fullmatch(r"p?\s*([0-3])", word):
            return cls(int(numbered[1]))
        name = {"error": "high", "warning": "medium", "suggestion": "low", "info": "low"}.get(word, word)
        if name in ("critical", "high", "medium", "low"):
            return cls[name.upper()]
        raise ValueError(f"not a severity: {text!r} (use critical, high, medium, low or P0 to P3)")


# Where a finding is in its life across reviews.
FindingStatus = StrEnum("FindingStatus", "NEW OPEN FIXED REFUTED DISMISSED REGRESSED")
# Who produced a finding. It never changes: what an analyser found, no model removes or lowers.
Source = StrEnum("Source", "ANALYSER AGENT EXTERNAL")
# What an attempt to refute a finding showed.
Proof = StrEnum("Proof", "CONFIRMED UNPROVEN REFUTED")
# Who reports as an analyser. Version 0.1.0 saved findings without their source: it is known by these.
ANALYSER_NAMES = frozenset({"ruff", "ast-grep", "detect-secrets", "dataflow", "lock-files"})


class Finding(Struct, frozen=True, kw_only=True):
    """One defect. Lines are those of the new file and start at 1; `evidence` is a verbatim quote of them.

    One that is not `anchored` could not be placed in the code: its `evidence` is what the reviewer claims to have seen,
    and it has no lines. `seen_by` names each independent look that found it (reviewer, expert, pass); `agreement`
    counts them. `replacement` is the new code for exactly the quoted lines; `suggestion` is advice. `verification` is
    what the attempt to refute it showed, if one was made. `surroundings` are digests of the code around it when it was
    last seen. With a `suppression` it is kept and does not count.
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
    def priority(self) -> int:
        """The severity as a number: 0 for critical to 3 for low."""
        return self.severity.priority

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
        closed = (FindingStatus.FIXED, FindingStatus.REFUTED, FindingStatus.DISMISSED)
        return self.suppression is None and self.status not in closed

    @property
    def claimed_severity(self) -> Severity:
        """How severe it was called before a verification found it unproven, which lowers it one step."""
        lowered = self.verification.startswith("unproven:") and self.severity is not Severity.CRITICAL
        return Severity(self.severity.priority - 1) if lowered else self.severity

    @property
    def can_block(self) -> bool:
        """Whether it may fail a review: open, and its evidence was found in the reviewed file."""
        return self.is_open and self.anchored

    def is_unsettled(self, fail_on: Severity) -> bool:
        """Whether it would block, had it a place in the code: nobody refuted it, so it must not pass for nothing."""
        return self.is_open and not self.anchored and self.severity.at_least(fail_on)


_PRIORITIES = re.compile(r"(?:\s{0,8}(?:\[\s{0,8}P[0-3]\s{0,8}\]|\(P[0-3]\)|P[0-3]:)){1,4}\s{0,8}(?=\S)", re.IGNORECASE)


class ClaimedFinding(Struct, frozen=True, kw_only=True):
    """A defect as a model or an external program claims it: nothing in it is believed yet."""

    severity: Severity
    title: str
    body: str = ""
    file: str | None = None
    line_start: int | None = None
    line_end: int | None = None
    category: str = ""
    evidence: str = ""
    suggestion: str | None = None
    replacement: str | None = None
    confidence: float | None = None
    reviewer: str | None = None
    rule: str | None = None

    @property
    def plain_title(self) -> str:
        """The title without a priority before it, such as `[P2]`: reports show the one that counts."""
        stated = _PRIORITIES.match(self.title)
        return self.title[stated.end() :] if stated else self.title


class ReviewAnswer(Struct, frozen=True, kw_only=True):
    """The findings that could be read for certain.

    `problem` is None when the whole answer was understood; otherwise a reason, such as `missing field: X`, and the
    answer must not count as a whole review. `dropped` are single items that could not be read.
    """

    findings: tuple[ClaimedFinding, ...] = ()
    verdict: str | None = None
    summary: str = ""
    problem: str | None = None
    dropped: tuple[str, ...] = ()
    repaired: bool = False

    @property
    def lost(self) -> str | None:
        """Why the findings do not tell how bad it is, or None: one that could not be read may be the worst."""
        return self.dropped[0] if self.dropped else None


class Verification(Struct, frozen=True, kw_only=True):
    """The answer to a verification: `problem` as in ReviewAnswer; then `proof` is UNPROVEN and says nothing."""

    proof: Proof
    reason: str = ""
    problem: str | None = None
