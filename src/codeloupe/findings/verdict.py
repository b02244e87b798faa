"""The verdict and the exit code, computed from findings and coverage alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from codeloupe.config.schema import Settings
from codeloupe.findings.claims import settled, with_main_claim_first
from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.review import (
    PENDING,
    Coverage,
    Policy,
    Review,
    ReviewerInfo,
    ReviewError,
    Verdict,
    pending_errors,
)

# The kind of the error for omitted findings that block.
OMITTED = "left_open"
PASSED, BLOCKED, INCOMPLETE = 0, 1, 3
_POINTS = {Severity.LOW: 5, Severity.MEDIUM: 15, Severity.HIGH: 30, Severity.CRITICAL: 50}


def policy_of(settings: Settings) -> Policy:
    """Return what decides the verdict and the exit code."""
    return Policy(
        fail_on=settings.fail_on,
        min_severity=settings.min_severity,
        pass_when_incomplete=settings.on_incomplete == "pass",
        verify=settings.verify,
    )


def conclude(review: Review) -> Review:
    """Return the review with all that follows from its findings, its coverage and its policy.

    These are severity and status of each finding, completeness, verdict, exit code and summary. Hidden and omitted
    findings count too.
    """
    policy = review.policy
    found = [_judged(finding, policy) for finding in (*review.findings, *review.hidden)]
    # A finding that blocks is always shown, so that no gate closes without a visible reason.
    shown = [finding for finding in found if policy.shows(finding.severity) or finding.is_pending]
    hidden = [finding for finding in found if not policy.shows(finding.severity) and not finding.is_pending]
    omitted = [_judged(finding, policy) for finding in review.omitted]
    # A JSON report only counts the hidden findings.
    unlisted = max(review.hidden_findings - len(review.hidden), 0)
    judged = replace(
        review,
        findings=tuple(sorted(shown, key=_place)),
        hidden=tuple(sorted(hidden, key=_place)),
        hidden_findings=len(hidden) + unlisted,
        omitted=tuple(sorted(omitted, key=_place)),
    )
    is_settled = not judged.pending and not judged.omitted_blockers
    judged = replace(judged, complete=review.coverage.complete and is_settled)
    other_errors = tuple(error for error in review.errors if error.kind not in (PENDING, OMITTED))
    return replace(
        judged,
        verdict=_verdict(judged),
        exit_code=_exit_code(judged),
        summary=_summary(judged),
        errors=(*other_errors, *pending_errors(judged.pending), *_omitted_errors(judged)),
    )


def _judged(finding: Finding, policy: Policy) -> Finding:
    return with_main_claim_first(settled(finding, policy), policy)


def _place(finding: Finding) -> tuple[str, int, int, str]:
    return finding.file, finding.first_line, finding.severity.value, finding.title


def _verdict(review: Review) -> Verdict:
    """Return INCOMPLETE if nothing reported blocks or is high, and the review is incomplete.

    Otherwise return FAIL for a critical or high finding, NEEDS_WORK for a lesser one and PASS for none.
    """
    reported = [finding.severity for finding in (*review.findings, *review.hidden) if finding.can_block]
    counted = [*reported, *(finding.severity for finding in review.omitted if finding.can_block)]
    fail_on = review.policy.fail_on
    decides = any(severity.at_least(Severity.HIGH) or severity.at_least(fail_on) for severity in reported)
    if not review.complete and not decides:
        return Verdict.INCOMPLETE
    if any(severity.at_least(Severity.HIGH) for severity in counted):
        return Verdict.FAIL
    return Verdict.NEEDS_WORK if counted else Verdict.PASS


def _exit_code(review: Review) -> int:
    """Return 1 if a finding blocks; else 3 if the review is incomplete, unless that may pass; else 0.

    `on_incomplete` decides about what was not reviewed, never about a known finding that blocks.
    """
    if any(review.policy.blocks(finding) for finding in review.findings):
        return BLOCKED
    omits_blocker = any(review.policy.blocks(finding) for finding in review.omitted)
    if omits_blocker or (not review.complete and not review.policy.pass_when_incomplete):
        return INCOMPLETE
    return PASSED


def _summary(review: Review) -> str:
    """Return one sentence: what was found, and whether everything was reviewed."""
    findings, coverage = review.findings, review.coverage
    if coverage.files_total == 0:
        return "No changes to review"
    counts = Counter(finding.severity for finding in findings if finding.can_block)
    total = sum(counts.values())
    said = ["No findings"]
    if total:
        parts = [f"{counts[severity]} {severity.label}" for severity in Severity if counts[severity]]
        said = [f"{total} finding{'' if total == 1 else 's'} ({', '.join(parts)})"]
    closed = (finding for finding in findings if not finding.is_open)
    others = Counter("suppressed" if _is_suppressed(finding) else finding.status.value for finding in closed)
    said += [f"{count} {status}" for status, count in others.items()]
    pending = sum(finding.is_open and not finding.counts for finding in findings)
    if pending:
        said.append(f"{pending} not verified")
    files = "file" if coverage.files_total == 1 else "files"
    said.append(f"{coverage.files_reviewed} of {coverage.files_total} {files} reviewed")
    if not review.complete:
        said.append("could not review everything")
    if any(finding.is_open for finding in review.omitted):
        said.append("only code that the last review has not covered")
    return "; ".join(said)


def _is_suppressed(finding: Finding) -> bool:
    return finding.suppression is not None and finding.status is not FindingStatus.DISMISSED


def converged(findings: Iterable[Finding], fail_on: Severity) -> bool:
    """Tell whether a round brought nothing that is new, or came back, and blocks at this severity."""
    fresh = (finding for finding in findings if finding.status in (FindingStatus.NEW, FindingStatus.REGRESSED))
    return not any(finding.can_block and finding.severity.at_least(fail_on) for finding in fresh)


def joined_info(reviewers: Sequence[ReviewerInfo]) -> ReviewerInfo:
    """Return several reviewers as one: their types, reasons and models in order."""
    if len(reviewers) == 1:
        return reviewers[0]
    models = dict.fromkeys(info.model for info in reviewers if info.model)
    return ReviewerInfo(
        type="+".join(info.type for info in reviewers),
        why="; ".join(f"{info.type}: {info.why}" for info in reviewers),
        model="+".join(models) or None,
    )


def score(findings: Iterable[Finding]) -> int:
    """Return 100 less the points of each finding that counts, at least 0."""
    return max(0, 100 - sum(_POINTS[finding.severity] for finding in findings if finding.can_block))


def gap_errors(coverage: Coverage) -> tuple[ReviewError, ...]:
    """Return an error for each file that should have been reviewed and was not."""
    gaps = (f"{skip.file}: {skip.describe()}" for skip in coverage.skipped if skip.is_gap)
    return tuple(ReviewError("not_reviewed", gap) for gap in gaps)


def _omitted_errors(review: Review) -> tuple[ReviewError, ...]:
    """Return the error for the omitted findings that block or are pending, if there are any."""
    blockers = len(review.omitted_blockers)
    if not blockers:
        return ()
    count = "1 open finding" if blockers == 1 else f"{blockers:,} open findings"
    wanted = review.policy.fail_on.label
    message = f"--since-last omits {count} of {wanted} or above in code that an earlier review covered"
    return (ReviewError(OMITTED, message),)
