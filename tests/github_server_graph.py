"""What the GitHub server knows, as GitHub's GraphQL graph: values, and functions for what takes arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphql import GraphQLResolveInfo

from tests.github_server_calls import NOT_ACCESSIBLE, Actor
from tests.github_server_documents import WEB
from tests.github_server_graph_pages import connection, failed
from tests.github_server_records import IssueComment, Reaction, Remark, Review, ReviewComment, Thread, User, node_id
from tests.github_server_reviewing import body_problem
from tests.github_server_world import PullRequest, Repository, World

_CONTENTS = {
    "+1": "THUMBS_UP",
    "-1": "THUMBS_DOWN",
    "laugh": "LAUGH",
    "hooray": "HOORAY",
    "confused": "CONFUSED",
    "heart": "HEART",
    "rocket": "ROCKET",
    "eyes": "EYES",
}
_NOT_AN_ID = "Could not resolve to a node with the global id of '{}'"


class Graph:
    """The graph as one token sees it."""

    def __init__(self, world: World, actor: Actor) -> None:
        self.world = world
        self.actor = actor

    def root(self) -> dict[str, Any]:
        """Where queries and mutations begin."""
        return {
            "__typename": "Query",
            "viewer": self._viewer(),
            "rateLimit": lambda _info, **_arguments: _RATE_LIMIT,
            "repository": self._find_repository,
            "node": lambda _info, id: self._node(id),  # noqa: A006 - the schema's own name
            "nodes": lambda _info, ids: [self._node(each) for each in ids],
            "resolveReviewThread": lambda _info, input: self._resolve(input, resolved=True),  # noqa: A006 - as above
            "unresolveReviewThread": lambda _info, input: self._resolve(input, resolved=False),  # noqa: A006 - as above
            "minimizeComment": lambda _info, input: self._minimize(input, "minimizedComment"),  # noqa: A006 - as above
            "unminimizeComment": lambda _info, input: self._minimize(input, "unminimizedComment"),  # noqa: A006 - as above
            "addPullRequestReviewThreadReply": lambda _info, input: self._reply(input),  # noqa: A006 - as above
        }

    def _viewer(self) -> dict[str, Any]:
        user = self.actor.user
        return {"__typename": "User", **self._login(user), "login": user.login}

    def _login(self, user: User) -> dict[str, Any]:
        return {"id": user.node_id, "databaseId": user.id, "login": user.login, "url": f"{WEB}/{user.login}"}

    def author(self, user: User) -> dict[str, Any] | None:
        """Somebody in a comment: a bot is named without `[bot]` here, and one who is gone not at all."""
        if user.login == "ghost":
            return None
        fields = {**self._login(user), "login": user.login.removesuffix("[bot]")}
        return {"__typename": "Bot" if user.is_bot else "User", **fields}

    def _find_repository(
        self, _info: GraphQLResolveInfo[Any], owner: str, name: str, **_arguments: Any
    ) -> dict[str, Any]:
        found = self.world.find_repository(owner, name)
        if found is None or not self.actor.sees(found):
            raise failed("NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'.")
        return self.repository(found)

    def repository(self, repo: Repository) -> dict[str, Any]:
        def find(_info: GraphQLResolveInfo[Any], number: int) -> dict[str, Any]:
            if number not in repo.pulls:
                raise failed("NOT_FOUND", f"Could not resolve to a PullRequest with the number of {number}.")
            return self.pull(repo.pulls[number])

        return {
            "__typename": "Repository",
            "id": node_id("Repository", repo.id),
            "databaseId": repo.id,
            "name": repo.name,
            "nameWithOwner": repo.full_name,
            "owner": self.author(repo.owner),
            "isPrivate": repo.private,
            "isFork": repo.is_fork,
            "url": f"{WEB}/{repo.full_name}",
            "viewerPermission": None if self.actor.is_integration else self._permission(repo),
            "pullRequest": find,
        }

    def _permission(self, repo: Repository) -> str:
        return repo.permission_of(self.actor.user.login).upper()

    def pull(self, pull: PullRequest) -> dict[str, Any]:
        threads = [each for each in pull.threads if self._seen(each)]
        return {
            "__typename": "PullRequest",
            "id": node_id("PullRequest", pull.id),
            "databaseId": pull.id,
            "fullDatabaseId": str(pull.id),
            "number": pull.number,
            "title": pull.title,
            "body": pull.body or "",
            "state": "MERGED" if pull.merged else pull.state.upper(),
            "merged": pull.merged,
            "isDraft": pull.draft,
            "locked": pull.locked,
            "url": f"{WEB}/{pull.repository.full_name}/pull/{pull.number}",
            "author": self.author(pull.author),
            "viewerDidAuthor": self._is_own(pull.author),
            "headRefOid": pull.head,
            "baseRefOid": pull.base,
            "headRefName": pull.head_ref,
            "baseRefName": pull.base_ref,
            "isCrossRepository": pull.head_repository is not pull.repository,
            "repository": lambda _info: self.repository(pull.repository),
            "reviewThreads": connection(threads, lambda each: self.thread(pull, each)),
            "comments": connection(pull.issue_comments, lambda each: self.issue_comment(pull, each)),
            "reviews": self._reviews(pull),
        }

    def _reviews(self, pull: PullRequest) -> Callable[..., Any]:
        seen = [each for each in pull.reviews if each.state != "PENDING" or self._is_own(each.user)]

        def listed(
            info: GraphQLResolveInfo[Any], states: list[str] | None = None, author: str | None = None, **paging: Any
        ) -> Any:
            found = [each for each in seen if states is None or each.state in states]
            found = [each for each in found if author in (None, each.user.login)]
            return connection(found, lambda each: self.review(pull, each))(info, **paging)

        return listed

    def _is_own(self, user: User) -> bool:
        return user == self.actor.user

    def _may_resolve(self, pull: PullRequest) -> bool:
        if self.actor.is_integration:
            return self.actor.may_write("contents") and self.actor.may_write("pull_requests")
        may_write = pull.repository.permission_of(self.actor.user.login) in ("admin", "maintain", "write")
        return may_write or self._is_own(pull.author)

    def thread(self, pull: PullRequest, thread: Thread) -> dict[str, Any]:
        may, place, original = self._may_resolve(pull), thread.place, thread.original
        return {
            "__typename": "PullRequestReviewThread",
            "id": node_id("PullRequestReviewThread", thread.id),
            "path": thread.path,
            "line": None if place is None else place.line,
            "startLine": None if place is None else place.start_line,
            "originalLine": original.line,
            "originalStartLine": original.start_line,
            "diffSide": original.side,
            "startDiffSide": original.start_side,
            "subjectType": "FILE" if original.line is None else "LINE",
            "isResolved": thread.is_resolved,
            "isOutdated": thread.is_outdated,
            "isCollapsed": thread.is_resolved or thread.is_outdated,
            "resolvedBy": self.author(thread.resolved_by) if thread.resolved_by else None,
            "viewerCanReply": self.actor.may_write("pull_requests"),
            "viewerCanResolve": may and not thread.is_resolved,
            "viewerCanUnresolve": may and thread.is_resolved,
            "pullRequest": lambda _info: self.pull(pull),
            "repository": lambda _info: self.repository(pull.repository),
            "comments": connection(self._seen(thread), lambda each: self.review_comment(pull, each)),
        }

    def _seen(self, thread: Thread) -> list[ReviewComment]:
        return [each for each in thread.comments if each.review.state != "PENDING" or self._is_own(each.user)]

    def _remark(self, remark: Remark) -> dict[str, Any]:
        return {
            "databaseId": remark.id,
            "fullDatabaseId": str(remark.id),
            "body": remark.body,
            "author": self.author(remark.user),
            "authorAssociation": remark.association,
            "createdAt": remark.created_at,
            "updatedAt": remark.updated_at,
            "isMinimized": remark.minimized is not None,
            "minimizedReason": remark.minimized,
            "viewerDidAuthor": self._is_own(remark.user),
            "reactions": self._reactions(remark),
            "reactionGroups": lambda _info: [self._reaction_group(remark, content) for content in _CONTENTS],
        }

    def _reactions(self, remark: Remark) -> Callable[..., Any]:
        def listed(info: GraphQLResolveInfo[Any], content: str | None = None, **paging: Any) -> Any:
            found = [each for each in remark.reactions if content in (None, _CONTENTS[each.content])]
            return connection(found, self._reaction)(info, **paging)

        return listed

    def _reaction(self, reaction: Reaction) -> dict[str, Any]:
        return {
            "__typename": "Reaction",
            "id": node_id("Reaction", reaction.id),
            "databaseId": reaction.id,
            "content": _CONTENTS[reaction.content],
            "createdAt": reaction.created_at,
            "user": self.author(reaction.user),
        }

    def _reaction_group(self, remark: Remark, content: str) -> dict[str, Any]:
        users = [each.user for each in remark.reactions if each.content == content]
        return {
            "content": _CONTENTS[content],
            "viewerHasReacted": self.actor.user in users,
            "reactors": connection(users, self.author),
            "users": connection(users, self.author),
        }

    def issue_comment(self, pull: PullRequest, comment: IssueComment) -> dict[str, Any]:
        return {
            "__typename": "IssueComment",
            "id": node_id("IssueComment", comment.id),
            **self._remark(comment),
            "url": f"{WEB}/{pull.repository.full_name}/pull/{pull.number}#issuecomment-{comment.id}",
            "pullRequest": lambda _info: self.pull(pull),
        }

    def review(self, pull: PullRequest, review: Review) -> dict[str, Any]:
        return {
            "__typename": "PullRequestReview",
            "id": node_id("PullRequestReview", review.id),
            "databaseId": review.id,
            "fullDatabaseId": str(review.id),
            "state": review.state,
            "body": review.body,
            "author": self.author(review.user),
            "authorAssociation": review.association,
            "submittedAt": review.submitted_at,
            "viewerDidAuthor": self._is_own(review.user),
            "commit": {"oid": review.commit},
            "url": f"{WEB}/{pull.repository.full_name}/pull/{pull.number}#pullrequestreview-{review.id}",
            "comments": connection(review.comments, lambda each: self.review_comment(pull, each)),
        }

    def review_comment(self, pull: PullRequest, comment: ReviewComment) -> dict[str, Any]:
        thread = comment.thread
        place, original = thread.place, thread.original
        first = thread.comments[0]
        return {
            "__typename": "PullRequestReviewComment",
            "id": node_id("PullRequestReviewComment", comment.id),
            **self._remark(comment),
            "path": thread.path,
            "line": None if place is None else place.line,
            "startLine": None if place is None else place.start_line,
            "originalLine": original.line,
            "originalStartLine": original.start_line,
            "outdated": thread.is_outdated,
            "diffHunk": thread.diff_hunk,
            "state": "PENDING" if comment.review.state == "PENDING" else "SUBMITTED",
            "commit": {"oid": thread.commit},
            "originalCommit": {"oid": thread.original_commit},
            "replyTo": None if comment.in_reply_to is None else (lambda _info: self.review_comment(pull, first)),
            "pullRequestReview": lambda _info: self.review(pull, comment.review),
            "pullRequest": lambda _info: self.pull(pull),
            "url": f"{WEB}/{pull.repository.full_name}/pull/{pull.number}#discussion_r{comment.id}",
        }

    def _node(self, wanted: str) -> dict[str, Any]:
        for pull in self.world.pulls():
            if wanted == node_id("PullRequest", pull.id):
                return self.pull(pull)
            if found := self._thread(wanted, pull):
                return self.thread(pull, found)
            for comment in pull.issue_comments:
                if wanted == node_id("IssueComment", comment.id):
                    return self.issue_comment(pull, comment)
            for each in pull.review_comments:
                if wanted == node_id("PullRequestReviewComment", each.id):
                    return self.review_comment(pull, each)
            for review in pull.reviews:
                if wanted == node_id("PullRequestReview", review.id):
                    return self.review(pull, review)
        raise failed("NOT_FOUND", _NOT_AN_ID.format(wanted))

    def _thread(self, wanted: str, pull: PullRequest) -> Thread | None:
        return next((each for each in pull.threads if wanted == node_id("PullRequestReviewThread", each.id)), None)

    def _find_thread(self, wanted: str) -> tuple[PullRequest, Thread]:
        for pull in self.world.pulls():
            if found := self._thread(wanted, pull):
                return pull, found
        raise failed("NOT_FOUND", _NOT_AN_ID.format(wanted))

    def _resolve(self, given: dict[str, Any], *, resolved: bool) -> dict[str, Any]:
        pull, thread = self._find_thread(given["threadId"])
        if not self._may_resolve(pull):
            raise failed("FORBIDDEN", NOT_ACCESSIBLE if self.actor.is_integration else "Must have write access.")
        if not resolved:
            thread.resolved_by = None
        elif thread.resolved_by is None:
            thread.resolved_by = self.actor.user
        return {"clientMutationId": given.get("clientMutationId"), "thread": self.thread(pull, thread)}

    def _minimize(self, given: dict[str, Any], field: str) -> dict[str, Any]:
        pull, remark = self._find_remark(given["subjectId"])
        if not self.actor.may_write("issues") and not self.actor.may_write("pull_requests"):
            raise failed("FORBIDDEN", NOT_ACCESSIBLE)
        remark.minimized = given["classifier"].lower().replace("_", "-") if field == "minimizedComment" else None
        shown = (
            self.issue_comment(pull, remark) if isinstance(remark, IssueComment) else self.review_comment(pull, remark)
        )
        return {"clientMutationId": given.get("clientMutationId"), field: shown}

    def _find_remark(self, wanted: str) -> tuple[PullRequest, IssueComment | ReviewComment]:
        for pull in self.world.pulls():
            for comment in pull.issue_comments:
                if wanted == node_id("IssueComment", comment.id):
                    return pull, comment
            for each in pull.review_comments:
                if wanted == node_id("PullRequestReviewComment", each.id):
                    return pull, each
        raise failed("NOT_FOUND", _NOT_AN_ID.format(wanted))

    def _reply(self, given: dict[str, Any]) -> dict[str, Any]:
        pull, thread = self._find_thread(given["pullRequestReviewThreadId"])
        if not self.actor.may_write("pull_requests"):
            raise failed("FORBIDDEN", NOT_ACCESSIBLE)
        if problem := body_problem(given["body"]):
            raise failed("UNPROCESSABLE", problem)
        comment = pull.reply(
            thread.comments[0], user=self.actor.user, association=self.actor.association, body=given["body"]
        )
        return {"clientMutationId": given.get("clientMutationId"), "comment": self.review_comment(pull, comment)}


_RATE_LIMIT = {
    "cost": 1,
    "limit": 5000,
    "nodeCount": 1,
    "remaining": 4999,
    "resetAt": "2026-01-05T10:00:00Z",
    "used": 1,
}
