"""The outcome of a review: verdict, findings, coverage, usage, errors."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from codeloupe.errors import for_its_reader
from codeloupe.model.agent import Usage
from codeloupe.model.change import FileChange, Scope
from codeloupe.model.finding import Finding, Severity

NOT_VERIFIED = "not_verified"
FAILOVER = "failover"


class Verdict(StrEnum):
    """The result of the findings and the coverage; reviewers have no say in it."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    NEEDS_WORK = "NEEDS_WORK"
    FAIL = "FAIL"
    INCOMPLETE = "INCOMPLETE"


class SkipReason(StrEnum):
    """What kind of file was left out, in the words of the JSON. `BINARY` is one that nobody could recognise."""

    MEDIA = "media"
    FONT = "font"
    ARCHIVE = "archive"
    PROGRAM = "program"
    BINARY = "binary"
    LFS_POINTER = "LFS pointer"
    NOT_SHOWN = "not shown"
    GENERATED = "generated"
    VENDORED = "vendored"
    MINIFIED = "minified"
    LOCK_FILE = "lock file"
    EXCLUDED = "excluded"
    SUBMODULE = "submodule"
    TOO_LARGE = "too large"
    UNREADABLE = "unreadable"
    NOTHING_TO_READ = "nothing to read"


# Whoever wrote the change, a review that should have covered these and could not is incomplete.
NEVER_READ = frozenset((SkipReason.TOO_LARGE, SkipReason.UNREADABLE))
# Why a file that no include pattern names is left out.
NOT_INCLUDED = "no include pattern fits"
# The classes that settings may accept by name. What could not be read has no class that anybody could vouch for.
_CLASSES = "media fonts archives programs binaries lfs_pointers submodules lock_files generated vendored minified"
UNREAD_CLASSES = {
    name: SkipReason["BINARY" if name == "binaries" else name.removesuffix("s").upper()]
    for name in (*_CLASSES.split(), "not_shown", "too_large")
}


class SkippedFile(Struct, frozen=True):
    """A file that was not reviewed, and why; `accepted` when it may stay unread, by default for its reason."""

    file: str
    reason: SkipReason
    detail: str = ""
    accepted: bool | None = None

    def __post_init__(self) -> None:
        if self.accepted is None:
            force_setattr(self, "accepted", self.reason not in NEVER_READ)

    @property
    def is_gap(self) -> bool:
        """Whether leaving the file out makes the review incomplete."""
        return not self.accepted

    def describe(self) -> str:
        """The reason as one phrase for reports."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


class FailedUnit(Struct, frozen=True):
    """A piece of the change that could not be reviewed, and why."""

    unit: str
    files: tuple[str, ...]
    reason: str


class Unanswered(Struct, frozen=True):
    """An agent that did not answer a unit, and why."""

    agent: str
    reason: str


class UnitRecord(Struct, frozen=True, kw_only=True):
    """One unit of a review: who answered it, and who did not and why; `answered_by` is empty if no agent did."""

    unit: str
    files: tuple[str, ...]
    answered_by: str = ""
    model: str | None = None
    unanswered: tuple[Unanswered, ...] = ()


class Coverage(Struct, frozen=True):
    """The reviewed and the skipped parts of a change; `units` lists those that agents were asked about."""

    files_total: int = 0
    files_reviewed: int = 0
    skipped: tuple[SkippedFile, ...] = ()
    units_total: int = 0
    units_failed: tuple[FailedUnit, ...] = ()
    units: tuple[UnitRecord, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything that should be reviewed was."""
        return not self.units_failed and not any(skip.is_gap for skip in self.skipped)


class Level(StrEnum):
    """How grave an entry of a review is: a problem is something that failed, a note is a fact to know."""

    PROBLEM = "problem"
    NOTE = "note"


class ReviewError(Struct, frozen=True):
    """A problem that did not stop the review, or a note for the reader of the verdict.

    `message` says all of it in plain words. `kind` is a stable word for programs: JSON has it, and no other report.
    `detail` is in no report.
    """

    kind: str
    message: str
    detail: str = ""
    level: Level = Level.PROBLEM


class ReviewerInfo(Struct, frozen=True):
    """Which reviewer ran, and why that one."""

    type: str
    why: str
    model: str | None = None


class Policy(Struct, frozen=True):
    """The settings that decide the verdict and the exit code; without `verify`, claims of agents count as made."""

    fail_on: Severity = Severity.HIGH
    min_severity: Severity = Severity.LOW
    pass_when_incomplete: bool = False
    verify: bool = True

    @property
    def proof_threshold(self) -> Severity:
        """The severity from which an agent's claim needs proof: high, or `fail_on` if that is lower."""
        return max(Severity.HIGH, self.fail_on, key=lambda severity: severity.value)

    def shows(self, severity: Severity) -> bool:
        """Whether a finding of that severity is shown: what could block always is."""
        return severity.at_least(self.min_severity) or severity.at_least(self.fail_on)

    def blocks(self, finding: Finding) -> bool:
        """Whether a finding makes the review fail."""
        return finding.can_block and finding.severity.at_least(self.fail_on)


# The kind of the error for a claim that keeps a review from being complete.
PENDING = "pending_claim"


