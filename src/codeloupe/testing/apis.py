"""The vendors' APIs as the stand-in server speaks them: Anthropic Messages, OpenAI Responses and Chat, Gemini.

All of it is pure: from an answer, or an error, to the bytes that the vendor's service would send.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, NamedTuple

from msgspec import Struct

from codeloupe.model.agent import TokenUsage
from codeloupe.testing.recording import RecordedRequest
from codeloupe.testing.replies import Status

_PIECE_CHARACTERS = 4096
_MODEL = "stand-in"
_MODEL_IN_PATH = re.compile(r"/models/([^/:]+):")
_Document = dict[str, Any]


class Ending(Enum):
    """Why a model stopped."""

    DONE = auto()
    TOOL = auto()
    MAX_TOKENS = auto()
    REFUSAL = auto()


class ToolCall(Struct, frozen=True, kw_only=True):
    """A tool that the model wants to be used."""

    name: str
    input: _Document | str

    @property
    def fields(self) -> _Document:
        """The input for an API that knows no other than JSON objects."""
        return self.input if isinstance(self.input, dict) else {"input": self.input}


class Answer(Struct, frozen=True, kw_only=True):
    """What a model says, before it takes the shape of one API. `number` tells the answers of one server apart."""

    number: int
    model: str
    text: str
    ending: Ending
    usage: TokenUsage
    tool: ToolCall | None = None

    def pieces(self) -> list[str]:
        """The text in parts, as a stream delivers it; an empty text has none."""
        return [self.text[at : at + _PIECE_CHARACTERS] for at in range(0, len(self.text), _PIECE_CHARACTERS)]


class Stream(NamedTuple):
    """An answer as server-sent events: up to the last piece of its text, and what follows."""

    begun: list[bytes]
    rest: list[bytes]


class Api(ABC):
    """One vendor's way of asking a model and of answering. Bodies of requests are objects."""

    name: str

    def model(self, request: RecordedRequest) -> str:
        """The model that is asked for: by the body, where a vendor has no other way."""
        return str(request.body.get("model", _MODEL))

    def is_streamed(self, request: RecordedRequest) -> bool:
        """Whether the client wants server-sent events: by the body's `stream`, where a vendor has no other way."""
        return request.body.get("stream") is True

    def tools(self, request: RecordedRequest) -> frozenset[str]:
        """The names of the tools that the request offers to the model."""
        return frozenset(str(tool.get("name")) for tool in _objects(request.body.get("tools")))

    @abstractmethod
    def stream(self, answer: Answer) -> Stream:
        """The answer as server-sent events, one an item."""

    @abstractmethod
    def whole(self, answer: Answer) -> _Document:
        """The answer as one JSON document."""

    @abstractmethod
    def error(self, status: Status) -> _Document:
        """An error as one JSON document."""

    def error_event(self, status: Status) -> bytes:
        """An error as a server-sent event in an answer that began well."""
        return _data(self.error(status))


def _objects(value: Any) -> Iterable[_Document]:
    """The JSON objects in what should be a list of them."""
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _data(document: _Document) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def _event(name: str, /, **fields: Any) -> bytes:
    return f"event: {name}\n".encode() + _data({"type": name, **fields})


_ANTHROPIC_REASONS = {Ending.DONE: "end_turn", Ending.TOOL: "tool_use", Ending.MAX_TOKENS: "max_tokens"}
_ANTHROPIC_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicMessages(Api):
    """`POST /v1/messages`, as the claude program, its SDK and other clients speak it."""

    name = "anthropic"

    def stream(self, answer: Answer) -> Stream:
        """From `message_start` to `message_stop`."""
        message = self.whole(answer)
        blocks, usage, reason = message["content"], message["usage"], message["stop_reason"]
        started = message | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
        begun, rest = [_event("message_start", message=started)], list[bytes]()
        for index, block in enumerate(blocks):
            is_text = block["type"] == "text"
            deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces()]
            if not is_text:
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            into = begun if is_text else rest
            opened = {**block, "text": ""} if is_text else {**block, "input": {}}
            into.append(_event("content_block_start", index=index, content_block=opened))
            into.extend(_event("content_block_delta", index=index, delta=delta) for delta in deltas)
            rest.append(_event("content_block_stop", index=index))
        delta = {"stop_reason": reason, "stop_sequence": None}
        return Stream(begun, [*rest, _event("message_delta", delta=delta, usage=usage), _event("message_stop")])

    def whole(self, answer: Answer) -> _Document:
        """A `message`."""
        blocks: list[_Document] = [{"type": "text", "text": answer.text}] if answer.text else []
        if tool := answer.tool:
            called = {"id": f"toolu_{answer.number:06}", "name": tool.name, "input": tool.fields}
            blocks.append({"type": "tool_use", **called})
        return {
            "id": f"msg_{answer.number:06}",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": blocks,
            "stop_reason": _ANTHROPIC_REASONS.get(answer.ending, "refusal"),
            "stop_sequence": None,
            "usage": {
                "input_tokens": answer.usage.input_tokens - answer.usage.cached_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": answer.usage.cached_tokens,
                "output_tokens": answer.usage.output_tokens,
            },
        }

    def error(self, status: Status) -> _Document:
        """An `error` with the type that belongs to the status."""
        error = {"type": status.type or _ANTHROPIC_ERRORS.get(status.code, "api_error"), "message": status.message}
        return {"type": "error", "error": error, "request_id": "req_stand_in"}

    def error_event(self, status: Status) -> bytes:
        """An event `error`."""
        return b"event: error\n" + _data(self.error(status))


