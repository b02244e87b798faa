"""Values in what a program prints: it is not to be trusted to have its shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DETAIL_CHARACTERS = 80
_LARGEST_COUNT = 10**15


def text_of(value: object) -> str:
    """The value if it is text, else nothing."""
    return value if isinstance(value, str) else ""


def count_of(value: object) -> int:
    """The value if it is a number that can be a count, else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value <= _LARGEST_COUNT else 0


def cost_of(value: object) -> float | None:
    """The value if it is a number that can be a price in dollars, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _LARGEST_COUNT else None


def mapping_of(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def list_of(value: object) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def detail_of(text: str) -> str:
    """The first line of what a tool was used on, cut to a length for a display."""
    return text.strip().partition("\n")[0][:_MAX_DETAIL_CHARACTERS]
