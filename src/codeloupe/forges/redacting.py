"""Findings and reviews without secrets, before they are set as Markdown: what is escaped cannot be recognised any more.

The far end of endless texts goes too: no page shows it, and to look through it takes time.
"""

from __future__ import annotations

from msgspec.structs import replace

from codeloupe.model.finding import Finding
from codeloupe.model.review import Coverage, FailedUnit, Review, ReviewError
from codeloupe.system.redaction import redact

# More than any page shows of a text, and more than an edit may have.
_LONGEST_TEXT = 50_000
_LONGEST_LINE = 1_000


def redacted(finding: Finding) -> Finding:
    """The finding without secrets. What was masked in a fix, or cut off it, keeps it from being an edit."""
    suppression = finding.suppression
    return replace(
        finding,
        title=_text(finding.title),
        body=_text(finding.body),
        evidence=_text(finding.evidence),
        suggestion=None if finding.suggestion is None else _text(finding.suggestion),
        replacement=None if finding.replacement is None else _text(finding.replacement),
        verification=_text(finding.verification),
        suppression=None if suppression is None else replace(suppression, reason=_line(suppression.reason)),
    )


def redacted_review(review: Review) -> Review:
    """The review without secrets in what it says beside its findings, which stay as they are."""
    coverage = review.coverage
    return replace(
        review,
        scope=replace(review.scope, description=_line(review.scope.description)),
        reviewer=replace(review.reviewer, why=_line(review.reviewer.why)),
        summary=_line(review.summary),
        errors=tuple(ReviewError(error.kind, _line(error.message)) for error in review.errors),
        coverage=Coverage(
            files_total=coverage.files_total,
            files_reviewed=coverage.files_reviewed,
            skipped=tuple(replace(skip, detail=_line(skip.detail)) for skip in coverage.skipped),
            units_total=coverage.units_total,
            units_failed=tuple(
                FailedUnit(_line(failed.unit), failed.files, _line(failed.reason)) for failed in coverage.units_failed
            ),
        ),
    )


def _text(text: str) -> str:
    return redact(text[:_LONGEST_TEXT])


def _line(text: str) -> str:
    return redact(text[:_LONGEST_LINE])
