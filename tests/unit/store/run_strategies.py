"""Any run of a pipeline that the model allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from msgspec import Struct

# Any code point, halves of surrogate pairs among them.
_any_text = st.text(st.characters(exclude_categories=()), max_size=8)
_plain: dict[Any, st.SearchStrategy[Any]] = {
    str: _any_text,
    int: st.integers(),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    NoneType: st.none(),
    datetime: st.datetimes(timezones=st.just(UTC)),
    Path: _any_text.map(Path),
}


def any_value(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, whatever fields the model has by now."""
    if kind in _plain:
        return _plain[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if isinstance(kind, type) and (issubclass(kind, Struct) or is_dataclass(kind)):
        made: Any = kind
        return st.builds(made, **{name: any_value(hint) for name, hint in get_type_hints(kind).items()})
    arguments = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return st.one_of(*map(any_value, arguments))
    if get_origin(kind) is Mapping:
        return st.dictionaries(any_value(arguments[0]), any_value(arguments[1]), max_size=2)
    assert get_origin(kind) is tuple, kind
    return st.lists(any_value(arguments[0]), max_size=2).map(tuple)
