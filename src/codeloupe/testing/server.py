"""The stand-in model server: a loopback server that speaks the vendors' APIs and does what a script says."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Literal, Self

from codeloupe.errors import UsageError
from codeloupe.model.agent import TokenUsage
from codeloupe.testing.auxiliary import bland_reply, is_auxiliary
from codeloupe.testing.connections import Connections
from codeloupe.testing.delivery import Exchange, send_document
from codeloupe.testing.http_reading import HttpRequest
from codeloupe.testing.recording import RecordedRequest, Recorder, record_of
from codeloupe.testing.replies import Reply, Status, Text, checked
from codeloupe.testing.routing import api_for, side_answer
from codeloupe.testing.script import Script

DEFAULT_USAGE = TokenUsage(input_tokens=100, output_tokens=20)
_BACKLOG = 1024
_LAST_PORT = 65535
_DEFAULT = Text("This is the stand-in server.")
_EXHAUSTED = Status(400, "The script of the stand-in server has no reply left for this request.")
_NO_OBJECT = Status(400, "The body of the request is no JSON object.")


class StandInServer:
    """A model server on 127.0.0.1 that answers by a script and records what it is asked.

    Use it in a `with` block, or call `start` and `stop`; everything here may be used from any thread.

    `script` is taken in order, one reply for each request to a model; then the last one repeats, or with
    `then="error"` an error 400 says that nothing is left. `reply` is a function of the request instead of a script;
    it runs on the server's own thread, so it must not block, and what it raises is raised at the end of the block.
    `usage` are the numbers of tokens for every reply that brings none of its own. `on_request` sees every request
    as it comes, on the server's thread. `port` 0 takes a free one. Raises UsageError for a port that cannot be.
    """

    def __init__(
        self,
        script: Iterable[Reply] = (),
        *,
        reply: Callable[[RecordedRequest], Reply] | None = None,
        then: Literal["repeat", "error"] = "repeat",
        usage: TokenUsage = DEFAULT_USAGE,
        on_request: Callable[[RecordedRequest], None] | None = None,
        port: int = 0,
    ) -> None:
        if not 0 <= port <= _LAST_PORT:
            raise UsageError(f"{port} is no port", hint=f"Take one up to {_LAST_PORT}, or 0 for a free one.")
        afterwards = _EXHAUSTED if then == "error" else None
        self._script = Script[Reply](script, default=_DEFAULT, afterwards=afterwards)
        self._reply = reply
        self._usage = usage
        self._on_request = on_request
        self._port = port
        self._recorder = Recorder()
        self._numbers = itertools.count(1)
        self._waiting = 0
        self._most_waiting = 0
        self._connections: Connections | None = None
        self._problem: Exception | None = None
        self._stop_lock = threading.Lock()

    @property
    def url(self) -> str:
        """The base, without a slash at its end; a path put behind it is let through, and recorded."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def requests(self) -> tuple[RecordedRequest, ...]:
        """Every request so far, in order of arrival."""
        return self._recorder.all()

    @property
    def open_requests(self) -> int:
        """How many requests that are not auxiliary are open now: not answered, and their client still there."""
        return self._waiting

    @property
    def max_concurrent(self) -> int:
        """The most requests that are not auxiliary that were open at the same time."""
        return self._most_waiting

    def count(self, path_prefix: str = "", *, auxiliary: bool | None = None) -> int:
        """How many requests came to paths with this prefix: all, or only those that are auxiliary or are not."""
        return self._recorder.count(path_prefix, auxiliary=auxiliary)

    def wait_for(self, count: int = 1, *, timeout_seconds: float = 10.0) -> bool:
        """Wait until so many requests that are not auxiliary came; False when the time ran out first."""
        return self._recorder.wait_for(count, timeout_seconds=timeout_seconds)

    def extend(self, *replies: Reply) -> None:
        """Add replies to the end of the script."""
        self._script.extend(replies)

    def clear(self) -> None:
        """Forget the requests so far."""
        self._recorder.clear()

    def start(self) -> Self:
        """Listen. Raises OSError when the port is taken."""
        listener = socket.create_server(("127.0.0.1", self._port), backlog=_BACKLOG)
        self._port = listener.getsockname()[1]
        self._connections = Connections(listener, self._answer)
        return self

    def stop(self) -> None:
        """Close everything, hanging answers too. Raises what the reply function raised, the first of it."""
        with self._stop_lock:
            connections, self._connections = self._connections, None
        if connections is None:
            return
        connections.stop()
        if problem := self._problem or connections.problem:
            self._problem = None
            raise problem

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except Exception as problem:  # what failed inside the block is told first, and this with it
            if error is None:
                raise
            error.add_note(f"the stand-in server failed too: {problem!r}")

    async def _answer(self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        api = api_for(request.method, request.target.partition("?")[0])
        record = record_of(request, api="" if api is None else api.name, is_auxiliary=is_auxiliary)
        with self._opened(record):
            if api is None:
                code, document = side_answer(record)
                send_document(writer, document, code=code, with_body=request.method != "HEAD")
                return True
            exchange = Exchange(
                api=api, request=record, number=next(self._numbers), usage=self._usage, reader=reader, writer=writer
            )
            return await exchange.deliver(self._choose(record))

    @contextlib.contextmanager
    def _opened(self, record: RecordedRequest) -> Iterator[None]:
        """Record a request, counted already when somebody who waits for it wakes."""
        self._waiting += not record.auxiliary
        self._most_waiting = max(self._most_waiting, self._waiting)
        try:
            self._recorder.add(record)
            if self._on_request is not None:
                self._on_request(record)
            yield
        finally:
            self._waiting -= not record.auxiliary

    def _choose(self, request: RecordedRequest) -> Reply:
        if not isinstance(request.body, dict):
            return _NO_OBJECT
        if request.auxiliary:
            return bland_reply(request)
        try:
            return checked(self._script.next_step() if self._reply is None else self._reply(request))
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises is raised again by `stop`
            self._problem = self._problem or error
            return Status(400, f"The stand-in server has no reply: {error!r}")
