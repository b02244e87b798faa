"""A saved review as it counts on the pull request, without what maintainers dismissed there, and what is said of it.

Nothing is said of the change as a whole, unless somebody asked for it.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from codeloupe.model.finding import Finding, FindingStatus
from codeloupe.model.publication import Conclusion, Opinion, PublishOptions, PullRequest, StandingOpinion
from codeloupe.model.review import FailedUnit, Policy, Review, Verdict, unsettled_claims
from codeloupe.model.severity import Severity
from codeloupe.reports.wording import blocks

_PASSED, _BLOCKED, _INCOMPLETE = 0, 1, 3


def judged_without(review: Review, dismissed: Collection[Finding]) -> Review:
    """The review with these findings of it as dismissed, its verdict and exit code from what is left.

    A file may claim anything: what blocks is seen from the findings, and what is missing from the coverage.
    """
    findings = tuple(_dismissed(finding) if finding in dismissed else finding for finding in review.findings)
    complete = _saw_everything(review) and not unsettled_claims(findings, review.policy)
    was_blocked_by_hidden = review.exit_code == _BLOCKED and not any(blocks(review, each) for each in review.findings)
    judged = replace(
        review, findings=findings, complete=complete, verdict=_verdict(findings, review.policy, complete=complete)
    )
    if was_blocked_by_hidden or any(blocks(judged, finding) for finding in findings):
        return replace(judged, exit_code=_BLOCKED)
    return _without_a_block(judged)


def judged_as_a_part(review: Review) -> Review:
    """The review as one that did not see all of the pull request: it may block, and cannot let pass."""
    missing = FailedUnit("the pull request", (), "only a part of it was reviewed")
    coverage = replace(review.coverage, units_failed=(*review.coverage.units_failed, missing))
    verdict = _verdict(review.findings, review.policy, complete=False)
    judged = replace(review, complete=False, coverage=coverage, verdict=verdict)
    return judged if review.exit_code == _BLOCKED else _without_a_block(judged)


def _without_a_block(review: Review) -> Review:
    passes = review.complete or review.policy.pass_when_incomplete
    return replace(review, exit_code=_PASSED if passes else _INCOMPLETE)


def conclusion_of(review: Review) -> Conclusion:
    """Failure when something blocks, neutral when not everything could be reviewed, else success."""
    if review.exit_code == _BLOCKED:
        return Conclusion.FAILURE
    return Conclusion.SUCCESS if review.complete and review.exit_code == _PASSED else Conclusion.NEUTRAL


def opinion_of(
    conclusion: Conclusion, pull_request: PullRequest, *, options: PublishOptions, is_whole: bool = True
) -> Opinion:
    """What to say now; COMMENT also when the same was said on this commit before.

    Without `is_whole` something of the pull request was perhaps not looked at, and nothing is approved.
    """
    wanted = Opinion.COMMENT
    if options.approve and conclusion is Conclusion.SUCCESS and is_whole:
        wanted = Opinion.APPROVE
    elif options.request_changes and conclusion is Conclusion.FAILURE:
        wanted = Opinion.REQUEST_CHANGES
    said = any(standing.opinion is wanted and standing.head == pull_request.head for standing in pull_request.opinions)
    return Opinion.COMMENT if said else wanted


def to_withdraw(
    conclusion: Conclusion, pull_request: PullRequest, *, is_whole: bool = True
) -> tuple[StandingOpinion, ...]:
    """Earlier opinions of ours that do not hold any more: an approval unless it passes, a request when all does."""
    if conclusion is Conclusion.SUCCESS and not is_whole:
        return ()
    wrong = Opinion.REQUEST_CHANGES if conclusion is Conclusion.SUCCESS else Opinion.APPROVE
    return tuple(standing for standing in pull_request.opinions if standing.opinion is wrong)


def _dismissed(finding: Finding) -> Finding:
    return replace(finding, status=FindingStatus.DISMISSED) if finding.is_open else finding


def _saw_everything(review: Review) -> bool:
    """Whether all was reviewed, unsettled claims aside: those are for a person to settle."""
    return review.coverage.complete and (review.complete or bool(review.unsettled))


def _verdict(findings: Collection[Finding], policy: Policy, *, complete: bool) -> Verdict:
    severities = {finding.severity for finding in findings if finding.can_block}
    if any(severity.at_least(Severity.HIGH) for severity in severities):
        return Verdict.FAIL
    if not complete and not any(severity.at_least(policy.fail_on) for severity in severities):
        return Verdict.INCOMPLETE
    return Verdict.NEEDS_WORK if severities else Verdict.PASS
