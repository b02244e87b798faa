"""What is known of a run as JSON and back, exactly. The type annotations of the model say how each field is written.

Moments are written in UTC. Lone surrogates, which paths may hold, are written as they are: an escaped one would join
with its neighbour into another character when it is read. So a document is UTF-8 as far as its texts are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from codeloupe.model.pipeline import Approval, PipelineEvent, RunRecord
from codeloupe.store.failures import Unreadable
from codeloupe.store.review_text import FromNewerVersion

_Kind = TypeVar("_Kind")
_Reader = Callable[[Any], Any]

# Raised when what is written can no longer be read by an older version, not when a field is added.
VERSION = 1
_PLAIN = (str, int, float, bool, NoneType)


def run_to_json(run: RunRecord) -> bytes:
    """The state of a run. Raises ValueError for what cannot be written."""
    return _encoded(run) + b"\n"


def run_from_json(data: bytes) -> RunRecord:
    """The run that was written. Raises Unreadable, or FromNewerVersion for a version that is not known.

    Fields that this version does not know are ignored, and those that an older one did not write get their default.
    """
    document = _document(data)
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise Unreadable("it has no version, so it is no state of a run")
    if version > VERSION:
        raise FromNewerVersion(f"it was written by a newer codeloupe (version {version}, this one reads {VERSION})")
    return _read(RunRecord, document)


def event_to_line(event: PipelineEvent) -> bytes:
    """One line of a journal, with its end. Raises ValueError for what cannot be written."""
    return _encoded(event) + b"\n"


def event_from_line(line: bytes) -> PipelineEvent:
    """The event that was written. Raises Unreadable."""
    return _read(PipelineEvent, _document(line))


def approval_to_json(approval: Approval) -> bytes:
    """A person's word. Raises ValueError for what cannot be written."""
    return _encoded(approval) + b"\n"


def approval_from_json(data: bytes) -> Approval:
    """The word that was written. Raises Unreadable."""
    return _read(Approval, _document(data))


def _encoded(value: object) -> bytes:
    try:
        text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return text.encode("utf-8", "surrogatepass")


def _document(data: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not whole, or no JSON ({error})") from error
    if not isinstance(document, dict):
        raise Unreadable("it is no JSON object")
    return document


def _read(kind: type[_Kind], document: Mapping[str, Any]) -> _Kind:
    named: Any = kind
    value: _Kind = _reader(named)(document)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if type(value) in _PLAIN:
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {_key(name): _plain(item) for name, item in value.items()}
    if isinstance(value, datetime):
        return _in_utc(value).isoformat()
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} is no data that can be stored")


def _key(name: object) -> str:
    if type(name) is not str:
        raise TypeError(f"{name!r} is no name that can be stored")
    return name


def _in_utc(moment: datetime) -> datetime:
    # A moment without a zone would become another one on a machine with another clock.
    if moment.tzinfo is None:
        raise TypeError(f"the moment {moment} has no time zone")
    return moment.astimezone(UTC)


@cache
def _reader(kind: Any) -> _Reader:
    """What reads a value of a type. Raises TypeError for a type that no field of the model may have."""
    if kind in _PLAIN:
        return _exact((kind,))
    if kind is datetime:
        return _moment
    if kind is Path:
        return lambda value: Path(_exact((str,))(value))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _word(kind)
    if is_dataclass(kind):
        return _group(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _series(_reader(arguments[0]))
    if origin is Mapping and arguments[0] is str:
        return _named(_reader(arguments[1]))
    if origin in (Union, UnionType):
        return _one_of(arguments)
    raise TypeError(f"{kind!r} cannot be stored")


def _exact(kinds: tuple[type, ...]) -> _Reader:
    # A number without a fraction may be written as a whole one. True is an int to Python, but no number.
    known = {*kinds, int} if float in kinds else set(kinds)

    def read(value: Any) -> Any:
        if type(value) not in known:
            raise Unreadable(f"a value of type {type(value).__name__}")
        return value

    return read


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise Unreadable(str(error)) from error
    if moment.tzinfo is None:
        raise Unreadable("a moment without a time zone")
    return moment


def _word(kind: type[Enum]) -> _Reader:
    known = {each.value: each for each in kind}

    def read(value: Any) -> Any:
        try:
            return known[value]
        except (KeyError, TypeError) as error:
            raise Unreadable(f"{value!r} is no {kind.__name__} that this version knows") from error

    return read


def _series(read_item: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise Unreadable("no list")
        return tuple(read_item(item) for item in value)

    return read


def _named(read_item: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Unreadable("no object")
        return MappingProxyType({name: read_item(item) for name, item in value.items()})

    return read


def _one_of(kinds: tuple[Any, ...]) -> _Reader:
    """Of plain types any, or one that is not plain, or None."""
    others = [kind for kind in kinds if kind not in _PLAIN]
    if not others:
        return _exact(kinds)
    if len(others) > 1 or set(kinds) - set(others) != {NoneType}:
        raise TypeError(f"{' | '.join(map(str, kinds))} cannot be stored")
    read_value = _reader(others[0])
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
