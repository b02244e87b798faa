"""The OpenAI Responses API, as the codex program and other clients speak it."""

from __future__ import annotations

import json
from typing import Any, Final

from codeloupe.testing.answer import Answer, Ending, Stream, ToolCall, is_streamed_by_body, model_in_body, objects
from codeloupe.testing.openai_errors import openai_error
from codeloupe.testing.recording import RecordedRequest
from codeloupe.testing.replies import Status

_AFTER_ALL_OTHERS = 1_000_000
_Named = tuple[str, dict[str, Any]]
_ARGUMENTS: Final = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}


class OpenAIResponses:
    """`POST /v1/responses`, streamed and not. See `Api` for what its methods do."""

    name = "responses"

    def model(self, request: RecordedRequest) -> str:
        """The `model` of the body."""
        return model_in_body(request)

    def is_streamed(self, request: RecordedRequest) -> bool:
        """By the body's `stream`."""
        return is_streamed_by_body(request)

    def tools(self, request: RecordedRequest) -> frozenset[str]:
        """The names in the body's `tools`; codex may put its own into the input instead, where they stay unseen."""
        return frozenset(str(tool.get("name")) for tool in objects(request.body.get("tools")))

    def stream(self, answer: Answer) -> Stream:
        """From `response.created` to `response.completed` or `response.incomplete`."""
        opened = _response(answer) | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        begun: list[_Named] = [(f"response.{name}", {"response": opened}) for name in ("created", "in_progress")]
        rest: list[_Named] = []
        for index, item in enumerate(_output(answer)):
            into = begun if item["type"] == "message" else rest
            into.append(("response.output_item.added", {"output_index": index, "item": _opened(item)}))
            into.extend(_deltas(item, index, answer))
            rest.extend(_closed(item, index))
        rest.append(_last(answer))
        numbered = [_event(name, number, fields) for number, (name, fields) in enumerate(begun + rest)]
        return Stream(numbered[: len(begun)], numbered[len(begun) :])

    def whole(self, answer: Answer) -> bytes:
        """A `response`."""
        return json.dumps(_response(answer)).encode()

    def error(self, status: Status) -> bytes:
        """A document with `error`."""
        return json.dumps({"error": openai_error(status)}).encode()

    def error_event(self, status: Status) -> bytes:
        """An event `response.failed`."""
        error = openai_error(status)
        failed: dict[str, Any] = {"id": "resp_failed", "object": "response", "status": "failed", "output": []}
        failed["error"] = {"code": error["code"], "message": error["message"]}
        return _event("response.failed", _AFTER_ALL_OTHERS, {"response": failed})


def _event(name: str, number: int, fields: dict[str, Any]) -> bytes:
    data = json.dumps({"type": name, "sequence_number": number, **fields})
    return f"event: {name}\ndata: {data}\n\n".encode()


def _response(answer: Answer) -> dict[str, Any]:
    cut = answer.ending is Ending.MAX_TOKENS
    return {
        "id": f"resp_{answer.number:06}",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": _output(answer),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": _usage(answer),
    }


def _output(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.text:
        identifier = f"msg_{answer.number:06}"
        message = {"type": "message", "id": identifier, "role": "assistant", "content": [_part(answer)]}
        items.append(message | {"status": "incomplete" if answer.ending is Ending.MAX_TOKENS else "completed"})
    if answer.tool:
        items.append(_tool_call(answer, answer.tool))
    return items


def _tool_call(answer: Answer, tool: ToolCall) -> dict[str, Any]:
    common = {"call_id": f"call_{answer.number:06}", "name": tool.name, "status": "completed"}
    if isinstance(tool.input, str):
        return {"type": "custom_tool_call", "id": f"ctc_{answer.number:06}", "input": tool.input} | common
    return {"type": "function_call", "id": f"fc_{answer.number:06}", "arguments": json.dumps(tool.input)} | common


def _part(answer: Answer) -> dict[str, Any]:
    if answer.ending is Ending.REFUSAL:
        return {"type": "refusal", "refusal": answer.text}
    return {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}


def _opened(item: dict[str, Any]) -> dict[str, Any]:
    filled_later: dict[str, Any] = {"content": [], "arguments": "", "input": ""}
    return item | {key: value for key, value in filled_later.items() if key in item} | {"status": "in_progress"}


def _deltas(item: dict[str, Any], index: int, answer: Answer) -> list[_Named]:
    place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    if item["type"] in _ARGUMENTS:
        event, key = _ARGUMENTS[item["type"]]
        return [(f"{event}.delta", place | {"delta": item[key]})]
    part = item["content"][0]
    opened = part | {_text_key(part): ""}
    event, place = f"response.{part['type']}.delta", place | {"content_index": 0}
    return [("response.content_part.added", place | {"part": opened})] + [
        (event, place | {"delta": piece}) for piece in answer.pieces()
    ]


def _closed(item: dict[str, Any], index: int) -> list[_Named]:
    place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
    done: _Named = ("response.output_item.done", {"output_index": index, "item": item})
    if item["type"] in _ARGUMENTS:
        event, key = _ARGUMENTS[item["type"]]
        return [(f"{event}.done", place | {"name": item["name"], key: item[key]}), done]
    part, place = item["content"][0], place | {"content_index": 0}
    key = _text_key(part)
    return [
        (f"response.{part['type']}.done", place | {key: part[key]}),
        ("response.content_part.done", place | {"part": part}),
        done,
    ]


def _text_key(part: dict[str, Any]) -> str:
    return "refusal" if part["type"] == "refusal" else "text"


def _last(answer: Answer) -> _Named:
    name = "response.incomplete" if answer.ending is Ending.MAX_TOKENS else "response.completed"
    return name, {"response": _response(answer)}


def _usage(answer: Answer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
