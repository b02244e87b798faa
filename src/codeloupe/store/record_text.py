"""Frozen data as plain JSON values and back, exactly: reviews, findings, sweeps, runs and whatever they are made of.

The type annotations of a class say how it is written, so that a field that is added to the model is kept without a
change here. With `in_utc` every moment has a time zone and is written in UTC; without it a moment stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from codeloupe.store.records import Unreadable

_Kind = TypeVar("_Kind")
_Reader = Callable[[Any], Any]

_AS_THEY_ARE = frozenset({str, int, float, bool, NoneType})


def plain(value: Any, *, in_utc: bool = False) -> Any:
    """A frozen object as what JSON knows. Raises TypeError for what cannot be stored, such as a class that is no data.

    A mapping is data only where the annotation of its field says so: elsewhere it could not be read again.
    """
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [plain(item, in_utc=in_utc) for item in value]
    if isinstance(value, frozenset):
        return sorted(plain(item, in_utc=in_utc) for item in value)
    if isinstance(value, date):
        return _in_utc(value).isoformat() if in_utc else value.isoformat()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Struct):
        kind: Any = type(value)
        named = _mappings(kind)
        return {
            field.name: (_entries if field.name in named else plain)(getattr(value, field.name), in_utc=in_utc)
            for field in fields(value)
        }
    raise TypeError(f"{type(value).__name__} is no data that can be stored")


def read(kind: type[_Kind], value: Any, *, in_utc: bool = False) -> _Kind:
    """The object that `plain` was given. Raises Unreadable.

    Fields that this version does not know are ignored, and those that an older one did not store get their default.
    """
    named: Any = kind
    made: _Kind = _reader(named, in_utc=in_utc)(value)
    return made


@cache
def _mappings(kind: Any) -> frozenset[str]:
    """The fields of a class that hold mappings."""
    hints: Mapping[str, Any] = get_type_hints(kind)
    return frozenset(field.name for field in fields(kind) if get_origin(hints[field.name]) is Mapping)


def _entries(value: Mapping[Any, Any], *, in_utc: bool) -> dict[str, Any]:
    return {_name(name): plain(item, in_utc=in_utc) for name, item in value.items()}


def _name(name: object) -> str:
    if type(name) is not str:
        raise TypeError(f"{name!r} cannot be stored as a name")
    return name


def _in_utc(moment: date) -> date:
    # A moment without a zone would become another one on a machine with another clock.
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise TypeError(f"the moment {moment} has no time zone")
    return moment.astimezone(UTC)


@cache
def _reader(kind: Any, *, in_utc: bool) -> _Reader:
    """What reads a value of a type. Raises TypeError for a type that no field of the model may have."""
    if kind in _AS_THEY_ARE:
        return _exact((kind,))
    if kind in (datetime, date):
        return _moment(kind, in_utc=in_utc)
    if isinstance(kind, type):
        return _of_class(kind, in_utc=in_utc)
    return _of_parts(kind, in_utc=in_utc)


def _of_class(kind: type, *, in_utc: bool) -> _Reader:
    if kind is Path:
        return lambda value: Path(_exact((str,))(value))
    if issubclass(kind, Enum):
        return _word(kind)
    if issubclass(kind, Struct):
        return _group(kind, in_utc=in_utc)
    raise TypeError(f"{kind!r} cannot be stored")


def _of_parts(kind: Any, *, in_utc: bool) -> _Reader:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _series(_reader(arguments[0], in_utc=in_utc), tuple)
    if origin is frozenset and arguments == (str,):
        return _series(_exact((str,)), frozenset)
    if origin is Mapping and arguments[0] is str:
        return _named(_reader(arguments[1], in_utc=in_utc))
    if origin in (Union, UnionType):
        return _one_of(arguments, in_utc=in_utc)
    raise TypeError(f"{kind!r} cannot be stored")


def _exact(kinds: tuple[type, ...]) -> _Reader:
    # A number without a fraction may be written as a whole one. True is an int to Python, but no number.
    known = {*kinds, int} if float in kinds else set(kinds)

    def read_value(value: Any) -> Any:
        if type(value) not in known:
            raise Unreadable(f"a value of type {type(value).__name__}")
        return value

    return read_value


def _moment(kind: type[date], *, in_utc: bool) -> _Reader:
    def read_moment(value: Any) -> Any:
        try:
            moment = kind.fromisoformat(value)
        except (TypeError, ValueError) as error:
            raise Unreadable(str(error)) from error
        if in_utc and getattr(moment, "tzinfo", None) is None:
            raise Unreadable("a moment without a time zone")
        return moment

    return read_moment


def _word(kind: type[Enum]) -> _Reader:
    known = {each.value: each for each in kind}

    def read_value(value: Any) -> Any:
        try:
            return known[value]
        except (KeyError, TypeError) as error:
            raise Unreadable(f"{value!r} is no {kind.__name__} that this version knows") from error

    return read_value


def _series(read_item: _Reader, made: type[tuple[Any, ...] | frozenset[Any]]) -> _Reader:
    def read_value(value: Any) -> Any:
        if not isinstance(value, list):
            raise Unreadable("no list")
        return made(read_item(item) for item in value)

    return read_value


def _named(read_item: _Reader) -> _Reader:
    def read_value(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Unreadable("no object")
        return MappingProxyType({name: read_item(item) for name, item in value.items()})

    return read_value


def _one_of(kinds: tuple[Any, ...], *, in_utc: bool) -> _Reader:
    """Of plain types any, or one that is not plain, or None."""
    others = [kind for kind in kinds if kind not in _AS_THEY_ARE]
    if not others:
        return _exact(kinds)
    if len(others) > 1 or set(kinds) - set(others) != {NoneType}:
        raise TypeError(f"{' | '.join(map(str, kinds))} cannot be stored")
    read_other = _reader(others[0], in_utc=in_utc)
    return lambda value: None if value is None else read_other(value)


def _group(kind: Any, *, in_utc: bool) -> _Reader:
    hints: Mapping[str, Any] = get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name], in_utc=in_utc) for field in fields(kind)}

    def read_group(document: Any) -> Any:
        if not isinstance(document, dict):
            raise Unreadable(f"no {kind.__name__}")
        values = {}
        for name, read_field in readers.items():
            if name in document:
                try:
                    values[name] = read_field(document[name])
                except Unreadable as error:
                    raise Unreadable(f"{name}: {error}") from error
        try:
            return kind(**values)
        except TypeError as error:
            raise Unreadable(f"a field without a default is missing ({error})") from error

    return read_group
