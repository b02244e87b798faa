"""The GraphQL endpoint of the GitHub server: documents are validated against GitHub's own schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError, GraphQLSchema, build_client_schema, execute_sync, parse, validate

from tests.github_server_world import PullRequest, Remark, Review, Thread, User, World

if TYPE_CHECKING:
    from tests.github_server_rest import Actor

_FILE = Path(__file__).parent.parent / ".cache/agents/node_modules/@octokit/graphql-schema/schema.json"
_CONTENTS = {"+1": "THUMBS_UP", "-1": "THUMBS_DOWN", "heart": "HEART"}


@cache
def schema() -> GraphQLSchema:
    """GitHub's schema, read once for a process. Fails the test in words when it is not installed."""
    if not _FILE.is_file():
        raise AssertionError("GitHub's GraphQL schema is missing: run `make test`, which installs it")
    return build_client_schema(json.loads(_FILE.read_bytes()), assume_valid=True)


def node_id(kind: str, number: int) -> str:
    """A node's name: opaque, as GitHub's are."""
    return base64.urlsafe_b64encode(f"{kind}{number}".encode()).decode().rstrip("=")


def failed(kind: str, message: str) -> GraphQLError:
    """An error with GitHub's type for it."""
    return GraphQLError(message, extensions={"type": kind})


def answer(world: World, actor: Actor, request: Any, problems: list[str]) -> dict[str, Any]:
    """The answer to one request; what is wrong with the request is added to the problems."""
    document = None
    try:
        document = parse(request["query"])
        wrong = list(validate(schema(), document))
    except GraphQLError as error:
        wrong = [error]
    if wrong or document is None:
        problems += [f"POST /graphql: {error.message}" for error in wrong]
        return {"errors": [_formatted(error) for error in wrong]}
    result = execute_sync(
        schema(),
        document,
        root_value=Graph(world, actor).root(),
        variable_values=request.get("variables") or {},
        field_resolver=_resolve,
    )
    errors = result.errors or []
    # Neither a variable nor a field was as the document, or this server, knows it.
    problems += [f"POST /graphql: {each.message}" for each in errors if "type" not in (each.extensions or {})]
    return {"data": result.data, **({"errors": [_formatted(error) for error in errors]} if errors else {})}


def _resolve(source: Any, info: Any, **arguments: Any) -> Any:
    if info.field_name not in source:
        raise GraphQLError(f"{info.parent_type.name}.{info.field_name} is not known here: add it")
    value = source[info.field_name]
    return value(**arguments) if callable(value) else value


def _formatted(error: GraphQLError) -> dict[str, Any]:
    """An error as GitHub gives it: its type stands beside the message."""
    formatted: dict[str, Any] = dict(error.formatted)
    extensions = formatted.pop("extensions", {})
    return {**extensions, **formatted}


def _connection(items: Sequence[Any], render: Callable[[Any], Any]) -> Callable[..., Any]:
    """A list in pages, as GitHub gives it: how many are wanted must be said, and is 100 at most."""

    def page(first: int | None = None, after: str | None = None, **others: Any) -> dict[str, Any]:
        if any(value is not None for value in others.values()):
            raise GraphQLError(f"{others} is not known here: add it")
        if first is None or not 0 <= first <= 100:
            raise failed("EXCESSIVE_PAGINATION", "You must provide a `first` value of at most 100 records.")
        begin = int(after.removeprefix("cursor:")) if after else 0
        end = min(begin + first, len(items))
        return {
            "nodes": [render(item) for item in items[begin:end]],
            "pageInfo": {"hasNextPage": end < len(items), "endCursor": f"cursor:{end}" if end > begin else None},
        }

    return page


