"""GitLab's Code Quality report: a list of issues, in the few fields that GitLab reads.

GitLab knows open issues only, and tells two apart by their fingerprints. So what counts for nothing (refuted,
suppressed, dismissed, fixed) is left out. A finding without a place is about the repository as a whole, since GitLab
wants a line for each file, and is information unless it keeps the review from passing. What could not be reviewed is an
issue of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TypedDict

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports.wording import Gap, GapKind, Standing, check_name, gaps_of, standing_of
from codeloupe.system.untrusted import is_inside, json_document, plain_line, plain_path

_SEVERITIES = {
    Severity.CRITICAL: "blocker",
    Severity.HIGH: "critical",
    Severity.MEDIUM: "major",
    Severity.LOW: "minor",
}
_UNPLACED_SEVERITY = "info"
_GAP_SEVERITY = "critical"
_LONGEST = 2_000
_MOST_FILES = 20
# GitLab wants a path for each issue; this one stands for the repository as a whole.
_NO_FILE = "."


class Lines(TypedDict):
    """The first line of an issue."""

    begin: int


class Location(TypedDict):
    """A file, and where in it."""

    path: str
    lines: Lines


class Issue(TypedDict):
    """One entry of the report."""

    description: str
    check_name: str
    fingerprint: str
    severity: str
    location: Location


def render_gitlab(review: Review) -> str:
    """The review as a Code Quality report; an empty list when there is nothing to tell."""
    # A grave claim is told by its own issue.
    gaps = [issue for gap in gaps_of(review) if gap.kind is not GapKind.CLAIM for issue in _gap(gap)]
    findings = [_finding(review, finding) for finding in review.findings if finding.is_open]
    issues = list(_told_apart([*gaps, *findings]))
    return json_document(json.dumps(issues, indent=2, ensure_ascii=False)) + "\n"


def _finding(review: Review, finding: Finding) -> Issue:
    title = plain_line(finding.title, longest=_LONGEST) or check_name(finding)
    unplaced = standing_of(finding) is Standing.UNPLACED
    named = f" in {plain_path(finding.file[:_LONGEST])}" if finding.file else ""
    note = f" (could not be placed in the code{named})" if unplaced else ""
    lesser = unplaced and not finding.is_unsettled(review.policy.fail_on)
    return Issue(
        description=title + note,
        check_name=check_name(finding),
        fingerprint=plain_line(finding.fingerprint, longest=200) or _hash(finding.file, finding.category, title),
        severity=_UNPLACED_SEVERITY if lesser else _SEVERITIES[finding.severity],
        location=_location(_NO_FILE if unplaced else finding.file, finding.first_line),
    )


def _gap(gap: Gap) -> list[Issue]:
    """An issue for each file that a gap concerns."""
    words = plain_line(f"Not reviewed: {gap.in_words()}", longest=_LONGEST)
    return [
        Issue(
            description=words,
            check_name=f"codeloupe/{gap.kind.value}",
            fingerprint=_hash(gap.kind.value, gap.name, file),
            severity=_GAP_SEVERITY,
            location=_location(file, 1),
        )
        for file in gap.files[:_MOST_FILES] or (_NO_FILE,)
    ]


def _location(file: str, line: int) -> Location:
    return Location(path=plain_path(file) if is_inside(file) else _NO_FILE, lines=Lines(begin=max(line, 1)))


def _told_apart(issues: Iterable[Issue]) -> Iterable[Issue]:
    """GitLab shows only one of several issues that share a fingerprint."""
    seen: dict[str, int] = {}
    for issue in issues:
        fingerprint = issue["fingerprint"]
        count = seen[fingerprint] = seen.get(fingerprint, 0) + 1
        yield issue if count == 1 else {**issue, "fingerprint": _hash(fingerprint, str(count))}


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
