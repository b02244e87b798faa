"""The state of the GitHub server: its people, repositories and pull requests, and what a push does to comments."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

from tests.github_server_patches import ChangedFile, Patch, PatchLine, Side, changed_file
from tests.github_server_records import (
    CheckRun,
    IssueComment,
    Place,
    Reaction,
    Remark,
    Review,
    ReviewComment,
    Status,
    Thread,
    User,
)

Files = Mapping[str, str | ChangedFile | None]
Permission = Literal["admin", "maintain", "write", "triage", "read", "none"]
_BEGINNING = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


class World:
    """Everything the server knows, and the lock that guards it. Ids and times are the same in every run.

    `short_words` is for the words in which a line that is not in the diff is refused: GitHub has two sets of them.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users: dict[str, User] = {}
        self.repositories: dict[str, Repository] = {}
        self.short_words = False
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
            known = next((user for name, user in self.users.items() if name.lower() == login.lower()), None)
            return known or self.users.setdefault(login, User(login, self.new_id()))

    def repository(self, full_name: str) -> Repository:
        """A repository, made when it is not there. Raises ValueError for a name without an owner."""
        owner, _, name = full_name.partition("/")
        if not owner or not name or "/" in name:
            raise ValueError(f"{full_name!r} is not owner/name")
        with self.lock:
            found = self.find_repository(owner, name)
            if found is None:
                found = Repository(self, full_name)
                self.repositories[full_name] = found
            return found

    def find_repository(self, owner: str, name: str) -> Repository | None:
        """A repository by name, in whatever case, as GitHub finds it."""
        wanted = f"{owner}/{name}".lower()
        return next((each for key, each in self.repositories.items() if key.lower() == wanted), None)

    def pulls(self) -> Iterator[PullRequest]:
        """Every pull request of every repository."""
        for repository in self.repositories.values():
            yield from repository.pulls.values()


class Repository:
    """One repository. `collaborators` are logins with their permission; `clone_url` may be set to a real one."""

    def __init__(self, world: World, full_name: str) -> None:
        self.world = world
        self.full_name = full_name
        self.id = world.new_id()
        self.owner = world.user(full_name.partition("/")[0])
        self.default_branch = "main"
        self.private = False
        self.is_fork = False
        self.clone_url = f"https://github.com/{full_name}.git"
        self.actions_may_approve = False
        self.has_app = True
        self.collaborators: dict[str, Permission] = {}
        self.commits: dict[str, str] = {}
        self.pulls: dict[int, PullRequest] = {}
        self.check_runs: list[CheckRun] = []
        self.statuses: list[Status] = []

    @property
    def name(self) -> str:
        return self.full_name.partition("/")[2]

    def collaborator(self, login: str, permission: Permission = "write") -> User:
        """Give somebody a permission."""
        user = self.world.user(login)
        self.collaborators[user.login] = permission
        return user

    def permission_of(self, login: str) -> Permission:
        """What somebody may do here; everybody may read what is public."""
        default: Permission = "none" if self.private else "read"
        return "admin" if login == self.owner.login else self.collaborators.get(login, default)

    def add_commit(self, sha: str, parent: str = "") -> None:
        """Know a commit. Raises ValueError for what is no full commit name."""
        if len(sha) != 40 or set(sha) - set("0123456789abcdef"):
            raise ValueError(f"{sha!r} is no full commit name: forty of 0-9 and a-f")
        self.commits.setdefault(sha, parent)

    def resolve(self, reference: str) -> str | None:
        """The commit that a name or the beginning of one means."""
        for pull in self.pulls.values():
            if reference in (pull.head_ref, f"refs/heads/{pull.head_ref}", f"refs/pull/{pull.number}/head"):
                return pull.head
            if reference in (pull.base_ref, f"refs/heads/{pull.base_ref}"):
                return pull.base
        found = [sha for sha in self.commits if len(reference) >= 4 and sha.startswith(reference.lower())]
        return found[0] if len(found) == 1 else None

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
            source.is_fork = source.is_fork or source is not self
            self.add_commit(base)
            self.add_commit(head, base)
            pull = PullRequest(
                self, chosen, head=head, base=base, author=self.world.user(author), head_repository=source
            )
            pull.diffs[head] = tuple(changed_file(path, patch) for path, patch in files.items())
            self.pulls[chosen] = pull
            return pull


