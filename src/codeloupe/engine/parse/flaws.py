"""Values of JSON that are not whole: they can be used like others, and say what is wrong with them."""

from __future__ import annotations

from typing import Any

TRUNCATED = "truncated"
_MAX_KEY_CHARACTERS = 100


class FlawedObject(dict[str, Any]):
    """An object of which a part is missing or in doubt. `others` are further values of keys that stand in it twice."""

    def __init__(self, members: dict[str, Any], flaw: str, others: tuple[tuple[str, Any], ...] = ()) -> None:
        super().__init__(members)
        self.flaw = flaw
        self.others = others


class CutList(list[Any]):
    """A list whose end was not in the text. Its items are whole, save the last, which may be cut itself."""

    flaw = TRUNCATED


class CutText(str):
    """A string whose end was not in the text."""

    __slots__ = ()
    flaw = TRUNCATED


def flaw_of(value: object) -> str:
    """What is wrong with a value itself, or nothing."""
    return value.flaw if isinstance(value, FlawedObject | CutList | CutText) else ""


def other_values(value: object) -> tuple[tuple[str, Any], ...]:
    """What an object has a second time, by name; nothing for any other value."""
    return value.others if isinstance(value, FlawedObject) else ()


def duplicate_key(name: str) -> str:
    """The flaw of an object that has a key twice: nobody knows which of the two was meant."""
    return f"duplicate key: {name[:_MAX_KEY_CHARACTERS]}"
