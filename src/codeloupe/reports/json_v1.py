"""The JSON report, version 1: fields are added, never changed, so its types are kept apart from the internal ones.

A reader must expect fields that it does not know: later versions add some.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal, TypedDict

from codeloupe import __version__
from codeloupe.model.change import ScopeKind
from codeloupe.model.finding import Finding, FindingStatus, Source
from codeloupe.model.review import Coverage, Review
from codeloupe.model.suppression import Suppression, SuppressionKind
from codeloupe.reports.json_types import schema_of
from codeloupe.reports.json_usage import UsageV1, usage_v1
from codeloupe.system.untrusted import json_document

SeverityWord = Annotated[str, {"enum": ["critical", "high", "medium", "low"]}]
ScopeWord = Annotated[str, {"enum": [kind.value for kind in ScopeKind]}]
StatusWord = Annotated[str, {"enum": [status.value for status in FindingStatus]}]
SuppressionWord = Annotated[str, {"enum": [kind.value for kind in SuppressionKind]}]
SourceWord = Annotated[str, {"enum": [source.value for source in Source]}]
VerdictWord = Annotated[str, {"enum": ["PASS", "NEEDS_WORK", "FAIL", "INCOMPLETE"]}]
Priority = Annotated[int, {"minimum": 0, "maximum": 3}]


class ToolV1(TypedDict):
    """The program that made the document."""

    name: Literal["codeloupe"]
    version: str


class ScopeV1(TypedDict):
    """What was reviewed; `head` is null for an index or a working tree."""

    kind: ScopeWord
    base: str | None
    head: str | None
    description: str


class ReviewerV1(TypedDict):
    """Who reviewed, and why that one."""

    type: str
    model: str | None
    why: str


class SuppressionV1(TypedDict):
    """Why a finding does not count although it stands; `expires` is the last day (YYYY-MM-DD) on which that holds."""

    kind: SuppressionWord
    reason: str
    owner: str | None
    expires: str | None


class FindingV1(TypedDict):
    """One defect. A path that is not UTF-8 holds lone surrogates (`\\udc80` to `\\udcff`), one for each such byte.

    `seen_by` names each independent look that found it, `agreement` counts them; `verification` says what the attempt
    to refute it showed, and is empty when none was made. A finding with a `suppression` does not count.
    """

    fingerprint: str
    file: str
    line_start: int | None
    line_end: int | None
    severity: SeverityWord
    priority: Priority
    category: str
    title: str
    body: str
    suggestion: str | None
    replacement: str | None
    evidence: str
    confidence: float | None
    expert: str | None
    reviewer: str
    source: SourceWord
    commit_sha: str | None
    anchored: bool
    outside_change: bool
    status: StatusWord
    agreement: int
    rule: str | None
    seen_by: list[str]
    verification: str
    suppression: SuppressionV1 | None


class SkippedV1(TypedDict):
    """A file that was not reviewed; `reason` is a fixed phrase, `detail` adds numbers or names and may be empty.

    `accepted` is false where the settings in force do not let such a file stay unread: the review is then incomplete.
    """

    file: str
    reason: str
    detail: str
    accepted: bool


class FailedUnitV1(TypedDict):
    """A piece of the change that could not be reviewed."""

    unit: str
    files: list[str]
    reason: str


class CoverageV1(TypedDict):
    """What was looked at and what was not."""

    files_total: int
    files_reviewed: int
    skipped: list[SkippedV1]
    units_total: int
    units_failed: list[FailedUnitV1]


class ErrorV1(TypedDict):
    """Something that went wrong and did not stop the review."""

    kind: str
    message: str


class PolicyV1(TypedDict):
    """What decided the exit code."""

    fail_on: SeverityWord
    min_severity: SeverityWord
    pass_when_incomplete: bool


class ReviewV1(TypedDict):
    """The whole document.

    `nothing_to_review` tells a PASS that speaks of no code: the change was empty, or all of it was left out on purpose.
    """

    schema_version: Literal[1]
    tool: ToolV1
    review_id: str
    scope: ScopeV1
    reviewer: ReviewerV1
    verdict: VerdictWord
    passed: bool
    complete: bool
    exit_code: int
    summary: str
    findings: list[FindingV1]
    coverage: CoverageV1
    usage: UsageV1
    errors: list[ErrorV1]
    hidden_findings: int
    policy: PolicyV1
    nothing_to_review: bool


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    return schema_of(ReviewV1)


def render_json(review: Review) -> str:
    """The review as a JSON document: two spaces of indent, keys in a fixed order, a newline at the end.

    Always valid JSON that can be encoded as UTF-8, whatever the findings and paths hold.
    """
    data = _document(review)
    return json_document(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _document(review: Review) -> ReviewV1:
    scope, reviewer, policy = review.scope, review.reviewer, review.policy
    return ReviewV1(
        schema_version=1,
        tool=ToolV1(name="codeloupe", version=__version__),
        review_id=review.review_id,
        scope=ScopeV1(kind=scope.kind.value, base=scope.base, head=scope.head, description=scope.description),
        reviewer=ReviewerV1(type=reviewer.type, model=reviewer.model, why=reviewer.why),
        verdict=review.verdict.value,
        passed=review.passed,
        complete=review.complete,
        exit_code=review.exit_code,
        summary=review.summary,
        findings=[_finding(finding) for finding in review.findings],
        coverage=_coverage(review.coverage),
        usage=usage_v1(review.usage),
        errors=[ErrorV1(kind=error.kind, message=error.message) for error in review.errors],
        hidden_findings=review.hidden_findings,
        policy=PolicyV1(
            fail_on=policy.fail_on.label,
            min_severity=policy.min_severity.label,
            pass_when_incomplete=policy.pass_when_incomplete,
        ),
        nothing_to_review=review.nothing_to_review,
    )


def _finding(finding: Finding) -> FindingV1:
    return FindingV1(
        fingerprint=finding.fingerprint,
        file=finding.file,
        line_start=finding.line_start,
        line_end=finding.line_end,
        severity=finding.severity.label,
        priority=finding.severity.priority,
        category=finding.category,
        title=finding.title,
        body=finding.body,
        suggestion=finding.suggestion,
        replacement=finding.replacement,
        evidence=finding.evidence,
        confidence=finding.confidence if finding.confidence is None or math.isfinite(finding.confidence) else None,
        expert=finding.expert,
        reviewer=finding.reviewer,
        source=finding.source.value,
        commit_sha=finding.commit_sha,
        anchored=finding.anchored,
        outside_change=finding.outside_change,
        status=finding.status.value,
        agreement=finding.agreement,
        rule=finding.rule,
        seen_by=list(finding.seen_by),
        verification=finding.verification,
        suppression=None if finding.suppression is None else _suppression(finding.suppression),
    )


def _suppression(suppression: Suppression) -> SuppressionV1:
    return SuppressionV1(
        kind=suppression.kind.value,
        reason=suppression.reason,
        owner=suppression.owner or None,
        expires=None if suppression.expires is None else suppression.expires.isoformat(),
    )


def _coverage(coverage: Coverage) -> CoverageV1:
    return CoverageV1(
        files_total=coverage.files_total,
        files_reviewed=coverage.files_reviewed,
        skipped=[
            SkippedV1(file=skip.file, reason=skip.reason.value, detail=skip.detail, accepted=not skip.is_gap)
            for skip in coverage.skipped
        ],
        units_total=coverage.units_total,
        units_failed=[
            FailedUnitV1(unit=failed.unit, files=list(failed.files), reason=failed.reason)
            for failed in coverage.units_failed
        ],
    )
