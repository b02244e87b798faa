"""Small reviews to render, and what a report must never contain."""

from typing import Any

from msgspec.structs import replace

from codeloupe.model.agent import Usage
from codeloupe.model.change import Scope, ScopeKind
from codeloupe.model.finding import Finding
from codeloupe.model.review import Coverage, Policy, Review, ReviewerInfo, Verdict
from tests.findings_material import make_finding

ESCAPE = "\x1b"


def finding(**changes: Any) -> Finding:
    """An ordinary finding of high severity."""
    ordinary: dict[str, Any] = {
        "file": "app/db.py",
        "line_start": 42,
        "line_end": 42,
        "category": "security",
        "title": "Statement is built from a variable",
        "body": "Whoever controls `name` can read any row.",
        "evidence": "    cursor.execute(query + name)",
        "reporter": "ruff",
        "rule": "S608",
        "suggestion": "Pass the value as a parameter.",
    }
    return make_finding(**{**ordinary, **changes})


def review(*findings: Finding, **changes: Any) -> Review:
    """A whole review with these findings; it fails when there are any."""
    whole = Review(
        review_id="r-1",
        scope=Scope(ScopeKind.BRANCH, "a" * 40, None, "topic against main"),
        reviewer=ReviewerInfo("offline", "ruff, ast-grep, detect-secrets"),
        verdict=Verdict.FAIL if findings else Verdict.PASS,
        complete=True,
        exit_code=1 if findings else 0,
        summary="",
        policy=Policy(),
        findings=findings,
        coverage=Coverage(files_total=2, files_reviewed=2, units_total=3),
        usage=Usage(duration_seconds=1.25),
    )
    return replace(whole, **changes)
