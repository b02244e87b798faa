"""The JSON documents that external reviewers print: decoding them, and reading their lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec import ValidationError, convert

from codeloupe.reviewers.answers import MAX_ITEMS, RawClaim, ReviewAnswer
from codeloupe.system.json_values import exact_value

_Kind = TypeVar("_Kind")
_Item = TypeVar("_Item")


def parse_document(text: str) -> Any:
    """Return the JSON value that a text consists of. Raise ValueError if it is not one."""
    try:
        return without_nulls(exact_value(text))
    except ValueError as error:
        raise ValueError(f"invalid json: {error}") from error


def without_nulls(value: Any) -> Any:
    """Remove each key without a value: programs write null for a part that they do not have."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def read_parts(value: Any, kind: type[_Kind]) -> _Kind:
    """Return the parts of a value that we read. Raise ValueError if one of them has another type."""
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise ValueError(f"invalid json: {error}") from error


def read_list(items: Iterable[_Item], read: Callable[[_Item], RawClaim | None], problem: str = "") -> ReviewAnswer:
    """Return the claims of a list. An item that `read` refuses with ValueError makes the output incomplete."""
    claims: list[RawClaim] = []
    invalid: list[str] = []
    for number, item in enumerate(items, start=1):
        if len(claims) + len(invalid) == MAX_ITEMS:
            invalid.append(f"more than {MAX_ITEMS:,} findings")
            break
        try:
            claim = read(item)
        except ValueError as error:
            invalid.append(f"{error} (finding {number:,})")
            continue
        if claim is not None:
            claims.append(claim)
    if not problem and invalid:
        problem = invalid[0]
    return ReviewAnswer(claims=tuple(claims), problem=problem, invalid=tuple(invalid))
