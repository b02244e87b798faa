"""Reviewers in the two shapes that orchestrators hold: a callable for ranges and commits, and one for work directories.

Neither raises for a review that failed: it is not passed, and says why. Only wrong arguments and a cancellation are
raised, and after a cancellation nothing of the review is left running.
"""

from __future__ import annotations

from codeloupe.integrations.orchestrators import (
    CodeReviewer,
    ReviewIssue,
    ReviewResult,
    WorkdirIssue,
    WorkdirReviewer,
    WorkdirReviewResult,
    make_reviewer,
    make_workdir_reviewer,
)

__all__ = [
    "CodeReviewer",
    "ReviewIssue",
    "ReviewResult",
    "WorkdirIssue",
    "WorkdirReviewResult",
    "WorkdirReviewer",
    "make_reviewer",
    "make_workdir_reviewer",
]
