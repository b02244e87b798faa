"""The state of the GitHub server: people, repositories, pull requests with their diffs, comments and reviews."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True)
class ChangedFile:
    """One file of a pull request. Without a patch it is binary, or too large to be shown.

    `lines` has, for each line number that the patch shows on its new side, the hunk and the position in it.
    """

    path: str
    patch: str | None = None
    lines: Mapping[int, tuple[int, int]] = field(default_factory=dict)


Files = Mapping[str, str | None]


def changed_file(path: str, patch: str | None) -> ChangedFile:
    path, text = (each.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for each in (path, patch or ""))
    if not text:
        return ChangedFile(path)
    text = text.removesuffix("\n")
    lines, new, hunk = {}, 0, -1
    for position, line in enumerate(text.split("\n")):
        if header := _HUNK.match(line):
            new, hunk = int(header[3]), hunk + 1
        elif hunk < 0 or line[:1] not in "+- \\":
            raise ValueError(f"this is no line of a patch: {line[:80]!r}")
        elif line[:1] in ("+", " ", ""):
            lines[new] = hunk, position
            new += 1
    return ChangedFile(path, text, lines)


@dataclass(frozen=True)
class User:
    """A person or a bot; a bot's login ends in `[bot]` in REST and does not in GraphQL."""

    login: str
    id: int

    @property
    def is_bot(self) -> bool:
        return self.login.endswith("[bot]")


@dataclass(kw_only=True)
class Comment:
    """A comment, on the whole or in a thread; `reactions` are logins with what they gave."""

    id: int
    user: User
    body: str
    association: str
    thread: Thread | None = None
    reactions: list[tuple[str, str]] = field(default_factory=list)


@dataclass(kw_only=True)
class Review:
    """One review. `state` is PENDING, COMMENTED, APPROVED, CHANGES_REQUESTED or DISMISSED."""

    id: int
    user: User
    association: str
    body: str
    state: str
    commit: str


@dataclass(kw_only=True)
class Thread:
    """The comments on lines of the new side."""

    id: int
    path: str
    line: int
    start_line: int | None
    commit: str
    is_resolved: bool = False
    comments: list[Comment] = field(default_factory=list)


class World:
    """Everything the server knows, and the lock that guards it. Ids are the same in every run."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users: dict[str, User] = {}
        self.repositories: dict[str, Repository] = {}
        self._ids = itertools.count(1001)

    def new_id(self) -> int:
        return next(self._ids)

    def user(self, login: str) -> User:
        """The person with a login, who is there as soon as somebody names them."""
        with self.lock:
            return self.users.setdefault(login.lower(), User(login, self.new_id()))

    def repository(self, full_name: str) -> Repository:
        with self.lock:
            return self.repositories.get(full_name.lower()) or Repository(self, full_name)

    def pulls(self) -> Iterator[PullRequest]:
        for repository in self.repositories.values():
            yield from repository.pulls.values()


class Repository:
    """One repository. `collaborators` are logins with their permission; check runs and statuses are as they came."""

    def __init__(self, world: World, full_name: str) -> None:
        self.world = world
        self.full_name = full_name
        self.id = world.new_id()
        self.owner = world.user(full_name.partition("/")[0])
        self.collaborators: dict[str, str] = {}
        self.commits: set[str] = set()
        self.pulls: dict[int, PullRequest] = {}
        self.check_runs: list[SimpleNamespace] = []
        self.statuses: list[SimpleNamespace] = []
        world.repositories[full_name.lower()] = self

    def permission_of(self, login: str) -> str:
        """What somebody may do here; everybody may read."""
        return "admin" if login == self.owner.login else self.collaborators.get(login, "read")

    def may_write(self, login: str) -> bool:
        return self.permission_of(login) in ("admin", "maintain", "write")

    def pull_request(
        self, files: Files, *, head: str, base: str = "b" * 40, number: int = 1, head_repository: str | None = None
    ) -> PullRequest:
        """Open a pull request with a diff; `head_repository` names the fork that it comes from."""
        with self.world.lock:
            source = self if head_repository is None else self.world.repository(head_repository)
            self.pulls[number] = PullRequest(self, number, base=base, head_repository=source)
            self.pulls[number].push(head, files)
            return self.pulls[number]


class PullRequest:
    """One pull request, made by `Repository.pull_request`.

    What a test does here is done as another person would do it on the web: `push`, `comment_by`, `react_by`. What
    the program under test did is to be read: `issue_comments`, `reviews`, `threads`, `review_comments`.
    """

    def __init__(self, repository: Repository, number: int, *, base: str, head_repository: Repository) -> None:
        self.repository = repository
        self.world = repository.world
        self.number = number
        self.head = ""
        self.base = base
        self.author = self.world.user("author")
        self.head_repository = head_repository
        self.head_ref = f"change-{number}"
        self.locked = False
        self.diffs: dict[str, tuple[ChangedFile, ...]] = {}
        self.issue_comments: list[Comment] = []
        self.reviews: list[Review] = []
        self.threads: list[Thread] = []

    @property
    def review_comments(self) -> list[Comment]:
        return sorted((each for thread in self.threads for each in thread.comments), key=lambda comment: comment.id)

    def push(self, head: str, files: Files) -> None:
        with self.world.lock:
            assert re.fullmatch("[0-9a-f]{40}", head), f"{head!r} is no full commit name"
            self.repository.commits |= {self.base, head}
            self.head = head
            self.diffs[head] = tuple(changed_file(path, patch) for path, patch in files.items())

    def comment_by(
        self,
        login: str,
        body: str,
        *,
        association: str = "NONE",
        to: Comment | None = None,
        at: tuple[str, int] = ("", 0),
    ) -> None:
        """Somebody comments: on the whole, in a thread, or on a line of the diff."""
        with self.world.lock:
            user = self.world.user(login)
            if to is not None:
                self.reply(to, user, association, body)
            elif at[0]:
                review = self.add_review(user, association, body="", state="COMMENTED", commit=self.head)
                self.add_thread(review, *at, None, body)
            else:
                self.add_issue_comment(user, association, body)

    def react_by(self, login: str, comment: Comment, content: str) -> None:
        with self.world.lock:
            comment.reactions.append((self.world.user(login).login, content))

    def add_issue_comment(self, user: User, association: str, body: str) -> Comment:
        self.issue_comments.append(Comment(id=self.world.new_id(), user=user, body=body, association=association))
        return self.issue_comments[-1]

    def add_review(self, user: User, association: str, *, body: str, state: str, commit: str) -> Review:
        about = {"association": association, "body": body, "state": state, "commit": commit}
        self.reviews.append(Review(id=self.world.new_id(), user=user, **about))
        return self.reviews[-1]

    def add_thread(self, review: Review, path: str, line: int, start_line: int | None, body: str) -> None:
        thread = Thread(id=self.world.new_id(), path=path, line=line, start_line=start_line, commit=review.commit)
        self.threads.append(thread)
        self._say(thread, review, body)

    def reply(self, to: Comment, user: User, association: str, body: str) -> Comment:
        """Answer in a thread; GitHub makes a review of its own for it."""
        assert to.thread is not None
        review = self.add_review(user, association, body="", state="COMMENTED", commit=self.head)
        return self._say(to.thread, review, body)

    def _say(self, thread: Thread, review: Review, body: str) -> Comment:
        by, about = review.user, review.association
        thread.comments.append(Comment(id=self.world.new_id(), user=by, body=body, association=about, thread=thread))
        return thread.comments[-1]
