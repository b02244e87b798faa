"""How a finding stands in a report: counted, without a place, or not counted and why."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.review import Review
from codeloupe.model.severity import Severity
from codeloupe.model.suppression import SuppressionKind
from codeloupe.reports.wording import counted
from codeloupe.system.untrusted import plain_line

_SUPPRESSED_BY = {SuppressionKind.BASELINE: "the baseline", SuppressionKind.INLINE: "a comment in the code"}
_LOOKS_NAMED = 4
_ID_DIGITS = 8


class Standing(StrEnum):
    """What a finding counts for."""

    OPEN = "open"
    UNPLACED = "without a place"
    REFUTED = "refuted"
    SET_ASIDE = "set aside"


def standing_of(finding: Finding) -> Standing:
    """Open ones count; those without a place never block; refuted, suppressed and closed ones count for nothing."""
    if finding.is_open:
        return Standing.OPEN if finding.anchored else Standing.UNPLACED
    refuted = finding.status is FindingStatus.REFUTED and finding.suppression is None
    return Standing.REFUTED if refuted else Standing.SET_ASIDE


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity, then by place."""
    return sorted(findings, key=lambda f: (f.severity.priority, f.file, f.first_line, f.last_line, f.title))


def short_id(finding: Finding) -> str:
    """So much of the fingerprint that `history dismiss` and `baseline add` know the finding; empty without one."""
    return plain_line(finding.fingerprint[:_ID_DIGITS], longest=_ID_DIGITS)


def standing_so(findings: Iterable[Finding], standing: Standing) -> list[Finding]:
    """Those that stand so, the worst first, then by place."""
    return worst_first(finding for finding in findings if standing_of(finding) is standing)


def why_not_counted(finding: Finding) -> str:
    """Why a finding counts for nothing, in words; empty for one that counts."""
    match standing_of(finding):
        case Standing.OPEN | Standing.UNPLACED:
            return ""
        case Standing.REFUTED:
            return finding.verification.strip(": \n") or "refuted"
        case Standing.SET_ASIDE:
            return _why_set_aside(finding)


def _why_set_aside(finding: Finding) -> str:
    suppression = finding.suppression
    if suppression is None:
        return finding.status.value
    words = f"suppressed by {_SUPPRESSED_BY[suppression.kind]}: {suppression.reason}".rstrip(": ")
    owner = f", {suppression.owner}" if suppression.owner else ""
    until = f", until {suppression.expires.isoformat()}" if suppression.expires else ""
    return f"{words}{owner}{until}"


def counts_in_words(review: Review) -> str:
    """`1 high, 2 low; 1 refuted; 3 hidden below min_severity=medium`: everything found, nothing left unsaid."""
    counts = Counter(standing_of(finding) for finding in review.findings)
    steps = Counter(f.severity for f in review.findings if standing_of(f) is Standing.OPEN)
    open_ones = ", ".join(f"{steps[step]:,} {step.label}" for step in Severity if steps[step])
    others = [f"{counts[s]:,} {s.value}" for s in Standing if s is not Standing.OPEN and counts[s]]
    hidden = f"{review.hidden_findings:,} hidden below min_severity={review.policy.min_severity.label}"
    return "; ".join([open_ones or "none", *others, *([hidden] if review.hidden_findings else [])])


def origin_of(finding: Finding) -> list[str]:
    """Where a finding comes from and what else is known of it, each in a few words, none twice."""
    seen = _seen_by(finding)
    parts = [
        finding.category,
        finding.rule or "",
        # Who saw it names the reviewer too.
        "" if seen and finding.seen_by else finding.reviewer,
        finding.expert or "",
        seen,
        "outside the change" if finding.outside_change else "",
        _HISTORY.get(finding.status, ""),
        _confidence(finding.confidence),
        f"commit {finding.commit_sha[:10]}" if finding.commit_sha else "",
        f"id {short_id(finding)}" if finding.fingerprint else "",
    ]
    return list(dict.fromkeys(part for part in parts if part))


_HISTORY = {
    FindingStatus.OPEN: "still open from an earlier review",
    FindingStatus.REGRESSED: "back after it was fixed",
}


def _confidence(confidence: float | None) -> str:
    return f"confidence {confidence:.0%}" if confidence is not None and math.isfinite(confidence) else ""


def _seen_by(finding: Finding) -> str:
    if finding.agreement <= 1:
        return ""
    if not finding.seen_by:
        return f"seen {counted(finding.agreement, 'time', 'times')}"
    rest = len(finding.seen_by) - _LOOKS_NAMED
    more = f" and {rest:,} more" if rest > 0 else ""
    return f"seen by {', '.join(finding.seen_by[:_LOOKS_NAMED])}{more}"


def check_name(finding: Finding) -> str:
    """The name of what was checked, for formats that want one: the rule, or else the category.

    Letters, digits and `._/-` alone, since a model may have chosen it; never empty.
    """
    name = (finding.rule or finding.category)[:_LONGEST_NAME]
    kept = "".join(character if _is_plain(character) else "-" for character in name)
    return kept.strip("-./") or "general"


_LONGEST_NAME = 80


def _is_plain(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "._/-")
