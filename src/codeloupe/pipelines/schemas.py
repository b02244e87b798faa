"""JSON Schemas of a pipeline: read and checked before any agent is asked for what fits them, and applied to artifacts.

A schema, and a file of an agent, may come in any size, so bytes, values and levels are capped before a validator sees
them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NoReturn

from codeloupe.agents.calls.schemas import SchemaError, UnknownReference, validator_for, violation
from codeloupe.config.yaml import Refused, escape, plain, quote, read_document, repetitions
from codeloupe.errors import ArtifactError
from codeloupe.model.pipeline import ArtifactRule
from codeloupe.pipelines.artifacts import matches

MOST_CHECKED_BYTES = 4 * 1024**2
_MOST_VALUES = 5_000
_DEEPEST_SCHEMA = 40
_DEEPEST_ARTIFACT = 100
_MOST_MIXED = 100


class SchemaRefused(Exception):
    """What was given as a schema, or as a value to check, is none; the message says why."""


def parse_schema(name: str, text: str) -> dict[str, Any]:
    """The schema in a file's text, JSON or YAML by the file's name. Raises SchemaRefused."""
    if PurePath(name).suffix.lower() not in (".json", ".yaml", ".yml"):
        raise SchemaRefused("expected a file that ends in .json, .yaml or .yml")
    value = _parsed(name, text, deepest=_DEEPEST_SCHEMA, pairs=_each_once)
    if not isinstance(value, dict):
        raise SchemaRefused("expected a JSON object")
    return value


def _parsed(name: str, text: str, *, deepest: int, pairs: Any = None) -> Any:
    """The value in a text, JSON unless its name is that of YAML; with `pairs`, no key may occur twice."""
    try:
        if PurePath(name).suffix.lower() in (".yaml", ".yml"):
            root = read_document(name, text, deepest_level=deepest)
            if pairs and (again := next(repetitions(name, root), None)):
                raise Refused(again)  # noqa: TRY301 - as every other mistake in it
            return plain(root)
        return json.loads(text.removeprefix("\ufeff"), parse_constant=_no_constant, object_pairs_hook=pairs)
    except Refused as refusal:
        line = f"line {refusal.problem.line}: " if refusal.problem.line else ""
        raise SchemaRefused(f"{line}{refusal.problem.what}") from refusal
    except json.JSONDecodeError as error:
        raise SchemaRefused(f"not valid JSON: line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise SchemaRefused(f"nested more than {deepest} levels deep") from error
    except ValueError as error:
        raise SchemaRefused(f"not valid JSON: {error}") from error


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises SchemaRefused unless it is a valid JSON Schema that needs nothing from outside itself."""
    seen = 0
    for level in _levels(schema, _DEEPEST_SCHEMA):
        seen += len(level)
        if seen > _MOST_VALUES:
            raise SchemaRefused(f"it has more than {_MOST_VALUES:,} values")
        for value in level:
            # A validator compares each value of a list with all others, unless they can be put in order.
            kinds = {type(each) for each in value} if isinstance(value, list) and len(value) > _MOST_MIXED else {str}
            if kinds != {str} and not kinds <= {int, float}:
                what = f"it has a list of more than {_MOST_MIXED} values that are neither all texts nor all numbers"
                raise SchemaRefused(what)
    try:
        validator_for(schema)
    except UnknownReference as error:
        raise SchemaRefused(escape(str(error))) from error
    except SchemaError as error:
        raise SchemaRefused(f"not a JSON Schema: {escape(str(error))}") from error


def check_artifact(file: Path, path: str, rule: ArtifactRule, *, stage: str) -> None:
    """Raises ArtifactError, which names file, place and problem, for an artifact that does not fit its schema."""
    for pattern, schema in rule.schemas.items():
        if not matches(path, pattern, recursive=rule.recursive):
            continue
        try:
            wrong = escape(violation(_value_in(file), validator_for(schema)))
        except SchemaError as error:
            wrong = f"the schema cannot be used: {escape(str(error))}"
        except SchemaRefused as refused:
            wrong = str(refused)
        if wrong:
            raise ArtifactError(
                f"{escape(path)} of the stage {stage} is not as its schema asks: {wrong}",
                stage=stage,
                hint="say in the step file what the file has to hold, or mend the schema in the pipeline's file",
            )


def _value_in(file: Path) -> Any:
    """The value that a file of an agent holds. Raises SchemaRefused."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_CHECKED_BYTES + 1)
        if len(content) > MOST_CHECKED_BYTES:
            raise SchemaRefused(f"it is larger than {MOST_CHECKED_BYTES:,} bytes, which is the most that is checked")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise SchemaRefused(f"it cannot be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise SchemaRefused(f"it is not UTF-8: byte {error.start + 1:,} cannot be decoded") from error
    value = _parsed(file.name, text, deepest=_DEEPEST_ARTIFACT)
    for _ in _levels(value, _DEEPEST_ARTIFACT):
        pass
    return value


def _levels(value: object, deepest: int) -> Iterator[list[Any]]:
    """The values inside a value, level by level. Raises SchemaRefused when there are too many levels."""
    level: list[Any] = [value]
    for _ in range(deepest):
        level = [
            part
            for each in level
            for part in (each.values() if isinstance(each, Mapping) else each if isinstance(each, list) else ())
        ]
        yield level
    if level:
        raise SchemaRefused(f"nested more than {deepest} levels deep")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no value of JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    whole = dict(pairs)
    if len(whole) < len(pairs):
        counted = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {quote(max(counted, key=counted.__getitem__))} occurs twice in one object")
    return whole
