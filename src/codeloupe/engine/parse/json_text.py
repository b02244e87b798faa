"""JSON in the answer of a model: strict when it stands alone, found when prose or a fence stands around it.

One pass over the text, whatever the text is; sizes and depths are capped.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator
from heapq import nlargest
from math import isfinite
from typing import Any

from codeloupe.engine.parse.patterns import late

MAX_TEXT_CHARACTERS = 4 * 1024 * 1024
MAX_DEPTH = 100
_MAX_CANDIDATES = 1000
_MAX_NAME_CHARACTERS = 100
_OPENER = late(r"[{\[]")
_BRACKET_OR_QUOTE = late(r'[{}\[\]"]')
_STRING_STOP = late(r'["\n]|\\.?')
_CLOSES = {"}": "{", "]": "["}


def candidates(text: str) -> Iterator[str]:
    """What may be JSON: the whole text, then its bracketed parts, longest first. Those do not overlap.

    Raises ValueError for a text beyond the caps.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, more than {MAX_TEXT_CHARACTERS:,}")
    yield text
    spans = _spans(text)
    for start, end in nlargest(_MAX_CANDIDATES, zip(spans[::2], spans[1::2], strict=True), key=_length):
        yield text[start:end]


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]


def _spans(text: str) -> array[int]:
    """Start and end, in turns, of each part between matching brackets that stands in no other such part.

    A bracket that is never closed, as prose has them, takes nothing with it. Raises ValueError beyond the depth cap.
    """
    spans = array("q")
    opened: list[int] = []
    position = 0
    while token := (_BRACKET_OR_QUOTE if opened else _OPENER).search(text, position):
        position = token.end()
        bracket = token[0]
        if bracket == '"':
            position = string_end(text, position)
        elif bracket in "{[":
            opened.append(token.start())
            if len(opened) > MAX_DEPTH:
                raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        elif bracket in _CLOSES and text[opened[-1]] == _CLOSES[bracket]:
            _keep_outermost(spans, opened.pop(), position)
        elif bracket in _CLOSES:
            opened.clear()
    return spans


def string_end(text: str, position: int) -> int:
    """The end of the string whose quote stands before this position.

    A string of JSON holds no line end, so a stray quote in prose spoils at most its own line.
    """
    while stop := _STRING_STOP.search(text, position):
        position = stop.end()
        if stop[0] in '"\n':
            return position
    return len(text)


def _keep_outermost(spans: array[int], start: int, end: int) -> None:
    while spans and spans[-2] > start:
        del spans[-2:]
    spans.extend((start, end))


def parsed(text: str) -> Any:
    """Strict JSON: no NaN, no key twice, no endless nesting. Raises ValueError."""
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=refuse_constant)
    except RecursionError as error:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"it holds no JSON that can be read ({error.msg} at character {error.pos:,})") from error
    refuse_unsound(value)
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for name, item in pairs:
        if name in value:
            raise ValueError(f"the key {name[:_MAX_NAME_CHARACTERS]!r} occurs more than once in one object")
        value[name] = item
    return value


def refuse_constant(name: str) -> Any:
    """Raises ValueError for NaN and its like."""
    raise ValueError(f"{name} is not a JSON number")


def refuse_unsound(value: Any) -> None:
    """Raises ValueError for a value that is nested deeper than the cap or holds a number without end."""
    level, depth = [value], 0
    while level:
        if any(isinstance(item, float) and not isfinite(item) for item in level):
            raise ValueError("it holds a number that is not finite")
        depth += any(isinstance(item, dict | list) for item in level)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        level = [child for item in level for child in _children(item)]


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
