"""A GitHub server on loopback for tests: it keeps state, checks every request, and refuses what GitHub refuses.

    with github_server() as server:
        repo = server.repository("octo/demo")
        pull = repo.pull_request({"a.py": PATCH}, head="a" * 40)      # base=…, number=…, author=…, head_repository=…
        …                                                             # the program under test
        pull.push("c" * 40, {"a.py": OTHER_PATCH})

**Where**: `server.url` is the REST base, `server.url + "/graphql"` the GraphQL endpoint, `server.token` a good token.

**Who**: `github_server(identity="user")` is a person's token: `/user` works, check runs are refused with 403 ("You must
authenticate via a GitHub App."). `identity="actions"` is the token of a workflow: `/user` is refused with 403, check
runs work, it may not approve, and it resolves no thread until `server.permissions["contents"] = "write"`. An App:
`server.app_id`, `server.app_private_key`, `server.installation_id`; its JWT is verified, its tokens come from
`/app/installations/{id}/access_tokens` and end with `server.expire_installation_tokens()`.

**State to set**: `repo.collaborator(login, "write")`, `repo.private`, `repo.clone_url`, `repo.actions_may_approve`,
`repo.has_app`, `pull.title`, `pull.body`, `pull.draft`, `pull.locked`, `pull.state`, `pull.merge_commit`;
`pull.push(head, files, base=…, force=False)`; `pull.comment_by(login, body, association="MEMBER", in_reply_to=comment)`
(a reply, a comment on the whole, or with `path` and `line` a new thread), `pull.react_by(login, comment, "-1")`,
`pull.edit_by(login, comment, body)`, `pull.resolve_by(login, thread)`. `ghost` is a deleted user: GraphQL gives no
author for them. `files` maps a path to its patch, as GitHub's list of files has it (hunks only), or to None for a
binary file, or to a `ChangedFile` (`status="renamed"`, `previous_path=…`).

**State to look at**: `pull.issue_comments`, `pull.reviews` (`.state`, `.body`, `.comments`), `pull.threads`
(`.is_resolved`, `.is_outdated`, `.resolved_by`, `.place`, `.original`, `.comments`), `pull.review_comments`,
`repo.check_runs`, `repo.statuses`; comments have `.user.login`, `.body`, `.reactions`, `.minimized`.

**Requests**: `server.requests` are all of them, in order, with `method`, `path`, `query`, `headers`, `body`, `status`
(None when the line was cut) and `at_seconds`; `server.count("POST", "/repos/**/reviews")` counts;
`server.max_concurrent` is the most at one time; `server.unmet_faults` are the faults that no request met.

**Problems**: `server.problems` are the violations: a path, query parameter or body that is not GitHub's, a missing or
wrong Accept or User-Agent, an unknown API version, GraphQL that does not validate. They are raised at the end of the
block; with `github_server(strict=False)` they are only kept.

**Faults**: `server.fail(method, path, status=502, headers={…}, body=…, times=1, after=False, cut=False,
delay_seconds=0, contains="")`; in `path`, `*` is one part and `**` any number; `contains` is looked for in the body,
for one GraphQL mutation. With `after=True` the work is done and its answer lost. `server.heal()` ends all faults.
Ready-made: `server.bad_gateway`, `server.secondary_rate_limit(…, status=403 or 429, retry_after=…)`,
`server.primary_rate_limit(…, reset_in_seconds=…)`, `server.graphql_rate_limit(contains=…)`,
`server.cut_connection(…, after=True)`, `server.slow_answer(…, seconds)`. `server.before(method, path, action)` runs an
action of yours once, before a request is answered: a push, for a head that moves in the middle.
`server.world.short_words = True` lets it refuse lines in GitHub's newer, shorter words.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

from codeloupe.testing.http import Connections, HttpRequest, send_whole
from tests import github_server_faults as faults
from tests.github_server_answering import Desk, Question
from tests.github_server_calls import Answer
from tests.github_server_identity import Identities, Identity
from tests.github_server_patches import ChangedFile
from tests.github_server_world import Repository, World

__all__ = ["ChangedFile", "GitHubServer", "RecordedCall", "github_server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One request and the status of its answer: None when the line was cut instead."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    status: int | None
    at_seconds: float


@dataclass(slots=True)
class _Hook:
    fault: faults.Fault
    action: Callable[[], object]


class GitHubServer:
    """The server; see the module. `github_server` starts and ends one."""

    def __init__(self, identity: Identity = "user") -> None:
        self.world = World()
        self.identities = Identities(self.world, identity)
        self._requests: list[RecordedCall] = []
        self._faults: list[faults.Fault] = []
        self._hooks: list[_Hook] = []
        self._port = 0
        self._connections: Connections | None = None
        self._desk: Desk | None = None
        self._open = 0
        self.max_concurrent = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def token(self) -> str:
        return self.identities.token

    @property
    def permissions(self) -> dict[str, str]:
        """What integrations may do; a test may change it."""
        return self.identities.permissions

    @property
    def app_id(self) -> int:
        return self.identities.app_id

    @property
    def installation_id(self) -> int:
        return self.identities.installation_id

    @property
    def app_private_key(self) -> str:
        return self.identities.app_private_key

    @property
    def login(self) -> str:
        """The login that the token's comments carry in REST."""
        return self.identities.user.login

    @property
    def requests(self) -> tuple[RecordedCall, ...]:
        """Every request so far."""
        with self.world.lock:
            return tuple(self._requests)

    @property
    def problems(self) -> tuple[str, ...]:
        """Every violation so far."""
        with self.world.lock:
            return tuple(self.desk.problems)

    @property
    def desk(self) -> Desk:
        if self._desk is None:
            raise RuntimeError("the server is not started")
        return self._desk

    def expire_installation_tokens(self) -> None:
        """Let the tokens of the App run out."""
        self.identities.expire()

    def repository(self, full_name: str) -> Repository:
        """A repository, made when it is not there; the token's user may write to it."""
        repo = self.world.repository(full_name)
        if not self.identities.user.is_bot:
            repo.collaborators.setdefault(self.identities.user.login, "write")
        return repo

    def count(self, method: str, path: str) -> int:
        """How many requests came with a method to a path; `*` is one part and `**` any number."""
        pattern = faults.path_pattern(path)
        return sum(method in ("*", each.method) and bool(pattern.fullmatch(each.path)) for each in self.requests)

    def fail(
        self,
        method: str,
        path: str,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        times: int = 1,
        after: bool = False,
        cut: bool = False,
        delay_seconds: float = 0.0,
        contains: str = "",
    ) -> None:
        """Let the next requests go wrong; with `after` their work is done all the same."""
        fault = faults.Fault(
            method=method,
            pattern=faults.path_pattern(path),
            contains=contains,
            status=status,
            headers=headers or {},
            body=body,
            times=times,
            after=after,
            cut=cut,
            delay_seconds=delay_seconds,
        )
        with self.world.lock:
            self._faults.append(fault)

    def heal(self) -> None:
        """Forget every fault and action that is still to come."""
        with self.world.lock:
            self._faults.clear()
            self._hooks.clear()

    @property
    def unmet_faults(self) -> list[faults.Fault]:
        """The faults that no request met: a test that means them proves nothing."""
        with self.world.lock:
            return [fault for fault in self._faults if not fault.met]

    def bad_gateway(self, method: str, path: str, *, times: int = 1, after: bool = False) -> None:
        """A 502 with a page, not a document."""
        page, headers = faults.BAD_GATEWAY_PAGE, {"content-type": "text/html"}
        self.fail(method, path, status=502, headers=headers, body=page, times=times, after=after)

    def secondary_rate_limit(
        self, method: str, path: str, *, status: int = 403, retry_after: int | None = None, times: int = 1
    ) -> None:
        """Too much at once: by its status alone it cannot be told from a missing permission."""
        headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        self.fail(method, path, status=status, headers=headers, body=faults.secondary_limit(), times=times)

    def primary_rate_limit(
        self, method: str, path: str, *, reset_in_seconds: float, status: int = 403, times: int = 1
    ) -> None:
        """Nothing left until the reset."""
        headers, body = faults.primary_limit(reset_in_seconds)
        self.fail(method, path, status=status, headers=headers, body=body, times=times)

    def graphql_rate_limit(
        self, *, contains: str = "", reset_in_seconds: float = 1.0, kind: str = "RATE_LIMIT", times: int = 1
    ) -> None:
        """Nothing left for GraphQL: said with a 200; `kind` is the error's type."""
        headers, _ = faults.primary_limit(reset_in_seconds)
        body = faults.graphql_limit(kind)
        self.fail("POST", "/graphql", status=200, headers=headers, body=body, times=times, contains=contains)

    def cut_connection(self, method: str, path: str, *, times: int = 1, after: bool = False) -> None:
        """The line goes dead without an answer."""
        self.fail(method, path, cut=True, times=times, after=after)

    def slow_answer(self, method: str, path: str, seconds: float, *, times: int = 1) -> None:
        """The right answer, late."""
        self.fail(method, path, delay_seconds=seconds, times=times, after=True)

    def before(self, method: str, path: str, action: Callable[[], object], *, contains: str = "") -> None:
        """Run an action once, before the next request that fits is looked at."""
        fault = faults.Fault(method=method, pattern=faults.path_pattern(path), contains=contains)
        with self.world.lock:
            self._hooks.append(_Hook(fault, action))

    def start(self) -> None:
        """Listen on a free port."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._port = listener.getsockname()[1]
        self._desk = Desk(self.world, self.identities, self.url)
        self._connections = Connections(listener, self._answer)

    def stop(self) -> None:
        """Close everything. Raises what went wrong inside the server itself."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.stop()
            if connections.problem is not None:
                raise connections.problem

    def closing_words(self) -> list[str]:
        """Close everything; all that went wrong, in words: for a test that failed already."""
        try:
            self.stop()
        except Exception as error:  # noqa: BLE001 - told beside the failure of the test, which comes first
            return [repr(error), *self.desk.failures, *self.problems]
        return [*self.desk.failures, *self.problems]

    async def _answer(self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        self._open += 1
        self.max_concurrent = max(self.max_concurrent, self._open)
        try:
            return await self._answer_one(request, writer)
        finally:
            self._open -= 1

    async def _answer_one(self, request: HttpRequest, writer: asyncio.StreamWriter) -> bool:
        at_seconds = time.monotonic()
        question = _question(request)
        with self.world.lock:
            text = request.body.decode("utf-8", "replace")
            self._run_hooks(question, text)
            fault = self._next_fault(question, text)
            replaced = fault is not None and (fault.cut or fault.status is not None)
            answer = self.desk.answer(question) if fault is None or fault.after or not replaced else Answer(0)
            if fault is not None and replaced:
                answer = _faulty(fault)
            status = None if fault is not None and fault.cut else answer.status
            self._requests.append(_record(question, status, at_seconds))
        if fault is not None and fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if status is None:
            return False
        _send(writer, answer, with_body=request.method != "HEAD")
        await writer.drain()
        return True

    def _run_hooks(self, question: Question, text: str) -> None:
        for hook in [each for each in self._hooks if each.fault.fits(question.method, question.path, text)]:
            self._hooks.remove(hook)
            hook.action()

    def _next_fault(self, question: Question, text: str) -> faults.Fault | None:
        for fault in self._faults:
            if fault.fits(question.method, question.path, text):
                fault.times -= 1
                fault.met += 1
                return fault
        return None


def _question(request: HttpRequest) -> Question:
    path, _, query = request.target.partition("?")
    return Question(
        method=request.method,
        raw_path=path,
        path=unquote(path),
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers=request.headers,
        body=request.body,
    )


def _record(question: Question, status: int | None, at_seconds: float) -> RecordedCall:
    return RecordedCall(
        method=question.method,
        path=question.path,
        query=question.query,
        headers=question.headers,
        body=question.document(),
        status=status,
        at_seconds=at_seconds,
    )


def _faulty(fault: faults.Fault) -> Answer:
    body = {"message": "Server Error"} if fault.body is None else fault.body
    headers = {name.lower(): value for name, value in fault.headers.items()}
    media_type = headers.pop("content-type", "application/json")
    return Answer(fault.status or 0, body, headers, media_type)


def _send(writer: asyncio.StreamWriter, answer: Answer, *, with_body: bool) -> None:
    headers = {
        "x-github-request-id": "0000:000000:0000000:0000000:00000000",
        "x-ratelimit-limit": "5000",
        "x-ratelimit-remaining": "4999",
        "x-ratelimit-used": "1",
        "x-ratelimit-reset": str(int(time.time()) + 3600),
        "x-ratelimit-resource": "core",
        **answer.headers,
    }
    body = b""
    if answer.document is not None and with_body:
        text = answer.document if isinstance(answer.document, str) else json.dumps(answer.document)
        body = text.encode("utf-8", "surrogateescape")
    send_whole(writer, body, code=answer.status, headers=headers, content_type=f"{answer.media_type}; charset=utf-8")


@contextmanager
def github_server(*, identity: Identity = "user", strict: bool = True) -> Iterator[GitHubServer]:
    """A running server. Raises AssertionError at the end when requests were wrong, unless it is not strict."""
    server = GitHubServer(identity)
    server.start()
    try:
        yield server
    except BaseException as error:
        for problem in server.closing_words():
            error.add_note(f"the GitHub server: {problem}")
        raise
    server.stop()
    server.desk.raise_failures()
    if strict and server.problems:
        raise AssertionError("wrong requests came to the GitHub server:\n" + "\n".join(server.problems))
