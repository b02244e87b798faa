"""Stored data as bytes and back, exactly: the model's own types as JSON, compressed when it is long.

A field that the model does not know is ignored, and one that an older version did not store gets its default. Python's
json writes, since msgspec refuses lone surrogates, which paths may contain; they are written as they are, because an
escaped one would join with its neighbour when it is read. What is stored has been redacted by the caller.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict

from codeloupe.model.agent import AgentResult

_Kind = TypeVar("_Kind")

# Raised when what is written can no longer be read by an older version, not when a field is added.
FORM = 1
_COMPRESSED_FROM_BYTES = 1024
# Level 3 takes a third of the time of the usual 6 and gives away a few percent of the size.
_COMPRESSION_LEVEL = 3
_COMPRESSED = b"z"
_PLAIN = b"j"
_LARGEST = 2**63 - 1


class Unreadable(ValueError):
    """Bytes that are nothing we stored; the message says why."""


class FromNewerVersion(Unreadable):
    """What was written by a codeloupe that writes in another form."""


def encode(value: object) -> bytes:
    """A frozen object as bytes. Raises ValueError for what cannot be written."""
    try:
        plain = msgspec.to_builtins(value, order="deterministic", enc_hook=_mapping)
        return pack(_json({"form": FORM, "value": plain}))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def decode(kind: type[_Kind], data: object) -> _Kind:
    """The object that `encode` was given. Raises Unreadable, or FromNewerVersion for a form that is not known."""
    document = _document(data)
    form = document.get("form")
    if not isinstance(form, int):
        raise Unreadable("it has another form")
    if form != FORM:
        raise FromNewerVersion(f"it was saved by another version of codeloupe (form {form}, this one reads {FORM})")
    return _convert(document.get("value"), kind)


def encode_result(result: AgentResult) -> bytes:
    """An agent's result as bytes. Raises ValueError when a value in it is not of the JSON kind or nested too deeply."""
    try:
        return pack(_json({**asdict(result), "usage": asdict(result.usage)}))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a value in it is no JSON ({error})") from error


def decode_result(data: object) -> AgentResult:
    """The result that `encode_result` was given. Raises Unreadable."""
    return _convert(_document(data), AgentResult)


def pack(text: str) -> bytes:
    """Any text, lone surrogates too, as bytes, compressed when it is long; the first byte says which."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= _COMPRESSED_FROM_BYTES:
        return _PLAIN + data
    return _COMPRESSED + zlib.compress(data, _COMPRESSION_LEVEL)


def unpack(data: object) -> str:
    """The text that `pack` was given. Raises Unreadable."""
    if not isinstance(data, bytes) or data[:1] not in (_COMPRESSED, _PLAIN):
        raise Unreadable("it has another form")
    try:
        unpacked = zlib.decompress(data[1:]) if data[:1] == _COMPRESSED else data[1:]
        return unpacked.decode("utf-8", "surrogatepass")
    except (zlib.error, ValueError) as error:
        raise Unreadable(str(error)) from error


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _mapping(value: object) -> dict[Any, Any]:
    """A frozen mapping; msgspec knows dict only."""
    return dict(value)  # type: ignore[call-overload, no-any-return]  # anything else is a TypeError, as it should be


def _document(data: object) -> dict[str, Any]:
    try:
        document = json.loads(unpack(data))
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    if not isinstance(document, dict):
        raise Unreadable("it has another form")
    return document


def _convert(value: object, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def text_column(text: str) -> str:
    """A text that a database can hold: half a character, as in a path that is not UTF-8, is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def text_of(value: object) -> str:
    """What a text column holds, read as bytes, so that one damaged row does not end the reading of the others."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def whole_column(number: int) -> int:
    """A whole number in the range that databases have."""
    return max(-_LARGEST, min(_LARGEST, number))


def real_column(number: float) -> float:
    """A number that can be added up; one that is none, or endless, counts as nothing."""
    try:
        plain = float(number)
    except OverflowError:
        return 0.0
    return plain if math.isfinite(plain) else 0.0
