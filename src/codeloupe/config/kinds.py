"""The kinds of values for settings: each has a description, a check, a JSON Schema and a way to read text."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from codeloupe.config.yaml import quote
from codeloupe.model.change import PathInstruction
from codeloupe.model.finding import Severity
from codeloupe.model.frozen import FrozenDict
from codeloupe.model.scope import check_pattern
from codeloupe.model.sweep import CommitCategory
from codeloupe.system.regex import regex

LONGEST_TEXT = 4_096
MOST_ENTRIES = 1_000
MOST_EXPERTS = 50
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_A_DATABASE = "the URL of a Postgres database, such as postgresql://USER@HOST/NAME"
_NAME = regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_UNUSABLE = regex("[\x00\ud800-\udfff]")

Place = tuple[int | str, ...]


class Mistake(Struct, frozen=True):
    """Describe a mistake in a value: `what` is the message, `place` the path to the invalid part (positions and keys).

    With `found`, the message also shows the invalid value. `choices` are the words that the user may have meant.
    `wants_text` says that quotes could fix the mistake.
    """

    what: str
    place: Place = ()
    choices: tuple[str, ...] = ()
    found: bool = True
    wants_text: bool = False


class Wrong(Exception):
    """Report that a value is not of its kind. `mistakes` has at least one entry."""

    def __init__(self, *mistakes: Mistake) -> None:
        super().__init__(mistakes[0].what)
        self.mistakes = mistakes


class Kind(Struct, frozen=True):
    """Describe a kind of value. `expected` completes the sentence "expected …".

    `accept` and `from_text` raise ValueError for an invalid value. `from_text` is None if the value cannot be set by a
    flag or variable. `schema` is the JSON Schema of a value.
    """

    expected: str
    accept: Callable[[Any], object]
    schema: Mapping[str, Any]
    from_text: Callable[[str], object] | None = None
    choices: tuple[str, ...] = ()
    is_text: bool = False

    def read(self, value: object) -> Any:
        """Return the value in the form that the settings store. Raises Wrong."""
        try:
            return self.accept(value)
        except ValueError:
            expected = f"expected {self.expected}"
            raise Wrong(Mistake(expected, choices=self.choices, wants_text=self.is_text)) from None


def either(choices: Sequence[str]) -> str:
    """Return the choices in one phrase: `a, b or c`."""
    return f"{', '.join(choices[:-1])} or {choices[-1]}" if len(choices) > 1 else choices[0]


def comma_list(text: str) -> tuple[str, ...]:
    """Split a string at commas and drop empty parts: `a, b,` is two words."""
    return tuple(part for part in (raw.strip() for raw in text.split(",")) if part)


def optional(kind: Kind) -> Kind:
    """Return the same kind, but accept None too."""
    schema = {"anyOf": [dict(kind.schema), {"type": "null"}]}
    return replace(kind, accept=lambda value: None if value is None else kind.accept(value), schema=schema)


def one_of(*choices: str, meaning: Callable[[str], object] = str) -> Kind:
    """Return the kind of a value that is one of a few words."""
    accept = _if(lambda value: isinstance(value, str) and value in choices)
    schema = {"type": "string", "enum": list(choices)}
    return Kind(either(choices), lambda value: meaning(accept(value)), schema, str.strip, choices)


def read_each(
    parts: Iterable[tuple[int | str, Kind, object]], mistakes: Iterable[Mistake] = ()
) -> dict[int | str, object]:
    """Read the parts of a value, each of its own kind, by their place. Raises Wrong with the mistakes in all parts."""
    read: dict[int | str, object] = {}
    found = list(mistakes)
    for place, kind, value in parts:
        try:
            read[place] = kind.read(value)
        except Wrong as wrong:
            found += [replace(mistake, place=(place, *mistake.place)) for mistake in wrong.mistakes]
    if found:
        raise Wrong(*found)
    return read


def list_of(
    entry: Kind,
    expected: str,
    *,
    from_text: Callable[[str], object] | None = None,
    least: int = 0,
    most: int = MOST_ENTRIES,
) -> Kind:
    """Return the kind of a list. Each invalid entry is a separate mistake."""

    def accept(value: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple) or len(value) < least:
            raise ValueError("not a list of this kind")
        if len(value) > most:
            raise Wrong(Mistake(f"more than {most:,} entries", found=False))
        return tuple(read_each((index, entry, each) for index, each in enumerate(value)).values())

    schema: dict[str, Any] = {"type": "array", "items": dict(entry.schema), "maxItems": most}
    return Kind(expected, accept, {**schema, "minItems": least} if least else schema, from_text, entry.choices)


def names_of(*choices: str, least: int = 0) -> Kind:
    """Return the kind of a list of known words, each at most once."""
    listed = list_of(
        one_of(*choices), f"a list of {either(choices)}, each at most once", from_text=comma_list, least=least
    )

    def accept(value: object) -> object:
        words = listed.read(value)
        if again := [index for index, word in enumerate(words) if word in words[:index]]:
            raise Wrong(*(Mistake("expected each name at most once", (index,)) for index in again))
        return words

    return replace(listed, accept=accept, schema={**listed.schema, "uniqueItems": True})


def group(expected: str, keys: Mapping[str, Kind], *, make: Callable[..., object], needed: Sequence[str] = ()) -> Kind:
    """Return the kind of a group with only these keys. `make` receives the keys that are present."""

    def accept(value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError("not a group")
        if len(value) > 100:
            raise Wrong(Mistake("more than 100 keys", found=False))
        mistakes = [
            *(Mistake("unknown key", (str(key),), tuple(keys), found=False) for key in value if key not in keys),
            *(Mistake(f"`{key}` is missing", found=False) for key in needed if key not in value),
        ]
        read: Any = read_each(((key, keys[key], value[key]) for key in keys if key in value), mistakes)
        return make(**read)

    properties = {key: dict(kind.schema) for key, kind in keys.items()}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return Kind(expected, accept, {**schema, "required": list(needed)} if needed else schema)


def _if(fits: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Return a function that returns a value unchanged if it fits, and otherwise raises ValueError."""

    def accept(value: object) -> object:
        if not fits(value):
            raise ValueError("it does not fit")
        return value

    return accept


