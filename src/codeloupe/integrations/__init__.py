"""Codeloupe for orchestrators."""

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
