"""Which API a path belongs to, and what is answered on the other paths that clients ask for."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from codeloupe.testing.answer import Api
from codeloupe.testing.anthropic_api import AnthropicMessages
from codeloupe.testing.chat_api import OpenAIChat
from codeloupe.testing.gemini_api import Gemini
from codeloupe.testing.recording import RecordedRequest
from codeloupe.testing.responses_api import OpenAIResponses

_GEMINI = Gemini()
_BY_SUFFIX: tuple[tuple[str, Api], ...] = (
    ("/messages", AnthropicMessages()),
    ("/responses", OpenAIResponses()),
    ("/chat/completions", OpenAIChat()),
    (":generateContent", _GEMINI),
    (":streamGenerateContent", _GEMINI),
)
_MODEL = "stand-in"


class SideAnswer(NamedTuple):
    """What is answered where no model is asked."""

    code: int
    document: dict[str, Any]


def api_for(method: str, path: str) -> Api | None:
    """The API that the path belongs to; whatever stands before the API's own part of the path is let through."""
    if method != "POST":
        return None
    return next((api for suffix, api in _BY_SUFFIX if path.endswith(suffix)), None)


def side_answer(request: RecordedRequest) -> SideAnswer:
    """The answer where no model is asked: counts of tokens, the list of models, what programs do at their start.

    Any other path gets a 404 that says which paths are spoken here.
    """
    path = request.path
    if path.endswith("/messages/count_tokens"):
        return SideAnswer(200, {"input_tokens": _tokens(request.body)})
    if path.endswith(":countTokens"):
        return SideAnswer(200, {"totalTokens": _tokens(request.body)})
    if path.endswith("/models") and request.method == "GET":
        return SideAnswer(200, _models())
    if path == "/" or path.startswith("/api/"):
        return SideAnswer(200, {})
    if "upgrade" in request.headers:
        # codex tries a WebSocket first, and takes this for the hint to go on without.
        return _problem(426, "The stand-in server speaks HTTP alone.")
    spoken = ", ".join(f"*{suffix}" for suffix, _ in _BY_SUFFIX)
    return _problem(404, f"{request.method} {path} is none of POST {spoken}, which are answered here.")


def _problem(code: int, message: str) -> SideAnswer:
    return SideAnswer(code, {"type": "error", "error": {"type": "not_found_error", "message": message}})


def _tokens(body: Any) -> int:
    return len(json.dumps(body)) // 4


def _models() -> dict[str, Any]:
    """A list that the OpenAI clients read by `data`, and codex and the Gemini clients by `models`."""
    model = {"id": _MODEL, "object": "model", "type": "model", "created": 1, "owned_by": "codeloupe"}
    return {"object": "list", "data": [model], "has_more": False, "models": []}