def whole_number(largest: int) -> Kind:
    """Return the kind of a whole number from 1 to `largest`."""
    schema = {"type": "integer", "minimum": 1, "maximum": largest}
    accept = _if(lambda value: type(value) is int and 1 <= value <= largest)
    return Kind(f"a whole number from 1 to {largest:,}", accept, schema, int)


def _above_zero(value: Any) -> float:
    if type(value) not in (int, float) or not 0 < value <= sys.float_info.max:
        raise ValueError("not a number above zero")
    return float(value)


def _text_up_to(most: int) -> Callable[[Any], Any]:
    return _if(lambda value: isinstance(value, str) and 0 < len(value) <= most and not _UNUSABLE.search(value))


_text = _text_up_to(LONGEST_TEXT)
_name = _if(lambda value: isinstance(value, str) and _NAME.fullmatch(value))
_branch = _if(lambda value: not _text(value).startswith("-") and value.isprintable())


def _pattern(value: object) -> str:
    text: str = _text(value)
    if problem := check_pattern(text):
        raise Wrong(Mistake(f"invalid pattern: {problem}", found=False))
    return text


def _database(value: object) -> str:
    text: str = _text(value)
    if not text.startswith(("postgresql://", "postgres://")) or not text.isprintable() or " " in text:
        # The message does not show the value, because it may contain a password.
        raise Wrong(Mistake(f"expected {_A_DATABASE}", found=False))
    return text


def _severity(value: object) -> Severity:
    # A bare number could count from either end of the scale.
    if isinstance(value, int) or (isinstance(value, str) and value.strip().isdigit()):
        raise ValueError("not a severity")
    return Severity.parse(value)


