"""SARIF 2.1.0: one run, with rules, results, and whether the tool could do its work.

Every finding in a file is a result. One that counts for nothing (refuted, suppressed, dismissed, fixed) is marked as
suppressed, and one without a place has no region and is a note, since it never blocks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from codeloupe import __version__
from codeloupe.model.finding import Finding
from codeloupe.model.review import Review
from codeloupe.model.severity import Severity
from codeloupe.reports.outcome import outcome_of
from codeloupe.reports.sarif_notifications import NOTIFICATION_KINDS, notifications
from codeloupe.reports.sarif_places import SOURCE_ROOT
from codeloupe.reports.sarif_results import LEVELS, result
from codeloupe.reports.standing import check_name
from codeloupe.reports.wording import reviewer_in_words
from codeloupe.system.untrusted import is_inside, json_document, plain_line

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
        "properties": _properties(review),
    }


def _invocation(review: Review) -> dict[str, Any]:
    return {
        "executionSuccessful": review.complete,
        "exitCode": review.exit_code,
        "exitCodeDescription": outcome_of(review).why,
        "toolExecutionNotifications": notifications(review),
    }


def _properties(review: Review) -> dict[str, Any]:
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
