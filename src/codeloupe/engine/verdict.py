"""The verdict and the exit code, computed from findings and coverage alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Coverage, Policy, Verdict

PASSED, BLOCKED, INCOMPLETE = 0, 1, 3


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


def summarise(findings: tuple[Finding, ...], coverage: Coverage, *, complete: bool) -> str:
    """One sentence: what was found, and whether everything was looked at."""
    if coverage.files_total == 0:
        return "No changes to review"
    counts = Counter(finding.severity for finding in findings if finding.can_block)
    parts = [f"{counts[severity]} {severity.label}" for severity in Severity if counts[severity]]
    found = (
        f"{sum(counts.values())} {_plural('finding', sum(counts.values()))} ({', '.join(parts)})"
        if parts
        else "No findings"
    )
    aside = "".join(f"; {words}" for words in _set_aside(findings))
    files = f"{coverage.files_reviewed} of {coverage.files_total} {_plural('file', coverage.files_total)} reviewed"
    missing = "" if complete else "; could not review everything"
    return f"{found}{aside}; {files}{missing}"


def _set_aside(findings: Iterable[Finding]) -> Iterator[str]:
    """What was found and does not count, so that nothing found is left unsaid."""
    listed = tuple(findings)
    aside = (finding for finding in listed if not finding.is_open)
    counts = Counter("suppressed" if finding.suppression else finding.status.value for finding in aside)
    yield from (f"{count} {status}" for status, count in counts.items())
    unplaced = sum(finding.is_open and not finding.anchored for finding in listed)
    if unplaced:
        yield f"{unplaced} without a place in the code"


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"
