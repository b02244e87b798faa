"""What a review on the forge says of the change as a whole: nothing, unless somebody asked for it."""

from __future__ import annotations

from codeloupe.model.publication import Conclusion, Opinion, PublishOptions, PullRequest, StandingOpinion


def opinion_of(conclusion: Conclusion, pull_request: PullRequest, *, options: PublishOptions) -> Opinion:
    """What to say now; COMMENT also when the same was said on this commit before."""
    wanted = Opinion.COMMENT
    if options.approve and conclusion is Conclusion.SUCCESS:
        wanted = Opinion.APPROVE
    elif options.request_changes and conclusion is Conclusion.FAILURE:
        wanted = Opinion.REQUEST_CHANGES
    said = any(standing.opinion is wanted and standing.head == pull_request.head for standing in pull_request.opinions)
    return Opinion.COMMENT if said else wanted


def to_withdraw(conclusion: Conclusion, pull_request: PullRequest) -> tuple[StandingOpinion, ...]:
    """Earlier opinions of ours that do not hold any more: an approval unless it passes, a request when it does."""
    wrong = Opinion.REQUEST_CHANGES if conclusion is Conclusion.SUCCESS else Opinion.APPROVE
    return tuple(standing for standing in pull_request.opinions if standing.opinion is wrong)
