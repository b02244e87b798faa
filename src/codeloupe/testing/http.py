"""HTTP/1.1 on loopback, on an event loop in a thread of its own: plain or chunked bodies, of limited size."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from msgspec import Struct

MAX_HEAD_BYTES = 1024 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {529: "Site Overloaded"}


class UnreadableRequest(ValueError):
    """A request that cannot be read, with the status to answer and the reason."""


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request as it came, its body decoded. Header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request, or None when the client closed the connection instead.

    Raises UnreadableRequest, and what the connection raises.
    """
    try:
        start = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = start.decode("latin-1").rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3:
        raise UnreadableRequest(400, f"this is not the first line of an HTTP request: {first[:80]!r}")
    fields = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(_size(headers.get("content-length", "0"), base=10))
    if (coding := headers.get("content-encoding", "identity")).lower() != "identity":
        raise UnreadableRequest(415, f"the body is encoded as {coding[:40]!r}, which this server does not know")
    return HttpRequest(method=words[0], target=words[1], headers=headers, body=body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := _size((await reader.readuntil(b"\r\n")).decode("latin-1").partition(";")[0], base=16, read=len(body)):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while (await reader.readuntil(b"\r\n")) != b"\r\n":
        pass
    return bytes(body)


def _size(digits: str, *, base: int, read: int = 0) -> int:
    try:
        size = int(digits.strip(), base)
    except ValueError as error:
        raise UnreadableRequest(400, f"this is not the size of a body: {digits[:40]!r}") from error
    if not 0 <= size <= MAX_BODY_BYTES - read:
        raise UnreadableRequest(413, f"the body has {read + size} bytes, and at most {MAX_BODY_BYTES} are taken")
    return size


def send_document(writer: asyncio.StreamWriter, document: Any, *, code: int = 200, with_body: bool = True) -> None:
    """Write a response that is one JSON document; `with_body` is false for the answer to a HEAD."""
    send_whole(writer, json.dumps(document).encode() if with_body else b"", code=code)


def send_whole(
    writer: asyncio.StreamWriter,
    body: bytes,
    *,
    content_type: str = JSON,
    code: int = 200,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Write a response whose length is known."""
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    writer.write(head(content_type, f"content-length: {len(body)}", code=code, headers=more) + body)


def head(content_type: str, framing: str, *, code: int = 200, headers: str = "") -> bytes:
    """The first lines of a response; `headers` are further ones, each with its line end."""
    reason = _REASONS.get(code, "Unknown")
    return f"HTTP/1.1 {code} {reason}\r\ncontent-type: {content_type}\r\n{framing}\r\n{headers}\r\n".encode()


Handler = Callable[[HttpRequest, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]


class Connections:
    """Takes connections from a listening socket and hands each request to `handler`, until `stop`.

    The handler returns False when the connection is to be closed. What it raises, other than for a broken
    connection, ends that connection and is kept in `problem`, the first one of them.
    """

    def __init__(self, listener: socket.socket, handler: Handler) -> None:
        self.problem: Exception | None = None
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping: Callable[[], object] = lambda: None
        ready = threading.Event()
        run = self._serve(listener, ready)
        self._thread = threading.Thread(target=asyncio.run, args=(run,), name="stand-in server", daemon=True)
        self._thread.start()
        ready.wait()

    def stop(self) -> None:
        """Close every connection, whatever its handler is doing, and end the thread."""
        self._stopping()
        self._thread.join()

    async def _serve(self, listener: socket.socket, ready: threading.Event) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, sock=listener, limit=MAX_HEAD_BYTES)
        self._stopping = lambda: loop.call_soon_threadsafe(stopped.set)
        ready.set()
        await stopped.wait()
        self._stopping = lambda: None
        # No new connections; those taken already become conversations first, since asyncio forgets, still open, a
        # connection whose server is closed while it is being taken.
        loop.remove_reader(listener)
        while unfinished := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(unfinished)
        server.close()
        await server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not in the conversation itself: one that is cancelled before its first step runs no line of its own.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                try:
                    while request := await _read_request(reader, writer):
                        is_open = await self._handler(request, reader, writer)
                        if not is_open or request.headers.get("connection", "").lower() == "close":
                            break
                except (asyncio.LimitOverrunError, UnreadableRequest) as error:
                    status, message = 431, f"a line or the head is longer than {MAX_HEAD_BYTES} bytes"
                    if isinstance(error, UnreadableRequest):
                        status, message = error.args
                    send_document(writer, {"error": {"message": message}}, code=status)
                writer.close()
                await writer.wait_closed()
        except Exception as error:  # noqa: BLE001 - one connection must not end the others; kept for the server's end
            self.problem = self.problem or error
