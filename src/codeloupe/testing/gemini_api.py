"""The Gemini API, as the gemini program and other clients speak it."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from codeloupe.testing.answer import Answer, Ending, Stream, objects
from codeloupe.testing.recording import RecordedRequest
from codeloupe.testing.replies import Status

_FINISH_REASONS: Final = {
    Ending.DONE: "STOP",
    Ending.TOOL: "STOP",
    Ending.MAX_TOKENS: "MAX_TOKENS",
    Ending.REFUSAL: "SAFETY",
}
_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    529: "UNAVAILABLE",
}
_MODEL_IN_PATH = re.compile(r"/models/([^/:]+):")


class Gemini:
    """`POST /v1beta/models/MODEL:generateContent` and `:streamGenerateContent`. See `Api` for what its methods do."""

    name = "gemini"

    def model(self, request: RecordedRequest) -> str:
        """The model in the path."""
        found = _MODEL_IN_PATH.search(request.path)
        return found[1] if found else "stand-in"

    def is_streamed(self, request: RecordedRequest) -> bool:
        """By the path."""
        return request.path.endswith(":streamGenerateContent")

    def tools(self, request: RecordedRequest) -> frozenset[str]:
        """The names of the functions declared in the body's `tools`."""
        groups = objects(request.body.get("tools"))
        return frozenset(
            str(tool.get("name")) for group in groups for tool in objects(group.get("functionDeclarations"))
        )

    def stream(self, answer: Answer) -> Stream:
        """A document for each piece of the text, and a last one with the reason why it ended."""
        pieces = [] if answer.ending is Ending.REFUSAL else answer.pieces()
        begun = [_event(_document(answer, [{"text": piece}], last=False)) for piece in pieces]
        return Stream(begun, [_event(_document(answer, _tool_parts(answer), last=True))])

    def whole(self, answer: Answer) -> bytes:
        """One document with a single candidate."""
        text = [{"text": answer.text}] if answer.text else []
        return json.dumps(_document(answer, [*text, *_tool_parts(answer)], last=True)).encode()

    def error(self, status: Status) -> bytes:
        """A document with `error`, and when to try again among its details."""
        error: dict[str, Any] = {"code": status.code, "message": status.message}
        error["status"] = status.type or _STATUSES.get(status.code, "INTERNAL")
        if status.retry_after is not None:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            error["details"] = [{"@type": kind, "retryDelay": f"{status.retry_after:g}s"}]
        return json.dumps({"error": error}).encode()

    def error_event(self, status: Status) -> bytes:
        """The same document as an event."""
        return b"data: %b\r\n\r\n" % self.error(status)


def _event(document: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(document)}\r\n\r\n".encode()


def _tool_parts(answer: Answer) -> list[dict[str, Any]]:
    if (tool := answer.tool) is None:
        return []
    return [{"functionCall": {"id": f"call_{answer.number:06}", "name": tool.name, "args": tool.fields}}]


def _document(answer: Answer, parts: list[dict[str, Any]], *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if answer.ending is Ending.REFUSAL:
        candidate["finishMessage"] = answer.text
    else:
        candidate["content"] = {"role": "model", "parts": parts}
    if last:
        candidate["finishReason"] = _FINISH_REASONS[answer.ending]
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(answer),
        "modelVersion": answer.model,
        "responseId": f"response-{answer.number:06}",
    }


def _usage(answer: Answer) -> dict[str, int]:
    usage = answer.usage
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_tokens,
        "candidatesTokenCount": usage.output_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
