"""Strict JSON, alone or inside a text that a model wrote.

Nothing is repaired and nothing is guessed. A text is read in one linear pass, so its length bounds the work.

- A bracket begins a value only if JSON allows what follows it. Inside a value every bracket outside a string counts.
- A closing bracket closes the last open bracket of its kind and all that were opened after it.
- A balanced part that does not parse is skipped whole.
- Apart from the complete items before a truncation, nothing is read from a list that does not parse.
- Reading stops at a part that is nested too deep, after very many parts, and at the largest length.
"""

from __future__ import annotations

import json
from contextlib import suppress
from math import isfinite
from typing import Any

from msgspec import Struct

from codeloupe.system.regex import regex

MAX_CHARACTERS = 10 * 1024 * 1024
MAX_DEPTH = 100
MAX_PARTS = 10_000

_OPENERS = frozenset("[{")
_OPENING = {"]": "[", "}": "{"}
# The start of a value in prose. A quoted part of a line is skipped: brackets in it are quoted, too.
_START = regex(
    r'"[^"\n]*+"'
    r"|(?P<list>\[)(?=\s*+(?:[\[{\]\"\d-]|true\b|false\b|null\b|\Z))"
    r'|(?P<object>\{)(?=\s*+(?:["}]|\Z))'
)
# A string ends at its line, even if it is not closed there: JSON has no strings of several lines.
_TOKEN = regex(r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?|[\[\]{}]')
_FENCE = regex(r"(`{3,}+|~{3,}+)[ \t]*+([\w+.-]*+)")
_SURROGATE = regex(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


class NotJson(ValueError):
    """The text breaks the grammar of JSON."""


class FoundJson(Struct, frozen=True, kw_only=True):
    """The JSON in a text.

    `values` are the outermost complete objects and lists that parse, in order. If the text ends inside an object or a
    list, `cut_items` are the complete objects directly inside the outermost lists of that part. `is_cut` says that
    the text ends so, or that reading stopped at a limit.
    """

    values: tuple[Any, ...] = ()
    cut_items: tuple[dict[str, Any], ...] = ()
    is_cut: bool = False


class _Part(Struct, frozen=True, kw_only=True):
    """A part of a text that begins with a bracket. `end` is None if the text ends before the part, or at a limit.

    `lists` are then the outermost lists in it, the last one up to its last complete object or list.
    """

    end: int | None = None
    lists: tuple[str, ...] = ()


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
        if found.values:
            raise ValueError("text around the JSON") from error
        if found.is_cut:
            raise ValueError("the JSON is cut off") from error
        if body.startswith(("{", "[")):
            raise
        raise ValueError("no JSON found") from error


def find_json(text: str) -> FoundJson:
    """Return the JSON values in a text, and the complete items of a list that the text ends in. Never raise."""
    is_too_long = len(text) > MAX_CHARACTERS
    text = text[:MAX_CHARACTERS]
    values: list[Any] = []
    position = 0
    for _ in range(MAX_PARTS):
        start = _next_start(text, position)
        if start is None:
            return FoundJson(values=tuple(values), is_cut=is_too_long)
        part = _read_part(text, start)
        if part.end is None:
            return FoundJson(values=tuple(values), cut_items=_items_before_cut(part), is_cut=True)
        with suppress(ValueError):
            values.append(parsed(text[start : part.end]))
        position = part.end
    return FoundJson(values=tuple(values), is_cut=True)


def _next_start(text: str, position: int) -> int | None:
    """Return where the next object or list may begin."""
    for found in _START.finditer(text, position):
        if found.lastgroup is not None:
            return found.start()
    return None


class _OpenBrackets:
    """The brackets that are open at a place in a text."""

    def __init__(self) -> None:
        self._stack: list[str] = []
        # Looking for a bracket that is not there must not cost a walk through the stack.
        self._counts = {"[": 0, "{": 0}

    @property
    def depth(self) -> int:
        return len(self._stack)

    @property
    def lists(self) -> int:
        return self._counts["["]

    def open(self, bracket: str) -> None:
        self._stack.append(bracket)
        self._counts[bracket] += 1

    def close(self, opening: str) -> bool:
        """Close the last open bracket of this kind and all that were opened after it; False if there is none."""
        if not self._counts[opening]:
            return False
        closed = ""
        while closed != opening:
            closed = self._stack.pop()
            self._counts[closed] -= 1
        return True


def _read_part(text: str, start: int) -> _Part:
    """Match the brackets from the one at `start` on, until it is closed or the text ends."""
    brackets = _OpenBrackets()
    lists: list[str] = []
    list_start = 0
    list_depth = 0
    items_end = 0
    for token in _TOKEN.finditer(text, start):
        bracket = token[0]
        if bracket in _OPENERS:
            brackets.open(bracket)
            if brackets.depth > MAX_DEPTH:
                return _Part()
            if bracket == "[" and brackets.lists == 1:
                list_start = token.start()
                list_depth = brackets.depth
                items_end = token.end()
        elif bracket in _OPENING and brackets.close(_OPENING[bracket]):
            if not brackets.depth:
                return _Part(end=token.end())
            if brackets.depth == list_depth:
                items_end = token.end()
            elif bracket == "]" and not brackets.lists:
                lists.append(text[list_start : token.end()])
    if brackets.lists:
        lists.append(text[list_start:items_end] + "]")
    return _Part(lists=tuple(lists[:MAX_PARTS]))


def _items_before_cut(part: _Part) -> tuple[dict[str, Any], ...]:
    items: list[dict[str, Any]] = []
    for text in part.lists:
        with suppress(ValueError):
            items.extend(item for item in parsed(text) if isinstance(item, dict))
    return tuple(items)


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
