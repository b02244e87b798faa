"""JSON in text that a model wrote: strict where it stands alone, found where prose or a fence stands around it.

One pass over the text, whatever it holds; sizes and depths are capped.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from heapq import nlargest
from math import isfinite
from typing import Any, cast

MAX_TEXT_CHARACTERS = 4 * 1024 * 1024
MAX_DEPTH = 100
_MAX_CANDIDATES = 1000
_MAX_NAME_CHARACTERS = 100
_CLOSES = {"}": "{", "]": "["}


class LatePattern:
    """A pattern that is compiled with its first use: most answers are sound and need hardly any."""

    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        value = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, value)  # From now on the method is found at once.
        return value


def late(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that is compiled with its first use; a mistake in it shows only then, so each needs a test."""
    return cast("re.Pattern[str]", LatePattern(text, flags))


_OPENER = late(r"[{\[]")
_BRACKET_OR_QUOTE = late(r'[{}\[\]"]')
_STRING_STOP = late(r'["\n]|\\.?')
_REASONING = late(r"[\s\ufeff]*+<(think|thinking|thoughts?|reasoning)>", re.IGNORECASE)


def candidates(text: str) -> Iterator[str]:
    """What may be JSON: the whole text, then its bracketed parts, longest first; those do not overlap.

    Raises ValueError for a text beyond the caps.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"it has {len(text):,} characters, more than {MAX_TEXT_CHARACTERS:,}")
    yield text
    spans = _spans(text)
    pairs = zip(spans[::2], spans[1::2], strict=True)
    for start, end in nlargest(_MAX_CANDIDATES, pairs, key=lambda span: span[1] - span[0]):
        yield text[start:end]


def _spans(text: str) -> array[int]:
    """Start and end, in turns, of each part between matching brackets that is in no other such part.

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
        elif text[opened[-1]] != _CLOSES[bracket]:
            opened.clear()
        else:
            start = opened.pop()
            while spans and spans[-2] > start:
                del spans[-2:]
            spans.extend((start, position))
    return spans


def string_end(text: str, position: int) -> int:
    """The end of the string whose quote is before this position.

    A string of JSON holds no line end, so a stray quote in prose spoils at most its own line.
    """
    while stop := _STRING_STOP.search(text, position):
        position = stop.end()
        if stop[0] in '"\n':
            return position
    return len(text)


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
    """Raise ValueError for NaN and its like."""
    raise ValueError(f"{name} is not a JSON number")


def refuse_unsound(value: Any) -> None:
    """Raise ValueError for a value that is nested deeper than the cap or holds a number that is not finite."""
    level, depth = [value], 0
    while level:
        if any(isinstance(item, float) and not isfinite(item) for item in level):
            raise ValueError("it holds a number that is not finite")
        containers = [item for item in level if isinstance(item, dict | list)]
        depth += bool(containers)
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
        level = [part for item in containers for part in (item.values() if isinstance(item, dict) else item)]


def behind_reasoning(text: str) -> str | None:
    """The text after the reasoning it begins with (all of it without any); None where nothing comes after it.

    Drafts are in what a model thought aloud, and a draft is not the answer. The first closing tag counts, so that none
    which is quoted later can hide what was said.
    """
    position, lowered = 0, ""
    while opening := _REASONING.match(text, position):
        lowered = lowered or text.lower()
        closing = f"</{opening[1].lower()}>"
        end = lowered.find(closing, opening.end())
        if end < 0:
            return None
        position = end + len(closing)
    if not position:
        return text
    return text[position:] if text[position:].strip().strip("\ufeff") else None
