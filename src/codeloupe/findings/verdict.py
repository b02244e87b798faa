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
    pending_findings,
)

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


def conclude(review: Review, found: Iterable[Finding], policy: Policy, *, saw_everything: bool) -> Review:
    """Return the review with its findings judged by a policy: verdict, completeness, exit code, summary."""
    shown: list[Finding] = []
    hidden: list[Finding] = []
    for finding in found:
        judged = with_main_claim_first(settled(finding, policy), policy)
        # A finding that blocks is always shown, so that no gate closes without a visible reason.
        if policy.shows(judged.severity) or judged.is_pending:
            shown.append(judged)
        else:
            hidden.append(judged)
    shown.sort(key=_place)
    hidden.sort(key=_place)
    pending = pending_findings(shown)
    complete = saw_everything and not pending
    other_errors = tuple(error for error in review.errors if error.kind != PENDING)
    return replace(
        review,
        policy=policy,
        findings=tuple(shown),
        hidden=tuple(hidden),
        hidden_findings=len(hidden),
        complete=complete,
        verdict=judge((*shown, *hidden), complete=complete, fail_on=policy.fail_on),
        exit_code=exit_code(shown, policy, complete=complete),
        summary=summarise(shown, review.coverage, complete=complete),
        errors=(*other_errors, *pending_errors(pending)),
    )


def _place(finding: Finding) -> tuple[str, int, int, str]:
    return finding.file, finding.first_line, finding.severity.value, finding.title


def judge(findings: Iterable[Finding], *, complete: bool, fail_on: Severity = Severity.HIGH) -> Verdict:
    """Return FAIL for a critical or high finding; else INCOMPLETE if nothing blocks and something was not reviewed.

    Otherwise return NEEDS_WORK for a lesser finding and PASS for none.
    """
    severities = {finding.severity for finding in findings if finding.can_block}
    if any(severity.at_least(Severity.HIGH) for severity in severities):
        return Verdict.FAIL
    blocks = any(severity.at_least(fail_on) for severity in severities)
    if not complete and not blocks:
        return Verdict.INCOMPLETE
    return Verdict.NEEDS_WORK if severities else Verdict.PASS


def exit_code(findings: Iterable[Finding], policy: Policy, *, complete: bool) -> int:
    """Return 1 if a finding reaches `fail_on`; else 3 if the review is incomplete, unless that may pass; else 0."""
    if any(finding.can_block and finding.severity.at_least(policy.fail_on) for finding in findings):
        return BLOCKED
    if not complete and not policy.pass_when_incomplete:
        return INCOMPLETE
    return PASSED


def summarise(findings: Sequence[Finding], coverage: Coverage, *, complete: bool) -> str:
    """Return one sentence: what was found, and whether everything was reviewed."""
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
    if not complete:
        said.append("could not review everything")
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
