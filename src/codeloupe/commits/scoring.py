"""What findings mean for a commit and for a sweep: score, verdict, plan, summary, exit code. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codeloupe.model.finding import Finding, Proof, Severity
from codeloupe.model.sweep import CommitReview, CommitVerdict, PlanStep

_COST = {Severity.LOW: 0.05, Severity.MEDIUM: 0.15, Severity.HIGH: 0.30, Severity.CRITICAL: 0.50}


def score(findings: Iterable[Finding]) -> float:
    """1 less what each finding that counts costs, between 0 and 1."""
    lost = sum(_COST[finding.severity] for finding in findings if finding.can_block)
    # Rounded, since a sum of such parts may miss a threshold by a hair.
    return round(min(1.0, max(0.0, 1.0 - lost)), 2)


def verdict(findings: Sequence[Finding]) -> CommitVerdict:
    """LEAVE from 0.8, FIX from 0.5, REVERT below, and for any critical finding that was confirmed by verification."""
    critical = (finding for finding in findings if finding.can_block and finding.severity is Severity.CRITICAL)
    reached = score(findings)
    if reached < 0.5 or any(finding.verification.startswith(Proof.CONFIRMED.value) for finding in critical):
        return CommitVerdict.REVERT
    return CommitVerdict.LEAVE if reached >= 0.8 else CommitVerdict.FIX


def plan_of(findings: Iterable[Finding]) -> tuple[PlanStep, ...]:
    """Test first: red and green for each finding of medium or above that counts, the worst first, then refactor."""
    worth = (finding for finding in findings if finding.can_block and finding.severity.at_least(Severity.MEDIUM))
    ordered = sorted(worth, key=lambda finding: (finding.severity.priority, finding.file, finding.first_line))
    planned = ordered[:10]
    steps: list[PlanStep] = []
    for finding in planned:
        place = f"{finding.file}:{finding.line_start}"
        title = " ".join(finding.title.split())
        title += "" if title.endswith((".", "!", "?")) else "."
        steps.append(PlanStep("red", f"Write a test that fails because of this: {title} ({place})"))
        lines = (finding.suggestion or "").strip().splitlines()
        hint = f" Suggested: {lines[0][:300]}" if len(lines) == 1 else ""
        offer = " New code for these lines:" if finding.replacement else ""
        green = f"Change {place} until it passes, and no more.{hint}{offer}"
        steps.append(PlanStep("green", green, finding.replacement or ""))
    if steps:
        changed = ", ".join(dict.fromkeys(finding.file for finding in planned))
        left = len(ordered) - len(planned)
        more = f" Then take the other {left} in the same way." if left else ""
        steps.append(PlanStep("refactor", f"With all tests green, make what was changed clear again: {changed}.{more}"))
    return tuple(steps)


def overall_score(commits: Iterable[CommitReview]) -> float | None:
    """The mean over the commits that were reviewed, or None when there is none."""
    scores = [commit.score for commit in commits if commit.score is not None]
    return round(sum(scores) / len(scores), 2) if scores else None


def summarise(commits: Sequence[CommitReview]) -> str:
    """One line of a fixed form: how many, and what is to be done with them."""
    counts = {kind: sum(commit.verdict is kind for commit in commits) for kind in (*CommitVerdict, None)}
    return (
        f"{len(commits)} commits reviewed, {counts[CommitVerdict.LEAVE]} OK, {counts[CommitVerdict.FIX]} need fixes, "
        f"{counts[CommitVerdict.REVERT]} should be reverted, {counts[None]} could not be reviewed"
    )


def exit_code(commits: Iterable[CommitReview], *, strict: bool, pass_when_incomplete: bool) -> int:
    """1 for a finding of high or above that counts, if `strict`; 3 for a commit that could not be reviewed; else 0."""
    known = tuple(commits)
    findings = (finding for commit in known if commit.review is not None for finding in commit.review.findings)
    if strict and any(finding.can_block and finding.severity.at_least(Severity.HIGH) for finding in findings):
        return 1
    return 3 if not pass_when_incomplete and any(commit.verdict is None for commit in known) else 0
