"""The Reviewdog Diagnostic Format: `rdjson` is one document, `rdjsonl` one diagnostic a line.

reviewdog posts what it is given, as Markdown. So what counts for nothing (refuted, suppressed, dismissed, fixed) is
left out, messages pass the sanitiser for Markdown, and what could not be reviewed is a diagnostic of its own. A finding
without a place has no range.
"""

from __future__ import annotations

from typing import Any

from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Review
from codeloupe.reports.json_v1 import json_text
from codeloupe.reports.replacement import fenced, fix_of
from codeloupe.reports.wording import Standing, check_name, gaps_without_claims, standing_of, worst_first
from codeloupe.system.untrusted import is_inside, markdown_code, markdown_line, markdown_prose, plain_path

_SOURCE = {"name": "codeloupe"}
_SEVERITIES = dict(zip(Severity, ("ERROR", "ERROR", "WARNING", "INFO"), strict=True))
_LONGEST_TEXT = 8_000


def render_rdjson(review: Review) -> str:
    """The review as one DiagnosticResult."""
    diagnostics = _diagnostics(review)
    severities = [diagnostic["severity"] for diagnostic in diagnostics]
    worst = next((word for word in ("ERROR", "WARNING", "INFO") if word in severities), "INFO")
    return json_text({"source": _SOURCE, "severity": worst, "diagnostics": diagnostics})


def render_rdjsonl(review: Review) -> str:
    """The review as Diagnostics, one a line; empty when there is nothing to tell."""
    return "".join(json_text({**each, "source": _SOURCE}, indent=None) for each in _diagnostics(review))


def _diagnostics(review: Review) -> list[dict[str, Any]]:
    gaps = [
        {
            "message": f"Not reviewed: {markdown_prose(gap.in_words(), longest=_LONGEST_TEXT)}",
            "location": {"path": plain_path(file)},
            # What the policy lets pass is no error, and still said.
            "severity": "WARNING" if review.policy.pass_when_incomplete else "ERROR",
            "code": {"value": f"codeloupe/{gap.kind.value}"},
        }
        for gap in gaps_without_claims(review)
        for file in gap.files[:20] or ("",)
    ]
    return [*gaps, *(_finding(review, finding) for finding in worst_first(review.findings) if finding.is_open)]


def _finding(review: Review, finding: Finding) -> dict[str, Any]:
    fix = fix_of(finding)
    title = markdown_line(finding.title, longest=500) or check_name(finding)
    words = markdown_prose(fenced(fix.words), longest=_LONGEST_TEXT)
    # An edit is a suggestion of its own.
    code = markdown_code(fix.code[:_LONGEST_TEXT]) if fix.code.strip() and fix.edit is None else ""
    advice = "\n\n".join(filter(None, (words, code)))
    unplaced = standing_of(finding) is Standing.UNPLACED
    parts = [
        f"{title} ({finding.severity.label})",
        markdown_prose(finding.body, longest=_LONGEST_TEXT),
        f"Fix:\n{advice}" if advice else "",
        "This could not be placed in the code." if unplaced else "",
    ]
    lesser = unplaced and not finding.is_unsettled(review.policy.fail_on)
    location: dict[str, Any] = {"path": plain_path(finding.file) if is_inside(finding.file) else ""}
    if finding.first_line > 0:
        location["range"] = _range(finding.first_line, finding.last_line)
    diagnostic: dict[str, Any] = {
        "message": "\n\n".join(filter(None, parts)),
        "location": location,
        "severity": "INFO" if lesser else _SEVERITIES[finding.severity],
        "code": {"value": check_name(finding)},
    }
    if fix.edit is not None:
        lines = _range(fix.edit.line_start, fix.edit.line_end)
        diagnostic["suggestions"] = [{"range": lines, "text": fix.edit.text}]
    return diagnostic


def _range(start: int, end: int) -> dict[str, Any]:
    """Whole lines, the last one included: that is what a range without columns means."""
    largest = 2**31 - 1
    return {"start": {"line": min(start, largest)}, "end": {"line": min(max(start, end), largest)}}
