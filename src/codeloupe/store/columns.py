"""Values for the columns that are searched and counted. The exact ones stand in the payload beside them."""

from __future__ import annotations

import math

_LARGEST = 2**63 - 1


def text_column(text: str) -> str:
    """A text that SQLite can hold: half a character, as in a path that is not UTF-8, is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def whole_column(number: int) -> int:
    """A whole number in the range that SQLite has."""
    return max(-_LARGEST, min(_LARGEST, number))


def real_column(number: float) -> float:
    """A number that can be added up; one that is none, or endless, counts as nothing."""
    try:
        plain = float(number)
    except OverflowError:
        return 0.0
    return plain if math.isfinite(plain) else 0.0


def text_of(value: object) -> str:
    """What a text column holds, read as bytes, so that one damaged row does not end the reading of the others."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
