"""The state of the GitHub server: people, repositories, pull requests with their diffs, comments and reviews."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

Side = Literal["LEFT", "RIGHT"]
Permission = Literal["admin", "maintain", "write", "triage", "read", "none"]
_BEGINNING = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One file of a pull request. Without a patch it is binary, or too large to be shown.

    `lines` has, for each side and line number that the patch shows, the hunk and the position in it.
    """

    path: str
    patch: str | None = None
    status: str = "modified"
    previous_path: str | None = None
    lines: Mapping[tuple[Side, int], tuple[int, int]] = field(default_factory=dict)


Files = Mapping[str, str | ChangedFile | None]


def changed_file(path: str, patch: str | ChangedFile | None) -> ChangedFile:
    """A file as GitHub lists it: its status is as the patch says, and what is no UTF-8 is replaced."""
    if isinstance(patch, ChangedFile):
        return patch
    path = _shown(path)
    if not patch:
        return ChangedFile(path)
    patch = _shown(patch.removesuffix("\n"))
    header = _HUNK.match(patch)
    if header is None:
        raise ValueError(f"the patch of {path} has no hunk")
    added, removed = (header[1], header[2]) == ("0", "0"), (header[3], header[4]) == ("0", "0")
    return ChangedFile(path, patch, "added" if added else "removed" if removed else "modified", lines=_lines(patch))


