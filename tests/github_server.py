"""A GitHub server on loopback for tests: it keeps state, checks every request, and refuses what GitHub refuses.

    with github_server() as server:
        pull = server.repository("octo/demo").pull_request({"a.py": PATCH}, head="a" * 40)
        …                                                             # the program under test
        pull.push("c" * 40, {"a.py": OTHER_PATCH})

It knows what publishing a review calls. `server.url` is the REST base, `server.url + "/graphql"` the GraphQL endpoint,
`server.token` a good token: a person's, or with `identity="actions"` that of a workflow, which makes check runs, may
not approve, and resolves no thread until `server.permissions["contents"] = "write"`. An App has `server.app_id` and
`server.app_private_key`. `tests/github_server_world.py` has the state: what to set up, and what to look at afterwards.

Requests that are not as GitHub's published description says fail the test at the end of the block. What goes wrong is
said by `server.fail` and what is built on it; in a path, `*` is one part and `**` any number.
"""

import asyncio
import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from codeloupe.testing.http import Connections, HttpRequest, response
from tests import github_server_graph as graphql
from tests.github_server_description import answer_problems, request_problems
from tests.github_server_rest import HANDLERS, Answer, Call, Identities, Identity, Refused, find
from tests.github_server_world import Repository, World

_VERSION = "2022-11-28"
_SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."


