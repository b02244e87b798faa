"""The OpenAI chat completions API, as Ollama, vLLM, LM Studio and many others speak it too."""

from __future__ import annotations

import json
from typing import Any, Final

from codeloupe.testing.answer import Answer, Ending, Stream, ToolCall, is_streamed_by_body, model_in_body, objects
from codeloupe.testing.openai_errors import openai_error
from codeloupe.testing.recording import RecordedRequest
from codeloupe.testing.replies import Status

_FINISH_REASONS: Final = {
    Ending.DONE: "stop",
    Ending.TOOL: "tool_calls",
    Ending.MAX_TOKENS: "length",
    Ending.REFUSAL: "stop",
}


class OpenAIChat:
    """`POST /v1/chat/completions`, streamed and not. See `Api` for what its methods do."""

    name = "chat"

    def model(self, request: RecordedRequest) -> str:
        """The `model` of the body."""
        return model_in_body(request)

    def is_streamed(self, request: RecordedRequest) -> bool:
        """By the body's `stream`."""
        return is_streamed_by_body(request)

    def tools(self, request: RecordedRequest) -> frozenset[str]:
        """The names of the functions in the body's `tools`."""
        functions = objects([tool.get("function") for tool in objects(request.body.get("tools"))])
        return frozenset(str(function.get("name")) for function in functions)

    def stream(self, answer: Answer) -> Stream:
        """Chunks, the last one with the usage, and `[DONE]`."""
        key = "refusal" if answer.ending is Ending.REFUSAL else "content"
        begun = [_chunk(answer, {"role": "assistant", "content": ""})]
        begun += [_chunk(answer, {key: piece}) for piece in answer.pieces()]
        calls = [_tool_call(answer, answer.tool) | {"index": 0}] if answer.tool else []
        rest = [_chunk(answer, {"tool_calls": calls})] if calls else []
        rest.append(_chunk(answer, {}, finish_reason=_FINISH_REASONS[answer.ending]))
        last = _document(answer, "chat.completion.chunk") | {"choices": [], "usage": _usage(answer)}
        return Stream(begun, [*rest, _event(last), b"data: [DONE]\n\n"])

    def whole(self, answer: Answer) -> bytes:
        """A `chat.completion`."""
        refused = answer.ending is Ending.REFUSAL
        message: dict[str, Any] = {"role": "assistant", "content": None if refused else answer.text}
        message["refusal"] = answer.text if refused else None
        if answer.tool:
            message["tool_calls"] = [_tool_call(answer, answer.tool)]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH_REASONS[answer.ending]}
        document = _document(answer, "chat.completion") | {"choices": [choice], "usage": _usage(answer)}
        return json.dumps(document).encode()

    def error(self, status: Status) -> bytes:
        """A document with `error`."""
        return json.dumps({"error": openai_error(status)}).encode()

    def error_event(self, status: Status) -> bytes:
        """A chunk with `error`."""
        return _event({"error": openai_error(status)})


def _document(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.number:06}", "object": kind, "created": 1, "model": answer.model}


def _event(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


def _chunk(answer: Answer, delta: dict[str, Any], *, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return _event(_document(answer, "chat.completion.chunk") | {"choices": [choice], "usage": None})


def _tool_call(answer: Answer, tool: ToolCall) -> dict[str, Any]:
    function = {"name": tool.name, "arguments": json.dumps(tool.fields)}
    return {"id": f"call_{answer.number:06}", "type": "function", "function": function}


def _usage(answer: Answer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