def _shown(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _lines(patch: str) -> dict[tuple[Side, int], tuple[int, int]]:
    found: dict[tuple[Side, int], tuple[int, int]] = {}
    old = new = 0
    hunk = -1
    for position, line in enumerate(patch.split("\n")):
        if header := _HUNK.match(line):
            old, new, hunk = int(header[1]), int(header[3]), hunk + 1
            continue
        if line[:1] not in "+- \\":
            raise ValueError(f"this is no line of a patch: {line[:80]!r}")
        if line[:1] in ("-", " ", ""):
            found["LEFT", old] = hunk, position
            old += 1
        if line[:1] in ("+", " ", ""):
            found["RIGHT", new] = hunk, position
            new += 1
    return found


@dataclass(frozen=True, slots=True)
class User:
    """A person or a bot; a bot's login ends in `[bot]` in REST and does not in GraphQL."""

    login: str
    id: int

    @property
    def is_bot(self) -> bool:
        return self.login.endswith("[bot]")


@dataclass(slots=True, kw_only=True)
class Remark:
    """What every comment has; `reactions` are logins with what they gave."""

    id: int
    user: User
    body: str
    association: str
    created_at: str
    updated_at: str
    reactions: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class IssueComment(Remark):
    """A comment on the pull request as a whole."""


@dataclass(slots=True, kw_only=True)
class ReviewComment(Remark):
    """A comment on a line. The place is its thread's."""

    review: Review
    thread: Thread
    in_reply_to: int | None = None


@dataclass(slots=True, kw_only=True)
class Review:
    """One review. `state` is PENDING, COMMENTED, APPROVED, CHANGES_REQUESTED or DISMISSED."""

    id: int
    user: User
    association: str
    body: str
    state: str
    commit: str
    comments: list[ReviewComment] = field(default_factory=list)


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
    """The comments on one place."""

    id: int
    original: Place
    original_commit: str
    resolved_by: User | None = None
    comments: list[ReviewComment] = field(default_factory=list)

    @property
    def is_resolved(self) -> bool:
        return self.resolved_by is not None


@dataclass(slots=True, kw_only=True)
class CheckRun:
    """One check run, with the slug of the App that made it."""

    id: int
    app: str
    name: str
    head_sha: str
    status: str = "queued"
    conclusion: str | None = None
    external_id: str | None = None
    details_url: str | None = None
    title: str | None = None
    summary: str | None = None
    text: str | None = None


@dataclass(slots=True, kw_only=True)
class Status:
    """One commit status."""

    id: int
    sha: str
    state: str
    context: str
    description: str | None
    target_url: str | None
    creator: User
    created_at: str


class World:
    """Everything the server knows, and the lock that guards it. Ids and times are the same in every run."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users: dict[str, User] = {}
        self.repositories: dict[str, Repository] = {}
        self._ids = itertools.count(1001)
        self._seconds = itertools.count()

    def new_id(self) -> int:
        return next(self._ids)

    def now(self) -> str:
        """A moment later than every one before."""
        return (_BEGINNING + timedelta(seconds=next(self._seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")

    def user(self, login: str) -> User:
        """The person with a login, who is there as soon as somebody names them."""
        with self.lock:
            return self.users.setdefault(login.lower(), User(login, self.new_id()))

    def repository(self, full_name: str) -> Repository:
        """A repository, made when it is not there."""
        with self.lock:
            return self.repositories.get(full_name.lower()) or Repository(self, full_name)

    def pulls(self) -> Iterator[PullRequest]:
        """Every pull request of every repository."""
        for repository in self.repositories.values():
            yield from repository.pulls.values()


class Repository:
    """One repository. `collaborators` are logins with their permission."""

    def __init__(self, world: World, full_name: str) -> None:
        self.world = world
        self.full_name = full_name
        self.id = world.new_id()
        self.owner = world.user(full_name.partition("/")[0])
        self.collaborators: dict[str, Permission] = {}
        self.commits: set[str] = set()
        self.pulls: dict[int, PullRequest] = {}
        self.check_runs: list[CheckRun] = []
        self.statuses: list[Status] = []
        world.repositories[full_name.lower()] = self

    def collaborator(self, login: str, permission: Permission = "write") -> User:
        """Give somebody a permission."""
        user = self.world.user(login)
        self.collaborators[user.login] = permission
        return user

    def permission_of(self, login: str) -> Permission:
        """What somebody may do here; everybody may read."""
        return "admin" if login == self.owner.login else self.collaborators.get(login, "read")

    def pull_request(
        self,
        files: Files,
        *,
        head: str,
        base: str = "b" * 40,
        number: int | None = None,
        author: str = "author",
        head_repository: str | None = None,
    ) -> PullRequest:
        """Open a pull request with a diff; `head_repository` names the fork that it comes from."""
        with self.world.lock:
            chosen = max(self.pulls, default=0) + 1 if number is None else number
            source = self if head_repository is None else self.world.repository(head_repository)
            pull = PullRequest(self, chosen, base=base, author=self.world.user(author), head_repository=source)
            self.pulls[chosen] = pull
            pull.push(head, files)
            return pull


class PullRequest:
    """One pull request, made by `Repository.pull_request`.

    What a test does here is done as another person would do it on the web: `push`, `comment_by`, `react_by`. What
    the program under test did is to be read: `issue_comments`, `reviews`, `threads`, `review_comments`.
    """

    def __init__(
        self, repository: Repository, number: int, *, base: str, author: User, head_repository: Repository
    ) -> None:
        self.repository = repository
        self.world = repository.world
        self.number = number
        self.id = self.world.new_id()
        self.head = ""
        self.base = base
        self.author = author
        self.head_repository = head_repository
        self.head_ref = f"change-{number}"
        self.state = "open"
        self.draft = False
        self.locked = False
        self.commits: list[str] = []
        self.diffs: dict[str, tuple[ChangedFile, ...]] = {}
        self.issue_comments: list[IssueComment] = []
        self.reviews: list[Review] = []
        self.threads: list[Thread] = []

    @property
    def files(self) -> tuple[ChangedFile, ...]:
        """The files of the present diff."""
        return self.diffs[self.head]

    @property
    def review_comments(self) -> list[ReviewComment]:
        """Every comment on a line, the oldest first."""
        said = [each for thread in self.threads for each in thread.comments]
        return sorted(said, key=lambda comment: comment.id)

    def file(self, path: str, commit: str) -> ChangedFile | None:
        """A file of the diff at a commit of the pull request."""
        return next((each for each in self.diffs.get(commit, ()) if each.path == path), None)

    def push(self, head: str, files: Files) -> None:
        """Move the head. Raises ValueError for what is no full commit name."""
        with self.world.lock:
            if not re.fullmatch("[0-9a-f]{40}", head):
                raise ValueError(f"{head!r} is no full commit name: forty of 0-9 and a-f")
            self.repository.commits |= {self.base, head}
            self.commits.append(head)
            self.head = head
            self.diffs[head] = tuple(changed_file(path, patch) for path, patch in files.items())

    def comment_by(
        self,
        login: str,
        body: str,
        *,
        association: str = "NONE",
        in_reply_to: ReviewComment | None = None,
        path: str | None = None,
        line: int | None = None,
    ) -> IssueComment | ReviewComment:
        """Somebody comments: on the whole, in a thread, or on a line of the diff."""
        with self.world.lock:
            user = self.world.user(login)
            if in_reply_to is not None:
                return self.reply(in_reply_to, user=user, association=association, body=body)
            if path is not None:
                review = self.add_review(user, association=association, body="", state="COMMENTED", commit=self.head)
                return self.add_thread(review, Place(path=path, line=line), body)
            return self.add_issue_comment(user, association=association, body=body)

    def react_by(self, login: str, remark: Remark, content: str) -> None:
        """Somebody reacts."""
        with self.world.lock:
            remark.reactions.append((self.world.user(login).login, content))

    def add_issue_comment(self, user: User, *, association: str, body: str) -> IssueComment:
        """Comment on the whole."""
        now = self.world.now()
        comment = IssueComment(
            id=self.world.new_id(), user=user, body=body, association=association, created_at=now, updated_at=now
        )
        self.issue_comments.append(comment)
        return comment

    def add_review(self, user: User, *, association: str, body: str, state: str, commit: str) -> Review:
        """A review without comments yet."""
        review = Review(
            id=self.world.new_id(), user=user, association=association, body=body, state=state, commit=commit
        )
        self.reviews.append(review)
        return review

    def add_thread(self, review: Review, place: Place, body: str) -> ReviewComment:
        """Begin a thread with a comment."""
        thread = Thread(id=self.world.new_id(), original=place, original_commit=review.commit)
        self.threads.append(thread)
        return self._say(thread, review, body, in_reply_to=None)

    def reply(self, parent: ReviewComment, *, user: User, association: str, body: str) -> ReviewComment:
        """Answer in a thread; GitHub makes a review of its own for it."""
        review = self.add_review(user, association=association, body="", state="COMMENTED", commit=self.head)
        return self._say(parent.thread, review, body, in_reply_to=parent.thread.comments[0].id)

    def _say(self, thread: Thread, review: Review, body: str, *, in_reply_to: int | None) -> ReviewComment:
        now = self.world.now()
        comment = ReviewComment(
            id=self.world.new_id(),
            user=review.user,
            body=body,
            association=review.association,
            created_at=now,
            updated_at=now,
            review=review,
            thread=thread,
            in_reply_to=in_reply_to,
        )
        thread.comments.append(comment)
        review.comments.append(comment)
        return comment
