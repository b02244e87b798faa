"""The GraphQL endpoint: documents are validated against GitHub's own schema and executed on the server's state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from graphql import (
    DocumentNode,
    GraphQLError,
    GraphQLResolveInfo,
    GraphQLSchema,
    build_client_schema,
    execute_sync,
    parse,
    validate,
)

from tests.github_server_calls import Actor, Answer, Refused
from tests.github_server_graph import Graph
from tests.github_server_graph_pages import NotKnown
from tests.github_server_world import World

_FILE = Path(__file__).parent.parent / ".cache/agents/node_modules/@octokit/graphql-schema/schema.json"


@cache
def schema() -> GraphQLSchema:
    """GitHub's schema, read once for a process. Fails the test in words when it is not installed."""
    if not _FILE.is_file():
        raise AssertionError("GitHub's GraphQL schema is missing: run `make test`, which installs it")
    return build_client_schema(json.loads(_FILE.read_bytes()), assume_valid=True)


class GraphQL:
    """Answers GraphQL. `problems` gets what is wrong with a document, `failures` what the server cannot answer."""

    def __init__(self, world: World, problems: list[str], failures: list[str]) -> None:
        self.world = world
        self.problems = problems
        self.failures = failures

    def answer(self, method: str, headers: Mapping[str, str], body: bytes, actor: Actor) -> Answer:
        """The answer to one request. Raises Refused."""
        if method != "POST":
            self.problems.append(f"{method} /graphql: only POST is known here")
            raise Refused(404, "Not Found")
        if actor.kind == "jwt":
            raise Refused(403, "Resource not accessible by integration")
        request = self._request(body)
        document = self._document(request["query"])
        if isinstance(document, list):
            return Answer(200, {"errors": [_formatted(error) for error in document]})
        result = execute_sync(
            schema(),
            document,
            root_value=Graph(self.world, actor).root(),
            variable_values=request.get("variables") or {},
            operation_name=request.get("operationName"),
            field_resolver=self._resolve,
        )
        for error in result.errors or ():
            if error.path is None:  # neither a variable nor an operation name was as the document says
                self._problem(error.message)
        answer: dict[str, Any] = {"data": result.data}
        if result.errors:
            answer["errors"] = [_formatted(error) for error in result.errors]
        return Answer(200, answer)

    def _problem(self, message: str) -> None:
        self.problems.append(f"POST /graphql: {message}")

    def _request(self, body: bytes) -> dict[str, Any]:
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            self._problem(f"the body is no JSON: {error}")
            raise Refused(400, "Problems parsing JSON") from error
        if not isinstance(request, dict) or not isinstance(request.get("query"), str):
            self._problem("the body has no query")
            raise Refused(400, "A query attribute must be specified and must be a string.")
        for name in request.keys() - {"query", "variables", "operationName"}:
            self._problem(f"the body has a field {name!r} that GraphQL does not know")
        return request

    def _document(self, query: str) -> DocumentNode | list[GraphQLError]:
        try:
            document = parse(query)
        except GraphQLError as error:
            self._problem(error.message)
            return [error]
        found = list(validate(schema(), document))
        for each in found:
            self._problem(each.message)
        return found or document

    def _resolve(self, source: Any, info: GraphQLResolveInfo[Any], **arguments: Any) -> Any:
        if info.field_name not in source:
            raise self._lacking(f"{info.parent_type.name}.{info.field_name}")
        value = source[info.field_name]
        try:
            return value(info, **arguments) if callable(value) else value
        except NotKnown as error:
            raise self._lacking(str(error)) from error

    def _lacking(self, what: str) -> GraphQLError:
        self.failures.append(f"GraphQL: {what} is not known here: add it")
        return GraphQLError(f"the server in the tests has no {what}")


def _formatted(error: GraphQLError) -> dict[str, Any]:
    """An error as GitHub gives it: its type stands beside the message."""
    formatted: dict[str, Any] = dict(error.formatted)
    kind = (error.extensions or {}).get("type")
    if kind is not None:
        formatted.pop("extensions")
        formatted = {"type": kind, **formatted}
    return formatted
