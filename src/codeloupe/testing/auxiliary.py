"""What agent programs ask on their own behalf, which must not use up a script meant for the user's prompt."""

from __future__ import annotations

import json
from typing import Any

from codeloupe.testing.recording import RecordedRequest
from codeloupe.testing.replies import Json, Text

_BLAND = "ok"
_SAMPLES: dict[str, Any] = {"string": _BLAND, "integer": 1, "number": 1, "boolean": False, "array": [], "null": None}


def is_auxiliary(request: RecordedRequest) -> bool:
    """Whether a program asks this for itself: a title for its session, its quota, a model to route to.

    Told by what the programs themselves send; other clients of the same APIs are never taken for them.
    """
    agent = request.headers.get("user-agent", "")
    match request.api:
        case "anthropic":
            return agent.startswith("claude-cli/") and _is_claudes_own(request.body)
        case "gemini":
            # The user's own turn is always streamed by the gemini program; routing and checks never are.
            return agent.startswith("GeminiCLI") and request.path.endswith(":generateContent")
        case "responses":
            return _codex_request_kind(request) not in ("", "turn")
        case _:
            return False


def bland_reply(request: RecordedRequest) -> Text | Json:
    """An answer that contents the program: the least value of the schema it asks for, or a word."""
    schema = _schema_in(request.body)
    return Text(_BLAND) if schema is None else Json(sample_of(schema), as_text=True)


def sample_of(schema: Any) -> Any:
    """A small value for a plain schema: the required properties, the first of several choices."""
    if not isinstance(schema, dict):
        return None
    choices, properties, required = schema.get("enum"), schema.get("properties"), schema.get("required")
    if isinstance(choices, list) and choices:
        return choices[0]
    kind = schema.get("type", "object")
    if kind not in ("object", "OBJECT"):
        return _SAMPLES.get(str(kind).lower())
    known = properties if isinstance(properties, dict) else {}
    names = required if isinstance(required, list) else list(known)
    return {name: sample_of(known.get(name)) for name in names if isinstance(name, str)}


def _is_claudes_own(body: dict[str, Any]) -> bool:
    # It hands the user's schema to the model as a tool; the API's own output format serves its internal questions.
    return body.get("max_tokens") == 1 or _schema_in(body) is not None


def _codex_request_kind(request: RecordedRequest) -> str:
    try:
        metadata = json.loads(request.headers.get("x-codex-turn-metadata", "{}"))
    except ValueError:
        return ""
    return str(metadata.get("request_kind", "")) if isinstance(metadata, dict) else ""


def _schema_in(body: dict[str, Any]) -> Any:
    generation = body.get("generationConfig")
    if isinstance(generation, dict):
        return generation.get("responseJsonSchema") or generation.get("responseSchema")
    for key in ("output_config", "text"):
        format_ = body[key].get("format") if isinstance(body.get(key), dict) else None
        if isinstance(format_, dict):
            return format_.get("schema")
    return None
