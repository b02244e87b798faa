"""The JSON report, version 1: fields are added, never changed, so its types are kept apart from the internal ones."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from codeloupe import __version__
from codeloupe.model.finding import Finding
from codeloupe.model.review import Coverage, Review
from codeloupe.model.usage import Usage
from codeloupe.report.sanitise import json_document

# pydantic refuses the lone surrogates that stand for the bytes of a path that is not UTF-8; the text is ours anyway.
Text = Annotated[str, SkipValidation()]


def _one_of(*words: str) -> Any:
    """The words a field may hold, in the schema; that our own types hold no others is a test's business."""
    return Field(json_schema_extra={"enum": list(words)})


SeverityWord = Annotated[str, _one_of("critical", "high", "medium", "low")]
ScopeWord = Annotated[str, _one_of("uncommitted", "staged", "branch", "range", "commit", "diff_file")]
StatusWord = Annotated[str, _one_of("new", "open", "fixed", "refuted", "dismissed")]
VerdictWord = Annotated[str, _one_of("PASS", "NEEDS_WORK", "FAIL")]
Priority = Annotated[int, Field(json_schema_extra={"minimum": 0, "maximum": 3})]


class _Part(BaseModel):
    """A part of the document. A reader must expect fields it does not know: later versions add some."""

    model_config = ConfigDict(frozen=True)


class ToolV1(_Part):
    """The program that made the document."""

    name: Literal["codeloupe"]
    version: Text


class ScopeV1(_Part):
    """What was reviewed; `head` is null for an index or a working tree."""

    kind: ScopeWord
    base: Text | None
    head: Text | None
    description: Text


class ReviewerV1(_Part):
    """Who reviewed, and why that one."""

    type: Text
    model: Text | None
    why: Text


class FindingV1(_Part):
    """One defect. A path that is not UTF-8 holds lone surrogates (`\\udc80` to `\\udcff`), one for each such byte."""

    fingerprint: Text
    file: Text
    line_start: int
    line_end: int
    severity: SeverityWord
    priority: Priority
    category: Text
    title: Text
    body: Text
    suggestion: Text | None
    evidence: Text
    confidence: float | None
    expert: Text | None
    reviewer: Text
    commit_sha: Text | None
    anchored: bool
    outside_change: bool
    status: StatusWord
    agreement: int
    rule: Text | None


class SkippedV1(_Part):
    """A file that was not reviewed; `reason` is a fixed phrase, `detail` adds numbers or names and may be empty."""

    file: Text
    reason: Text
    detail: Text


class FailedUnitV1(_Part):
    """A piece of the change that could not be reviewed."""

    unit: Text
    files: list[Text]
    reason: Text


class CoverageV1(_Part):
    """What was looked at and what was not."""

    files_total: int
    files_reviewed: int
    skipped: list[SkippedV1]
    units_total: int
    units_failed: list[FailedUnitV1]


class UsageV1(_Part):
    """What the review cost."""

    requests: int
    cached: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    duration_seconds: float


class ErrorV1(_Part):
    """Something that went wrong and did not stop the review."""

    kind: Text
    message: Text


class PolicyV1(_Part):
    """What decided the exit code."""

    fail_on: SeverityWord
    min_severity: SeverityWord
    pass_when_incomplete: bool


class ReviewV1(_Part):
    """The whole document."""

    schema_version: Literal[1]
    tool: ToolV1
    review_id: Text
    scope: ScopeV1
    reviewer: ReviewerV1
    verdict: VerdictWord
    passed: bool
    complete: bool
    exit_code: int
    summary: Text
    findings: list[FindingV1]
    coverage: CoverageV1
    usage: UsageV1
    errors: list[ErrorV1]
    hidden_findings: int
    policy: PolicyV1


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    return ReviewV1.model_json_schema(mode="serialization")


def render_json(review: Review) -> str:
    """The review as a JSON document: two spaces of indent, keys in a fixed order, a newline at the end.

    Always valid JSON that can be encoded as UTF-8, whatever the findings and paths hold.
    """
    data = _document(review).model_dump()
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
        usage=_usage(review.usage),
        errors=[ErrorV1(kind=error.kind, message=error.message) for error in review.errors],
        hidden_findings=review.hidden_findings,
        policy=PolicyV1(
            fail_on=policy.fail_on.label,
            min_severity=policy.min_severity.label,
            pass_when_incomplete=policy.pass_when_incomplete,
        ),
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
        evidence=finding.evidence,
        confidence=finding.confidence if finding.confidence is None or math.isfinite(finding.confidence) else None,
        expert=finding.expert,
        reviewer=finding.reviewer,
        commit_sha=finding.commit_sha,
        anchored=finding.anchored,
        outside_change=finding.outside_change,
        status=finding.status.value,
        agreement=finding.agreement,
        rule=finding.rule,
    )


def _coverage(coverage: Coverage) -> CoverageV1:
    return CoverageV1(
        files_total=coverage.files_total,
        files_reviewed=coverage.files_reviewed,
        skipped=[SkippedV1(file=skip.file, reason=skip.reason.value, detail=skip.detail) for skip in coverage.skipped],
        units_total=coverage.units_total,
        units_failed=[
            FailedUnitV1(unit=failed.unit, files=list(failed.files), reason=failed.reason)
            for failed in coverage.units_failed
        ],
    )


def _usage(usage: Usage) -> UsageV1:
    return UsageV1(
        requests=usage.requests,
        cached=usage.cached,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost_usd=_finite(usage.cost_usd),
        duration_seconds=_finite(usage.duration_seconds),
    )


def _finite(number: float) -> float:
    """JSON has no word for infinity; a number that cannot be written counts as not known, which is 0."""
    return number if math.isfinite(number) else 0.0
