"""Lists of GitHub's GraphQL graph in pages, and its errors."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from graphql import GraphQLError, GraphQLResolveInfo

Thing = TypeVar("Thing")
_LARGEST_PAGE = 100


class NotKnown(Exception):
    """The schema has it and this server has not."""


def failed(kind: str, message: str) -> GraphQLError:
    """An error with GitHub's type for it."""
    return GraphQLError(message, extensions={"type": kind})


def connection(items: Sequence[Thing], render: Callable[[Thing], Any]) -> Callable[..., Any]:
    """A list in pages, as GitHub gives it: how many are wanted must be said, and is 100 at most."""

    def page(
        info: GraphQLResolveInfo[Any],
        first: int | None = None,
        last: int | None = None,
        after: str | None = None,
        before: str | None = None,
        **others: Any,
    ) -> dict[str, Any]:
        if unheeded := [name for name, value in others.items() if value is not None]:
            raise NotKnown(f"{info.parent_type.name}.{info.field_name}({', '.join(unheeded)})")
        _check_size(info.field_name, first, last)
        begin = _index(after) + 1 if after else 0
        end = _index(before) if before else len(items)
        if first is not None:
            end = min(end, begin + first)
        elif last is not None:
            begin = max(begin, end - last)
        shown = list(range(begin, max(begin, min(end, len(items)))))
        return {
            "totalCount": len(items),
            "nodes": lambda _info: [render(items[index]) for index in shown],
            "edges": lambda _info: [{"cursor": _cursor(index), "node": render(items[index])} for index in shown],
            "pageInfo": {
                "hasNextPage": end < len(items),
                "hasPreviousPage": begin > 0,
                "startCursor": _cursor(shown[0]) if shown else None,
                "endCursor": _cursor(shown[-1]) if shown else None,
            },
        }

    return page


def _check_size(name: str, first: int | None, last: int | None) -> None:
    if first is None and last is None:
        words = f"You must provide a `first` or `last` value to properly paginate the `{name}` connection."
        raise failed("MISSING_PAGINATION_BOUNDARIES", words)
    for argument, size in (("first", first), ("last", last)):
        if size is not None and size > _LARGEST_PAGE:
            limit = f"exceeds the `{argument}` limit of {_LARGEST_PAGE} records."
            raise failed("EXCESSIVE_PAGINATION", f"Requesting {size} records on the `{name}` connection {limit}")
        if size is not None and size < 0:
            raise failed("INVALID_PAGINATION", f"`{argument}` on the `{name}` connection cannot be less than zero.")


def _cursor(index: int) -> str:
    return base64.b64encode(f"cursor:v2:{index}".encode()).decode()


def _index(cursor: str) -> int:
    try:
        return int(base64.b64decode(cursor, validate=True).decode().removeprefix("cursor:v2:"))
    except ValueError as error:
        message = f"`{cursor}` does not appear to be a valid cursor."
        raise failed("INVALID_CURSOR_ARGUMENTS", message) from error
