"""The Reviewdog Diagnostic Format: `rdjson` is one document, `rdjsonl` one diagnostic a line.

reviewdog posts what it is given, as Markdown. So what counts for nothing (refuted, suppressed, dismissed, fixed) is
left out, messages pass the sanitiser for Markdown, and what could not be reviewed is a diagnostic of its own. A finding
without a place has no range.
"""

from __future__ import annotations

import json
from typing import Any

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.wording import Gap, GapKind, Standing, check_name, gaps_of, standing_of, worst_first
from codeloupe.system.untrusted import (
    is_inside,
    json_document,
    markdown_code,
    markdown_line,
    markdown_prose,
    plain_path,
)

_SOURCE = {"name": "codeloupe"}
_SEVERITIES = {Severity.CRITICAL: "ERROR", Severity.HIGH: "ERROR", Severity.MEDIUM: "WARNING", Severity.LOW: "INFO"}
_LONGEST_TITLE = 500
_LONGEST_TEXT = 8_000
_MOST_FILES = 20
_LARGEST_LINE = 2**31 - 1


def render_rdjson(review: Review) -> str:
    """The review as one DiagnosticResult."""
    diagnostics = _diagnostics(review)
    severities = [diagnostic["severity"] for diagnostic in diagnostics]
    worst = next((word for word in ("ERROR", "WARNING", "INFO") if word in severities), "INFO")
    document = {"source": _SOURCE, "severity": worst, "diagnostics": diagnostics}
    return json_document(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def render_rdjsonl(review: Review) -> str:
    """The review as Diagnostics, one a line; empty when there is nothing to tell."""
    lines = (json.dumps({**each, "source": _SOURCE}, ensure_ascii=False) for each in _diagnostics(review))
    return "".join(f"{json_document(line)}\n" for line in lines)


def _diagnostics(review: Review) -> list[dict[str, Any]]:
    # What the policy lets pass is no error, and still said.
    severity = "WARNING" if review.policy.pass_when_incomplete else "ERROR"
    gaps = [
        diagnostic for gap in gaps_of(review) if gap.kind is not GapKind.CLAIM for diagnostic in _gap(gap, severity)
    ]
    return [*gaps, *(_finding(review, finding) for finding in worst_first(review.findings) if finding.is_open)]


def _finding(review: Review, finding: Finding) -> dict[str, Any]:
    replacement = fix_of(finding).edit
    unsettled = finding.is_unsettled(review.policy.fail_on)
    lesser = standing_of(finding) is Standing.UNPLACED and not unsettled
    diagnostic: dict[str, Any] = {
        "message": _message(finding),
        "location": _location(finding),
        "severity": "INFO" if lesser else _SEVERITIES[finding.severity],
        "code": {"value": check_name(finding)},
    }
    if replacement is not None:
        lines = _range(replacement.line_start, replacement.line_end)
        diagnostic["suggestions"] = [{"range": lines, "text": replacement.text}]
    return diagnostic


def _message(finding: Finding) -> str:
    title = markdown_line(finding.title, longest=_LONGEST_TITLE) or check_name(finding)
    fix = fix_of(finding)
    words = markdown_prose(fenced(fix.words), longest=_LONGEST_TEXT)
    # An edit is a suggestion of its own.
    code = markdown_code(fix.code[:_LONGEST_TEXT]) if fix.code.strip() and fix.edit is None else ""
    advice = "\n\n".join(part for part in (words, code) if part)
    unplaced = standing_of(finding) is Standing.UNPLACED
    parts = [
        f"{title} ({finding.severity.label})",
        markdown_prose(finding.body, longest=_LONGEST_TEXT),
        f"Fix:\n{advice}" if advice else "",
        "This could not be placed in the code." if unplaced else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _gap(gap: Gap, severity: str) -> list[dict[str, Any]]:
    """A diagnostic for each file that a gap concerns."""
    words = markdown_prose(gap.in_words(), longest=_LONGEST_TEXT)
    return [
        {
            "message": f"Not reviewed: {words}",
            "location": {"path": plain_path(file)},
            "severity": severity,
            "code": {"value": f"codeloupe/{gap.kind.value}"},
        }
        for file in gap.files[:_MOST_FILES] or ("",)
    ]


def _location(finding: Finding) -> dict[str, Any]:
    path = plain_path(finding.file) if is_inside(finding.file) else ""
    if finding.first_line < 1:
        return {"path": path}
    return {"path": path, "range": _range(finding.first_line, finding.last_line)}


def _range(start: int, end: int) -> dict[str, Any]:
    """Whole lines, the last one included: that is what a range without columns means."""
    first = min(start, _LARGEST_LINE)
    return {"start": {"line": first}, "end": {"line": min(max(start, end), _LARGEST_LINE)}}
