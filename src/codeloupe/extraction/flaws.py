"""Values of JSON that are not whole: they can be used like others, and say what is wrong with them."""

from __future__ import annotations

from typing import Any

TRUNCATED = "truncated"
_MAX_KEY_CHARACTERS = 100


class FlawedObject(dict[str, Any]):
    """An object of which a part is missing or in doubt."""

    def __init__(self, members: dict[str, Any], flaw: str) -> None:
        super().__init__(members)
        self.flaw = flaw


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


def duplicate_key(name: str) -> str:
    """The flaw of an object that has a key twice: nobody knows which of the two was meant."""
    return f"duplicate key: {name[:_MAX_KEY_CHARACTERS]}"
