"""The GraphQL endpoint of the GitHub server: documents are validated against GitHub's own schema."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphql import GraphQLError, GraphQLSchema, build_client_schema, execute_sync, parse, validate

from tests.github_server_world import Comment, PullRequest, Review, Thread, User, World

if TYPE_CHECKING:
    from tests.github_server_rest import Actor

_FILE = Path(__file__).parent.parent / ".cache/agents/node_modules/@octokit/graphql-schema/schema.json"


@cache
def schema() -> GraphQLSchema:
    """GitHub's schema, read once for a process. Fails the test when it is not installed."""
    if not _FILE.is_file():
        raise AssertionError("GitHub's GraphQL schema is missing: run `make test`, which installs it")
    return build_client_schema(json.loads(_FILE.read_bytes()), assume_valid=True)


def _node_id(thread: Thread) -> str:
    return base64.urlsafe_b64encode(f"Thread{thread.id}".encode()).decode().rstrip("=")


def _failed(kind: str, message: str) -> GraphQLError:
    return GraphQLError(message, extensions={"type": kind})


def answer(world: World, actor: Actor, request: Any, problems: list[str]) -> dict[str, Any]:
    """The answer to one request; what is wrong with the request is added to the problems."""
    document = parse(request["query"])
    if wrong := validate(schema(), document):
        problems += [error.message for error in wrong]
        return {"errors": [_formatted(error) for error in wrong]}
    result = execute_sync(
        schema(),
        document,
        root_value=Graph(world, actor).root(),
        variable_values=request.get("variables") or {},
        operation_name=request.get("operationName"),
        field_resolver=_resolve,
    )
    errors = result.errors or []
    # Neither a variable nor a field was as the document, or this server, knows it.
    problems += [each.message for each in errors if "type" not in (each.extensions or {})]
    return {"data": result.data, **({"errors": [_formatted(error) for error in errors]} if errors else {})}


def _resolve(source: Any, info: Any, **arguments: Any) -> Any:
    if info.field_name not in source:
        raise GraphQLError(f"{info.parent_type.name}.{info.field_name} is not known here: add it")
    value = source[info.field_name]
    return value(**arguments) if callable(value) else value


def _formatted(error: GraphQLError) -> dict[str, Any]:
    formatted: dict[str, Any] = dict(error.formatted)
    return {**formatted.pop("extensions", {}), **formatted}


def _connection(items: Sequence[Any], render: Callable[[Any], Any]) -> Callable[..., Any]:
    """A list in pages, as GitHub gives it: how many are wanted must be said, and is 100 at most."""

    def page(first: int | None = None, after: str | None = None) -> dict[str, Any]:
        if first is None or not 0 <= first <= 100:
            raise _failed("EXCESSIVE_PAGINATION", "You must provide a `first` value of at most 100 records.")
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
        return {
            "viewer": {"login": self.actor.user.login},
            "repository": self._repository,
            "node": lambda id: self._thread(self._find(id)[1]),  # noqa: A006 - the schema's name
            "resolveReviewThread": lambda input: self._resolve(input, resolved=True),  # noqa: A006 - as above
            "unresolveReviewThread": lambda input: self._resolve(input, resolved=False),  # noqa: A006 - as above
        }

    def _repository(self, owner: str, name: str, **_defaults: Any) -> dict[str, Any]:
        repo = self.world.repositories.get(f"{owner}/{name}".lower())
        if repo is None:
            raise _failed("NOT_FOUND", f"Could not resolve to a Repository with the name '{owner}/{name}'.")
        return {"pullRequest": lambda number: self._pull(repo.pulls[number])}

    def _pull(self, pull: PullRequest) -> dict[str, Any]:
        def reviews(states: list[str], **paging: Any) -> Any:
            return _connection([each for each in pull.reviews if each.state in states], self._review)(**paging)

        address = f"https://github.com/{pull.repository.full_name}/pull/{pull.number}"
        return {
            "reviewThreads": _connection(pull.threads, self._thread),
            "comments": _connection(
                pull.issue_comments, lambda each: {**self._comment(each), "url": f"{address}#issuecomment-{each.id}"}
            ),
            "reviews": reviews,
        }

    def _is_own(self, user: User) -> bool:
        return user == self.actor.user

    def _author(self, user: User) -> dict[str, Any]:
        author = {"__typename": "Bot" if user.is_bot else "User", "login": user.login.removesuffix("[bot]")}
        return {"author": author, "viewerDidAuthor": self._is_own(user)}

    def _thread(self, thread: Thread) -> dict[str, Any]:
        return {
            "__typename": "PullRequestReviewThread",
            "id": _node_id(thread),
            "path": thread.path,
            "isResolved": thread.is_resolved,
            "comments": _connection(thread.comments, self._comment),
        }

    def _comment(self, comment: Comment) -> dict[str, Any]:
        def reactions(content: str, **paging: Any) -> Any:
            assert content == "THUMBS_DOWN"
            logins = [login for login, given in comment.reactions if given == "-1"]
            return _connection(logins, lambda login: {"user": {"login": login}})(**paging)

        about = {"fullDatabaseId": str(comment.id), "body": comment.body, "authorAssociation": comment.association}
        return {**about, **self._author(comment.user), "reactions": reactions}

    def _review(self, review: Review) -> dict[str, Any]:
        about = {"fullDatabaseId": str(review.id), "state": review.state, "commit": {"oid": review.commit}}
        return {**about, **self._author(review.user)}

    def _find(self, wanted: str) -> tuple[PullRequest, Thread]:
        for pull in self.world.pulls():
            for thread in pull.threads:
                if wanted == _node_id(thread):
                    return pull, thread
        raise _failed("NOT_FOUND", f"Could not resolve to a node with the global id of '{wanted}'")

    def _resolve(self, given: dict[str, Any], *, resolved: bool) -> dict[str, Any]:
        pull, thread = self._find(given["threadId"])
        if not self.actor.may_resolve(pull):
            raise _failed("FORBIDDEN", "Resource not accessible by integration")
        thread.is_resolved = resolved
        return {"thread": self._thread(thread)}
