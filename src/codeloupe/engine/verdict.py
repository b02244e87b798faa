"""The verdict and the exit code, computed from findings and coverage alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from codeloupe.model.finding import Finding, FindingStatus, Severity
from codeloupe.model.review import Coverage, Policy, ReviewerInfo, Verdict, unsettled_claims

PASSED, BLOCKED, INCOMPLETE = 0, 1, 3
_POINTS = {Severity.LOW: 5, Severity.MEDIUM: 15, Severity.HIGH: 30, Severity.CRITICAL: 50}


def conclude(found: Iterable[Finding], policy: Policy, coverage: Coverage, *, complete: bool) -> dict[str, Any]:
    """What of a review follows from its findings, by name; with `complete` everything was looked at."""
    findings: list[Finding] = []
    hidden: list[Finding] = []
    for finding in found:
        # What could block is always shown, so that no gate closes for a reason nobody sees.
        (findings if policy.shows(finding.severity) else hidden).append(finding)
    complete = complete and not unsettled_claims(findings, policy)
    return {
        "policy": policy,
        "findings": tuple(findings),
        "hidden": tuple(hidden),
        "hidden_findings": len(hidden),
        "complete": complete,
        "verdict": judge(findings, complete=complete, fail_on=policy.fail_on),
        "exit_code": exit_code(findings, policy, complete=complete),
        "summary": summarise(findings, coverage, complete=complete),
    }


def judge(findings: Iterable[Finding], *, complete: bool, fail_on: Severity = Severity.HIGH) -> Verdict:
    """FAIL for an open critical or high finding; else INCOMPLETE when the review is not complete and nothing blocks.

    Otherwise NEEDS_WORK for a lesser finding, PASS for none.
    """
    severities = {finding.severity for finding in findings if finding.can_block}
    if any(severity.at_least(Severity.HIGH) for severity in severities):
        return Verdict.FAIL
    if not complete and not any(severity.at_least(fail_on) for severity in severities):
        return Verdict.INCOMPLETE
    return Verdict.NEEDS_WORK if severities else Verdict.PASS


def exit_code(findings: Iterable[Finding], policy: Policy, *, complete: bool) -> int:
    """1 when a finding reaches `fail_on`; else 3 when the review is incomplete, unless that may pass; else 0."""
    if any(finding.can_block and finding.severity.at_least(policy.fail_on) for finding in findings):
        return BLOCKED
    if not complete and not policy.pass_when_incomplete:
        return INCOMPLETE
    return PASSED


def summarise(findings: Sequence[Finding], coverage: Coverage, *, complete: bool) -> str:
    """One sentence: what was found, and whether everything was looked at."""
    if coverage.files_total == 0:
        return "No changes to review"
    counts = Counter(finding.severity for finding in findings if finding.can_block)
    parts = [f"{counts[severity]} {severity.label}" for severity in Severity if counts[severity]]
    total = sum(counts.values())
    said = [f"{total} finding{'' if total == 1 else 's'} ({', '.join(parts)})" if parts else "No findings"]
    # What was found and does not count, so that nothing found is left unsaid.
    closed = (finding for finding in findings if not finding.is_open)
    aside = Counter("suppressed" if finding.suppression else finding.status.value for finding in closed)
    said += [f"{count} {status}" for status, count in aside.items()]
    if unplaced := sum(finding.is_open and not finding.anchored for finding in findings):
        said.append(f"{unplaced} without a place in the code")
    files = "file" if coverage.files_total == 1 else "files"
    said.append(f"{coverage.files_reviewed} of {coverage.files_total} {files} reviewed")
    return "; ".join(said if complete else (*said, "could not review everything"))


def converged(findings: Iterable[Finding], fail_on: Severity) -> bool:
    """Whether a round brought nothing that is new, or came back, and could block at this severity."""
    fresh = (finding for finding in findings if finding.status in (FindingStatus.NEW, FindingStatus.REGRESSED))
    return not any(finding.can_block and finding.severity.at_least(fail_on) for finding in fresh)


def joined_info(reviewers: Sequence[ReviewerInfo]) -> ReviewerInfo:
    """Who reviewed, as one line: a single reviewer as it is, several with their types and reasons in order."""
    if len(reviewers) == 1:
        return reviewers[0]
    models = dict.fromkeys(info.model for info in reviewers if info.model)
    return ReviewerInfo(
        type="+".join(info.type for info in reviewers),
        why="; ".join(f"{info.type}: {info.why}" for info in reviewers),
        model="+".join(models) or None,
    )


def score(findings: Iterable[Finding]) -> int:
    """100 less the points of each finding that counts, at least 0."""
    return max(0, 100 - sum(_POINTS[finding.severity] for finding in findings if finding.can_block))
