"""Judges a saved review by another policy, at no cost."""

from __future__ import annotations

from msgspec.structs import replace

from codeloupe.engine.verdict import exit_code, judge, summarise
from codeloupe.errors import UsageError
from codeloupe.model.finding import Finding, Severity
from codeloupe.model.history import ReviewRecord, SweepRecord
from codeloupe.model.review import UNPLACED, Policy, Review, unplaced_errors, unsettled_claims
from codeloupe.model.sweep import CommitSweep

_PASSED, _BLOCKED, _INCOMPLETE = 0, 1, 3


def changed_policy(
    policy: Policy,
    *,
    fail_on: Severity | None = None,
    min_severity: Severity | None = None,
    pass_when_incomplete: bool | None = None,
) -> Policy:
    """The policy with what is given in the place of its own."""
    return Policy(
        fail_on=policy.fail_on if fail_on is None else fail_on,
        min_severity=policy.min_severity if min_severity is None else min_severity,
        pass_when_incomplete=policy.pass_when_incomplete if pass_when_incomplete is None else pass_when_incomplete,
    )


def judged(record: ReviewRecord, policy: Policy) -> Review:
    """The saved review as this policy would have concluded it; with its own policy, as it was.

    What could not be read of it makes it incomplete. Raises UsageError when findings that could decide were not kept.
    """
    review = record.review
    if policy == review.policy and not record.problems and _is_sound(review):
        return review
    _check_all_is_known(record, policy)
    everything = _merged(review.findings, review.hidden)
    findings = tuple(finding for finding in everything if _is_shown(finding, policy))
    unsettled = unsettled_claims(findings, policy)
    # Whether claims are settled is a matter of the policy; what was reviewed is not.
    complete = _saw_everything(review) and not record.problems and not unsettled
    hidden = tuple(finding for finding in everything if not _is_shown(finding, policy))
    unknown = review.hidden_findings - len(review.hidden)
    return replace(
        review,
        policy=policy,
        findings=findings,
        hidden=hidden,
        hidden_findings=len(hidden) + max(unknown, 0),
        complete=complete,
        verdict=judge(findings, complete=complete, fail_on=policy.fail_on),
        exit_code=exit_code(findings, policy, complete=complete),
        summary=summarise(findings, review.coverage, complete=complete),
        errors=(*(error for error in review.errors if error.kind != UNPLACED), *unplaced_errors(unsettled)),
    )


def _saw_everything(review: Review) -> bool:
    """Whether all was reviewed: what is not complete for its claims alone was."""
    return review.coverage.complete and (review.complete or bool(review.unsettled))


def _is_sound(review: Review) -> bool:
    """Whether a review was concluded as it would be now; earlier versions let claims without a place pass."""
    complete = review.complete and not review.unsettled
    verdict = judge(review.findings, complete=complete, fail_on=review.policy.fail_on)
    return complete is review.complete and verdict is review.verdict


def judged_sweep(record: SweepRecord, *, strict: bool = False, pass_when_incomplete: bool | None = None) -> CommitSweep:
    """The saved sweep as it would have ended strictly, or with another word on what could not be reviewed.

    One that was not finished, or cannot be read whole, is not complete.
    """
    sweep = record.sweep
    is_strict = strict or sweep.strict
    is_whole = record.finished and not record.problems
    complete = is_whole and all(commit.verdict is not None for commit in sweep.commits)
    # That it passed then says nothing of what cannot be read of it now.
    passes = is_whole and sweep.exit_code == _PASSED if pass_when_incomplete is None else pass_when_incomplete
    reviews = (commit.review for commit in sweep.commits if commit.review is not None)
    blocks = any(
        finding.can_block and finding.severity.at_least(Severity.HIGH)
        for review in reviews
        for finding in (*review.findings, *review.hidden)
    )
    code = _BLOCKED if is_strict and blocks else _PASSED if complete or passes else _INCOMPLETE
    told = "" if is_whole else f"; {'not finished' if not record.finished else 'not all of it can be read'}"
    words = sweep.summary or f"{len(sweep.commits)} commits"
    return replace(sweep, strict=is_strict, exit_code=code, summary=f"{words}{told}")


def _check_all_is_known(record: ReviewRecord, policy: Policy) -> None:
    """What was hidden and not kept lies below both limits of the old policy; a new one must not reach down there."""
    unknown = record.review.hidden_findings - len(record.review.hidden)
    kept_down_to = max(record.review.policy.fail_on.value, record.review.policy.min_severity.value)
    if unknown > 0 and policy.fail_on.value > kept_down_to:
        lowest = Severity(kept_down_to).label
        raise UsageError(
            f"{unknown} findings below {lowest} were not kept with this review,"
            f" so it cannot be judged by fail_on={policy.fail_on.label}",
            hint=f"use --fail-on {lowest} or above, or review again with --min-severity {policy.fail_on.label}",
        )


def _is_shown(finding: Finding, policy: Policy) -> bool:
    """As a review decides it: what could block is always shown."""
    return finding.severity.at_least(policy.min_severity) or finding.severity.at_least(policy.fail_on)


def _merged(shown: tuple[Finding, ...], hidden: tuple[Finding, ...]) -> tuple[Finding, ...]:
    if not hidden:
        return shown
    return tuple(sorted((*shown, *hidden), key=lambda finding: (finding.file, finding.first_line, finding.last_line)))
