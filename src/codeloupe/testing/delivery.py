"""One reply onto one connection, in the words of one API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, assert_never

from msgspec import Struct

from codeloupe.model.agent import TokenUsage
from codeloupe.testing.answer import Answer, Api, Ending, ToolCall
from codeloupe.testing.recording import RecordedRequest
from codeloupe.testing.replies import (
    Answered,
    Cut,
    Delay,
    Empty,
    Garbage,
    Hang,
    Json,
    MaxTokens,
    Refusal,
    Reply,
    Stall,
    Status,
    Text,
    ToolUse,
)

STRUCTURED_TOOLS = ("StructuredOutput", "final_result")
"""Tools by which a client asks for structured output: of the claude program and its SDK, and of pydantic-ai."""

_JSON = "application/json"
_EVENTS = "text/event-stream; charset=utf-8"
_CHUNKED = "transfer-encoding: chunked"
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {529: "Site Overloaded"}
_ENDINGS: dict[type[Answered], Ending] = {MaxTokens: Ending.MAX_TOKENS, Refusal: Ending.REFUSAL}


class Exchange(Struct, frozen=True, kw_only=True):
    """A request and the connection on which its answer goes back."""

    api: Api
    request: RecordedRequest
    number: int
    usage: TokenUsage
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def deliver(self, reply: Reply) -> bool:
        """Send a reply; False when the connection is to be closed. Raises what the connection raises."""
        match reply:
            case Delay():
                await asyncio.sleep(reply.seconds)
                return await self.deliver(reply.then)
            case Hang():
                return await self._wait_for_client()
            case Stall():
                return await self._stall(reply)
            case Cut():
                return self._cut(reply)
            case Status():
                self._send_error(reply)
            case Garbage():
                send_whole(self.writer, reply.body.encode(), content_type=self._content_type())
            case Empty():
                send_whole(self.writer, b"", content_type=self._content_type())
            case Text() | Json() | ToolUse() | MaxTokens() | Refusal():
                self._send_answer(reply)
            case _:
                assert_never(reply)
        await self.writer.drain()
        return True

    def _is_streamed(self) -> bool:
        return self.api.is_streamed(self.request)

    def _content_type(self) -> str:
        return _EVENTS if self._is_streamed() else _JSON

    def _send_error(self, status: Status) -> None:
        if status.in_stream and self._is_streamed():
            begun = b"".join(self.api.stream(self._answer(Text("An answer begins."))).begun)
            self._write(_head(_EVENTS, _CHUNKED), _chunk(begun + self.api.error_event(status)), b"0\r\n\r\n")
            return
        retry_after = {} if status.retry_after is None else {"retry-after": f"{status.retry_after:g}"}
        headers = {**retry_after, **status.headers}
        send_whole(self.writer, self.api.error(status), code=status.code, headers=headers)

    def _send_answer(self, reply: Answered) -> None:
        head, body = self._framed(self._answer(reply))
        self._write(head, body, b"\r\n0\r\n\r\n" if self._is_streamed() else b"")

    def _framed(self, answer: Answer) -> tuple[bytes, bytes]:
        """What goes before the body, as if all of it followed, and the body."""
        if self._is_streamed():
            stream = self.api.stream(answer)
            body = b"".join(stream.begun + stream.rest)
            return _head(_EVENTS, _CHUNKED) + b"%x\r\n" % len(body), body
        body = self.api.whole(answer)
        return _head(_JSON, f"content-length: {len(body)}"), body

    async def _stall(self, stall: Stall) -> bool:
        answer = self._answer(Text(stall.after_text))
        if self._is_streamed():
            self._write(_head(_EVENTS, _CHUNKED), _chunk(b"".join(self.api.stream(answer).begun)))
        else:
            head, body = self._framed(answer)
            self._write(head, body[: len(body) // 2])
        return await self._wait_for_client()

    def _cut(self, cut: Cut) -> bool:
        if cut.after_bytes:
            head, body = self._framed(self._answer(cut.of))
            self._write(head, body[: min(cut.after_bytes, len(body) - 1)])
        return False

    async def _wait_for_client(self) -> bool:
        """Wait until the client gives up."""
        while await self.reader.read(65536):
            pass
        return False

    def _write(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    def _answer(self, reply: Answered) -> Answer:
        tool = self._tool_call(reply)
        text = "" if isinstance(reply, Json) and tool else _text(reply)
        ending = Ending.TOOL if tool else _ENDINGS.get(type(reply), Ending.DONE)
        usage, model = reply.usage or self.usage, self.api.model(self.request)
        return Answer(number=self.number, model=model, text=text, ending=ending, usage=usage, tool=tool)

    def _tool_call(self, reply: Answered) -> ToolCall | None:
        match reply:
            case ToolUse():
                return ToolCall(name=reply.name, input=reply.input if isinstance(reply.input, str) else {**reply.input})
            case Json(value=dict(), as_text=False):
                offered = self.api.tools(self.request)
                name = next((name for name in STRUCTURED_TOOLS if name in offered), None)
                return ToolCall(name=name, input=reply.value) if name else None
            case _:
                return None


def _text(reply: Answered) -> str:
    return json.dumps(reply.value) if isinstance(reply, Json) else reply.text


def send_document(writer: asyncio.StreamWriter, document: Any, *, code: int = 200, with_body: bool = True) -> None:
    """Write a response that is one JSON document; `with_body` is false for the answer to a HEAD."""
    send_whole(writer, json.dumps(document).encode() if with_body else b"", code=code)


def send_whole(
    writer: asyncio.StreamWriter,
    body: bytes,
    *,
    content_type: str = _JSON,
    code: int = 200,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Write a response whose length is known."""
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    writer.write(_head(content_type, f"content-length: {len(body)}", code=code, headers=more) + body)


def _head(content_type: str, framing: str, *, code: int = 200, headers: str = "") -> bytes:
    reason = _REASONS.get(code, "Unknown")
    return f"HTTP/1.1 {code} {reason}\r\ncontent-type: {content_type}\r\n{framing}\r\n{headers}\r\n".encode()


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)
