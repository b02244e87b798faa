"""From a request to its answer: what is checked of every request, who asks, which route it is."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from tests import github_server_check_routes as check_routes
from tests import github_server_identity as identity
from tests import github_server_pull_routes as pull_routes
from tests import github_server_review_routes as review_routes
from tests.github_server_calls import NOT_ACCESSIBLE, Answer, Call, Handler, Heeded, Refused, not_found
from tests.github_server_description import Match, find
from tests.github_server_graphql import GraphQL
from tests.github_server_identity import Identities
from tests.github_server_world import World

KNOWN_VERSIONS = frozenset({"2022-11-28", "2026-03-10"})
_ACCEPTED = frozenset(
    {
        "application/vnd.github+json",
        "application/vnd.github.v3+json",
        "application/vnd.github.raw+json",
        "application/vnd.github.v3.raw+json",
        "application/json",
    }
)
_DIFF_TYPES = frozenset({"application/vnd.github.diff", "application/vnd.github.v3.diff"})
_WITH_DIFF = ("/repos/{owner}/{repo}/pulls/{pull_number}", "/repos/{owner}/{repo}/compare/{basehead}")
_NO_USER_AGENT = (
    "Request forbidden by administrative rules. Please make sure your request has a User-Agent header "
    "(https://docs.github.com/en/rest/overview/resources-in-the-rest-api#user-agent-required). "
    "Check https://developer.github.com for other possible causes.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request off the wire. `raw_path` is still encoded."""

    method: str
    raw_path: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> Any:
        """The body as JSON, as text when it is none, None when there is no body."""
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return self.body.decode("utf-8", "replace")


class Desk:
    """Answers questions. `problems` are the mistakes of whoever asks, `failures` those of the server itself."""

    def __init__(self, world: World, identities: Identities, url: str) -> None:
        self.problems: list[str] = []
        self.failures: list[str] = []
        self.world = world
        self.identities = identities
        self.url = url
        self.graphql = GraphQL(world, self.problems, self.failures)
        self.handlers: dict[tuple[str, str], Handler] = {
            **pull_routes.HANDLERS,
            **review_routes.HANDLERS,
            **check_routes.HANDLERS,
            **identity.routes(identities),
        }

    def raise_failures(self) -> None:
        """Raises AssertionError when an answer was not one of GitHub's."""
        if self.failures:
            raise AssertionError("the GitHub server answered wrongly:\n" + "\n".join(self.failures))

    def answer(self, question: Question) -> Answer:
        """The answer to a question; what is wrong with it is kept in `problems`."""
        found: list[str] = []
        answer = self._answer(question, found)
        self.problems += [f"{question.method} {question.path}: {problem}" for problem in found]
        return answer

    def _answer(self, question: Question, found: list[str]) -> Answer:
        if not question.headers.get("user-agent"):
            found.append("no User-Agent")
            return Answer(403, _NO_USER_AGENT, media_type="text/html")
        version = question.headers.get("x-github-api-version")
        if version is not None and version not in KNOWN_VERSIONS:
            found.append(f"{version!r} is no known X-GitHub-Api-Version")
            return _refusal(Refused(400, f"The specified API version '{version}' is not supported"))
        try:
            actor = self.identities.actor(question.headers)
            if question.path == "/graphql":
                return self.graphql.answer(question.method, question.headers, question.body, actor)
            return self._route(question, found, actor)
        except Refused as refused:
            return _refusal(refused)

    def _route(self, question: Question, found: list[str], actor: Any) -> Answer:
        path = self._without_number(question.raw_path)
        match = find(question.method, path)
        if match is None:
            found.append("GitHub's description has no such path or method")
            raise not_found()
        accept = _accepted(question, match, found)
        handler = self.handlers.get((question.method, match.operation.template))
        if handler is None:
            found.append("GitHub has this, and the server in the tests does not: add a handler")
            raise Refused(501, "Not Implemented here")
        body = _body(question, found)
        found.extend(match.operation.query_problems(question.query))
        wrong = list(match.operation.body_problems(body))
        found.extend(wrong)
        if actor.kind == "jwt" and "/installation" not in path and path != "/app":
            raise Refused(403, NOT_ACCESSIBLE)
        if any(not problem.endswith("does not name") for problem in wrong):
            raise Refused(422, "Invalid request.\n\n" + "\n".join(wrong))
        call = Call(
            world=self.world,
            actor=actor,
            url=self.url,
            path=path,
            parameters=match.parameters,
            query=Heeded(_clean(_named(question.query, match.operation.query_parameters))),
            body=Heeded(_named(body, match.operation.body_names)) if isinstance(body, dict) else body,
            accept=accept,
        )
        return self._checked(handler, call, match)

    def _checked(self, handler: Handler, call: Call, match: Match) -> Answer:
        try:
            answer = handler(call)
        except Refused as refused:
            answer = _refusal(refused)
        wrong = list(match.operation.answer_problems(answer.status, answer.document, answer.media_type))
        if answer.status < 400:
            wrong += [f"{name!r} is not heeded here: see to it" for name in _unheeded(call)]
        self.failures += [f"{match.operation.method} {call.path}: {problem}" for problem in wrong]
        return answer

    def _without_number(self, path: str) -> str:
        """A path with a repository's name for its number: GitHub's links to pages have the number."""
        parts = path.split("/")
        if len(parts) > 2 and parts[1] == "repositories":
            for repo in self.world.repositories.values():
                if str(repo.id) == parts[2]:
                    return "/".join(["", "repos", repo.full_name, *parts[3:]])
        return path


def _named(values: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """What GitHub knows of it; over the rest it passes without a word."""
    return {name: value for name, value in values.items() if name in names}


def _unheeded(call: Call) -> list[str]:
    of_body = call.body.unheeded if isinstance(call.body, Heeded) else []
    return call.query.unheeded + of_body


def _clean(query: Mapping[str, str]) -> dict[str, str]:
    """A query whose numbers are numbers; GitHub passes over others."""
    return {
        name: value
        for name, value in query.items()
        if name not in ("page", "per_page") or (value.isdecimal() and int(value))
    }


def _refusal(refused: Refused) -> Answer:
    return Answer(refused.status, refused.document, refused.headers)


def _accepted(question: Question, match: Match, found: list[str]) -> str:
    """The media type that is asked for. Raises Refused with GitHub's 415."""
    accept = question.headers.get("accept", "")
    wanted = [part.partition(";")[0].strip() for part in accept.split(",")]
    allowed = _ACCEPTED | (_DIFF_TYPES if match.operation.template in _WITH_DIFF else frozenset())
    for each in wanted:
        if each in allowed:
            return each
    found.append(f"Accept is {accept!r}, not application/vnd.github+json or another of GitHub's")
    if "*/*" in wanted or not accept:
        return "application/json"
    raise Refused(415, f"Unsupported 'Accept' header: '{accept}'. Must accept 'application/json'.")


def _body(question: Question, found: list[str]) -> Any:
    """The body as JSON that everybody can read. Raises Refused with GitHub's 400."""
    if not question.body:
        return None
    if question.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        found.append(f"Content-Type is {question.headers.get('content-type')!r}, not application/json")
    try:
        document = json.loads(question.body.decode("utf-8"))
        json.dumps(document, ensure_ascii=False).encode("utf-8")
        return document
    except (ValueError, RecursionError) as error:
        found.append(f"the body is no JSON: {error}")
        raise Refused(400, "Problems parsing JSON") from error
