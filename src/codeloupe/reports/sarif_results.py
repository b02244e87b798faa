"""Findings as results of SARIF."""

from __future__ import annotations

import math
from typing import Any

from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.severity import Severity
from codeloupe.model.suppression import SuppressionKind
from codeloupe.reports.replacement import Replacement, fix_of
from codeloupe.reports.sarif_places import artifact, location
from codeloupe.reports.standing import Standing, check_name, standing_of, why_not_counted
from codeloupe.system.untrusted import plain_code, plain_line, plain_text

LEVELS = {Severity.CRITICAL: "error", Severity.HIGH: "error", Severity.MEDIUM: "warning", Severity.LOW: "note"}
_RANKS = {Severity.CRITICAL: 95.0, Severity.HIGH: 75.0, Severity.MEDIUM: 50.0, Severity.LOW: 25.0}
_MOST_AGREEMENT = 4
_LONGEST_TITLE = 500
_LONGEST_TEXT = 8_000
_NO_PLACE = "This could not be placed in the code."
_BASELINE_STATES = {
    FindingStatus.NEW: "new",
    FindingStatus.REGRESSED: "new",
    FindingStatus.REFUTED: "new",
    FindingStatus.OPEN: "unchanged",
    FindingStatus.DISMISSED: "unchanged",
    FindingStatus.FIXED: "absent",
}


def result(finding: Finding, *, index: int, with_history: bool) -> dict[str, Any]:
    """One result of a finding in a known file; `index` is that of its rule.

    `with_history` tells whether its state in an earlier review is known.
    """
    unplaced = standing_of(finding) is Standing.UNPLACED
    whole: dict[str, Any] = {
        "ruleId": check_name(finding),
        "ruleIndex": index,
        "level": "note" if unplaced else LEVELS[finding.severity],
        "rank": _RANKS[finding.severity] + min(max(finding.agreement - 1, 0), _MOST_AGREEMENT),
        "message": {"text": message(finding)},
        "locations": [location(finding)],
    }
    if finding.fingerprint:
        whole["partialFingerprints"] = {"codeloupeFingerprint/v1": plain_line(finding.fingerprint, longest=200)}
    if why := why_not_counted(finding):
        whole["suppressions"] = [_suppression(finding, why)]
    if with_history:
        whole["baselineState"] = _BASELINE_STATES[finding.status]
    replacement = fix_of(finding).edit
    if replacement is not None:
        whole["fixes"] = [_fix(finding, replacement)]
    whole["properties"] = _properties(finding)
    return whole


def message(finding: Finding) -> str:
    """What is wrong, why, and the fix as far as it is no edit."""
    title = plain_line(finding.title, longest=_LONGEST_TITLE) or check_name(finding)
    fix = fix_of(finding)
    code = plain_code(fix.code, longest=_LONGEST_TEXT) if fix.edit is None else ""
    advice = "\n\n".join(
        part for part in (plain_code(fix.words.strip("\n").rstrip(), longest=_LONGEST_TEXT), code) if part
    )
    parts = [
        title,
        plain_text(finding.body, longest=_LONGEST_TEXT),
        f"Fix: {advice}" if advice else "",
        _NO_PLACE if standing_of(finding) is Standing.UNPLACED else "",
    ]
    # Viewers make a link of `[words](address)`.
    return "\n\n".join(part for part in parts if part).replace("](", "] (")


def _suppression(finding: Finding, why: str) -> dict[str, Any]:
    by = finding.suppression
    in_source = by is not None and by.kind is SuppressionKind.INLINE
    return {
        "kind": "inSource" if in_source else "external",
        "status": "accepted",
        "justification": plain_text(why, longest=_LONGEST_TEXT),
    }


def _fix(finding: Finding, replacement: Replacement) -> dict[str, Any]:
    lines = {"startLine": replacement.line_start, "endLine": replacement.line_end}
    return {
        "description": {"text": "Replace these lines as suggested."},
        "artifactChanges": [
            {
                "artifactLocation": artifact(finding.file),
                "replacements": [{"deletedRegion": lines, "insertedContent": {"text": replacement.text}}],
            }
        ],
    }


def _properties(finding: Finding) -> dict[str, Any]:
    confidence = finding.confidence
    known = {
        "severity": finding.severity.label,
        "priority": finding.severity.priority,
        "category": plain_line(finding.category, longest=200),
        "reviewer": plain_line(finding.reviewer, longest=200),
        "expert": plain_line(finding.expert or "", longest=200) or None,
        "status": finding.status.value,
        "anchored": finding.anchored,
        "outsideChange": finding.outside_change,
        "agreement": finding.agreement,
        "confidence": confidence if confidence is not None and math.isfinite(confidence) else None,
        "verification": plain_text(finding.verification, longest=_LONGEST_TEXT) or None,
        "commit": plain_line(finding.commit_sha or "", longest=100) or None,
    }
    return {name: value for name, value in known.items() if value is not None}
