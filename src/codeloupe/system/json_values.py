"""Strict JSON, alone or inside a text that a model wrote.

Nothing is repaired and nothing is guessed. In a text, every object or list that parses by itself is read, the outermost
first. A bracket that begins nothing that parses ends only itself: reading continues after it. The work is bounded, and
`is_cut` says if reading stopped before the end.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from codeloupe.system.regex import regex

_Kind = TypeVar("_Kind")
MAX_CHARACTERS = 10 * 1024 * 1024
MAX_DEPTH = 100
MAX_PARTS = 10_000

# A bracket begins a value only if JSON allows what follows it.
_START = regex(r'[\[{](?=\s*+(?:[\[{\]}"\d-]|true\b|false\b|null\b|\Z))')
# How many characters may be read in vain. Each bracket that begins nothing costs all characters before the place where
# parsing stops, since the parser counts their lines.
_MOST_IN_VAIN = 100 * MAX_CHARACTERS
_FENCE = regex(r"(`{3,}+|~{3,}+)[ \t]*+([\w+.-]*+)")
_SURROGATE = regex(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


class NotJson(ValueError):
    """The text breaks the grammar of JSON."""


class FoundJson(Struct, frozen=True, kw_only=True):
    """The objects and lists in a text, in order. `is_cut` says that the text ends inside one, or was not read whole."""

    values: tuple[Any, ...] = ()
    is_cut: bool = False


def parsed(text: str) -> Any:
    """Return the value of strict JSON, with each lone surrogate replaced. Raise ValueError.

    NaN, infinite numbers, a key given twice and deep nesting are refused.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"longer than {MAX_CHARACTERS:,} characters")
    try:
        value = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep") from error
    except json.JSONDecodeError as error:
        raise NotJson(f"not JSON: {error.msg} at character {error.pos:,}") from error
    refuse_unsound(value)
    if _SURROGATE.search(text):
        return _without_surrogates(value)
    return value


def refuse_unsound(value: Any) -> None:
    """Raise ValueError for a value that is nested too deep or contains a number that is not finite."""
    level = [value]
    depth = 0
    while level:
        parts: list[Any] = []
        has_containers = False
        for item in level:
            if isinstance(item, dict):
                has_containers = True
                parts.extend(item.values())
            elif isinstance(item, list):
                has_containers = True
                parts.extend(item)
            elif isinstance(item, float) and not isfinite(item):
                raise ValueError("a number is not finite")
        if has_containers:
            depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
        level = parts


def exact_value(text: str) -> Any:
    """Return the value of a text that is nothing but one JSON value, bare or in one code fence.

    White space around it is allowed. Raise ValueError with a short reason for any other text.
    """
    stripped = text.removeprefix("\ufeff").strip()
    body = _without_fence(stripped)
    try:
        return parsed(body)
    except NotJson as error:
        found = find_json(stripped)
        if found.is_cut:
            raise ValueError("the JSON is cut off") from error
        if found.values:
            raise ValueError("text around the JSON") from error
        if body.startswith(("{", "[")):
            raise
        raise ValueError("no JSON found") from error


def parse_document(text: str) -> Any:
    """Return the JSON value that a program printed. Raise ValueError if the text is not one value.

    A key without a value is removed: programs write null for a part that they do not have.
    """
    try:
        return without_nulls(exact_value(text))
    except ValueError as error:
        raise ValueError(f"invalid json: {error}") from error


def without_nulls(value: Any) -> Any:
    """Return a value without its keys that have no value."""
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


def find_json(text: str) -> FoundJson:
    """Return the JSON values in a text. Never raise."""
    is_cut = len(text) > MAX_CHARACTERS
    text = text[:MAX_CHARACTERS]
    end_of_text = len(text.rstrip())
    values: list[Any] = []
    in_vain = 0
    found = _START.search(text)
    while found is not None:
        start = found.start()
        if len(values) >= MAX_PARTS or in_vain > _MOST_IN_VAIN:
            return FoundJson(values=tuple(values), is_cut=True)
        try:
            value, end = _DECODER.raw_decode(text, start)
            refuse_unsound(value)
        except json.JSONDecodeError as error:
            in_vain += error.pos + 1
            is_cut = is_cut or _ends_inside(error, end_of_text)
            end = start + 1
        except (RecursionError, ValueError):
            # It is nested too deep, or has a key twice; how much of the text was read is not known.
            in_vain += len(text)
            end = start + 1
        else:
            values.append(_without_surrogates(value))
        found = _START.search(text, end)
    return FoundJson(values=tuple(values), is_cut=is_cut)


def _ends_inside(error: json.JSONDecodeError, end_of_text: int) -> bool:
    """Tell whether a value does not parse because the text ends before it does."""
    return error.pos >= end_of_text or error.msg.startswith("Unterminated string")


def _without_fence(text: str) -> str:
    """Return the content of a text that is one code fence, and any other text as it is."""
    first_line, _, rest = text.partition("\n")
    content, _, last_line = rest.rpartition("\n")
    opening = _FENCE.fullmatch(first_line.rstrip())
    closing = _FENCE.fullmatch(last_line.strip())
    if opening is None or closing is None or closing[2]:
        return text
    is_same_fence = closing[1].startswith(opening[1])
    return content.strip() if is_same_fence else text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"key given twice: {key[:100]}")
        seen.add(key)
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)


def _without_surrogates(value: Any) -> Any:
    """Replace each half of a character, which no file and no terminal accepts."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return _unique_keys([(_without_surrogates(key), _without_surrogates(item)) for key, item in value.items()])
    return value
