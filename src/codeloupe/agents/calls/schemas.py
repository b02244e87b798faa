"""JSON Schemas as the standard has them, for values that nobody trusts.

Nothing that a schema names is ever fetched, and every step takes time linear in the value. jsonschema takes a fifth of
a second to load, so it loads with the first schema that needs it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

_MAX_VIOLATIONS = 20
_MAX_MESSAGE_CHARACTERS = 300


class SchemaError(ValueError):
    """What was given as a schema is none; the message says where and why."""


class UnknownReference(SchemaError):
    """A schema refers to what is not in it."""


def validator_for(schema: Mapping[str, Any]) -> Any:
    """What judges values by a schema, for `violation`.

    Raises SchemaError unless it is a valid JSON Schema that needs nothing from outside itself.
    """
    return _compiled(_as_text(schema))


def violation(value: Any, validator: Any) -> str:
    """The most telling violation of a schema by a value, in words, or nothing."""
    try:
        worst = _late("jsonschema.exceptions").best_match(islice(validator.iter_errors(value), _MAX_VIOLATIONS))
    except RecursionError:
        return "the schema refers to itself without end"
    except OverflowError as error:
        return f"it holds a number that is too large: {error}"
    except _late("referencing.exceptions").Unresolvable as error:
        return f"the schema refers to what is not in it: {_short(str(error))}"
    return f"at {worst.json_path}: {_short(worst.message)}" if worst else ""


def _as_text(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(schema, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"it cannot be written as JSON: {error}") from error


def _plain(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no type of JSON")


@lru_cache(maxsize=64)
def _compiled(schema_text: str) -> Any:
    """A validator for a schema given as text: checking a schema costs far more than using it."""
    jsonschema, schema = _late("jsonschema"), json.loads(schema_text)
    try:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise SchemaError(f"at {error.json_path}: {_short(error.message)}") from error
    except (TypeError, RecursionError) as error:
        raise SchemaError(f"it cannot be read as a schema: {error}") from error
    registry = _late("jsonschema_specifications").REGISTRY
    _refuse_unknown_references(schema, registry, dialect=kind.META_SCHEMA["$schema"])
    # Without a registry of ours, what a $ref names would be fetched.
    return jsonschema.validators.extend(kind, {"uniqueItems": _unique_items})(schema, registry=registry)


def _late(name: str) -> Any:
    """A module of jsonschema, or of what comes with it."""
    return importlib.import_module(name)


def _refuse_unknown_references(schema: Mapping[str, Any], registry: Any, *, dialect: str) -> None:
    specification = _late("referencing.jsonschema").specification_with(dialect)
    resolver = registry.resolver_with_root(specification.create_resource(schema))
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except _late("referencing.exceptions").Unresolvable as error:
            raise UnknownReference(
                f"the $ref {_short(reference)!r} is not in the schema, and nothing is fetched"
            ) from error


def _references(node: Any) -> Iterator[str]:
    left = [node]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left.extend(item.values())
            yield from (item[name] for name in ("$ref", "$dynamicRef") if isinstance(item.get(name), str))
        elif isinstance(item, list):
            left.extend(item)


def _unique_items(_validator: Any, wanted: bool, items: Any, _schema: Any) -> Iterator[Any]:  # noqa: FBT001 - given
    """Unlike the one it replaces, this takes linear time for objects too."""
    if wanted and isinstance(items, list) and len({_hashable(item) for item in items}) < len(items):
        yield _late("jsonschema").ValidationError("items occur in it more than once")


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return ("object", frozenset((name, _hashable(item)) for name, item in value.items()))
    if isinstance(value, list):
        return ("array", tuple(_hashable(item) for item in value))
    return (type(value) is bool, value)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else f"{text[:_MAX_MESSAGE_CHARACTERS]} ..."
