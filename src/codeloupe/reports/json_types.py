"""From the types of a JSON document to its JSON Schema."""

from __future__ import annotations

import inspect
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def schema_of(document: type) -> dict[str, Any]:
    """The schema of a TypedDict and of all that it holds. Raises TypeError for a type that JSON does not have.

    `Annotated[..., {...}]` adds words of JSON Schema to a type.
    """
    parts: dict[str, Any] = {}
    whole = _group(document, parts)
    return {"$schema": _DIALECT, "title": document.__name__, **whole, "$defs": parts}


def _group(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    fields = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "description": inspect.getdoc(kind) or "",
        "properties": {name: _schema(field, parts) for name, field in fields.items()},
        "required": list(fields),
    }


def _schema(kind: Any, parts: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**_schema(arguments[0], parts), **arguments[1]}
    if is_typeddict(kind):
        parts[kind.__name__] = _group(kind, parts)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if origin is Literal:
        return {"const": arguments[0]}
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0], parts)}
    if origin in (UnionType, Union):
        return {"anyOf": [_schema(each, parts) for each in arguments]}
    raise TypeError(f"JSON has no {kind!r}")