_OPENAI_ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "service_unavailable"),
}


class _OpenAI(Api):
    """What the OpenAI APIs, and the many that are compatible with them, have in common."""

    def error(self, status: Status) -> _Document:
        """A document with `error`."""
        kind, word = _OPENAI_ERRORS.get(status.code, ("server_error", "server_error"))
        return {"error": {"message": status.message, "type": status.type or kind, "param": None, "code": word}}


_CHAT_REASONS = {Ending.TOOL: "tool_calls", Ending.MAX_TOKENS: "length"}


class OpenAIChat(_OpenAI):
    """`POST /v1/chat/completions`, as Ollama, vLLM, LM Studio and many others speak it too."""

    name = "chat"

    def tools(self, request: RecordedRequest) -> frozenset[str]:
        """The names of the functions in the body's `tools`."""
        functions = _objects([tool.get("function") for tool in _objects(request.body.get("tools"))])
        return frozenset(str(function.get("name")) for function in functions)

    def stream(self, answer: Answer) -> Stream:
        """Chunks, the last one with the usage, and `[DONE]`."""
        document, message = self._document(answer, "chat.completion.chunk"), self._message(answer)

        def chunk(delta: _Document, reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            return _data(document | {"choices": [choice], "usage": None})

        key = "refusal" if answer.ending is Ending.REFUSAL else "content"
        begun = [chunk({"role": "assistant", "content": ""}), *(chunk({key: piece}) for piece in answer.pieces())]
        calls = [call | {"index": 0} for call in message.get("tool_calls", ())]
        rest = [chunk({"tool_calls": calls})] if calls else []
        rest.append(chunk({}, _CHAT_REASONS.get(answer.ending, "stop")))
        return Stream(begun, [*rest, _data(document | {"choices": []}), b"data: [DONE]\n\n"])

    def whole(self, answer: Answer) -> _Document:
        """A `chat.completion`."""
        reason = _CHAT_REASONS.get(answer.ending, "stop")
        choice = {"index": 0, "message": self._message(answer), "logprobs": None, "finish_reason": reason}
        return self._document(answer, "chat.completion") | {"choices": [choice]}

    @staticmethod
    def _document(answer: Answer, kind: str) -> _Document:
        usage = {
            "prompt_tokens": answer.usage.input_tokens,
            "completion_tokens": answer.usage.output_tokens,
            "total_tokens": answer.usage.input_tokens + answer.usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": answer.usage.cached_tokens},
        }
        identifier = f"chatcmpl-{answer.number:06}"
        return {"id": identifier, "object": kind, "created": 1, "model": answer.model, "usage": usage}

    @staticmethod
    def _message(answer: Answer) -> _Document:
        refused = answer.ending is Ending.REFUSAL
        message: _Document = {"role": "assistant", "content": None if refused else answer.text}
        message["refusal"] = answer.text if refused else None
        if answer.tool:
            function = {"name": answer.tool.name, "arguments": json.dumps(answer.tool.fields)}
            message["tool_calls"] = [{"id": f"call_{answer.number:06}", "type": "function", "function": function}]
        return message


_RESPONSES_ARGUMENTS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}


