"""HTTP/1.1 on loopback, on an event loop in a thread of its own: for servers that only a test talks to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from msgspec import Struct

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {529: "Site Overloaded"}


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request as it came, its body decoded. Header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    """The next request; None when the client closed the connection, or got an error for what is not HTTP."""
    try:
        start = await reader.readuntil(b"\r\n\r\n")
        first, *lines = start.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, _version = first.split(" ")
        fields = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if "chunked" in headers.get("transfer-encoding", "").lower():
            while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
                body += await reader.readexactly(size)
                await reader.readexactly(2)
            while (await reader.readuntil(b"\r\n")) != b"\r\n":
                pass
        return HttpRequest(method=method, target=target, headers=headers, body=body)
    except asyncio.IncompleteReadError:
        return None
    except (asyncio.LimitOverrunError, ValueError) as error:
        message = f"cannot parse the HTTP request: {error}"
        writer.write(response(json.dumps({"error": {"message": message}}).encode(), code=400))
        return None


def response(
    body: bytes, *, content_type: str = JSON, code: int = 200, headers: Mapping[str, str] | None = None
) -> bytes:
    """A whole response, as it goes over the wire."""
    fields = {"content-type": content_type, "content-length": str(len(body)), **(headers or {})}
    lines = (f"HTTP/1.1 {code} {_REASONS.get(code, 'Unknown')}", *(f"{name}: {fields[name]}" for name in fields))
    return "\r\n".join((*lines, "", "")).encode() + body


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
        self._loop, self._stopped = asyncio.new_event_loop(), asyncio.Event()
        run = self._serve(listener)
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(run,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close every connection, whatever its handler is doing, and end the thread."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._connected, sock=listener, limit=1024 * 1024)
        await self._stopped.wait()
        # No new connections; those taken already become conversations first, since asyncio forgets, still open, a
        # connection whose server is closed while it is being taken.
        self._loop.remove_reader(listener)
        while unfinished := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(unfinished)
        server.close()
        await server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not in the conversation itself: one that is cancelled before its first step runs no line of its own.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while request := await _read_request(reader, writer):
                    is_open = await self._handler(request, reader, writer)
                    if not is_open or request.headers.get("connection", "").lower() == "close":
                        break
                writer.close()
                await writer.wait_closed()
        except Exception as error:  # noqa: BLE001 - one connection must not end the others; kept for the server's end
            self.problem = self.problem or error
