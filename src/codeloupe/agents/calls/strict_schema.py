"""A JSON Schema as OpenAI's strict mode takes it, and the answer to it as the original schema means it.

Strict mode wants every property of every object to be required and no other to be there. So what was optional may
be null on the wire, and such a null is left out of the answer again. The original schema stays the one that the
answer is checked against; what strict mode does not know of it may therefore be dropped here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 60
_KEPT = (
    "description",
    "enum",
    "const",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
)
# These shape an answer in ways that strict mode cannot say.
_UNSAYABLE = frozenset(
    {
        "allOf",
        "not",
        "if",
        "dependentSchemas",
        "dependentRequired",
        "patternProperties",
        "propertyNames",
        "prefixItems",
        "contains",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "definitions",
    }
)
_NULL = {"type": "null"}
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


class _Unsayable(ValueError):
    """A part of a schema that strict mode has no words for."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema for the wire, or None when strict mode cannot say it: then it has to be said in words."""
    try:
        if schema.get("type") != "object":
            return None
        definitions = {name: _strict(part, 1) for name, part in _parts(schema.get("$defs"))}
        strict = _strict({name: value for name, value in schema.items() if name != "$defs"}, 1)
    except _Unsayable:
        return None
    return {**strict, "$defs": definitions} if definitions else strict


def without_fillers(value: Any, schema: Mapping[str, Any]) -> Any:
    """The answer without the nulls that stand for properties which were left out."""
    return _pruned(value, schema, schema, 0)


def _strict(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or not _UNSAYABLE.isdisjoint(schema):
        raise _Unsayable
    if "$ref" in schema:
        return _reference(schema["$ref"])
    strict = {name: schema[name] for name in _KEPT if name in schema}
    if choices := _choices(schema):
        return {**strict, "anyOf": [_strict(choice, depth + 1) for choice in choices]}
    kinds = _kinds(schema)
    if kinds:
        strict["type"] = kinds[0] if len(kinds) == 1 else kinds
    elif not {"enum", "const"} & strict.keys():
        raise _Unsayable
    if "object" in kinds:
        strict |= _object(schema, depth)
    if "array" in kinds:
        strict["items"] = _strict(schema.get("items"), depth + 1)
    return strict


def _object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = dict(_parts(schema.get("properties")))
    if not properties or schema.get("additionalProperties") not in (None, False):
        raise _Unsayable
    required = schema.get("required") or ()
    strict = {
        name: _strict(part, depth + 1) if name in required else _nullable(_strict(part, depth + 1))
        for name, part in properties.items()
    }
    return {"properties": strict, "required": list(strict), "additionalProperties": False}


def _nullable(strict: dict[str, Any]) -> dict[str, Any]:
    return strict if _takes_null(strict) else {"anyOf": [strict, _NULL]}


def _takes_null(schema: Mapping[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(_takes_null(choice) for choice in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        return None in schema.get("enum", [schema.get("const", "")])
    return "null" in _kinds(schema)


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    """The choices of a schema; at most one of them may be an object, or nobody could tell whose null it is."""
    choices = schema.get("anyOf") or schema.get("oneOf") or []
    if sum(not _is_plain(choice) for choice in choices) > 1 or (choices and "properties" in schema):
        raise _Unsayable
    return list(choices)


def _is_plain(schema: Any) -> bool:
    return isinstance(schema, Mapping) and not {"$ref", "properties", "items", "anyOf", "oneOf"} & schema.keys()


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else list(kind or [])
    if not _TYPES.issuperset(kinds):
        raise _Unsayable
    return kinds


def _reference(reference: Any) -> dict[str, Any]:
    if not (isinstance(reference, str) and (reference == "#" or reference.startswith("#/$defs/"))):
        raise _Unsayable
    return {"$ref": reference}


def _parts(value: Any) -> list[tuple[str, Any]]:
    return [(str(name), part) for name, part in value.items()] if isinstance(value, Mapping) else []


def _pruned(value: Any, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    schema = _resolved(schema, root)
    if depth > _MAX_DEPTH or not isinstance(value, dict | list):
        return value
    for choice in schema.get("anyOf") or schema.get("oneOf") or ():
        if not _is_plain(choice):
            return _pruned(value, choice, root, depth + 1)
    if isinstance(value, list):
        return [_pruned(item, schema.get("items"), root, depth + 1) for item in value]
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    return {
        name: _pruned(item, properties.get(name), root, depth + 1)
        for name, item in value.items()
        if item is not None or name in required or _takes_null_in(properties.get(name), root)
    }


def _takes_null_in(schema: Any, root: Mapping[str, Any]) -> bool:
    found = _resolved(schema, root)
    choices = found.get("anyOf") or found.get("oneOf") or ()
    return any(_takes_null(_resolved(choice, root)) for choice in choices) if choices else _takes_null(found)


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            break
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        schema = root if name == "#" else (root.get("$defs") or {}).get(name)
    return schema if isinstance(schema, Mapping) else {}
