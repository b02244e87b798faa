"""Whether an artifact that holds JSON or YAML is as its JSON Schema asks.

The file is an agent's: its size, depth and number of values are capped, and nothing that a schema names is fetched.
jsonschema is heavy, so it loads when there is a schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from codeloupe.config.document import Refused, read_document
from codeloupe.config.nodes import plain
from codeloupe.config.problems import escape
from codeloupe.errors import ArtifactError
from codeloupe.model.pipeline import ArtifactRule
from codeloupe.pipeline.artifact_patterns import matches

MOST_CHECKED_BYTES = 4 * 1024**2
_DEEPEST_LEVEL = 100
_MOST_VIOLATIONS = 20
_LONGEST_MESSAGE = 300
_YAML_ENDINGS = (".yaml", ".yml")


def check_schemas(workspace: Path, artifacts: tuple[str, ...], rule: ArtifactRule, *, stage: str) -> None:
    """Raises ArtifactError, which names file, place and problem, for an artifact that does not fit its schema."""
    for pattern, schema in rule.schemas.items():
        for path in artifacts:
            if matches(path, pattern, recursive=rule.recursive):
                _check(workspace / path, path, schema, stage=stage)


def _check(file: Path, path: str, schema: Mapping[str, Any], *, stage: str) -> None:
    try:
        violation = _violation(_value_in(file), schema)
    except ValueError as error:
        violation = str(error)
    if violation:
        raise ArtifactError(
            f"{escape(path)} of the stage {stage} is not as its schema asks: {violation}",
            stage=stage,
            hint="say in the step file what the file has to hold, or mend the schema in the pipeline's file",
        )


def _value_in(file: Path) -> Any:
    """The value that a file holds. Raises ValueError in words."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_CHECKED_BYTES + 1)
    except OSError as error:
        raise ValueError(f"it cannot be read: {(error.strerror or str(error)).lower()}") from error
    if len(content) > MOST_CHECKED_BYTES:
        raise ValueError(f"it is larger than {MOST_CHECKED_BYTES:,} bytes, which is the most that is checked")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: byte {error.start + 1:,} cannot be decoded") from error
    return _from_yaml(text) if file.suffix.lower() in _YAML_ENDINGS else _from_json(text)


def _from_json(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise ValueError(f"it is nested more than {_DEEPEST_LEVEL} levels deep") from error
    _check_depth(value)
    return value


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no value of JSON")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST_LEVEL + 1):
        level = [part for item in level for part in _parts(item)]
        if not level:
            return
    raise ValueError(f"it is nested more than {_DEEPEST_LEVEL} levels deep")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _from_yaml(text: str) -> Any:
    try:
        return plain(read_document("it", text, deepest_level=_DEEPEST_LEVEL))
    except Refused as refusal:
        line = f"line {refusal.problem.line}: " if refusal.problem.line else ""
        raise ValueError(f"it cannot be read as YAML: {line}{refusal.problem.what}") from refusal


def _violation(value: Any, schema: Mapping[str, Any]) -> str:
    """The most telling violation, in words, or nothing. Raises ValueError for a schema that is none."""
    validator = _validator(json.dumps(schema, default=dict))
    try:
        errors = list(islice(validator.iter_errors(value), _MOST_VIOLATIONS))
        worst = import_module("jsonschema.exceptions").best_match(errors)
    except RecursionError:
        return "the schema refers to itself without end"
    except OverflowError as error:
        return f"it holds a number that is too large: {error}"
    except import_module("referencing.exceptions").Unresolvable as error:
        return f"the schema refers to what is not in it: {_short(str(error))}"
    return f"at {_short(worst.json_path)}: {_short(worst.message)}" if worst else ""


@lru_cache(maxsize=64)
def _validator(schema_text: str) -> Any:
    jsonschema, schema = import_module("jsonschema"), json.loads(schema_text)
    try:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"the schema is none: at {_short(error.json_path)}: {_short(error.message)}") from error
    # Without a registry of ours, what a $ref names would be fetched.
    registry = import_module("jsonschema_specifications").REGISTRY
    return jsonschema.validators.extend(kind, {"uniqueItems": _unique_items})(schema, registry=registry)


def _unique_items(_validator: Any, wanted: bool, items: Any, _schema: Any) -> Iterator[Any]:  # noqa: FBT001 - given
    """Unlike the one it replaces, this takes linear time for objects too."""
    if wanted and isinstance(items, list) and len({_hashable(item) for item in items}) < len(items):
        yield import_module("jsonschema").ValidationError("items stand in it more than once")


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return ("object", frozenset((name, _hashable(item)) for name, item in value.items()))
    if isinstance(value, list):
        return ("array", tuple(_hashable(item) for item in value))
    return (type(value) is bool, value)


def _short(text: str) -> str:
    return escape(text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]} …")
