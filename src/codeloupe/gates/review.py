"""The gate `review`: codeloupe's own review of what a stage changed. Without a blocking finding it passes.

A review that could not look at everything never does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from codeloupe.errors import PipelineError
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.pipeline import CriticVerdict, Critique
from codeloupe.model.pipeline_definition import GateDefinition, GateKind
from codeloupe.model.ports import GateTask
from codeloupe.model.review import Review, claim_in_words

ReviewChange = Callable[[GateDefinition, GateTask], Awaitable[Review]]

# What each finding costs of 100 points, as in the score of a commit.
_COST = {Severity.LOW: 5, Severity.MEDIUM: 15, Severity.HIGH: 30, Severity.CRITICAL: 50}
_BLOCKED = 1
_MOST_FINDINGS = 50
_MOST_CHARACTERS = 1_500


class ReviewGate:
    """Has what changed between two trees reviewed by `review`, which must not count an incomplete review as passed."""

    def __init__(self, review: ReviewChange) -> None:
        self._review = review

    async def __call__(self, gate: GateDefinition, task: GateTask) -> Critique:
        """PASS, or REWORK with the findings that block. Raises PipelineError when not everything could be reviewed."""
        if not task.files_changed:
            return Critique(
                verdict=CriticVerdict.REWORK,
                gate=GateKind.REVIEW,
                summary="there is nothing to review",
                blockers=("the stage changed no file",),
            )
        review = await self._review(gate, task)
        blocking = [finding for finding in review.findings if _blocks(finding, review)]
        if not blocking and not review.complete:
            raise _incomplete(review, task)
        if not blocking and review.exit_code != 0:
            raise PipelineError(
                f"the review of {task.stage} ended with exit code {review.exit_code} and names no reason",
                stage=task.stage,
                hint="try again",
            )
        return Critique(
            verdict=CriticVerdict.REWORK if blocking else CriticVerdict.PASS,
            gate=GateKind.REVIEW,
            score=score(review.findings),
            summary=review.summary,
            blockers=_some([_blocker(finding) for finding in blocking]),
            fixes=_some([_fix(finding) for finding in blocking if finding.suggestion]),
            usage=review.usage,
        )


def score(findings: Iterable[Finding]) -> int:
    """100 less what each finding that counts costs, at least 0."""
    return max(0, 100 - sum(_COST[finding.severity] for finding in findings if finding.can_block))


def _blocks(finding: Finding, review: Review) -> bool:
    return finding.can_block and finding.severity.at_least(review.policy.fail_on)


def _incomplete(review: Review, task: GateTask) -> PipelineError:
    failed = [f"{unit.unit}: {unit.reason}" for unit in review.coverage.units_failed]
    gaps = [f"{skip.file}: {skip.in_words()}" for skip in review.coverage.skipped if skip.is_gap]
    claims = [f"{claim.file or '?'}: {claim_in_words(claim)}" for claim in review.unsettled]
    why = "; ".join((*claims, *failed, *gaps)[:5]) or review.summary
    return PipelineError(
        f"the review of {task.stage} could not look at everything, which is no PASS: {why[:_MOST_CHARACTERS]}",
        stage=task.stage,
        hint="mend that, then have the stage tried again; what was reviewed is not bought again",
    )


def _blocker(finding: Finding) -> str:
    words = f"[{finding.severity.label}] {finding.file}:{finding.line_start}: {finding.title}"
    return (f"{words}\n{finding.body}" if finding.body else words)[:_MOST_CHARACTERS]


def _fix(finding: Finding) -> str:
    return f"{finding.file}:{finding.line_start}: {finding.suggestion}"[:_MOST_CHARACTERS]


def _some(texts: list[str]) -> tuple[str, ...]:
    left = len(texts) - _MOST_FINDINGS
    return tuple(texts) if left <= 0 else (*texts[:_MOST_FINDINGS], f"and {left:,} more")
