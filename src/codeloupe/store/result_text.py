"""An agent's result as bytes and back, exactly: lone surrogates, floats and structured values too.

What is stored has been redacted by the caller; nothing is looked for or masked here.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict, fields

from codeloupe.model.agent import AgentResult, TokenUsage
from codeloupe.store.failures import Unreadable

__all__ = ["Unreadable", "decode_result", "encode_result"]

_COMPRESSED_FROM_BYTES = 1024
# Level 3 takes a third of the time of the usual 6 and gives away a few percent of the size.
_COMPRESSION_LEVEL = 3
_COMPRESSED = b"z"
_PLAIN = b"j"
_TEXT_TUPLES = frozenset({"files_changed", "permission_denials", "notes"})
_TYPES: Mapping[str, tuple[type, ...]] = {
    "success": (bool,),
    "output": (str,),
    "agent": (str,),
    "session_id": (str,),
    "duration_ms": (int,),
    "num_turns": (int,),
    "total_cost_usd": (int, float, type(None)),
    "model": (str, type(None)),
    "attempts": (int,),
    "raw_output": (str,),
    "error": (str, type(None)),
    "from_ledger": (bool,),
    "original_cost_usd": (int, float, type(None)),
}


def encode_result(result: AgentResult) -> bytes:
    """The result as JSON, compressed when it is large; the first byte says which.

    Raises ValueError when a value is not of the JSON kind or nested too deeply.
    """
    document = {field.name: getattr(result, field.name) for field in fields(result)}
    try:
        text = json.dumps({**document, "usage": asdict(result.usage)}, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a value in it is no JSON ({error})") from error
    # An escaped surrogate would join with its neighbour into another character when it is read.
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= _COMPRESSED_FROM_BYTES:
        return _PLAIN + data
    return _COMPRESSED + zlib.compress(data, _COMPRESSION_LEVEL)


def decode_result(data: bytes) -> AgentResult:
    """The result that `encode_result` was given. Raises Unreadable.

    Fields that this version does not know are ignored, and those that an older one did not store get their default.
    """
    document = _document(data)
    known = {field.name for field in fields(AgentResult)}
    values = {name: _value(name, value) for name, value in document.items() if name in known}
    try:
        return AgentResult(**values)
    except TypeError as error:
        raise Unreadable(f"a field without a default is missing ({error})") from error


def _document(data: bytes) -> Mapping[str, Any]:
    try:
        plain = zlib.decompress(data[1:]) if data[:1] == _COMPRESSED else data[1:]
        document = json.loads(plain.decode("utf-8", "surrogatepass"))
    except (zlib.error, ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    if data[:1] not in (_COMPRESSED, _PLAIN) or not isinstance(document, dict):
        raise Unreadable("it has another form")
    return document


def _value(name: str, value: Any) -> Any:
    if name == "usage":
        return _usage(value)
    if name in _TEXT_TUPLES:
        return _texts(name, value)
    expected = _TYPES.get(name)
    if expected is not None and not _is(value, expected):
        raise Unreadable(f"{name} has a value of type {type(value).__name__}")
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise Unreadable(f"{name} is no list of texts")
    return tuple(value)


def _usage(value: Any) -> TokenUsage:
    if not isinstance(value, dict):
        raise Unreadable("usage is no object")
    known = {field.name for field in fields(TokenUsage)}
    counts = {name: count for name, count in value.items() if name in known}
    if not all(_is(count, (int,)) for count in counts.values()):
        raise Unreadable("usage holds something that is no count")
    return TokenUsage(**counts)


def _is(value: Any, expected: tuple[type, ...]) -> bool:
    # True is an int to Python, but no count.
    return isinstance(value, expected) and (bool in expected or not isinstance(value, bool))
