"""A client that shows what is really on the wire: no library of a vendor stands between."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from codeloupe.testing import StandInServer
from tests.endings import PATIENCE_SECONDS

PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/some-model:generateContent",
}
STREAMED_GEMINI = "/v1beta/models/some-model:streamGenerateContent?alt=sse"


@dataclass(frozen=True)
class Response:
    """A response that came whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[tuple[str, Any]]:
        """Names and parsed data of server-sent events; a name is empty where none was sent."""
        assert self.headers["content-type"].startswith("text/event-stream")
        parts = self.body.decode().replace("\r\n", "\n").split("\n\n")
        assert parts.pop() == "", "the last event is not ended by an empty line"
        return [_event(part) for part in parts]


def _event(text: str) -> tuple[str, Any]:
    fields = dict(line.split(": ", 1) for line in text.split("\n"))
    data = fields["data"]
    return fields.get("event", ""), data if data == "[DONE]" else json.loads(data)


def port_of(server: StandInServer) -> int:
    return int(server.url.rpartition(":")[2])


def send(
    server: StandInServer,
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """One request on a connection of its own; `body` is sent as JSON unless it is bytes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=PATIENCE_SECONDS)) as connection:
        connection.request(method, path, raw, {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return Response(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


def ask(server: StandInServer, api: str, *, stream: bool = False, **fields: Any) -> Response:
    """Ask a model by one of the APIs."""
    path, body = question(api, stream=stream)
    return send(server, path, {**body, **fields})


def question(api: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """The path and the body of a short request."""
    match api:
        case "gemini":
            path = STREAMED_GEMINI if stream else PATHS[api]
            return path, {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
        case "responses":
            return PATHS[api], {"model": "some-model", "stream": stream, "input": "hello"}
        case _:
            message = {"role": "user", "content": "hello"}
            return PATHS[api], {"model": "some-model", "stream": stream, "messages": [message]}


def raw_connection(server: StandInServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(server)), timeout=PATIENCE_SECONDS)


def raw_question(api: str, *, stream: bool, headers: str = "") -> bytes:
    """The bytes of a short request."""
    path, body = question(api, stream=stream)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len(data)}\r\n\r\n"
    return head.encode() + data


def read_to_end(connection: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


def arrived(server: StandInServer, count: int = 1) -> bool:
    """Whether so many requests come, be it late."""
    return server.wait_for(count, timeout_seconds=PATIENCE_SECONDS)
