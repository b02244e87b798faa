"""The kinds of value a setting can have: described for a person, checked, as JSON Schema, and read from plain text.

Checks are strict: a number in quotes is no number, and `yes` without quotes is no text. They are our own, since
every start of the program pays for them, and a library for this costs a tenth of a second.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.model.scope import check_pattern
from codeloupe.model.severity import Severity

LARGEST_LIMIT = 1_000_000_000
LONGEST_TEXT = 4_096
MOST_ENTRIES = 1_000
_MOST_PASSES = 10
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")

Place = tuple[int | str, ...]


class Mistake(Struct, frozen=True):
    """What is wrong with a value: `what` it is, at which `place` inside (positions and keys, from outside in).

    With `found` a message goes on with what stands there. `choices` are words of which one was probably meant;
    `wants_text` tells that quotes could mend it.
    """

    what: str
    place: Place = ()
    choices: tuple[str, ...] = ()
    found: bool = True
    wants_text: bool = False


class Wrong(Exception):
    """A value is not of its kind; `mistakes` has at least one entry."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__(mistakes[0].what)
        self.mistakes = tuple(mistakes)


class Kind(Struct, frozen=True):
    """`expected` completes the sentence "expected …"; `accept` and `from_text` raise ValueError for what they refuse.

    `from_text` is None for what no flag or variable can carry. `schema` is the JSON Schema of a value.
    """

    expected: str
    accept: Callable[[Any], object]
    schema: Mapping[str, Any]
    from_text: Callable[[str], object] | None = None
    choices: tuple[str, ...] = ()
    is_text: bool = False

    def read(self, value: object) -> Any:
        """The value as the settings hold it. Raises Wrong."""
        try:
            return self.accept(value)
        except ValueError:
            mistake = Mistake(f"expected {self.expected}", choices=self.choices, wants_text=self.is_text)
            raise Wrong([mistake]) from None


def optional(kind: Kind) -> Kind:
    """The same kind, or nothing at all."""

    def accept(value: object) -> object:
        return None if value is None else kind.accept(value)

    return replace(kind, accept=accept, schema={"anyOf": [dict(kind.schema), {"type": "null"}]})


def one_of(*choices: str, meaning: Callable[[str], object] = str) -> Kind:
    """The kind of a value that is one of a few words."""

    def accept(value: object) -> object:
        if not isinstance(value, str) or value not in choices:
            raise ValueError("not one of the words")
        return meaning(value)

    return Kind(in_words(choices), accept, {"type": "string", "enum": list(choices)}, str.strip, choices)


def list_of(
    entry: Kind,
    expected: str,
    *,
    from_text: Callable[[str], object] | None = None,
    least: int = 0,
    most: int = MOST_ENTRIES,
) -> Kind:
    """The kind of a list; each wrong entry is a mistake of its own."""

    def accept(value: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple) or len(value) < least:
            raise ValueError("not such a list")
        if len(value) > most:
            raise Wrong([Mistake(f"more than {most:,} entries", found=False)])
        return tuple(read_each((index, entry, each) for index, each in enumerate(value)))

    schema: dict[str, Any] = {"type": "array", "items": dict(entry.schema), "maxItems": most}
    if least:
        schema["minItems"] = least
    return Kind(expected, accept, schema, from_text, entry.choices)


def names_of(*choices: str, least: int = 0) -> Kind:
    """The kind of a list of known words, each at most once."""
    listed = list_of(one_of(*choices), f"a list of {in_words(choices)}, each once", from_text=comma_list, least=least)

    def accept(value: object) -> object:
        words = listed.read(value)
        again = [index for index, word in enumerate(words) if word in words[:index]]
        if again:
            raise Wrong([Mistake("expected each name once", (index,)) for index in again])
        return words

    return replace(listed, accept=accept, schema={**listed.schema, "uniqueItems": True})


