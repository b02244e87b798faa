"""What arrived at the stand-in server, and what a program asks of it on its own behalf."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import field
from msgspec.structs import replace

from codeloupe.model import Confidential
from codeloupe.system.regex import regex
from codeloupe.testing.http import HttpRequest
from codeloupe.testing.replies import Json, Text

_MASK = "[masked]"
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
        waiting = [self.body]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                yield value
            elif isinstance(value, dict):
                waiting.extend(reversed(value.values()))
            elif isinstance(value, list):
                waiting.extend(reversed(value))

    def mentions(self, text: str) -> bool:
        """Whether the text is in any string of the body."""
        return any(text in value for value in self.strings())


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
    record = RecordedRequest(
        method=request.method,
        path=path,
        query=_CREDENTIAL_IN_QUERY.sub(_MASK, query),
        headers={name: _MASK if name in _CREDENTIAL_HEADERS else text for name, text in request.headers.items()},
        body=body,
        api=api,
        auxiliary=not api,
        credential=stated[0] if stated else in_query[0] if in_query else bearer,
    )
    return replace(record, auxiliary=True) if isinstance(body, dict) and _is_auxiliary(record) else record


def _is_auxiliary(request: RecordedRequest) -> bool:
    """Whether a program asks this for itself: a title for its session, its quota, a model to route to.

    It goes by what the programs themselves send; other clients of the same APIs are never taken for them.
    """
    agent = request.headers.get("user-agent", "")
    match request.api:
        case "anthropic":
            # It hands the user's schema to the model as a tool; the API's own output format serves its own questions.
            is_own = request.body.get("max_tokens") == 1 or _schema_in(request.body) is not None
            return agent.startswith("claude-cli/") and is_own
        case "gemini":
            # The user's own turn is always streamed by the gemini program; routing and checks never are.
            return agent.startswith("GeminiCLI") and request.path.endswith(":generateContent")
        case "responses":
            try:
                metadata = json.loads(request.headers.get("x-codex-turn-metadata", "{}"))
            except ValueError:
                return False
            return isinstance(metadata, dict) and metadata.get("request_kind", "") not in ("", "turn")
    return False


def bland_reply(request: RecordedRequest) -> Text | Json:
    """An answer that contents the program: the least value of the schema it asks for, or a word."""
    schema = _schema_in(request.body)
    return Text("ok") if schema is None else Json(_sample_of(schema), as_text=True)


def _sample_of(schema: Any) -> Any:
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
    return {name: _sample_of(known.get(name)) for name in names if isinstance(name, str)}


def _schema_in(body: dict[str, Any]) -> Any:
    generation = body.get("generationConfig")
    if isinstance(generation, dict):
        return generation.get("responseJsonSchema") or generation.get("responseSchema")
    for key in ("output_config", "text"):
        format_ = body[key].get("format") if isinstance(body.get(key), dict) else None
        if isinstance(format_, dict):
            return format_.get("schema")
    return None
