"""Graphs of parts that use each other. A graph is a list: at each part's index, the indexes of the parts it uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

Graph = Sequence[AbstractSet[int]]


def reachable(graph: Graph, starts: Iterable[int]) -> set[int]:
    """Return the starts, and everything that they use directly or through others."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        for used in graph[waiting.pop()]:
            if used not in found:
                found.add(used)
                waiting.append(used)
    return found


def reversed_graph(graph: Graph) -> list[set[int]]:
    """Return the graph in the other direction: at each index, the parts that use it."""
    users: list[set[int]] = [set() for _ in graph]
    for user, used_parts in enumerate(graph):
        for used in used_parts:
            users[used].add(user)
    return users


def groups_in_order(graph: Graph) -> list[list[int]]:
    """Return the parts in groups that use each other, each group after the groups that it uses.

    This is Tarjan's algorithm for strongly connected components, without recursion.
    """
    order: list[list[int]] = []
    number_of: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_parts: list[int] = []
    is_open: set[int] = set()
    for root in range(len(graph)):
        if root in number_of:
            continue
        path = [(root, iter(sorted(graph[root])))]
        number_of[root] = lowest[root] = len(number_of)
        open_parts.append(root)
        is_open.add(root)
        while path:
            part, remaining = path[-1]
            for used in remaining:
                if used not in number_of:
                    number_of[used] = lowest[used] = len(number_of)
                    open_parts.append(used)
                    is_open.add(used)
                    path.append((used, iter(sorted(graph[used]))))
                    break
                if used in is_open:
                    lowest[part] = min(lowest[part], number_of[used])
            else:
                path.pop()
                if path:
                    user = path[-1][0]
                    lowest[user] = min(lowest[user], lowest[part])
                if lowest[part] == number_of[part]:
                    order.append(_closed_group(part, open_parts, is_open))
    return order


def _closed_group(first: int, open_parts: list[int], is_open: set[int]) -> list[int]:
    """Take the group that began with this part from the open parts, and return it in the order of the file."""
    group: list[int] = []
    while True:
        part = open_parts.pop()
        is_open.remove(part)
        group.append(part)
        if part == first:
            return sorted(group)
