"""JSON Schemas so plain that it is told at once whether a value conforms.

To load jsonschema takes a tenth of a second, and nearly every answer is what its schema asks for.
Only "yes" is ever told here. What is not known for sure is left to jsonschema, which also has words for what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 20
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_WORDS = frozenset({"type", "description", "title", "enum", "properties", "required", "additionalProperties", "items"})


def is_plain(schema: Any, *, depth: int = 0) -> bool:
    """Whether this is surely a valid schema, of words that `fits` knows: each part has one type, choices are texts."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or not _WORDS.issuperset(schema):
        return False
    kind = schema.get("type")
    properties = schema.get("properties", {})
    return (
        isinstance(kind, str)
        and kind in _TYPES
        and all(isinstance(schema.get(word, ""), str) for word in ("description", "title"))
        and ("enum" not in schema or (kind == "string" and _is_list_of_names(schema["enum"])))
        and _is_list_of_names(schema.get("required", ()))
        and isinstance(schema.get("additionalProperties", True), bool)
        and isinstance(properties, Mapping)
        and all(isinstance(name, str) and is_plain(part, depth=depth + 1) for name, part in properties.items())
        and ("items" not in schema or is_plain(schema["items"], depth=depth + 1))
    )


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value surely conforms to a plain schema."""
    if type(value) not in _TYPES[schema["type"]]:
        return False
    if isinstance(value, dict):
        return _fits_object(value, schema)
    if isinstance(value, list):
        return "items" not in schema or all(fits(item, schema["items"]) for item in value)
    return "enum" not in schema or value in schema["enum"]


def _fits_object(value: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties", {})
    return (
        all(name in value for name in schema.get("required", ()))
        and (schema.get("additionalProperties", True) or properties.keys() >= value.keys())
        and all(fits(item, properties[name]) for name, item in value.items() if name in properties)
    )


def _is_list_of_names(value: Any) -> bool:
    names = value if isinstance(value, list | tuple) else (None,)
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
