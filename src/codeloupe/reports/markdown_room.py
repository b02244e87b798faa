"""How much of a list a page of Markdown shows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from msgspec import Struct


class Room(Struct, frozen=True, kw_only=True):
    """So many items at most, of so many bytes together."""

    items: int
    size_bytes: int


def fitted(items: Iterable[str], room: Room) -> list[str]:
    """The first of some items, as many as there is room for. None is cut: the first that does not fit ends the list."""
    shown: list[str] = []
    left = room.size_bytes
    for item in islice(items, room.items):
        left -= len(item.encode("utf-8")) + 2
        if left < 0:
            break
        shown.append(item)
    return shown
