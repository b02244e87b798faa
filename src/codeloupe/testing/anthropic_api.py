"""The Anthropic Messages API, as the claude program, its SDK and other clients speak it."""

from __future__ import annotations

import json
from typing import Any, Final

from codeloupe.testing.answer import Answer, Ending, Stream, is_streamed_by_body, model_in_body, objects
from codeloupe.testing.recording import RecordedRequest
from codeloupe.testing.replies import Status

_STOP_REASONS: Final = {
    Ending.DONE: "end_turn",
    Ending.TOOL: "tool_use",
    Ending.MAX_TOKENS: "max_tokens",
    Ending.REFUSAL: "refusal",
}
_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class AnthropicMessages:
    """`POST /v1/messages`, streamed and not. See `Api` for what its methods do."""

    name = "anthropic"

    def model(self, request: RecordedRequest) -> str:
        """The `model` of the body."""
        return model_in_body(request)

    def is_streamed(self, request: RecordedRequest) -> bool:
        """By the body's `stream`."""
        return is_streamed_by_body(request)

    def tools(self, request: RecordedRequest) -> frozenset[str]:
        """The names in the body's `tools`."""
        return frozenset(str(tool.get("name")) for tool in objects(request.body.get("tools")))

    def stream(self, answer: Answer) -> Stream:
        """From `message_start` to `message_stop`."""
        usage = _usage(answer) | {"output_tokens": 1}
        message = _message(answer) | {"content": [], "stop_reason": None, "usage": usage}
        begun, rest = [_event("message_start", message=message)], list[bytes]()
        for index, block in enumerate(_blocks(answer)):
            into = begun if block["type"] == "text" else rest
            opened, deltas = _in_parts(block, answer)
            into.append(_event("content_block_start", index=index, content_block=opened))
            into.extend(_event("content_block_delta", index=index, delta=delta) for delta in deltas)
            rest.append(_event("content_block_stop", index=index))
        delta = {"stop_reason": _STOP_REASONS[answer.ending], "stop_sequence": None}
        rest += [_event("message_delta", delta=delta, usage=_usage(answer)), _event("message_stop")]
        return Stream(begun, rest)

    def whole(self, answer: Answer) -> bytes:
        """A `message`."""
        return json.dumps(_message(answer)).encode()

    def error(self, status: Status) -> bytes:
        """An `error` with the type that belongs to the status."""
        return json.dumps(_error(status)).encode()

    def error_event(self, status: Status) -> bytes:
        """An event `error`."""
        return f"event: error\ndata: {json.dumps(_error(status))}\n\n".encode()


def _event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


def _error(status: Status) -> dict[str, Any]:
    error = {"type": status.type or _ERROR_TYPES.get(status.code, "api_error"), "message": status.message}
    return {"type": "error", "error": error, "request_id": "req_stand_in"}


def _message(answer: Answer) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.number:06}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": _blocks(answer),
        "stop_reason": _STOP_REASONS[answer.ending],
        "stop_sequence": None,
        "usage": _usage(answer),
    }


def _blocks(answer: Answer) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
    if tool := answer.tool:
        blocks.append({"type": "tool_use", "id": f"toolu_{answer.number:06}", "name": tool.name, "input": tool.fields})
    return blocks


def _in_parts(block: dict[str, Any], answer: Answer) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        return block | {"text": ""}, [{"type": "text_delta", "text": piece} for piece in answer.pieces()]
    return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


def _usage(answer: Answer) -> dict[str, int]:
    usage = answer.usage
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
