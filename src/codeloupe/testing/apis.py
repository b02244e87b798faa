"""The vendors' APIs as the stand-in server speaks them: Anthropic Messages, OpenAI Responses and Chat, Gemini."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from codeloupe.model import Confidential
from codeloupe.model.agent import TokenUsage
from codeloupe.system.regex import regex
from codeloupe.testing.http import HttpRequest
from codeloupe.testing.replies import Json, Status, Text

_MODEL = "stand-in"
_Document = dict[str, Any]
_Events = list[tuple[str, _Document]]
Stream = tuple[list[bytes], list[bytes]]
"""An answer as server-sent events: up to the last piece of its text, and what follows."""
_CREDENTIAL_HEADERS = frozenset({"authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"})
_CREDENTIAL_IN_QUERY = regex(r"(?:(?<=^key=)|(?<=&key=))[^&]+")
_SAMPLES: dict[str, Any] = {"string": "ok", "integer": 1, "number": 1, "boolean": False, "array": [], "null": None}


class RecordedRequest(Confidential, frozen=True, kw_only=True):
    """One request. Header names are in lower case; the values of those that hold credentials are masked.

    `body` is the parsed JSON, or the text if it is none, or None without a body. `api` names the API that was
    spoken, empty for a path that belongs to none. `auxiliary` marks what a program asks on its own behalf (a title,
    a quota, a count of tokens): such a request gets a bland answer and leaves the script alone. `received_at` is
    monotonic. `credential` is what was sent as a key or token, so that a test can compare it; it is not printed.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    api: str = ""
    auxiliary: bool = False
    received_at: float = field(default_factory=time.monotonic)
    credential: str = ""

    def strings(self) -> Iterator[str]:
        """Every string in the body, however deep."""
        return strings_in(self.body)

    def mentions(self, text: str) -> bool:
        """Whether the text is in any string of the body."""
        return any(text in value for value in self.strings())

    @property
    def model(self) -> str:
        """The model that is asked for, by the path or by the body."""
        found = re.search(r"/models/([^/:]+):", self.path)
        return found[1] if found else str(self.body.get("model", _MODEL))

    @property
    def is_streamed(self) -> bool:
        """Whether the client wants server-sent events."""
        return self.path.endswith(":streamGenerateContent") or self.body.get("stream") is True


