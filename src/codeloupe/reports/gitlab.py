"""GitLab's Code Quality report: a list of issues, in the few fields that GitLab reads.

GitLab knows open issues only, and tells two apart by their fingerprints. So what counts for nothing (refuted,
suppressed, dismissed, fixed) is left out. A finding without a place is about the repository as a whole, since GitLab
wants a line for each file, and is information unless it keeps the review from passing. What could not be reviewed is an
issue of its own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports.json_v1 import json_text
from codeloupe.reports.wording import Standing, check_name, gaps_without_claims, standing_of
from codeloupe.system.untrusted import is_inside, plain_line, plain_path

_SEVERITIES = dict(zip(Severity, ("blocker", "critical", "major", "minor"), strict=True))
_LONGEST = 2_000
# GitLab wants a path for each issue; this one is for the repository as a whole.
_NO_FILE = "."


def render_gitlab(review: Review) -> str:
    """The review as a Code Quality report; an empty list when there is nothing to tell."""
    issues = [
        _issue(
            plain_line(f"Not reviewed: {gap.in_words()}", longest=_LONGEST),
            check=f"codeloupe/{gap.kind.value}",
            fingerprint=_hash(gap.kind.value, gap.name, file),
            severity="critical",
            file=file,
            line=1,
        )
        for gap in gaps_without_claims(review)
        for file in gap.files[:20] or (_NO_FILE,)
    ]
    issues += [_finding(review, finding) for finding in review.findings if finding.is_open]
    # GitLab shows only one of several issues that share a fingerprint.
    seen: Counter[str] = Counter()
    for issue in issues:
        fingerprint = issue["fingerprint"]
        seen[fingerprint] += 1
        if seen[fingerprint] > 1:
            issue["fingerprint"] = _hash(fingerprint, str(seen[fingerprint]))
    return json_text(issues)


def _finding(review: Review, finding: Finding) -> dict[str, Any]:
    title = plain_line(finding.title, longest=_LONGEST) or check_name(finding)
    unplaced = standing_of(finding) is Standing.UNPLACED
    named = f" in {plain_path(finding.file[:_LONGEST])}" if finding.file else ""
    lesser = unplaced and not finding.is_unsettled(review.policy.fail_on)
    return _issue(
        f"{title} (could not be placed in the code{named})" if unplaced else title,
        check=check_name(finding),
        fingerprint=plain_line(finding.fingerprint, longest=200) or _hash(finding.file, finding.category, title),
        severity="info" if lesser else _SEVERITIES[finding.severity],
        file=_NO_FILE if unplaced else finding.file,
        line=finding.first_line,
    )


def _issue(words: str, *, check: str, fingerprint: str, severity: str, file: str, line: int) -> dict[str, Any]:
    path = plain_path(file) if is_inside(file) else _NO_FILE
    return {
        "description": words,
        "check_name": check,
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": max(line, 1)}},
    }


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
