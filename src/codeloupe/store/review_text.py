"""Frozen data as bytes and back, exactly: reviews, findings, sweeps and whatever they are made of.

The type annotations of a class say how it is written, so that a field that is added to the model is kept without a
change here. What is stored has been redacted by the caller.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from codeloupe.store.failures import Unreadable

_Kind = TypeVar("_Kind")
_Reader = Callable[[Any], Any]

# Raised when what is written can no longer be read by an older version, not when a field is added.
FORM = 1
_COMPRESSED_FROM_BYTES = 1024
_COMPRESSION_LEVEL = 3
_COMPRESSED = b"z"
_PLAIN = b"j"
_AS_THEY_ARE = frozenset({str, int, float, bool, NoneType})


class FromNewerVersion(Unreadable):
    """What was written by a codeloupe that writes in another form."""


def encode(value: object) -> bytes:
    """A frozen object as bytes. Raises ValueError for what cannot be written, such as a class that is no data."""
    try:
        text = json.dumps({"form": FORM, "value": _plain(value)}, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return pack(text)


def decode(kind: type[_Kind], data: object) -> _Kind:
    """The object that `encode` was given. Raises Unreadable, or FromNewerVersion for a form that is not known.

    Fields that this version does not know are ignored, and those that an older one did not store get their default.
    """
    try:
        document = json.loads(unpack(data))
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    if not isinstance(document, dict) or not isinstance(form := document.get("form"), int):
        raise Unreadable("it has another form")
    if form != FORM:
        raise FromNewerVersion(f"it was saved by another version of codeloupe (form {form}, this one reads {FORM})")
    named: Any = kind
    value: _Kind = _reader(named)(document.get("value"))
    return value


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
        plain = zlib.decompress(data[1:]) if data[:1] == _COMPRESSED else data[1:]
        return plain.decode("utf-8", "surrogatepass")
    except (zlib.error, ValueError) as error:
        raise Unreadable(str(error)) from error


def _plain(value: Any) -> Any:
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(_plain(item) for item in value)
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} is no data that can be stored")


@cache
def _reader(kind: Any) -> _Reader:
    """What reads a value of a type. Raises TypeError for a type that no field of the model may have."""
    if kind in _AS_THEY_ARE:
        return _exact((int, float) if kind is float else (kind,))
    if kind in (datetime, date):
        return _moment(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _word(kind)
    if is_dataclass(kind):
        return _group(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _series(_reader(arguments[0]), tuple)
    if origin is frozenset and arguments == (str,):
        return _series(_reader(str), frozenset)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        return _optional(_reader(next(each for each in arguments if each is not NoneType)))
    raise TypeError(f"{kind!r} cannot be stored")


def _exact(kinds: tuple[type, ...]) -> _Reader:
    def read(value: Any) -> Any:
        # True is an int to Python, but no number.
        if type(value) not in kinds:
            raise Unreadable(f"a value of type {type(value).__name__}")
        return value

    return read


def _moment(kind: type[date]) -> _Reader:
    def read(value: Any) -> Any:
        try:
            return kind.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise Unreadable(str(error)) from error

    return read


def _word(kind: type[Enum]) -> _Reader:
    known = {each.value: each for each in kind}

    def read(value: Any) -> Any:
        try:
            return known[value]
        except (KeyError, TypeError) as error:
            raise Unreadable(f"{value!r} is no {kind.__name__} that this version knows") from error

    return read


def _series(read_item: _Reader, made: type[tuple[Any, ...] | frozenset[Any]]) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise Unreadable("no list")
        return made(read_item(item) for item in value)

    return read


def _optional(read_value: _Reader) -> _Reader:
    return lambda value: None if value is None else read_value(value)


def _group(kind: Any) -> _Reader:
    hints: Mapping[str, Any] = get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}

    def read(document: Any) -> Any:
        if not isinstance(document, dict):
            raise Unreadable(f"no {kind.__name__}")
        values = {}
        for name, read_value in readers.items():
            if name in document:
                try:
                    values[name] = read_value(document[name])
                except Unreadable as error:
                    raise Unreadable(f"{name}: {error}") from error
        try:
            return kind(**values)
        except TypeError as error:
            raise Unreadable(f"a field without a default is missing ({error})") from error

    return read