def strings_in(document: Any) -> Iterator[str]:
    """Every string in a document, its keys aside, however deep."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            waiting.extend(reversed(value.values() if isinstance(value, dict) else value))


def record_of(request: HttpRequest, *, api: str) -> RecordedRequest:
    """The record of a request. What belongs to no API asks no model, so it is auxiliary."""
    path, _, query = request.target.partition("?")
    body: Any = None
    if request.body:
        try:
            body = json.loads(request.body)
        except (ValueError, RecursionError):
            body = request.body.decode("utf-8", "replace")
    in_query = _CREDENTIAL_IN_QUERY.search(query)
    stated = [request.headers[name] for name in ("x-api-key", "x-goog-api-key", "api-key") if name in request.headers]
    bearer = request.headers.get("authorization", "").partition(" ")[2]
    return RecordedRequest(
        method=request.method,
        path=path,
        query=_CREDENTIAL_IN_QUERY.sub("[masked]", query),
        headers={name: "[masked]" if name in _CREDENTIAL_HEADERS else text for name, text in request.headers.items()},
        body=body,
        api=api,
        auxiliary=not api or (isinstance(body, dict) and _is_auxiliary(api, path, request.headers, body)),
        credential=stated[0] if stated else in_query[0] if in_query else bearer,
    )


def _is_auxiliary(api: str, path: str, headers: Mapping[str, str], body: _Document) -> bool:
    """Whether a program asks this for itself, by what it sends: a title, its quota, a model to route to."""
    agent = headers.get("user-agent", "")
    match api:
        case "anthropic":
            # It hands the user's schema to the model as a tool; the API's own output format serves its own questions.
            return agent.startswith("claude-cli/") and (body.get("max_tokens") == 1 or _schema_in(body) is not None)
        case "gemini":
            # The user's own turn is always streamed by the gemini program; routing and checks never are.
            return agent.startswith("GeminiCLI") and path.endswith(":generateContent")
        case "responses":
            kind = re.search(r'"request_kind":\s*"(\w+)"', headers.get("x-codex-turn-metadata", ""))
            return kind is not None and kind[1] != "turn"
    return False


def bland_reply(request: RecordedRequest) -> Text | Json:
    """An answer that contents the program: the least value of the schema it asks for, or a word."""
    schema = _schema_in(request.body)
    return Text("ok") if schema is None else Json(_sample_of(schema), as_text=True)


def _sample_of(schema: _Document) -> Any:
    """A small value for a plain schema: the required properties, the first of several choices."""
    if choices := schema.get("enum"):
        return choices[0]
    kind, properties = str(schema.get("type", "object")).lower(), schema.get("properties", {})
    if kind != "object":
        return _SAMPLES.get(kind)
    names: list[str] = schema.get("required", list(properties))
    return {name: _sample_of(properties.get(name, {"type": "null"})) for name in names}


def _schema_in(body: _Document) -> Any:
    generation = body.get("generationConfig")
    if isinstance(generation, dict):
        return generation.get("responseJsonSchema") or generation.get("responseSchema")
    for key in ("output_config", "text"):
        format_ = body[key].get("format") if isinstance(body.get(key), dict) else None
        if isinstance(format_, dict):
            return format_.get("schema")
    return None


class Answer(Struct, frozen=True):
    """What a model says, before it takes the shape of one API. `number` is different for each answer of a server.

    `ending` is done, max_tokens or refusal; `tool` is the name of one that the model wants to be used with `input`.
    """

    number: int
    model: str
    text: str
    ending: str
    usage: TokenUsage
    tool: str
    input: Any

    def pieces(self) -> list[str]:
        """The text in parts, as a stream delivers it; an empty text has none."""
        return [self.text[at : at + 4096] for at in range(0, len(self.text), 4096)]

    @property
    def tokens(self) -> tuple[int, int, int]:
        """How many were sent, how many of those were cached, and how many came back."""
        return self.usage.input_tokens, self.usage.cached_tokens, self.usage.output_tokens

    @property
    def fields(self) -> _Document:
        """The input for an API that knows no other than JSON objects."""
        return self.input if isinstance(self.input, dict) else {"input": self.input}


def _data(document: _Document) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def _event(name: str, /, **fields: Any) -> bytes:
    return f"event: {name}\n".encode() + _data({"type": name, **fields})


# The words for the status of an error: Anthropic's type, OpenAI's type and code, Google's status.
_ERRORS: dict[int, tuple[str, str, str | None, str]] = {
    400: ("invalid_request_error", "invalid_request_error", None, "INVALID_ARGUMENT"),
    401: ("authentication_error", "invalid_request_error", "invalid_api_key", "UNAUTHENTICATED"),
    403: ("permission_error", "invalid_request_error", "unsupported_country_region_territory", "PERMISSION_DENIED"),
    404: ("not_found_error", "invalid_request_error", "model_not_found", "NOT_FOUND"),
    413: ("request_too_large", "invalid_request_error", "request_too_large", "INVALID_ARGUMENT"),
    429: ("rate_limit_error", "requests", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"),
    503: ("api_error", "server_error", "service_unavailable", "UNAVAILABLE"),
    529: ("overloaded_error", "server_error", "server_error", "UNAVAILABLE"),
}
_RESPONSE: _Document = {
    "object": "response", "created_at": 1, "error": None, "instructions": None, "metadata": {}, "tools": [],
    "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "top_p": 1.0,
}  # fmt: skip
_OTHER_ERROR = ("api_error", "server_error", "server_error", "INTERNAL")


def _anthropic(answer: Answer) -> _Document:
    """A `message`, as the claude program, its SDK and other clients read it."""
    blocks: list[_Document] = [{"type": "text", "text": answer.text}] if answer.text else []
    if answer.tool:
        called = {"id": f"toolu_{answer.number:06}", "name": answer.tool, "input": answer.fields}
        blocks.append({"type": "tool_use", **called})
    sent, cached, written = answer.tokens
    usage = {"input_tokens": sent - cached, "cache_creation_input_tokens": 0, "cache_read_input_tokens": cached}
    reason = "tool_use" if answer.tool else {"done": "end_turn"}.get(answer.ending, answer.ending)
    message = {"id": f"msg_{answer.number:06}", "type": "message", "role": "assistant", "model": answer.model}
    ended = {"stop_reason": reason, "stop_sequence": None, "usage": {**usage, "output_tokens": written}}
    return {**message, "content": blocks, **ended}


def _anthropic_stream(answer: Answer) -> Stream:
    message = _anthropic(answer)
    usage = message["usage"]
    started = message | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 1}}
    begun, rest = [_event("message_start", message=started)], list[bytes]()
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            into, opened = begun, {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces()]
        else:
            into, opened = rest, {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        into.append(_event("content_block_start", index=index, content_block=opened))
        into.extend(_event("content_block_delta", index=index, delta=delta) for delta in deltas)
        rest.append(_event("content_block_stop", index=index))
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    return begun, [*rest, _event("message_delta", delta=ended, usage=usage), _event("message_stop")]


def _anthropic_error(status: Status) -> _Document:
    kind = status.type or _ERRORS.get(status.code, _OTHER_ERROR)[0]
    return {"type": "error", "error": {"type": kind, "message": status.message}, "request_id": "req_stand_in"}


def _openai_error(status: Status) -> _Document:
    _, kind, word, _ = _ERRORS.get(status.code, _OTHER_ERROR)
    return {"error": {"message": status.message, "type": status.type or kind, "param": None, "code": word}}


def _chat(answer: Answer) -> _Document:
    """A `chat.completion`, as clients of Ollama, vLLM, LM Studio and many others read it too."""
    refused = answer.ending == "refusal"
    message: _Document = {"role": "assistant", "content": None if refused else answer.text}
    message["refusal"] = answer.text if refused else None
    if answer.tool:
        function = {"name": answer.tool, "arguments": json.dumps(answer.fields)}
        message["tool_calls"] = [{"id": f"call_{answer.number:06}", "type": "function", "function": function}]
    reason = "tool_calls" if answer.tool else {"max_tokens": "length"}.get(answer.ending, "stop")
    sent, cached, written = answer.tokens
    usage: _Document = {"prompt_tokens": sent, "completion_tokens": written, "total_tokens": sent + written}
    return {
        "id": f"chatcmpl-{answer.number:06}",
        "object": "chat.completion",
        "created": 1,
        "model": answer.model,
        "usage": {**usage, "prompt_tokens_details": {"cached_tokens": cached}},
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
    }


def _chat_stream(answer: Answer) -> Stream:
    """Chunks, the last one with the usage, and `[DONE]`."""
    document = _chat(answer) | {"object": "chat.completion.chunk"}
    whole = document["choices"][0]

    def chunk(delta: _Document, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _data(document | {"choices": [choice], "usage": None})

    key = "refusal" if answer.ending == "refusal" else "content"
    begun = [chunk({"role": "assistant", "content": ""}), *(chunk({key: piece}) for piece in answer.pieces())]
    calls = [call | {"index": 0} for call in whole["message"].get("tool_calls", ())]
    rest = [chunk({"tool_calls": calls})] if calls else []
    rest += [chunk({}, whole["finish_reason"]), _data(document | {"choices": []}), b"data: [DONE]\n\n"]
    return begun, rest


def _responses(answer: Answer) -> _Document:
    """A `response`, as the codex program and other clients read it."""
    is_cut = answer.ending == "max_tokens"
    status = "incomplete" if is_cut else "completed"
    output: list[_Document] = []
    if answer.text:
        part: _Document = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        if answer.ending == "refusal":
            part = {"type": "refusal", "refusal": answer.text}
        message = {"type": "message", "id": f"msg_{answer.number:06}", "role": "assistant", "content": [part]}
        output.append({**message, "status": status})
    if answer.tool:
        item = {"type": "function_call", "id": f"fc_{answer.number:06}", "arguments": json.dumps(answer.input)}
        if isinstance(answer.input, str):
            item = {"type": "custom_tool_call", "id": f"ctc_{answer.number:06}", "input": answer.input}
        output.append({**item, "call_id": f"call_{answer.number:06}", "name": answer.tool, "status": "completed"})
    sent, cached, written = answer.tokens
    return {
        **_RESPONSE,
        "id": f"resp_{answer.number:06}",
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "model": answer.model,
        "output": output,
        "usage": {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sent + written,
        },
    }


def _responses_stream(answer: Answer) -> Stream:
    """From `response.created` to `response.completed` or `response.incomplete`."""
    whole = _responses(answer)
    opened = whole | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    begun: _Events = [(f"response.{name}", {"response": opened}) for name in ("created", "in_progress")]
    rest: _Events = []
    for index, item in enumerate(whole["output"]):
        started, ended = _responses_item(item, index, answer)
        (begun if item["type"] == "message" else rest).extend(started)
        rest.extend(ended)
    rest.append((f"response.{whole['status']}", {"response": whole}))
    events = enumerate(begun + rest)
    numbered = [_event(name, sequence_number=number, **fields) for number, (name, fields) in events]
    return numbered[: len(begun)], numbered[len(begun) :]


def _responses_item(item: _Document, index: int, answer: Answer) -> tuple[_Events, _Events]:
    """How an item of the output is opened and filled, and how it is closed."""
    place: _Document = {"item_id": item["id"], "output_index": index}
    filled_later: _Document = {"content": [], "arguments": "", "input": ""}
    opened = item | {key: value for key, value in filled_later.items() if key in item} | {"status": "in_progress"}
    added = ("response.output_item.added", {"output_index": index, "item": opened})
    done = ("response.output_item.done", {"output_index": index, "item": item})
    if item["type"] != "message":
        key = "arguments" if item["type"] == "function_call" else "input"
        event = f"response.{item['type']}_{key}"
        closed = (f"{event}.done", place | {"name": item["name"], key: item[key]})
        return [added, (f"{event}.delta", place | {"delta": item[key]})], [closed, done]
    part, place = item["content"][0], place | {"content_index": 0}
    event, key = f"response.{part['type']}", "refusal" if part["type"] == "refusal" else "text"
    begun = ("response.content_part.added", place | {"part": part | {key: ""}})
    deltas = [(f"{event}.delta", place | {"delta": piece}) for piece in answer.pieces()]
    closed = (f"{event}.done", place | {key: part[key]})
    return [added, begun, *deltas], [closed, ("response.content_part.done", place | {"part": part}), done]


def _responses_error_event(status: Status) -> bytes:
    error = _openai_error(status)["error"]
    failed: _Document = {"id": "resp_failed", "object": "response", "status": "failed", "output": []}
    failed["error"] = {"code": error["code"], "message": error["message"]}
    return _event("response.failed", sequence_number=1_000_000, response=failed)


def _gemini(answer: Answer, text: str | None = None, *, last: bool = True) -> _Document:
    """A response with all of the text and a call, or a piece of a stream with this text."""
    said = answer.text if text is None else text
    parts: list[_Document] = [{"text": said}] if said else []
    if answer.tool and last:
        parts.append({"functionCall": {"id": f"call_{answer.number:06}", "name": answer.tool, "args": answer.fields}})
    candidate: _Document = {"index": 0, "content": {"role": "model", "parts": parts}}
    if answer.ending == "refusal":
        candidate = {"index": 0, "finishMessage": answer.text}
    if last:
        candidate["finishReason"] = {"max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}.get(answer.ending, "STOP")
    sent, cached, written = answer.tokens
    usage = {"promptTokenCount": sent, "cachedContentTokenCount": cached, "candidatesTokenCount": written}
    return {
        "candidates": [candidate],
        "usageMetadata": {**usage, "totalTokenCount": sent + written},
        "modelVersion": answer.model,
        "responseId": f"response-{answer.number:06}",
    }


def _gemini_stream(answer: Answer) -> Stream:
    """A document for each piece of the text, and a last one with the reason why it ended."""
    pieces = [] if answer.ending == "refusal" else answer.pieces()
    begun = [_data(_gemini(answer, piece, last=False)) for piece in pieces]
    return begun, [_data(_gemini(answer, ""))]


def _gemini_error(status: Status) -> _Document:
    kind = status.type or _ERRORS.get(status.code, _OTHER_ERROR)[3]
    error: _Document = {"code": status.code, "message": status.message, "status": kind}
    if status.retry_after is not None:
        info = "type.googleapis.com/google.rpc.RetryInfo"
        error["details"] = [{"@type": info, "retryDelay": f"{status.retry_after:g}s"}]
    return {"error": error}


class Api(NamedTuple):
    """One vendor's way of answering, whole or as events, well or with an error. Bodies of requests are objects."""

    name: str
    whole: Callable[[Answer], _Document]
    stream: Callable[[Answer], Stream]
    error: Callable[[Status], _Document]
    error_event: Callable[[Status], bytes]


