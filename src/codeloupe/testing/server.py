"""The stand-in model server: a loopback server that speaks the vendors' APIs and does what a script says."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Literal, Self

from msgspec import Struct

from codeloupe.errors import UsageError
from codeloupe.model.agent import TokenUsage
from codeloupe.testing import replies
from codeloupe.testing.apis import (
    Answer,
    Api,
    RecordedRequest,
    api_for,
    bland_reply,
    record_of,
    side_answer,
    strings_in,
)
from codeloupe.testing.http import EVENTS, JSON, Connections, HttpRequest, response
from codeloupe.testing.replies import Answered, Reply, Script, Status, Text

# Tools by which a client asks for structured output: of the claude program and its SDK, and of pydantic-ai.
_STRUCTURED_TOOLS = ("StructuredOutput", "final_result")


class StandInServer:
    """A model server on 127.0.0.1 that answers by a script and records what it is asked.

    Use it in a `with` block, or call `start` and `stop`; everything here may be used from any thread.

    `script` is taken in order, one reply for each request to a model; then the last one repeats, or with
    `then="error"` an error 400 says that nothing is left. `reply` is a function of the request instead of a script;
    it runs on the server's own thread, so it must not block, and what it raises is raised at the end of the block.
    `usage` are the numbers of tokens for every reply that brings none of its own. `on_request` sees every request
    as it comes, on the server's thread. `port` 0 takes a free one. Raises UsageError for a port that cannot be.

    `open_requests` that are not auxiliary are open now, not answered and their client still there; at most
    `max_concurrent` were at the same time.
    """

    def __init__(
        self,
        script: Iterable[Reply] = (),
        *,
        reply: Callable[[RecordedRequest], Reply] | None = None,
        then: Literal["repeat", "error"] = "repeat",
        usage: TokenUsage = TokenUsage(input_tokens=100, output_tokens=20),  # noqa: B008 - it is frozen
        on_request: Callable[[RecordedRequest], None] | None = None,
        port: int = 0,
    ) -> None:
        if not 0 <= port <= 65535:
            raise UsageError(f"{port} is not a port", hint="Use a port up to 65535, or 0 for a free one.")
        last: Reply = Text("This is the stand-in server.")
        if then == "error":
            last = Status(400, "The script of the stand-in server has no reply left for this request.")
        self._script = Script[Reply](script, last=last, repeats=then == "repeat")
        self._reply = reply
        self._usage = usage
        self._on_request = on_request
        self._port = port
        self._arrived = threading.Condition()
        self._requests: list[RecordedRequest] = []
        self._numbers = itertools.count(1)
        self.open_requests = self.max_concurrent = 0
        self._connections: Connections | None = None
        self._problem: Exception | None = None

    @property
    def url(self) -> str:
        """The base, without a slash at its end; a path that is added to it is let through, and recorded."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> tuple[RecordedRequest, ...]:
        """Every request so far, in order of arrival."""
        with self._arrived:
            return tuple(self._requests)

    def count(self, path_prefix: str = "", *, auxiliary: bool | None = None) -> int:
        """How many requests came to paths with this prefix: all, or only those that are auxiliary or are not."""
        prefixed = (request for request in self.requests if request.path.startswith(path_prefix))
        return sum(auxiliary in (None, request.auxiliary) for request in prefixed)

    def wait_for(self, count: int = 1, *, timeout_seconds: float = 10.0) -> bool:
        """Wait until so many requests that are not auxiliary came; False when the time ran out first."""
        with self._arrived:
            return self._arrived.wait_for(lambda: self.count(auxiliary=False) >= count, timeout_seconds)

    def extend(self, *replies: Reply) -> None:
        """Add replies to the end of the script."""
        self._script.steps.extend(replies)

    def clear(self) -> None:
        """Forget the requests so far."""
        with self._arrived:
            self._requests.clear()

    def start(self) -> Self:
        """Listen. Raises OSError when the port is taken."""
        listener = socket.create_server(("127.0.0.1", self._port), backlog=1024)
        self._port = listener.getsockname()[1]
        self._connections = Connections(listener, self._answer)
        return self

    def stop(self) -> None:
        """Close everything, hanging answers too. Raises what the reply function raised, the first of it."""
        connections, self._connections = self._connections, None
        if connections is None:
            return
        connections.stop()
        if problem := self._problem or connections.problem:
            self._problem = None
            raise problem

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self.stop()
        except Exception as problem:  # what failed inside the block comes first, with a note of this
            if error is None:
                raise
            error.add_note(f"the stand-in server failed too: {problem!r}")

    async def _answer(self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        api = api_for(request.method, request.target.partition("?")[0])
        record = record_of(request, api="" if api is None else api.name)
        # It is counted already when somebody who waits for it wakes.
        self.open_requests += not record.auxiliary
        self.max_concurrent = max(self.max_concurrent, self.open_requests)
        try:
            with self._arrived:
                self._requests.append(record)
                self._arrived.notify_all()
            if self._on_request is not None:
                self._on_request(record)
            if api is None:
                code, document = side_answer(record)
                writer.write(response(b"" if request.method == "HEAD" else json.dumps(document).encode(), code=code))
                return True
            exchange = _Exchange(api, record, next(self._numbers), self._usage, reader, writer)
            return await exchange.deliver(self._choose(record))
        finally:
            self.open_requests -= not record.auxiliary

    def _choose(self, request: RecordedRequest) -> Reply:
        if not isinstance(request.body, dict):
            return Status(400, "The body of the request is not a JSON object.")
        if request.auxiliary:
            return bland_reply(request)
        try:
            return replies.checked(self._script.next_step() if self._reply is None else self._reply(request))
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises is raised again by `stop`
            self._problem = self._problem or error
            return Status(400, f"The stand-in server has no reply: {error!r}")


class _Exchange(Struct, frozen=True):
    """A request and the connection on which its answer goes back."""

    api: Api
    request: RecordedRequest
    number: int
    usage: TokenUsage
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def deliver(self, reply: Reply) -> bool:
        """Send a reply; False when the connection is to be closed. Raises what the connection raises."""
        while isinstance(reply, replies.Delay):
            await asyncio.sleep(reply.seconds)
            reply = reply.then
        self.writer.write(self._bytes(reply))
        if isinstance(reply, replies.Hang | replies.Stall):
            while await self.reader.read(65536):
                pass  # until the client gives up
        if isinstance(reply, replies.Hang | replies.Stall | replies.Cut):
            return False
        await self.writer.drain()
        return True

    def _bytes(self, reply: replies.Immediate) -> bytes:
        """What is sent of a reply."""
        match reply:
            case replies.Hang() | replies.Cut(after_bytes=0):
                return b""
            case replies.Stall():
                begun, rest = self._parts(Text(reply.after_text))
                return self._response(begun + rest, without=len(rest))
            case replies.Cut():
                body = b"".join(self._parts(reply.of))
                return self._response(body, without=max(len(body) - reply.after_bytes, 1))
            case Status(in_stream=True) if self.request.is_streamed:
                return self._response(self._parts(Text("An answer begins."))[0] + self.api.error_event(reply))
            case Status():
                after = {} if reply.retry_after is None else {"retry-after": f"{reply.retry_after:g}"}
                body = json.dumps(self.api.error(reply)).encode()
                return response(body, code=reply.code, headers={**after, **reply.headers})
            case replies.Garbage() | replies.Empty():
                return self._response(reply.body.encode() if isinstance(reply, replies.Garbage) else b"")
            case _:
                return self._response(b"".join(self._parts(reply)))

    def _response(self, body: bytes, *, without: int = 0) -> bytes:
        whole = response(body, content_type=EVENTS if self.request.is_streamed else JSON)
        return whole[: len(whole) - without]

    def _parts(self, reply: Answered) -> tuple[bytes, bytes]:
        """The body of an answer: up to the last piece of its text, or its first half, and the rest."""
        text = json.dumps(reply.value) if isinstance(reply, replies.Json) else reply.text
        tool, given = "", reply.value if isinstance(reply, replies.Json) else {}
        if isinstance(reply, replies.ToolUse):
            tool, given = reply.name, reply.input if isinstance(reply.input, str) else {**reply.input}
        elif isinstance(reply, replies.Json) and isinstance(given, dict) and not reply.as_text:
            offered = set(strings_in(self.request.body.get("tools")))
            tool = next((name for name in _STRUCTURED_TOOLS if name in offered), "")
            text = "" if tool else text
        ending = {replies.MaxTokens: "max_tokens", replies.Refusal: "refusal"}.get(type(reply), "done")
        usage = reply.usage or self.usage
        answer = Answer(self.number, self.request.model, text, ending, usage, tool, given)
        if self.request.is_streamed:
            begun, rest = self.api.stream(answer)
            return b"".join(begun), b"".join(rest)
        body = json.dumps(self.api.whole(answer)).encode()
        return body[: len(body) // 2], body[len(body) // 2 :]
