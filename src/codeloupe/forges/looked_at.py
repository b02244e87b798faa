"""Whether a review can tell that an earlier finding is gone: it must have looked where that was, and as one who saw it.

What a review did not look at is not known to be fixed, and stays open.
"""

from __future__ import annotations

from msgspec import Struct

from codeloupe.forges.marker import word_of
from codeloupe.model.change import ScopeKind
from codeloupe.model.publication import PullRequest
from codeloupe.model.review import Review
from codeloupe.reports.wording import gaps_of


class LookedAt(Struct, frozen=True):
    """What a review saw of a pull request. `why_not` says in words why it can tell of nothing, or is empty."""

    why_not: str
    unseen_files: frozenset[str]
    reviewers: frozenset[str]

    def can_tell(self, path: str, reviewer: str) -> bool:
        """Whether a finding of this file would have been found again, had it still been there."""
        same_eyes = _names(reviewer) <= self.reviewers
        return not self.why_not and path not in self.unseen_files and same_eyes


def looked_at(review: Review, pull_request: PullRequest) -> LookedAt:
    """What the review saw: all of the pull request or a part of it, which files not, through whose eyes."""
    gaps = gaps_of(review)
    skipped = {skip.file for skip in review.coverage.skipped}
    unseen = frozenset(skipped.union(*(gap.files for gap in gaps)))
    reviewers = _names(word_of(review.reviewer.type))
    if any(not gap.files for gap in gaps):
        return LookedAt("not everything could be reviewed", unseen, reviewers)
    if not _is_whole(review, pull_request):
        return LookedAt("only a part of the pull request was reviewed", unseen, reviewers)
    return LookedAt("", unseen, reviewers)


def is_surely_a_part(review: Review, pull_request: PullRequest) -> bool:
    """Whether the review left out commits or files of the pull request for certain.

    Two files of the forge may be one of ours: what it shows as deleted and added, git may know as renamed.
    """
    return _is_one_of_many(review, pull_request) or 2 * review.coverage.files_total < pull_request.changed_files


def _is_one_of_many(review: Review, pull_request: PullRequest) -> bool:
    return review.scope.kind is ScopeKind.COMMIT and pull_request.commits > 1


def _is_whole(review: Review, pull_request: PullRequest) -> bool:
    return not _is_one_of_many(review, pull_request) and review.coverage.files_total >= pull_request.changed_files


def _names(reviewer: str) -> frozenset[str]:
    return frozenset(name for name in reviewer.split("+") if name)