def pending_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with a claim that could neither be confirmed nor refuted and would change the verdict."""
    found = (finding for finding in findings if finding.is_open and finding.is_pending)
    return tuple(sorted(found, key=lambda one: (one.claimed_severity.priority, one.file, one.title)))


def pending_reason(finding: Finding) -> str:
    """Explain why a pending finding needs a person, without its file and title."""
    severity = finding.claimed_severity.label
    if finding.anchored:
        return f"a {severity} claim could not be verified"
    if finding.is_confirmed:
        return f"a {severity} claim was confirmed, but its code was not found"
    return f"a {severity} claim could not be verified, and its code was not found"


def describe_pending(finding: Finding) -> str:
    """Explain why a pending finding needs a person, without its file."""
    title = " ".join(finding.title.split())
    return f"{pending_reason(finding)}: {title}"


def pending_errors(findings: Iterable[Finding]) -> tuple[ReviewError, ...]:
    """Return an error for each pending finding."""
    return tuple(ReviewError(PENDING, f"{one.file or '?'}: {describe_pending(one)}") for one in findings)


class Review(Struct, frozen=True, kw_only=True):
    """The outcome. `findings` holds what is at or above `min_severity`; `hidden_findings` counts the rest.

    `hidden` are those, kept so that the review can be judged by another policy later. `omitted` are the findings that
    `--since-last` omits, and those that were gone before. It is `complete` when everything was reviewed, nothing is
    pending, and nothing omitted blocks.
    """

    review_id: str
    scope: Scope
    reviewer: ReviewerInfo
    verdict: Verdict
    complete: bool
    exit_code: int
    summary: str
    policy: Policy
    findings: tuple[Finding, ...] = ()
    hidden_findings: int = 0
    coverage: Coverage = Coverage()
    usage: Usage = Usage()
    errors: tuple[ReviewError, ...] = ()
    hidden: tuple[Finding, ...] = ()
    omitted: tuple[Finding, ...] = ()

    @property
    def nothing_to_review(self) -> bool:
        """Whether there was nothing to read, or all of it was left out on purpose: no verdict on any code."""
        coverage = self.coverage
        touched = any(skip.reason is SkipReason.NOTHING_TO_READ for skip in coverage.skipped)
        is_open = any(finding.is_open for finding in (*self.findings, *self.omitted))
        return self.complete and not is_open and not coverage.files_reviewed and not touched

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all was changed. Such a review is not stored in the history."""
        return self.nothing_to_review and not self.coverage.files_total

    @property
    def hint(self) -> str:
        """Other scopes to review if nothing was changed: options in the program, scopes in the library; or empty."""
        if not self.is_empty:
            return ""
        return for_its_reader("; ".join(f"{options} reviews {what}" for what, options in self.scope.others.items()))

    @property
    def left_out(self) -> tuple[SkippedFile, ...]:
        """The files that were left out on purpose."""
        return tuple(skip for skip in self.coverage.skipped if not skip.is_gap)

    @property
    def pending(self) -> tuple[Finding, ...]:
        """The findings that a person must look at before this can pass."""
        return pending_findings(self.findings)

    @property
    def omitted_blockers(self) -> tuple[Finding, ...]:
        """The omitted findings that block or are pending."""

        def keeps_open(finding: Finding) -> bool:
            return self.policy.blocks(finding) or (finding.is_open and finding.is_pending)

        return tuple(filter(keeps_open, self.omitted))

    @property
    def passed(self) -> bool:
        """Whether a gate may open: nothing blocks, and nothing is missing unless the policy allows it."""
        return self.exit_code == 0


class PreviewFile(Struct, frozen=True):
    """One file of the change; `skipped` says why it would be left out, or is None when it would be reviewed."""

    change: FileChange
    skipped: SkippedFile | None = None

    @property
    def reviewed(self) -> bool:
        """Whether a review would look at it."""
        return self.skipped is None


class CostEstimate(Struct, frozen=True):
    """The likely cost of a review in dollars, None if it is not known; `basis` says where it comes from, or why not."""

    usd: float | None = None
    basis: str = ""


class Preview(Struct, frozen=True, kw_only=True):
    """The files of a scope, who would review them and why, and the likely calls, tokens and cost.

    `out_of_reach` are files of which not even the change is known: unreadable ones, and nested repositories. `calls`
    counts one call for each unit and agent that reviews; `prompt_tokens_estimate` is the sum of their prompts.
    Verification and second questions come on top.
    """

    scope: Scope
    files: tuple[PreviewFile, ...]
    out_of_reach: tuple[SkippedFile, ...] = ()
    reviewers: tuple[ReviewerInfo, ...] = ()
    units: int = 0
    calls: int = 0
    prompt_tokens_estimate: int = 0
    cost: CostEstimate = CostEstimate()


class Check(Struct, frozen=True):
    """One thing that was looked at. `needed` tells whether a review fails without it."""

    group: str
    name: str
    ok: bool
    detail: str
    hint: str = ""
    needed: bool = True


class Diagnosis(Struct, frozen=True):
    """All checks, and the reviewer that would be chosen."""

    checks: tuple[Check, ...]
    reviewer: ReviewerInfo

    @property
    def healthy(self) -> bool:
        """Whether everything that a review needs is there."""
        return all(check.ok for check in self.checks if check.needed)