class PullRequest:
    """One pull request, made by `Repository.pull_request`.

    What a test does here is done as another person would do it on the web: `push`, `comment_by`, `react_by`,
    `resolve_by`. What the program under test did is to be read: `issue_comments`, `reviews`, `threads`,
    `review_comments`.
    """

    def __init__(
        self, repository: Repository, number: int, *, head: str, base: str, author: User, head_repository: Repository
    ) -> None:
        self.repository = repository
        self.world = repository.world
        self.number = number
        self.id = self.world.new_id()
        self.head = head
        self.base = base
        self.author = author
        self.head_repository: Repository | None = head_repository
        self.head_ref = f"change-{number}"
        self.base_ref = repository.default_branch
        self.title = "A change"
        self.body: str | None = "What it is for."
        self.state = "open"
        self.merge_commit: str | None = None
        self.merged = False
        self.draft = False
        self.locked = False
        self.created_at = self.updated_at = self.world.now()
        self.commits = [head]
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
        """Every comment on a line that others can see, the oldest first."""
        seen = [each for thread in self.threads for each in thread.comments if each.review.state != "PENDING"]
        return sorted(seen, key=lambda comment: comment.id)

    def file(self, path: str, commit: str | None = None) -> ChangedFile | None:
        """A file of the diff at a commit of the pull request, the present one unless told otherwise."""
        return next((each for each in self.diffs.get(commit or self.head, ()) if each.path == path), None)

    def push(self, head: str, files: Files, *, base: str | None = None, force: bool = False) -> None:
        """Move the head. Comments whose lines are changed or not shown any more become outdated.

        With `force` the commits until now are no part of the pull request any more.
        """
        with self.world.lock:
            self.repository.add_commit(head, self.base if force else self.head)
            self.commits = [head] if force else [*self.commits, head]
            self.head, self.base = head, base or self.base
            self.repository.add_commit(self.base)
            self.diffs[head] = tuple(changed_file(path, patch) for path, patch in files.items())
            self.updated_at = self.world.now()
            for thread in self.threads:
                self.follow(thread)

    def follow(self, thread: Thread) -> None:
        """Move a thread to where its lines are in the present diff. One that was outdated may come back."""
        before, after = self.file(thread.path, thread.original_commit), self.file(thread.path)
        found = _moved(thread.original, before, after)
        if found is None:
            thread.place = thread.position = None
            return
        thread.place, thread.position = found
        thread.commit = self.head

    def comment_by(
        self,
        login: str,
        body: str,
        *,
        association: str = "NONE",
        in_reply_to: ReviewComment | int | None = None,
        path: str | None = None,
        line: int | None = None,
    ) -> IssueComment | ReviewComment:
        """Somebody comments: on the whole, in a thread, or on a line of the diff.

        Raises ValueError for a comment or a line that is not there.
        """
        with self.world.lock:
            user = self.world.user(login)
            if in_reply_to is not None:
                parent = in_reply_to if isinstance(in_reply_to, int) else in_reply_to.id
                return self.reply(self.comment(parent), user=user, association=association, body=body)
            if path is not None:
                review = self.add_review(user, association=association, body="", state="COMMENTED")
                return self.add_thread(review, Place(path=path, line=line), body)
            return self.add_issue_comment(user, association=association, body=body)

    def react_by(self, login: str, remark: Remark, content: str) -> Reaction:
        """Somebody reacts; the same reaction of the same person counts once."""
        with self.world.lock:
            user = self.world.user(login)
            for known in remark.reactions:
                if (known.user, known.content) == (user, content):
                    return known
            reaction = Reaction(id=self.world.new_id(), user=user, content=content, created_at=self.world.now())
            remark.reactions.append(reaction)
            return reaction

    def edit_by(self, login: str, remark: Remark, body: str) -> None:
        """Somebody with the right to it edits a comment: the author stays."""
        with self.world.lock:
            self.world.user(login)
            remark.body, remark.updated_at = body, self.world.now()

    def resolve_by(self, login: str, thread: Thread, *, resolved: bool = True) -> None:
        """Somebody resolves a conversation, or opens it again."""
        with self.world.lock:
            thread.resolved_by = self.world.user(login) if resolved else None

    def comment(self, number: int) -> ReviewComment:
        """A review comment by its id. Raises ValueError."""
        for thread in self.threads:
            for comment in thread.comments:
                if comment.id == number:
                    return comment
        raise ValueError(f"no review comment has the id {number}")

    def add_issue_comment(self, user: User, *, association: str, body: str) -> IssueComment:
        now = self.world.now()
        comment = IssueComment(
            id=self.world.new_id(), user=user, body=body, association=association, created_at=now, updated_at=now
        )
        self.issue_comments.append(comment)
        return comment

    def add_review(self, user: User, *, association: str, body: str, state: str, commit: str | None = None) -> Review:
        review = Review(
            id=self.world.new_id(),
            user=user,
            association=association,
            body=body,
            state=state,
            commit=commit or self.head,
            submitted_at=None if state == "PENDING" else self.world.now(),
        )
        self.reviews.append(review)
        return review

    def add_thread(self, review: Review, place: Place, body: str) -> ReviewComment:
        """Begin a thread with a comment. Raises ValueError when the diff does not have the place."""
        file = self.file(place.path, review.commit)
        if file is None:
            raise ValueError(f"{place.path} is not in the diff")
        last = file.patch.find(place.side, place.line) if file.patch is not None and place.line else None
        if place.line is not None and last is None:
            raise ValueError(f"line {place.line} of {place.path} is not in the diff")
        thread = Thread(
            id=self.world.new_id(),
            original=place,
            original_commit=review.commit,
            original_position=None if last is None else last.position,
            diff_hunk="" if last is None or file.patch is None else file.patch.hunk_until(last),
            place=place,
            commit=review.commit,
            position=None if last is None else last.position,
        )
        self.threads.append(thread)
        if review.commit != self.head:
            self.follow(thread)
        return self._say(thread, review, body, in_reply_to=None)

    def reply(self, parent: ReviewComment, *, user: User, association: str, body: str) -> ReviewComment:
        """Answer in a thread; GitHub makes a review of its own for it."""
        review = self.add_review(user, association=association, body="", state="COMMENTED")
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


def _moved(place: Place, before: ChangedFile | None, after: ChangedFile | None) -> tuple[Place, int | None] | None:
    if after is None:
        return None
    if place.line is None:
        return place, None
    if before is None or before.patch is None or after.patch is None:
        return None
    last = _moved_line(place.line, place.side, before.patch, after.patch)
    if last is None:
        return None
    start = None
    if place.start_line is not None:
        start = _moved_line(place.start_line, place.start_side or place.side, before.patch, after.patch)
        if start is None:
            return None
    moved = Place(
        path=place.path,
        line=last.number(place.side),
        side=place.side,
        start_line=None if start is None else start.number(place.start_side or place.side),
        start_side=place.start_side,
    )
    return moved, last.position


def _moved_line(number: int, side: Side, before: Patch, after: Patch) -> PatchLine | None:
    line = before.find(side, number)
    return None if line is None else before.moved(line, side, after)