class OpenAIResponses(_OpenAI):
    """`POST /v1/responses`, as the codex program and other clients speak it.

    codex may put its tools into the input instead of the body's `tools`, where they stay unseen.
    """

    name = "responses"

    def stream(self, answer: Answer) -> Stream:
        """From `response.created` to `response.completed` or `response.incomplete`."""
        whole = self.whole(answer)
        opened = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        begun = [(f"response.{name}", {"response": opened}) for name in ("created", "in_progress")]
        rest: list[tuple[str, _Document]] = []
        for index, item in enumerate(whole["output"]):
            started, ended = self._item_events(item, index, answer)
            (begun if item["type"] == "message" else rest).extend(started)
            rest.extend(ended)
        rest.append((f"response.{whole['status']}", {"response": whole}))
        events = enumerate(begun + rest)
        numbered = [_event(name, sequence_number=number, **fields) for number, (name, fields) in events]
        return Stream(numbered[: len(begun)], numbered[len(begun) :])

    def _item_events(
        self, item: _Document, index: int, answer: Answer
    ) -> tuple[list[tuple[str, _Document]], list[tuple[str, _Document]]]:
        """How an item of the output is opened and filled, and how it is closed."""
        place: _Document = {"item_id": item["id"], "output_index": index}
        filled_later: _Document = {"content": [], "arguments": "", "input": ""}
        opened = item | {key: value for key, value in filled_later.items() if key in item} | {"status": "in_progress"}
        added = ("response.output_item.added", {"output_index": index, "item": opened})
        done = ("response.output_item.done", {"output_index": index, "item": item})
        if item["type"] in _RESPONSES_ARGUMENTS:
            event, key = _RESPONSES_ARGUMENTS[item["type"]]
            closed = (f"{event}.done", place | {"name": item["name"], key: item[key]})
            return [added, (f"{event}.delta", place | {"delta": item[key]})], [closed, done]
        part, place = item["content"][0], place | {"content_index": 0}
        event, key = f"response.{part['type']}", "refusal" if part["type"] == "refusal" else "text"
        begun = ("response.content_part.added", place | {"part": part | {key: ""}})
        deltas = [(f"{event}.delta", place | {"delta": piece}) for piece in answer.pieces()]
        closed = (f"{event}.done", place | {key: part[key]})
        return [added, begun, *deltas], [closed, ("response.content_part.done", place | {"part": part}), done]

    def whole(self, answer: Answer) -> _Document:
        """A `response`."""
        is_cut = answer.ending is Ending.MAX_TOKENS
        status = "incomplete" if is_cut else "completed"
        output: list[_Document] = []
        if answer.text:
            part: _Document = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
            if answer.ending is Ending.REFUSAL:
                part = {"type": "refusal", "refusal": answer.text}
            message = {"type": "message", "id": f"msg_{answer.number:06}", "role": "assistant", "content": [part]}
            output.append({**message, "status": status})
        if tool := answer.tool:
            item = {"type": "function_call", "id": f"fc_{answer.number:06}", "arguments": json.dumps(tool.input)}
            if isinstance(tool.input, str):
                item = {"type": "custom_tool_call", "id": f"ctc_{answer.number:06}", "input": tool.input}
            output.append({**item, "call_id": f"call_{answer.number:06}", "name": tool.name, "status": "completed"})
        return {
            "id": f"resp_{answer.number:06}",
            "object": "response",
            "created_at": 1,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": None,
            "metadata": {},
            "model": answer.model,
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": {
                "input_tokens": answer.usage.input_tokens,
                "input_tokens_details": {"cached_tokens": answer.usage.cached_tokens},
                "output_tokens": answer.usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answer.usage.input_tokens + answer.usage.output_tokens,
            },
        }

    def error_event(self, status: Status) -> bytes:
        """An event `response.failed`."""
        error = self.error(status)["error"]
        failed: _Document = {"id": "resp_failed", "object": "response", "status": "failed", "output": []}
        failed["error"] = {"code": error["code"], "message": error["message"]}
        return _event("response.failed", sequence_number=1_000_000, response=failed)


_GEMINI_REASONS = {Ending.MAX_TOKENS: "MAX_TOKENS", Ending.REFUSAL: "SAFETY"}
_GEMINI_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    529: "UNAVAILABLE",
}


