"""Commits, findings and reviews for the tests of a sweep."""

from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from codeloupe.commits.dispatch import Assignment
from codeloupe.commits.sweep import exit_code, overall_score, plan_of, summarise, verdict
from codeloupe.findings.verdict import score
from codeloupe.model.change import Change, Commit, Scope, ScopeKind
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.review import Coverage, FailedUnit, Policy, Review, ReviewerInfo, ReviewError, Verdict
from codeloupe.model.sweep import CommitCategory, CommitReview, CommitSweep
from tests.findings_material import make_finding

MADE = datetime(2024, 5, 31, 12, 30, tzinfo=UTC)


def commit(number: int = 1, **changes: Any) -> Commit:
    """A commit; its number is the beginning of its name."""
    ordinary = Commit(
        sha=f"{number:07x}".ljust(40, "c"),
        author="Ada Example",
        email="ada@example.invalid",
        time=MADE + timedelta(minutes=number),
        subject=f"fix: number {number}",
        body="",
        files=("app/db.py",),
        insertions=3,
        deletions=1,
        parents=(f"{number - 1:07x}".ljust(40, "c"),),
    )
    return replace(ordinary, **changes)


def finding(severity: Severity = Severity.HIGH, **changes: Any) -> Finding:
    """A finding with its place."""
    ordinary: dict[str, Any] = {
        "file": "app/db.py",
        "line_start": 42,
        "line_end": 42,
        "category": "security",
        "title": "Statement is built from a variable",
        "body": "Whoever controls `name` can read any row.",
        "evidence": "cursor.execute(query + name)",
        "expert": "reliability",
        "fingerprint": f"{severity.label}-1",
    }
    return make_finding(severity=severity, **{**ordinary, **changes})


def review(*findings: Finding, **changes: Any) -> Review:
    """A whole review with these findings."""
    whole = Review(
        review_id="r-1",
        scope=Scope(ScopeKind.COMMIT, "a" * 40, "b" * 40, "commit b"),
        reviewer=ReviewerInfo("scripted", "for a test"),
        verdict=Verdict.FAIL if findings else Verdict.PASS,
        complete=True,
        exit_code=1 if findings else 0,
        summary="",
        policy=Policy(),
        findings=findings,
        coverage=Coverage(files_total=1, files_reviewed=1, units_total=1),
    )
    return replace(whole, **changes)


def failed_review(reason: str = "timeout", *, kind: str = "timeout", reviewed: int = 0, **changes: Any) -> Review:
    """A review of which a unit failed."""
    coverage = Coverage(
        files_total=1,
        files_reviewed=reviewed,
        units_total=1,
        units_failed=(FailedUnit("app/db.py", ("app/db.py",), reason),),
    )
    return review(complete=False, exit_code=3, coverage=coverage, errors=(ReviewError(kind, reason),), **changes)


def assignment(number: int = 1) -> Assignment:
    """A commit to be reviewed."""
    return not_reviewed(number, ""), Change(Scope(ScopeKind.COMMIT, "a" * 40, "b" * 40, "commit b"), ())


async def given(assignments: Iterable[Assignment]) -> AsyncGenerator[Assignment]:
    """Assignments as they come from a log."""
    for one in assignments:
        yield one


def reviewed(number: int, *findings: Finding, **changes: Any) -> CommitReview:
    """A commit that was reviewed."""
    about = commit(number)
    ordinary = CommitReview(
        commit=about,
        category=CommitCategory.BUG_FIX,
        experts=("reliability",),
        review=review(*(replace(one, commit_sha=about.sha) for one in findings)),
        score=score(findings) / 100,
        verdict=verdict(findings),
        plan=plan_of(findings),
    )
    return replace(ordinary, **changes)


def not_reviewed(number: int, reason: str = "timeout", **changes: Any) -> CommitReview:
    """A commit that could not be reviewed."""
    ordinary = CommitReview(
        commit=commit(number), category=CommitCategory.BUG_FIX, experts=("reliability",), failure=reason
    )
    return replace(ordinary, **changes)


def sweep(*commits: CommitReview, strict: bool = False, **changes: Any) -> CommitSweep:
    """A sweep over these commits."""
    whole = CommitSweep(
        sweep_id="s-1",
        description="commits of HEAD since 24 hours ago",
        reviewer=ReviewerInfo("claude_cli", "installed and logged in"),
        commits=commits,
        summary=summarise(commits),
        exit_code=exit_code(commits, strict=strict, pass_when_incomplete=False),
        strict=strict,
        score=overall_score(commits),
    )
    return replace(whole, **changes)
