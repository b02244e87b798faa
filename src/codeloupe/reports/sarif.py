"""SARIF 2.1.0: one run, with rules, results, and whether the tool could do its work.

Every finding in a file is a result. One that counts for nothing (refuted, suppressed, dismissed, fixed) is marked as
suppressed, and one without a place has no region and is a note, since it never blocks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from codeloupe import __version__
from codeloupe.model.finding import Finding, FindingStatus, Severity, SuppressionKind
from codeloupe.model.review import Review
from codeloupe.reports.replacement import Replacement, fix_of
from codeloupe.reports.wording import (
    GapKind,
    Standing,
    check_name,
    errors_beside_gaps,
    gaps_of,
    outcome_of,
    reviewer_in_words,
    standing_of,
    why_not_counted,
)
from codeloupe.system.untrusted import is_inside, json_document, plain_code, plain_line, plain_path, plain_text

SOURCE_ROOT = "%SRCROOT%"
_LONGEST_SNIPPET = 8_000
_LARGEST_LINE = 2**31 - 1


def artifact(path: str) -> dict[str, str]:
    """The address of a file; every byte of its name that could mean something in an address is encoded."""
    return {"uri": quote(_path_bytes(path), safe="/"), "uriBaseId": SOURCE_ROOT}


def location(finding: Finding) -> dict[str, Any]:
    """Where a finding of a known file is: the file and lines, or the file alone when it has no place in it."""
    physical: dict[str, Any] = {"artifactLocation": artifact(finding.file)}
    if 0 < finding.first_line <= _LARGEST_LINE:
        physical["region"] = _region(finding)
    return {"physicalLocation": physical}


def _region(finding: Finding) -> dict[str, Any]:
    start = finding.first_line
    lines: dict[str, Any] = {"startLine": start, "endLine": min(max(start, finding.last_line), _LARGEST_LINE)}
    if finding.evidence.strip():
        lines["snippet"] = {"text": plain_code(finding.evidence.rstrip("\n"), longest=_LONGEST_SNIPPET)}
    return lines


def file_locations(paths: tuple[str, ...], *, most: int) -> list[dict[str, Any]]:
    """The first of some files, without lines."""
    inside = [path for path in dict.fromkeys(paths) if is_inside(path)][:most]
    return [{"physicalLocation": {"artifactLocation": artifact(path)}} for path in inside]


def _path_bytes(path: str) -> bytes:
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # No path of git holds such a character; a model may write anything.
        return path.encode("utf-8", "surrogatepass")


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


_ERROR = "problem"
_PATHLESS = "finding-without-file"
_SKIPPED = "file-left-out"
NOTIFICATION_KINDS = {
    GapKind.CLAIM.value: "A critical or high claim could be neither placed in the code nor refuted.",
    GapKind.UNIT.value: "A piece of the change could not be reviewed.",
    GapKind.FILE.value: "A file of the change could not be reviewed.",
    GapKind.UNKNOWN.value: "Not everything could be reviewed.",
    _ERROR: "Something went wrong and did not stop the review.",
    _PATHLESS: "A finding names no file of the repository.",
    _SKIPPED: "A file was left out on purpose.",
}
_LONGEST = 4_000
_MOST_FILES = 20


def notifications(review: Review) -> list[dict[str, Any]]:
    """Gaps as errors, other problems as warnings, files that the policy leaves out as notes.

    A finding that names no file of the repository stands here too: readers refuse a result without one.
    """
    gaps = [_notification(gap.kind.value, "error", gap.in_words(), files=gap.files) for gap in gaps_of(review)]
    errors = [
        _notification(_ERROR, "warning", f"{error.kind}: {error.message}") for error in errors_beside_gaps(review)
    ]
    left_out = [
        _notification(_SKIPPED, "note", f"{skip.file}: {skip.in_words()}", files=(skip.file,))
        for skip in review.coverage.skipped
        if not skip.is_gap
    ]
    pathless = [
        _notification(_PATHLESS, "note", f"{finding.severity.label} {plain_path(finding.file)}: {message(finding)}")
        for finding in review.findings
        if not is_inside(finding.file) and not finding.is_unsettled(review.policy.fail_on)
    ]
    return [*gaps, *errors, *pathless, *left_out]


def _notification(kind: str, level: str, words: str, *, files: tuple[str, ...] = ()) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "descriptor": {"id": kind},
        "level": level,
        "message": {"text": plain_text(words, longest=_LONGEST).replace("](", "] (")},
    }
    if places := file_locations(files, most=_MOST_FILES):
        whole["locations"] = places
    return whole


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
# The scale of CVSS, on which GitHub ranks what concerns security.
_SECURITY_SEVERITY = {Severity.CRITICAL: "9.5", Severity.HIGH: "8.0", Severity.MEDIUM: "5.5", Severity.LOW: "2.0"}
_LONGEST_LINE = 500


def render_sarif(review: Review) -> str:
    """The review as a SARIF log. Always a valid one that can be encoded as UTF-8, whatever the findings hold."""
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [_run(review)]}
    return json_document(json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _run(review: Review) -> dict[str, Any]:
    placed = [finding for finding in review.findings if is_inside(finding.file)]
    rules = _rules(placed)
    indices = {rule["id"]: index for index, rule in enumerate(rules)}
    with_history = _has_history(placed)
    return {
        "tool": {
            "driver": {
                "name": "codeloupe",
                "version": __version__,
                "rules": rules,
                "notifications": [
                    {"id": kind, "shortDescription": {"text": words}} for kind, words in NOTIFICATION_KINDS.items()
                ],
            }
        },
        "automationDetails": {"id": f"codeloupe/{plain_line(review.review_id, longest=100)}"},
        "originalUriBaseIds": {SOURCE_ROOT: {"description": {"text": "The root of the reviewed repository."}}},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(review)],
        "results": [
            result(finding, index=indices[check_name(finding)], with_history=with_history) for finding in placed
        ],
        "properties": _sarif_properties(review),
    }


def _invocation(review: Review) -> dict[str, Any]:
    return {
        "executionSuccessful": review.complete,
        "exitCode": review.exit_code,
        "exitCodeDescription": outcome_of(review).why,
        "toolExecutionNotifications": notifications(review),
    }


def _sarif_properties(review: Review) -> dict[str, Any]:
    coverage = review.coverage
    return {
        "verdict": review.verdict.value,
        "passed": review.passed,
        "complete": review.complete,
        "summary": plain_line(review.summary, longest=_LONGEST_LINE),
        "scope": plain_line(review.scope.description, longest=_LONGEST_LINE),
        "reviewer": plain_line(reviewer_in_words(review.reviewer), longest=_LONGEST_LINE),
        "filesTotal": coverage.files_total,
        "filesReviewed": coverage.files_reviewed,
        "hiddenFindings": review.hidden_findings,
    }


def _rules(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(check_name(finding), []).append(finding)
    return [_rule(name, groups[name]) for name in sorted(groups)]


def _rule(name: str, findings: Sequence[Finding]) -> dict[str, Any]:
    worst = min((finding.severity for finding in findings), key=lambda severity: severity.priority)
    first = findings[0]
    tags = list(dict.fromkeys(plain_line(finding.category, longest=80) for finding in findings))[:10]
    properties: dict[str, Any] = {"tags": [tag for tag in tags if tag]}
    if any(finding.category.strip().lower() == "security" for finding in findings):
        properties["security-severity"] = _SECURITY_SEVERITY[worst]
    what = plain_line(first.category, longest=80) or "general"
    text = f"{what}: rule {name} of {plain_line(first.reviewer, longest=80)}" if first.rule else what
    return {
        "id": name,
        "shortDescription": {"text": text},
        "defaultConfiguration": {"level": LEVELS[worst]},
        "properties": properties,
    }


def _has_history(findings: Sequence[Finding]) -> bool:
    """Whether this review was compared with an earlier one; the states of all results are known, or of none."""
    return any(finding.status.value in ("open", "fixed", "regressed") for finding in findings)