class Gemini(Api):
    """`POST /v1beta/models/MODEL:generateContent` and `:streamGenerateContent`."""

    name = "gemini"

    def model(self, request: RecordedRequest) -> str:
        """The model in the path."""
        found = _MODEL_IN_PATH.search(request.path)
        return found[1] if found else _MODEL

    def is_streamed(self, request: RecordedRequest) -> bool:
        """By the path."""
        return request.path.endswith(":streamGenerateContent")

    def tools(self, request: RecordedRequest) -> frozenset[str]:
        """The names of the functions declared in the body's `tools`."""
        groups = _objects(request.body.get("tools"))
        tools = (tool for group in groups for tool in _objects(group.get("functionDeclarations")))
        return frozenset(str(tool.get("name")) for tool in tools)

    def stream(self, answer: Answer) -> Stream:
        """A document for each piece of the text, and a last one with the reason why it ended."""
        pieces = [] if answer.ending is Ending.REFUSAL else answer.pieces()
        begun = [_crlf(self._document(answer, [{"text": piece}], last=False)) for piece in pieces]
        return Stream(begun, [_crlf(self._document(answer, self._tool_parts(answer), last=True))])

    def whole(self, answer: Answer) -> _Document:
        """One document with a single candidate."""
        text = [{"text": answer.text}] if answer.text else []
        return self._document(answer, [*text, *self._tool_parts(answer)], last=True)

    def error(self, status: Status) -> _Document:
        """A document with `error`, and when to try again among its details."""
        error: _Document = {"code": status.code, "message": status.message}
        error["status"] = status.type or _GEMINI_ERRORS.get(status.code, "INTERNAL")
        if status.retry_after is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            error["details"] = [{"@type": kind, "retryDelay": f"{status.retry_after:g}s"}]
        return {"error": error}

    def error_event(self, status: Status) -> bytes:
        """The same document as an event."""
        return _crlf(self.error(status))

    @staticmethod
    def _tool_parts(answer: Answer) -> list[_Document]:
        if (tool := answer.tool) is None:
            return []
        return [{"functionCall": {"id": f"call_{answer.number:06}", "name": tool.name, "args": tool.fields}}]

    def _document(self, answer: Answer, parts: list[_Document], *, last: bool) -> _Document:
        candidate: _Document = {"index": 0}
        if answer.ending is Ending.REFUSAL:
            candidate["finishMessage"] = answer.text
        else:
            candidate["content"] = {"role": "model", "parts": parts}
        if last:
            candidate["finishReason"] = _GEMINI_REASONS.get(answer.ending, "STOP")
        return {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": answer.usage.input_tokens,
                "cachedContentTokenCount": answer.usage.cached_tokens,
                "candidatesTokenCount": answer.usage.output_tokens,
                "totalTokenCount": answer.usage.input_tokens + answer.usage.output_tokens,
            },
            "modelVersion": answer.model,
            "responseId": f"response-{answer.number:06}",
        }


def _crlf(document: _Document) -> bytes:
    return f"data: {json.dumps(document)}\r\n\r\n".encode()


_GEMINI = Gemini()
_BY_SUFFIX: dict[str, Api] = {
    "/messages": AnthropicMessages(),
    "/responses": OpenAIResponses(),
    "/chat/completions": OpenAIChat(),
    ":generateContent": _GEMINI,
    ":streamGenerateContent": _GEMINI,
}


def api_for(method: str, path: str) -> Api | None:
    """The API that the path belongs to; whatever comes before the API's own part of the path is let through."""
    if method != "POST":
        return None
    return next((api for suffix, api in _BY_SUFFIX.items() if path.endswith(suffix)), None)


def side_answer(request: RecordedRequest) -> tuple[int, _Document]:
    """The answer where no model is asked: counts of tokens, the list of models, what programs do at their start.

    Any other path gets a 404 that says which paths are spoken here.
    """
    path, tokens = request.path, len(json.dumps(request.body)) // 4
    if path.endswith("/messages/count_tokens"):
        return 200, {"input_tokens": tokens}
    if path.endswith(":countTokens"):
        return 200, {"totalTokens": tokens}
    if path.endswith("/models") and request.method == "GET":
        # OpenAI's clients read the list by `data`, codex and the Gemini clients by `models`.
        model = {"id": _MODEL, "object": "model", "type": "model", "created": 1, "owned_by": "codeloupe"}
        return 200, {"object": "list", "data": [model], "has_more": False, "models": []}
    if path == "/" or path.startswith("/api/"):
        return 200, {}
    # codex tries a WebSocket first, and takes a 426 for the hint to go on without.
    code, message = 426, "The stand-in server speaks HTTP alone."
    if "upgrade" not in request.headers:
        spoken = ", ".join(f"*{suffix}" for suffix in _BY_SUFFIX)
        code, message = 404, f"{request.method} {path} is none of POST {spoken}, which are answered here."
    return code, {"type": "error", "error": {"type": "not_found_error", "message": message}}
