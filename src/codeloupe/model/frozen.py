"""Mappings that cannot be changed, for the data that every package and every caller shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class FrozenDict(dict[_Key, _Value]):
    """A dict that cannot be changed.

    Unlike `types.MappingProxyType` it can be pickled, copied, hashed and encoded as JSON.
    """

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("this mapping cannot be changed; make a new one, such as {**mapping, key: value}")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]  # a plain dict has no hash
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[Self], tuple[dict[_Key, _Value]]]:
        return type(self), (dict(self),)


def frozen(value: Any) -> Any:
    """Return a copy of a value in which each mapping is a FrozenDict, at every depth.

    A list, which only a JSON Schema has, is copied and stays a list, so that the copy equals the original.
    """
    if isinstance(value, FrozenDict):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({key: frozen(item) for key, item in value.items()})
    if isinstance(value, list):
        return [frozen(item) for item in value]
    return value


class FrozenStruct(Struct, frozen=True):
    """Data that cannot be changed: each mapping that it is given is copied and frozen."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            # Anything else is refused with a message where the data is used.
            if isinstance(value, Mapping):
                force_setattr(self, name, frozen(value))
