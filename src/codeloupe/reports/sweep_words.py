"""Words that every report on a sweep says in the same way."""

from __future__ import annotations

from codeloupe.model.change import Commit
from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.review import Verdict
from codeloupe.model.sweep import CommitReview, CommitSweep
from codeloupe.reports.wording import counted, place_in_words

SHORT_SHA = 10
INCOMPLETE = Verdict.INCOMPLETE.value
NOTHING = "There are no commits to review."
_CAUSES = {FindingStatus.REFUTED: "refuted"}


def verdict_in_words(commit: CommitReview) -> str:
    """`LEAVE`, `FIX`, `REVERT`, or `INCOMPLETE` for one that could not be reviewed."""
    return INCOMPLETE if commit.verdict is None else commit.verdict.value


def score_in_words(score: float | None) -> str:
    """`0.85`, or a dash where there is none."""
    return "-" if score is None else f"{score:.2f}"


def lines_in_words(commit: Commit) -> str:
    """`+12 -3`."""
    return f"+{commit.insertions:,} -{commit.deletions:,}"


def size_in_words(commit: Commit) -> str:
    """`+12 -3 in 2 files`."""
    return f"{lines_in_words(commit)} in {counted(len(commit.files), 'file', 'files')}"


def note_on_coverage(reviewed: CommitReview) -> str:
    """That nothing was looked at, since there was nothing to look at; empty for any other commit."""
    coverage = reviewed.review.coverage if reviewed.review is not None else None
    if coverage is None or reviewed.failure or coverage.files_reviewed:
        return ""
    return "none reviewed" if coverage.files_total else "no changes"


def time_in_words(commit: Commit) -> str:
    """`2024-05-31 12:30 UTC`."""
    return f"{commit.time:%Y-%m-%d %H:%M} UTC"


def findings_of(commit: CommitReview) -> tuple[Finding, ...]:
    """What was found, also by a review that is not complete."""
    return commit.review.findings if commit.review is not None else ()


def description_of(finding: Finding) -> str:
    """The defect in one text: what it is, and why."""
    return "\n\n".join(part for part in (finding.title.strip(), finding.body.strip()) if part)


def evidence_of(finding: Finding) -> str:
    """Where it is: `file:line`."""
    return place_in_words(finding)


def expert_of(finding: Finding) -> str:
    """Who found it: the expert, or the reviewer that has none, such as an analyser."""
    return finding.expert or finding.reviewer


def why_not_counted(finding: Finding) -> str:
    """Why a finding costs its commit nothing; empty for one that counts."""
    if finding.can_block:
        return ""
    if finding.is_open:
        return "could not be placed in the code"
    if finding.suppression is not None:
        return f"suppressed: {finding.suppression.reason}"
    return finding.verification or _CAUSES.get(finding.status, finding.status.value)


def ending_in_words(sweep: CommitSweep) -> str:
    """What the exit code says."""
    match sweep.exit_code:
        case 1:
            return "there are findings of high or above, and --strict fails on them"
        case 3:
            return "not every commit could be reviewed"
        case _ if any(commit.verdict is None for commit in sweep.commits):
            return "not every commit could be reviewed; accepted, since on_incomplete is pass"
        case _:
            return ""
