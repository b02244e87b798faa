"""The connections of the stand-in server, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable

from codeloupe.testing.delivery import send_document
from codeloupe.testing.http_reading import MAX_HEAD_BYTES, HttpRequest, UnreadableRequest, read_request

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
                await self._answer_all(reader, writer)
                writer.close()
                await writer.wait_closed()
        except Exception as error:  # noqa: BLE001 - one connection must not end the others; kept for the server's end
            self.problem = self.problem or error

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await read_request(reader, writer):
                is_open = await self._handler(request, reader, writer)
                if not is_open or request.headers.get("connection", "").lower() == "close":
                    return
        except UnreadableRequest as error:
            send_document(writer, {"error": {"message": str(error)}}, code=error.status)