_GEMINI = Api("gemini", _gemini, _gemini_stream, _gemini_error, lambda status: _data(_gemini_error(status)))
_BY_SUFFIX = {
    "/messages": Api(
        *("anthropic", _anthropic, _anthropic_stream, _anthropic_error),
        lambda status: b"event: error\n" + _data(_anthropic_error(status)),
    ),
    "/responses": Api("responses", _responses, _responses_stream, _openai_error, _responses_error_event),
    "/chat/completions": Api("chat", _chat, _chat_stream, _openai_error, lambda status: _data(_openai_error(status))),
    ":generateContent": _GEMINI,
    ":streamGenerateContent": _GEMINI,
}


def api_for(method: str, path: str) -> Api | None:
    """The API that the path belongs to; whatever comes before the API's own part of the path is let through."""
    if method != "POST":
        return None
    return next((api for suffix, api in _BY_SUFFIX.items() if path.endswith(suffix)), None)


def side_answer(request: RecordedRequest) -> tuple[int, _Document]:
    """The answer where no model is asked: counts of tokens, the list of models, what programs do at their start."""
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
    code, message = 426, "The stand-in server supports only HTTP."
    if "upgrade" not in request.headers:
        spoken = ", ".join(f"*{suffix}" for suffix in _BY_SUFFIX)
        code, message = 404, f"{request.method} {path} is none of POST {spoken}, which are answered here."
    return code, {"type": "error", "error": {"type": "not_found_error", "message": message}}
