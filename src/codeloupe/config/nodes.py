"""The values of a configuration file, each with the line it stands on."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from codeloupe.config.problems import quote

ScalarValue = bool | int | float | str | None


class ScalarNode(Struct, frozen=True):
    """One value, as written and as meant."""

    line: int
    text: str
    value: ScalarValue

    @property
    def size(self) -> int:
        """How many values this is."""
        return 1

    @property
    def height(self) -> int:
        """How many levels are below."""
        return 0


class ListNode(Struct, frozen=True):
    """A list. `size` counts the values of all levels with aliases written out, `height` the levels below."""

    line: int
    items: tuple[Node, ...]
    size: int
    height: int


class MapNode(Struct, frozen=True):
    """Keys and values in the order of the file; a key that stands twice is there twice."""

    line: int
    entries: tuple[tuple[ScalarNode, Node], ...]
    size: int
    height: int


Node = ScalarNode | ListNode | MapNode


def describe(node: Node) -> str:
    """What a value is, for the end of "expected …, found …"."""
    match node:
        case ListNode():
            return "a list" if node.items else "an empty list"
        case MapNode():
            return "a group of keys"
        case ScalarNode():
            return "nothing" if node.value is None else quote(node.text)


def plain(node: Node) -> object:
    """The value without its place: None, bool, int, float, str, list or dict."""
    match node:
        case ListNode():
            return [plain(item) for item in node.items]
        case MapNode():
            return {key.text: plain(value) for key, value in node.entries}
        case ScalarNode():
            return node.value


def part(node: Node, place: Sequence[int | str]) -> tuple[Node, int]:
    """The part of a value that a place leads to, and its line; for an entry of a group, the line of its key.

    A place that leads nowhere ends at the last part there is.
    """
    line = node.line
    for step in place:
        if isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            line = node.line
        elif isinstance(node, MapNode) and (entry := _entry(node, step)):
            line, node = entry[0].line, entry[1]
        else:
            break
    return node, line


def _entry(node: MapNode, step: int | str) -> tuple[ScalarNode, Node] | None:
    # The last of equal keys is the one that `plain` takes.
    return next((entry for entry in reversed(node.entries) if entry[0].text == step), None)
