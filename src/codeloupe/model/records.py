"""The standard library's `dataclass`, with frozen classes made in half the time.

Up to Python 3.12 each of the six methods of such a class is compiled from text when its module is loaded. With some two
hundred classes that was a fifth of what a small review costs. Here the comparison, the hash and the representation are
ready-made functions that do the same; all else is the standard library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # To a type checker nothing is different.
    from dataclasses import dataclass
else:

    def dataclass(
        kind: type | None = None, /, *, frozen: bool = False, slots: bool = False, kw_only: bool = False
    ) -> Any:
        """As `dataclasses.dataclass`, with those of its options that are used here."""

        def make(kind: type) -> type:
            if not frozen:
                return dataclasses.dataclass(kind, slots=slots, kw_only=kw_only)
            own = dict(vars(kind))
            made = dataclasses.dataclass(kind, frozen=True, slots=slots, kw_only=kw_only, eq=False, repr=False)
            for name, method in _methods(made).items():
                # A class with an `__eq__` of its own has None for a hash, which nobody wrote.
                if own.get(name) is None:
                    setattr(made, name, method)
            return made

        return make if kind is None else make(kind)


__all__ = ["dataclass"]


def _methods(made: Any) -> Mapping[str, Any]:
    fields = dataclasses.fields(made)
    compared = _values([field.name for field in fields if field.compare])
    hashed = _values([field.name for field in fields if (field.compare if field.hash is None else field.hash)])
    shown = [field.name for field in fields if field.repr]

    def equal(self: object, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    @recursive_repr()
    def show(self: object) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{self.__class__.__qualname__}({values})"

    return {"__eq__": equal, "__hash__": lambda self: hash(hashed(self)), "__repr__": show}


def _values(names: list[str]) -> Any:
    """What gets the values of some fields as one tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)