class Graph:
    """The graph as one token sees it."""

    def __init__(self, world: World, actor: Actor) -> None:
        self.world = world
        self.actor = actor

    def root(self) -> dict[str, Any]:
        """Where queries and mutations begin."""
        return {
            "viewer": {"login": self.actor.user.login},
            "repository": self._repository,
            "node": self._node,
            "resolveReviewThread": lambda input: self._resolve(input, resolved=True),  # noqa: A006 - the schema's name
            "unresolveReviewThread": lambda input: self._resolve(input, resolved=False),  # noqa: A006 - as above
        }

    def _repository(self, owner: str, name: str, **_defaults: Any) -> dict[str, Any]:
        repo = self.world.repositories.get(f"{owner}/{name}".lower())
        if repo is None:
            raise failed("NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'.")

        def find(number: int) -> dict[str, Any]:
            if number not in repo.pulls:
                raise failed("NOT_FOUND", f"Could not resolve to a PullRequest with the number of {number}.")
            return self._pull(repo.pulls[number])

        return {"pullRequest": find}

    def _pull(self, pull: PullRequest) -> dict[str, Any]:
        def reviews(states: list[str] | None = None, **paging: Any) -> Any:
            seen = [each for each in pull.reviews if each.state != "PENDING" or self._is_own(each.user)]
            return _connection([each for each in seen if states is None or each.state in states], self._review)(
                **paging
            )

        address = f"https://github.com/{pull.repository.full_name}/pull/{pull.number}"
        return {
            "reviewThreads": _connection(pull.threads, self._thread),
            "comments": _connection(
                pull.issue_comments, lambda each: {**self._remark(each), "url": f"{address}#issuecomment-{each.id}"}
            ),
            "reviews": reviews,
        }

    def _is_own(self, user: User) -> bool:
        return user == self.actor.user

    def _author(self, user: User) -> dict[str, Any] | None:
        """Somebody in a comment: a bot is named without `[bot]` here, and one who is gone not at all."""
        if user.login == "ghost":
            return None
        return {"__typename": "Bot" if user.is_bot else "User", "login": user.login.removesuffix("[bot]")}

    def _thread(self, thread: Thread) -> dict[str, Any]:
        return {
            "__typename": "PullRequestReviewThread",
            "id": node_id("Thread", thread.id),
            "path": thread.original.path,
            "isResolved": thread.is_resolved,
            "comments": _connection(thread.comments, self._remark),
        }

    def _remark(self, remark: Remark) -> dict[str, Any]:
        def reactions(content: str | None = None, **paging: Any) -> Any:
            logins = [login for login, given in remark.reactions if content in (None, _CONTENTS[given])]
            return _connection(logins, lambda login: {"user": {"login": login}})(**paging)

        return {
            "fullDatabaseId": str(remark.id),
            "body": remark.body,
            "author": self._author(remark.user),
            "authorAssociation": remark.association,
            "viewerDidAuthor": self._is_own(remark.user),
            "reactions": reactions,
        }

    def _review(self, review: Review) -> dict[str, Any]:
        return {
            "fullDatabaseId": str(review.id),
            "state": review.state,
            "author": self._author(review.user),
            "viewerDidAuthor": self._is_own(review.user),
            "commit": {"oid": review.commit},
        }

    def _find(self, wanted: str) -> tuple[PullRequest, Thread]:
        for pull in self.world.pulls():
            for thread in pull.threads:
                if wanted == node_id("Thread", thread.id):
                    return pull, thread
        raise failed("NOT_FOUND", f"Could not resolve to a node with the global id of '{wanted}'")

    def _node(self, id: str) -> dict[str, Any]:  # noqa: A002 - the schema's name
        return self._thread(self._find(id)[1])

    def _resolve(self, given: dict[str, Any], *, resolved: bool) -> dict[str, Any]:
        pull, thread = self._find(given["threadId"])
        if not self.actor.may_resolve(pull):
            raise failed("FORBIDDEN", "Resource not accessible by integration")
        thread.resolved_by = (thread.resolved_by or self.actor.user) if resolved else None
        return {"thread": self._thread(thread)}
