"""The settings that are groups of keys: experts of one's own, experts of commits, and instructions for paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import asdict, replace

from codeloupe.config.kinds import NAME, PATTERN, SEVERITY, TEXT, Kind, Mistake, Wrong, list_of, read_each
from codeloupe.config.problems import quote
from codeloupe.model.change import PathInstruction
from codeloupe.model.sweep import CommitCategory

# What the rooms of the experts and of the prompts take; here it is told with its line.
MOST_EXPERTS = 50
_MOST_LINES = 40
_LONGEST_LINE = 400
_RESERVED_NAME = "default"
_MOST_KEYS = 100


def group(expected: str, keys: Mapping[str, Kind], *, make: Callable[..., object], needed: Sequence[str] = ()) -> Kind:
    """The kind of a group with these keys and no others; `make` gets those that are there."""

    def accept(value: object) -> object:
        if not isinstance(value, Mapping):
            raise ValueError("not a group")
        if len(value) > _MOST_KEYS:
            raise Wrong([Mistake(f"more than {_MOST_KEYS} keys", found=False)])
        known = [key for key in keys if key in value]
        read = _all_or_wrong(
            [*_unknown_keys(value, keys), *_missing_keys(value, needed)],
            [(key, keys[key], value[key]) for key in known],
        )
        return make(**dict(zip(known, read, strict=True)))

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: dict(kind.schema) for key, kind in keys.items()},
        "additionalProperties": False,
    }
    return Kind(expected, accept, {**schema, "required": list(needed)} if needed else schema)


def _all_or_wrong(mistakes: list[Mistake], parts: Sequence[tuple[str, Kind, object]]) -> list[Any]:
    try:
        read = read_each(parts)
    except Wrong as wrong:
        raise Wrong([*mistakes, *wrong.mistakes]) from None
    if mistakes:
        raise Wrong(mistakes)
    return read


def _unknown_keys(value: Mapping[Any, object], keys: Mapping[str, Kind]) -> Iterator[Mistake]:
    for key in value:
        if key not in keys:
            yield Mistake("unknown key", (str(key),), tuple(keys), found=False)


def _missing_keys(value: Mapping[Any, object], needed: Sequence[str]) -> Iterator[Mistake]:
    for key in needed:
        if key not in value:
            yield Mistake(f"`{key}` is missing", found=False)


def _line(value: object) -> str:
    line = TEXT.accept(value)
    if len(str(line)) > _LONGEST_LINE:
        raise ValueError("too long")
    return str(line)


def _lines(expected: str, *, least: int = 0) -> Kind:
    """The kind of a short list of short texts; a single text is a list of one."""
    listed = list_of(_LINE, expected, least=least, most=_MOST_LINES)

    def accept(value: object) -> object:
        return listed.accept([value] if isinstance(value, str) else value)

    return replace(listed, accept=accept, schema={"anyOf": [dict(_LINE.schema), dict(listed.schema)]})


_LINE = Kind(
    f"a text of at most {_LONGEST_LINE} characters",
    _line,
    {"type": "string", "minLength": 1, "maxLength": _LONGEST_LINE},
    is_text=True,
)
_GUIDE = group(
    "texts by severity, such as {high: data is lost}",
    dict.fromkeys(SEVERITY.choices, _LINE),
    make=lambda **texts: MappingProxyType(texts),
)
_EXPERT = group(
    "a group with focus, and perhaps description, brief, sceptical_of, do_not_flag, paths and severity_guide",
    {
        "description": _LINE,
        "brief": _LINE,
        "focus": _lines("a list of texts, at least one", least=1),
        "sceptical_of": _lines("a list of texts"),
        "do_not_flag": _lines("a list of texts"),
        "paths": _lines('a list of patterns, such as ["src/**", "*.py"]'),
        "severity_guide": _GUIDE,
    },
    make=lambda **keys: MappingProxyType(keys),
    needed=("focus",),
)
_INSTRUCTION = group(
    "a group with paths and text",
    {"paths": list_of(PATTERN, "a list of patterns, at least one", least=1), "text": TEXT},
    make=PathInstruction,
    needed=("paths", "text"),
)
_INSTRUCTIONS = list_of(_INSTRUCTION, "a list of groups with paths and text")


_NAMES = list_of(NAME, "a list of names of experts, at least one", least=1, most=MOST_EXPERTS)
COMMIT_EXPERTS = group(
    "lists of names of experts by category of a commit, such as {bug_fix: [reliability, tests]}",
    {category.value: _NAMES for category in CommitCategory},
    make=lambda **experts: MappingProxyType(experts),
)


def _read_experts(value: object) -> Mapping[str, Mapping[str, object]]:
    if not isinstance(value, Mapping):
        raise ValueError("not a group")
    if len(value) > MOST_EXPERTS:
        raise Wrong([Mistake(f"more than {MOST_EXPERTS} experts", found=False)])
    names = [str(name) for name in value]
    read = _all_or_wrong(
        [mistake for name in names for mistake in _wrong_name(name)],
        [(name, _EXPERT, group) for name, group in zip(names, value.values(), strict=True)],
    )
    return MappingProxyType(dict(zip(names, read, strict=True)))


def _wrong_name(name: str) -> Iterator[Mistake]:
    # What is wrong is the key itself, not what stands behind it.
    if name == _RESERVED_NAME:
        yield Mistake(f"`{name}` means the experts of an ordinary review", (name,), found=False)
        return
    try:
        NAME.read(name)
    except Wrong as wrong:
        yield Mistake(f"{wrong.mistakes[0].what}, found {quote(name)}", (name,), found=False)


def _read_instructions(value: object) -> object:
    if isinstance(value, list | tuple) and all(isinstance(each, PathInstruction) for each in value):
        value = plain_instructions(value)
    return _INSTRUCTIONS.accept(value)


def plain_experts(experts: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, Any]]:
    """Experts as they could stand in a file."""
    return {name: {key: _plain(value) for key, value in expert.items()} for name, expert in experts.items()}


def plain_names(names: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Lists of names as they could stand in a file."""
    return {key: list(value) for key, value in names.items()}


def plain_instructions(instructions: Sequence[PathInstruction]) -> list[Any]:
    """Instructions as they could stand in a file."""
    return [{key: _plain(value) for key, value in asdict(instruction).items()} for instruction in instructions]


def _plain(value: Any) -> object:
    match value:
        case tuple():
            return list(value)
        case Mapping():
            return dict(value)
        case _:
            return value


OWN_EXPERTS = Kind(
    "experts by name, each with a focus, such as {payments: {focus: [rounding of amounts]}}",
    _read_experts,
    {
        "type": "object",
        "propertyNames": NAME.schema,
        "additionalProperties": _EXPERT.schema,
        "maxProperties": MOST_EXPERTS,
    },
)
INSTRUCTIONS = Kind(
    'a list of groups with paths and text, such as [{paths: ["api/**"], text: Check every input.}]',
    _read_instructions,
    _INSTRUCTIONS.schema,
)
