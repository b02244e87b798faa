"""The outcome of a review: verdict, findings, coverage, usage, errors."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from codeloupe.model.change import Scope
from codeloupe.model.finding import Finding
from codeloupe.model.records import dataclass
from codeloupe.model.severity import Severity
from codeloupe.model.usage import Usage


class Verdict(StrEnum):
    """What the findings say, whatever the reviewer claimed."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    NEEDS_WORK = "NEEDS_WORK"
    FAIL = "FAIL"
    INCOMPLETE = "INCOMPLETE"


class SkipReason(StrEnum):
    """Why a file was left out. A gap is a file that should have been reviewed and could not be."""

    BINARY = "binary"
    GENERATED = "generated"
    VENDORED = "vendored"
    MINIFIED = "minified"
    LOCK_FILE = "lock file"
    EXCLUDED = "excluded"
    SUBMODULE = "submodule"
    TOO_LARGE = "too large"
    UNREADABLE = "unreadable"
    NOTHING_TO_READ = "nothing to read"

    @property
    def is_gap(self) -> bool:
        """Whether leaving the file out makes the review incomplete."""
        return self in (SkipReason.TOO_LARGE, SkipReason.UNREADABLE)


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was not reviewed, and why; `detail` adds numbers or names to the reason."""

    file: str
    reason: SkipReason
    detail: str = ""

    def in_words(self) -> str:
        """The reason as one phrase for reports."""
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


@dataclass(frozen=True, slots=True)
class FailedUnit:
    """A piece of the change that could not be reviewed, and why."""

    unit: str
    files: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was looked at and what was not."""

    files_total: int = 0
    files_reviewed: int = 0
    skipped: tuple[SkippedFile, ...] = ()
    units_total: int = 0
    units_failed: tuple[FailedUnit, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything that should be reviewed was."""
        return not self.units_failed and not any(skip.reason.is_gap for skip in self.skipped)


@dataclass(frozen=True, slots=True)
class ReviewError:
    """Something that went wrong and did not stop the review; `kind` is a short stable word.

    `detail` is what there is to look into it, such as an answer that could not be read; no report shows it.
    """

    kind: str
    message: str
    detail: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ReviewerInfo:
    """Which reviewer ran, and why that one."""

    type: str
    why: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What decides the exit code."""

    fail_on: Severity = Severity.HIGH
    min_severity: Severity = Severity.LOW
    pass_when_incomplete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The outcome. `findings` holds what is at or above `min_severity`; `hidden_findings` counts the rest.

    `hidden` are those, where they are known: kept so that the review can be judged by another policy later.
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

    @property
    def passed(self) -> bool:
        """Whether a gate may open: nothing blocks, and nothing is missing unless the policy allows it."""
        return self.exit_code == 0
