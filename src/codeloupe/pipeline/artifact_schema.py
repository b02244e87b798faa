"""Whether an artifact that holds JSON or YAML is as its JSON Schema asks.

The file is an agent's: its size, depth and number of values are capped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from codeloupe.agents.calls.schemas import SchemaError, UnknownReference, validator_for, violation
from codeloupe.config.yaml import Refused, escape, plain, read_document
from codeloupe.errors import ArtifactError
from codeloupe.model.pipeline_definition import ArtifactRule
from codeloupe.pipeline.artifact_patterns import matches

MOST_CHECKED_BYTES = 4 * 1024**2
_DEEPEST_LEVEL = 100
_YAML_ENDINGS = (".yaml", ".yml")


def check_schemas(workspace: Path, artifacts: tuple[str, ...], rule: ArtifactRule, *, stage: str) -> None:
    """Raises ArtifactError, which names file, place and problem, for an artifact that does not fit its schema."""
    for pattern, schema in rule.schemas.items():
        for path in artifacts:
            if matches(path, pattern, recursive=rule.recursive):
                _check(workspace / path, path, schema, stage=stage)


def _check(file: Path, path: str, schema: Mapping[str, Any], *, stage: str) -> None:
    try:
        wrong = _violation(_value_in(file), schema)
    except ValueError as error:
        wrong = str(error)
    if wrong:
        raise ArtifactError(
            f"{escape(path)} of the stage {stage} is not as its schema asks: {wrong}",
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
    try:
        return escape(violation(value, validator_for(schema)))
    except UnknownReference as error:
        raise ValueError(f"the schema refers to what is not in it: {escape(str(error))}") from error
    except SchemaError as error:
        raise ValueError(f"the schema is none: {escape(str(error))}") from error