def read_each(parts: Iterable[tuple[int | str, Kind, object]]) -> list[Any]:
    """Parts of a value, each of its own kind, by their place in it. Raises Wrong with the mistakes of all."""
    read: list[Any] = []
    mistakes: list[Mistake] = []
    for place, kind, value in parts:
        try:
            read.append(kind.read(value))
        except Wrong as wrong:
            mistakes += [replace(mistake, place=(place, *mistake.place)) for mistake in wrong.mistakes]
    if mistakes:
        raise Wrong(mistakes)
    return read


def in_words(choices: Sequence[str]) -> str:
    """`a, b or c`."""
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]


def comma_list(text: str) -> tuple[str, ...]:
    """`a, b,` is two words."""
    return tuple(part for part in (raw.strip() for raw in text.split(",")) if part)


def _boolean_text(text: str) -> bool:
    word = text.strip().lower()
    if word not in _BOOLEANS:
        raise ValueError("not a boolean")
    return _BOOLEANS[word]


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("not a boolean")
    return value


def _whole(largest: int) -> Callable[[object], int]:
    def accept(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
            raise ValueError("not such a number")
        return value

    return accept


def _above_zero(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("not a number")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("too large") from None
    if not (math.isfinite(number) and number > 0):
        raise ValueError("not above zero")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_TEXT or _UNUSABLE.search(value):
        raise ValueError("not such a text")
    return value


def _pattern(value: object) -> str:
    text = _text(value)
    if problem := check_pattern(text):
        raise Wrong([Mistake(f"expected a pattern that makes sense: {problem}", found=False)])
    return text


def _branch(value: object) -> str:
    name = _text(value)
    if name.startswith("-") or not name.isprintable():
        raise ValueError("not the name of a branch")
    return name


def _name(value: object) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("not a name")
    return value


_SOME_TEXT = {"type": "string", "minLength": 1}
_ABOVE_ZERO = {"type": "number", "exclusiveMinimum": 0}


def whole_number(largest: int) -> Kind:
    """The kind of a whole number from 1 on."""
    schema = {"type": "integer", "minimum": 1, "maximum": largest}
    return Kind(f"a whole number from 1 to {largest:,}", _whole(largest), schema, int)


BOOLEAN = Kind("true or false", _boolean, {"type": "boolean"}, _boolean_text)
WHOLE_NUMBER = whole_number(LARGEST_LIMIT)
PASSES = whole_number(_MOST_PASSES)
SECONDS = Kind("a number of seconds above 0", _above_zero, _ABOVE_ZERO, float)
DOLLARS = Kind("an amount of dollars above 0", _above_zero, _ABOVE_ZERO, float)
TEXT = Kind("a text", _text, _SOME_TEXT, str.strip, is_text=True)
BRANCH = Kind("the name of a branch as text", _branch, _SOME_TEXT, str.strip, is_text=True)
NAME = Kind(
    "a name of letters, digits, - and _, such as payments",
    _name,
    {"type": "string", "pattern": f"^{_NAME.pattern}$"},
    str.strip,
    is_text=True,
)
PATTERN = Kind("a pattern as text", _pattern, _SOME_TEXT, is_text=True)
PATTERNS = list_of(PATTERN, 'a list of patterns, such as ["src/**", "*.py"]', from_text=comma_list)
NAMES = list_of(
    NAME, "a list of names of letters, digits, - and _, such as [correctness, security]", from_text=comma_list
)
COMMAND = list_of(TEXT, "a program and its arguments as a list, such as [my-reviewer, --quick]", from_text=shlex.split)
ARGUMENTS = list_of(TEXT, "a list of arguments, such as [--mode, quick]", from_text=shlex.split)
_SEVERITIES = tuple(step.label for step in Severity)


def _severity(value: object) -> Severity:
    """A bare number could count from either end of the scale."""
    if isinstance(value, int) or (isinstance(value, str) and value.strip().isdigit()):
        raise ValueError("not a severity")
    return Severity.parse(value)


SEVERITY = Kind(
    "critical, high, medium or low (or P0 to P3)",
    _severity,
    {"type": "string", "enum": list(_SEVERITIES)},
    str.strip,
    _SEVERITIES,
)
