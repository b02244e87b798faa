"""What the GitHub server remembers, one record a thing: people, comments, reviews, threads, check runs, statuses."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.github_server_patches import Side

_NODE_PREFIXES = {
    "User": "U",
    "Bot": "BOT",
    "Repository": "R",
    "PullRequest": "PR",
    "IssueComment": "IC",
    "PullRequestReview": "PRR",
    "PullRequestReviewComment": "PRRC",
    "PullRequestReviewThread": "PRRT",
    "Reaction": "REA",
    "CheckRun": "CR",
    "Status": "SC",
    "Commit": "C",
    "App": "A",
}


def node_id(kind: str, number: int) -> str:
    """A node's name in GraphQL: opaque, and known by its prefix, as GitHub's are."""
    return f"{_NODE_PREFIXES[kind]}_{base64.urlsafe_b64encode(f'{kind}{number}'.encode()).decode().rstrip('=')}"


@dataclass(frozen=True, slots=True)
class User:
    """A person or a bot; a bot's login ends in `[bot]` in REST and does not in GraphQL."""

    login: str
    id: int

    @property
    def is_bot(self) -> bool:
        return self.login.endswith("[bot]")

    @property
    def node_id(self) -> str:
        return node_id("Bot" if self.is_bot else "User", self.id)


@dataclass(slots=True, kw_only=True)
class Reaction:
    id: int
    user: User
    content: str
    created_at: str


@dataclass(slots=True, kw_only=True)
class Remark:
    """What every comment has. `minimized` is the reason, in small letters, or None."""

    id: int
    user: User
    body: str
    association: str
    created_at: str
    updated_at: str
    reactions: list[Reaction] = field(default_factory=list)
    minimized: str | None = None


@dataclass(slots=True, kw_only=True)
class CheckRun:
    id: int
    app: str
    name: str
    head_sha: str
    status: str = "queued"
    conclusion: str | None = None
    external_id: str | None = None
    details_url: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    title: str | None = None
    summary: str | None = None
    text: str | None = None
    annotations: list[Mapping[str, object]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Status:
    id: int
    sha: str
    state: str
    context: str
    description: str | None
    target_url: str | None
    creator: User
    created_at: str


@dataclass(slots=True, kw_only=True)
class IssueComment(Remark):
    """A comment on the pull request as a whole."""


@dataclass(slots=True, kw_only=True)
class Review:
    """One review. `state` is PENDING, COMMENTED, APPROVED, CHANGES_REQUESTED or DISMISSED."""

    id: int
    user: User
    association: str
    body: str
    state: str
    commit: str
    submitted_at: str | None
    dismissal: str | None = None
    comments: list[ReviewComment] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ReviewComment(Remark):
    """A comment on a line. The place is its thread's."""

    review: Review
    thread: Thread
    in_reply_to: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Lines of a diff that a comment is about; without a line it is about the whole file."""

    path: str
    line: int | None = None
    side: Side = "RIGHT"
    start_line: int | None = None
    start_side: Side | None = None


@dataclass(slots=True, kw_only=True)
class Thread:
    """The comments on one place. Outdated is one whose lines are not in the diff any more: `place` is None then."""

    id: int
    original: Place
    original_commit: str
    original_position: int | None
    diff_hunk: str
    place: Place | None
    commit: str
    position: int | None
    resolved_by: User | None = None
    comments: list[ReviewComment] = field(default_factory=list)

    @property
    def is_resolved(self) -> bool:
        return self.resolved_by is not None

    @property
    def is_outdated(self) -> bool:
        return self.place is None

    @property
    def path(self) -> str:
        return self.original.path
