"""A review on a pull request: what is there, what is to be done, and what was done."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from codeloupe.model.finding import Finding
from codeloupe.model.frozen import FrozenDict, FrozenStruct
from codeloupe.model.review import Review


class PullRequestName(Struct, frozen=True):
    """Which pull request of which repository."""

    owner: str
    repository: str
    number: int

    def __str__(self) -> str:
        return f"{self.owner}/{self.repository}#{self.number}"


class PostedComment(Struct, frozen=True, kw_only=True):
    """A comment on the pull request as a whole. `is_ours` is the forge's word on who wrote it."""

    comment_id: int
    body: str
    is_ours: bool
    url: str = ""


class ThreadComment(PostedComment, frozen=True, kw_only=True):
    """A comment in a thread. `disliked_by` are names."""

    author: str = ""
    association: str = "NONE"
    disliked_by: tuple[str, ...] = ()


class Thread(Struct, frozen=True, kw_only=True):
    """A conversation on lines of the diff, the oldest comment first."""

    thread_id: str
    path: str
    is_resolved: bool
    comments: tuple[ThreadComment, ...]


# What a review on the forge says of the whole change.
Opinion = StrEnum("Opinion", [("COMMENT", "COMMENT"), ("APPROVE", "APPROVE"), ("REQUEST_CHANGES", "REQUEST_CHANGES")])


class StandingOpinion(Struct, frozen=True, kw_only=True):
    """An approval of ours, or a request of ours for changes, that still holds."""

    review_id: int
    opinion: Opinion
    head: str


class PullRequest(FrozenStruct, frozen=True, kw_only=True):
    """A pull request as it is now. `head` is its newest commit; `merge_commit` the trial merge, where there is one.

    `merge_hint` says what to do about a review of that merge. `files` are patches by path, None where the forge shows
    none. `maintainers` are the people of `threads` who may write to the repository; `unasked` counts those whose rights
    were not asked for, since there are too many of them.
    """

    name: PullRequestName
    repository_id: int
    head: str
    is_open: bool
    changed_files: int
    commits: int
    merge_commit: str | None = None
    files: Mapping[str, str | None] = FrozenDict()
    comments: tuple[PostedComment, ...] = ()
    threads: tuple[Thread, ...] = ()
    opinions: tuple[StandingOpinion, ...] = ()
    maintainers: frozenset[str] = frozenset()
    unasked: int = 0
    forge: str = "the forge"
    merge_hint: str = ""


# How the outcome is shown beside the commit.
StatusKind = StrEnum("StatusKind", "CHECK COMMIT NONE")


class PublishOptions(Struct, frozen=True, kw_only=True):
    """What may be done beyond comments. `max_comments` limits the threads of ours that are open at a time."""

    max_comments: int = 20
    approve: bool = False
    request_changes: bool = False
    resolve: bool = True
    status: StatusKind = StatusKind.COMMIT


# What the review comes to for a gate; neutral is "could not review".
Conclusion = StrEnum("Conclusion", "SUCCESS FAILURE NEUTRAL")


class InlineComment(Struct, frozen=True, kw_only=True):
    """A finding on lines of the new side. `start_line` is None for a single line."""

    key: str
    finding: Finding
    path: str
    line: int
    start_line: int | None
    body: str


# What an answer in a thread of ours says: its finding is gone, set aside, or back.
AnswerKind = StrEnum("AnswerKind", "GONE ASIDE BACK")


class ThreadAnswer(Struct, frozen=True, kw_only=True):
    """What to do with a thread of ours. `body` is None when it was said before, `resolved` when it stays as it is."""

    thread_id: str
    comment_id: int
    kind: AnswerKind
    path: str
    body: str | None
    resolved: bool | None


class WithoutComment(Struct, frozen=True):
    """A finding that counts and has no comment of its own, and why."""

    finding: Finding
    reason: str


class DismissedFinding(Struct, frozen=True):
    """A finding that a maintainer set aside on the pull request."""

    finding: Finding
    who: str
    reason: str


class Plan(Struct, frozen=True, kw_only=True):
    """All that is to be done. `review` is without what maintainers dismissed; `notes` say what was left alone."""

    pull_request: PullRequest
    review: Review
    options: PublishOptions
    conclusion: Conclusion
    opinion: Opinion
    comments: tuple[InlineComment, ...] = ()
    answers: tuple[ThreadAnswer, ...] = ()
    withdrawn: tuple[StandingOpinion, ...] = ()
    known: tuple[Finding, ...] = ()
    without_comment: tuple[WithoutComment, ...] = ()
    dismissed: tuple[DismissedFinding, ...] = ()
    notes: tuple[str, ...] = ()


class SummaryChange(StrEnum):
    """What happened to the one summary."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    NOT_WRITTEN = "not written"


class PublishProblem(Struct, frozen=True):
    """Something that could not be done: without rights (`is_refusal`), or not needed to count as done (`is_minor`)."""

    message: str
    hint: str = ""
    is_refusal: bool = False
    is_minor: bool = False


class Publication(Struct, frozen=True, kw_only=True):
    """What was done on the pull request, or would be (`dry_run`)."""

    plan: Plan
    dry_run: bool = False
    posted: tuple[InlineComment, ...] = ()
    refused: tuple[WithoutComment, ...] = ()
    opinion: Opinion | None = None
    answered: tuple[ThreadAnswer, ...] = ()
    withdrawn: tuple[StandingOpinion, ...] = ()
    summary: SummaryChange = SummaryChange.NOT_WRITTEN
    summary_url: str = ""
    status: StatusKind = StatusKind.NONE
    problems: tuple[PublishProblem, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 when all that matters was done; 2 when only rights are missing for the rest; else 3."""
        refusals = [problem.is_refusal for problem in self.problems if not problem.is_minor]
        return 0 if not refusals else 2 if all(refusals) else 3