@dataclass(kw_only=True)
class Fault:
    """What happens at a request: an action, and an answer in place of the right one, or none at all with `cut`."""

    method: str
    pattern: re.Pattern[str]
    action: Callable[[], object] | None = None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    times: int = 1
    after: bool = False
    cut: bool = False
    delay_seconds: float = 0.0

    def fits(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in ("*", method) and bool(self.pattern.fullmatch(path))


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*|\*)", path)
    return re.compile("".join({"**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in parts))


class GitHubServer:
    """The server; see the module. `github_server` starts and ends one."""

    def __init__(self, identity: Identity = "user") -> None:
        self.world = World()
        self.identities = Identities(self.world, identity)
        self.permissions = self.identities.permissions
        self.token = self.identities.token
        self.app_id = self.identities.app_id
        self.problems: list[str] = []
        self.max_concurrent = 0
        # The method and the path of every request.
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self._open = 0
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._connections = Connections(listener, self._answer)

    @property
    def app_private_key(self) -> str:
        return self.identities.app_private_key

    def repository(self, full_name: str) -> Repository:
        """A repository, made when it is not there; the token's user may write to it."""
        repo = self.world.repository(full_name)
        if not self.identities.actor.is_integration:
            repo.collaborators.setdefault(self.identities.actor.user.login, "write")
        return repo

    def count(self, method: str, path: str) -> int:
        """How many requests came with a method to a path; `*` is one part and `**` any number."""
        pattern = _pattern(path)
        return sum(method in ("*", named) and bool(pattern.fullmatch(where)) for named, where in self.requests)

    def fail(self, method: str, path: str, **what: Any) -> None:
        """Let the next requests go wrong as a `Fault` says; with `after` their work is done all the same."""
        with self.world.lock:
            self.faults.append(Fault(method=method, pattern=_pattern(path), **what))

    def before(self, method: str, path: str, action: Callable[[], object]) -> None:
        """Run an action once, before the next request that fits is looked at."""
        self.fail(method, path, action=action, after=True)

    def bad_gateway(self, method: str, path: str, *, times: int = 1, after: bool = False) -> None:
        page, headers = "<html><body><h1>502 Bad Gateway</h1></body></html>", {"content-type": "text/html"}
        self.fail(method, path, status=502, headers=headers, body=page, times=times, after=after)

    def secondary_rate_limit(
        self, method: str, path: str, *, status: int = 403, retry_after: int | None = None, times: int = 1
    ) -> None:
        """Too much at once: by its status alone it cannot be told from a missing permission."""
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        self.fail(method, path, status=status, headers=headers, body={"message": _SECONDARY}, times=times)

    def primary_rate_limit(self, method: str, path: str, *, reset_in_seconds: float) -> None:
        reset = str(int(time.time() + reset_in_seconds + 0.999))
        headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}
        self.fail(method, path, status=403, headers=headers, body={"message": "API rate limit exceeded for user."})

    def cut_connection(self, method: str, path: str, *, times: int = 1, after: bool = False) -> None:
        self.fail(method, path, cut=True, times=times, after=after)

    def slow_answer(self, method: str, path: str, seconds: float, *, times: int = 1) -> None:
        self.fail(method, path, delay_seconds=seconds, times=times, after=True)

    def stop(self) -> None:
        """Close everything. Raises what went wrong inside the server itself."""
        self._connections.stop()
        if self._connections.problem is not None:
            raise self._connections.problem

    async def _answer(self, request: HttpRequest, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self._open += 1
        self.max_concurrent = max(self.max_concurrent, self._open)
        try:
            path = unquote(request.target.partition("?")[0])
            with self.world.lock:
                self.requests.append((request.method, path))
                fault = self._next_fault(request.method, path)
                answer = self._answer_to(request, fault)
            if fault is not None and fault.delay_seconds:
                await asyncio.sleep(fault.delay_seconds)
            if answer is not None:
                _send(writer, answer)
                await writer.drain()
            return answer is not None
        finally:
            self._open -= 1

    def _next_fault(self, method: str, path: str) -> Fault | None:
        found = [fault for fault in self.faults if fault.fits(method, path)]
        actions = [fault for fault in found if fault.action is not None]
        for fault in (*actions, *[fault for fault in found if fault.action is None][:1]):
            fault.times -= 1
            if fault.action is not None:
                fault.action()
        return next((fault for fault in found if fault.action is None), None)

    def _answer_to(self, request: HttpRequest, fault: Fault | None) -> Answer | None:
        replaced = fault is not None and (fault.cut or fault.status is not None)
        answer = self._right_answer(request) if fault is None or fault.after or not replaced else None
        if fault is None or not replaced:
            return answer
        if fault.cut:
            return None
        headers = dict(fault.headers)
        media_type = headers.pop("content-type", "application/json")
        return Answer(fault.status or 0, {} if fault.body is None else fault.body, headers, media_type)

    def _right_answer(self, request: HttpRequest) -> Answer:
        path, _, query = request.target.partition("?")
        found: list[str] = []
        try:
            return self._routed(request, path, dict(parse_qsl(query, keep_blank_values=True)), found)
        except Refused as refused:
            return Answer(refused.status, refused.document, refused.headers)
        finally:
            self.problems += [f"{request.method} {unquote(path)}: {problem}" for problem in found]

    def _routed(self, request: HttpRequest, path: str, query: Mapping[str, str], found: list[str]) -> Answer:
        accepted = request.headers.get("accept", "").partition(";")[0]
        if not request.headers.get("user-agent") or not accepted.startswith("application/"):
            found.append("no User-Agent, or Accept is not application/vnd.github+json")
        if request.headers.get("x-github-api-version", _VERSION) != _VERSION:
            found.append(f"{request.headers['x-github-api-version']!r} is no known X-GitHub-Api-Version")
        body = json.loads(request.body) if request.body else None
        actor = self.identities.of(request.headers)
        if path == "/graphql":
            return Answer(200, graphql.answer(self.world, actor, body, found))
        route = find(request.method, path)
        if route is None:
            found.append("GitHub has no such path or method, or the server in the tests does not: add a handler")
            raise Refused(404, "Not Found")
        template, parameters = route
        if wrong := list(request_problems(request.method, template, query, body)):
            found += wrong
            raise Refused(422, "Invalid request.\n\n" + "\n".join(wrong))
        call = Call(
            world=self.world,
            identities=self.identities,
            actor=actor,
            url=self.url,
            path=path,
            parameters={name: unquote(value) for name, value in parameters.items()},
            query=query,
            body=body,
        )
        answer = HANDLERS[request.method, template](call)
        found += answer_problems(request.method, template, answer.status, answer.document)
        return answer


def _send(writer: asyncio.StreamWriter, answer: Answer) -> None:
    limits = {"x-ratelimit-limit": "5000", "x-ratelimit-remaining": "4999"}
    headers = {**limits, "x-ratelimit-reset": str(int(time.time()) + 3600), **answer.headers}
    text = answer.document if isinstance(answer.document, str) else json.dumps(answer.document)
    body = b"" if answer.document is None else text.encode("utf-8", "surrogateescape")
    kind = f"{answer.media_type}; charset=utf-8"
    writer.write(response(body, code=answer.status, headers=headers, content_type=kind))


@contextmanager
def github_server(*, identity: Identity = "user") -> Iterator[GitHubServer]:
    """A running server. Raises AssertionError at the end when requests were wrong."""
    server = GitHubServer(identity)
    try:
        yield server
    except BaseException as error:
        for problem in server.problems:
            error.add_note(f"the GitHub server: {problem}")
        server.stop()
        raise
    server.stop()
    if server.problems:
        raise AssertionError("wrong requests came to the GitHub server:\n" + "\n".join(server.problems))