_SOME_TEXT = {"type": "string", "minLength": 1}
_ABOVE_ZERO = {"type": "number", "exclusiveMinimum": 0}
_NAME_SCHEMA = {"type": "string", "pattern": f"^{_NAME.pattern}$"}
_SEVERITIES = tuple(step.label for step in Severity)
_SEVERITY_SCHEMA = {"type": "string", "enum": list(_SEVERITIES)}
BOOLEAN = Kind(
    "true or false",
    _if(lambda value: isinstance(value, bool)),
    {"type": "boolean"},
    lambda text: _BOOLEANS.get(text.strip().lower(), text),
)
WHOLE_NUMBER = whole_number(1_000_000_000)
PASSES = whole_number(10)
SECONDS = Kind("a number of seconds above 0", _above_zero, _ABOVE_ZERO, float)
GIGABYTES = Kind("a number of gigabytes above 0", _above_zero, _ABOVE_ZERO, float)
DOLLARS = Kind("an amount in dollars above 0", _above_zero, _ABOVE_ZERO, float)
TEXT = Kind("a string", _text, _SOME_TEXT, str.strip, is_text=True)
BRANCH = Kind("a branch name (string)", _branch, _SOME_TEXT, str.strip, is_text=True)
NAME = Kind(
    "a name consisting of letters, digits, - and _, such as payments", _name, _NAME_SCHEMA, str.strip, is_text=True
)
NAMES = list_of(
    NAME,
    "a list of names consisting of letters, digits, - and _, such as [correctness, security]",
    from_text=comma_list,
)
DATABASE = Kind(_A_DATABASE, _database, _SOME_TEXT, str.strip, is_text=True)
PATTERN = Kind("a pattern (string)", _pattern, _SOME_TEXT, is_text=True)
PATTERNS = list_of(PATTERN, 'a list of patterns, such as ["src/**", "*.py"]', from_text=comma_list)
COMMAND = list_of(
    TEXT, "a list with a program and its arguments, such as [my-reviewer, --quick]", from_text=shlex.split
)
ARGUMENTS = list_of(TEXT, "a list of arguments, such as [--mode, quick]", from_text=shlex.split)
SEVERITY = Kind("critical, high, medium or low (or P0 to P3)", _severity, _SEVERITY_SCHEMA, str.strip, _SEVERITIES)

_LINE = Kind("a string of at most 400 characters", _text_up_to(400), {**_SOME_TEXT, "maxLength": 400}, is_text=True)


def _lines(expected: str, *, least: int = 0) -> Kind:
    """Return the kind of a short list of short strings. A single string counts as a list of one."""
    listed = list_of(_LINE, expected, least=least, most=40)
    schema = {"anyOf": [dict(_LINE.schema), dict(listed.schema)]}
    return replace(
        listed, accept=lambda value: listed.accept([value] if isinstance(value, str) else value), schema=schema
    )


def _frozen(**keys: object) -> Mapping[str, object]:
    return FrozenDict(keys)


_EXPERT = group(
    "a group with focus and, optionally, description, brief, sceptical_of, do_not_flag, paths and severity_guide",
    {
        "description": _LINE,
        "brief": _LINE,
        "focus": _lines("a list of at least one string", least=1),
        "sceptical_of": _lines("a list of strings"),
        "do_not_flag": _lines("a list of strings"),
        "paths": _lines('a list of patterns, such as ["src/**", "*.py"]'),
        "severity_guide": group(
            "strings by severity, such as {high: data is lost}", dict.fromkeys(_SEVERITIES, _LINE), make=_frozen
        ),
    },
    make=_frozen,
    needed=("focus",),
)


def _read_experts(value: object) -> Mapping[Any, object]:
    if not isinstance(value, Mapping):
        raise ValueError("not a group")
    if len(value) > MOST_EXPERTS:
        raise Wrong(Mistake(f"more than {MOST_EXPERTS} experts", found=False))
    experts = {str(name): each for name, each in value.items()}
    # For an invalid name, the message shows the key, not its value.
    wrong = {name: f"expected {NAME.expected}, found {quote(name)}" for name in experts if not _NAME.fullmatch(name)}
    wrong |= {
        name: f"`{name}` is reserved: it means the experts of an ordinary review"
        for name in experts
        if name == "default"
    }
    mistakes = [Mistake(what, (name,), found=False) for name, what in wrong.items()]
    return FrozenDict(read_each([(name, _EXPERT, each) for name, each in experts.items()], mistakes))


OWN_EXPERTS = Kind(
    "experts by name, each with a focus, such as {payments: {focus: [rounding errors]}}",
    _read_experts,
    {
        "type": "object",
        "propertyNames": NAME.schema,
        "additionalProperties": _EXPERT.schema,
        "maxProperties": MOST_EXPERTS,
    },
)
_EXPERT_NAMES = list_of(NAME, "a list of at least one expert name", least=1, most=MOST_EXPERTS)
COMMIT_EXPERTS = group(
    "lists of expert names by commit category, such as {bug_fix: [reliability, tests]}",
    {category.value: _EXPERT_NAMES for category in CommitCategory},
    make=_frozen,
)
_INSTRUCTION = group(
    "a group with paths and text",
    {"paths": list_of(PATTERN, "a list of at least one pattern", least=1), "text": TEXT},
    make=PathInstruction,
    needed=("paths", "text"),
)
INSTRUCTIONS = list_of(
    replace(
        _INSTRUCTION,
        accept=lambda value: _INSTRUCTION.accept(asdict(value) if isinstance(value, PathInstruction) else value),
    ),
    'a list of groups with paths and text, such as [{paths: ["api/**"], text: Check every input.}]',
)
