"""JSON Schemas in and beside a pipeline's file: read, and checked before any agent is asked for what fits them.

A schema may come in any size, so values and levels are capped before a validator sees it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from codeloupe.agents.calls.schemas import SchemaError, UnknownReference, validator_for
from codeloupe.config.yaml import Problem, Refused, escape, plain, quote, read_document, repetitions

_MOST_VALUES = 5_000
_DEEPEST_LEVEL = 40
_MOST_MIXED = 100
_YAML = (".yaml", ".yml")


class SchemaRefused(Exception):
    """What was given as a schema is none; the message says why."""


def parse_schema(name: str, text: str) -> dict[str, Any]:
    """The schema in a file's text, JSON or YAML by the file's name. Raises SchemaRefused."""
    suffix = PurePath(name).suffix.lower()
    if suffix != ".json" and suffix not in _YAML:
        raise SchemaRefused("expected a file that ends in .json, .yaml or .yml")
    value = _from_yaml(name, text) if suffix in _YAML else _from_json(text)
    if not isinstance(value, dict):
        raise SchemaRefused("expected a JSON object")
    return value


def _from_json(text: str) -> object:
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant, object_pairs_hook=_each_once)
    except json.JSONDecodeError as error:
        raise SchemaRefused(f"not valid JSON: line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise SchemaRefused(f"nested more than {_DEEPEST_LEVEL} levels deep") from error
    except ValueError as error:
        raise SchemaRefused(f"not valid JSON: {error}") from error


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no value of JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        counted = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {quote(max(counted, key=counted.__getitem__))} occurs twice in one object")
    return whole


def _from_yaml(name: str, text: str) -> object:
    try:
        root = read_document(name, text, deepest_level=_DEEPEST_LEVEL)
    except Refused as refusal:
        raise SchemaRefused(_in_file(refusal.problem)) from refusal
    if again := next(repetitions(name, root), None):
        raise SchemaRefused(_in_file(again))
    return plain(root)


def _in_file(problem: Problem) -> str:
    return f"line {problem.line}: {problem.what}" if problem.line else problem.what


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises SchemaRefused unless it is a valid JSON Schema that needs nothing from outside itself."""
    _check_size(schema)
    _check_lists(schema)
    try:
        validator_for(schema)
    except UnknownReference as error:
        raise SchemaRefused(escape(str(error))) from error
    except SchemaError as error:
        raise SchemaRefused(f"not a JSON Schema: {escape(str(error))}") from error


def _check_size(schema: Mapping[str, Any]) -> None:
    level: list[Any] = [schema]
    seen = 0
    for _ in range(_DEEPEST_LEVEL):
        level = [part for value in level for part in _parts(value)]
        seen += len(level)
        if seen > _MOST_VALUES:
            raise SchemaRefused(f"it has more than {_MOST_VALUES:,} values")
    if level:
        raise SchemaRefused(f"nested more than {_DEEPEST_LEVEL} levels deep")


def _check_lists(schema: Mapping[str, Any]) -> None:
    """A validator compares each value of a list with all others, unless they can be put in order."""
    for value in _all_values(schema):
        if isinstance(value, list) and len(value) > _MOST_MIXED and not _can_be_ordered(value):
            what = f"it has a list of more than {_MOST_MIXED} values that are neither all texts nor all numbers"
            raise SchemaRefused(what)


def _can_be_ordered(values: list[Any]) -> bool:
    kinds = {type(value) for value in values}
    return kinds == {str} or kinds <= {int, float}


def _all_values(schema: Mapping[str, Any]) -> Iterator[Any]:
    left: list[Any] = [schema]
    while left:
        value = left.pop()
        left.extend(_parts(value))
        yield value


def _parts(value: object) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
