"""JSON Schemas as the standard has them, for values that nobody trusts.

Nothing that a schema names is ever fetched, and every step takes time linear in the value. jsonschema takes a fifth of
a second to load, so it loads with the first schema that needs it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import islice
from typing import Any

from msgspec.structs import replace

from codeloupe.engine.parse.json_text import candidates, parsed, refuse_unsound
from codeloupe.errors import OutputInvalid
from codeloupe.model.agent import AgentResult

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


def check_schema(schema: object) -> None:
    """Raises SchemaError unless this is a valid JSON Schema object that needs nothing from outside itself."""
    if not isinstance(schema, Mapping):
        raise SchemaError(f"it is of type {type(schema).__name__}, not a JSON object")
    if not is_plain(schema):
        validator_for(schema)


def check_output(result: AgentResult, schema: Mapping[str, Any]) -> AgentResult:
    """The result with `structured` as the schema asks, taken from the text where the agent gave none apart.

    Raises OutputInvalid, which names the place of the violation and keeps the answer, and SchemaError for what
    `check_schema` refuses.
    """
    check_schema(schema)
    violation_in = _judge(schema)
    try:
        if result.structured is None:
            return replace(result, structured=_found_in(result.output, violation_in))
        refuse_unsound(result.structured)
        found = violation_in(result.structured)
    except ValueError as error:
        raise _invalid(result, str(error), said=result.output) from error
    if found:
        raise _invalid(result, found, said=json.dumps(result.structured, ensure_ascii=False))
    return result


def _invalid(result: AgentResult, reason: str, *, said: str) -> OutputInvalid:
    return OutputInvalid(
        f"the answer of {result.agent} is not what the schema asks for: {reason}",
        agent=result.agent,
        hint="make the schema or the prompt simpler, or ask another model; the raw output is kept",
        raw_output=result.raw_output or result.output,
        session_id=result.session_id,
        output=said,
        cost_usd=result.total_cost_usd,
        usage=result.usage,
    )


def _judge(schema: Mapping[str, Any]) -> Callable[[Any], str]:
    """What tells the most telling violation of a schema by a value, in words, or nothing."""
    plain = is_plain(schema)

    @cache
    def validator() -> Any:
        return validator_for(schema)

    return lambda value: "" if plain and fits(value, schema) else violation(value, validator())


def _found_in(text: str, violation_in: Callable[[Any], str]) -> Any:
    """The JSON value in a text that conforms: the whole text, else the longest such part. Raises ValueError."""
    violated = unreadable = ""
    for candidate in candidates(text):
        try:
            value = parsed(candidate)
        except ValueError as error:
            unreadable = unreadable or str(error)
            continue
        found = violation_in(value)
        if not found:
            return value
        violated = violated or found
        if candidate == text:
            break
    raise ValueError(violated or unreadable)


def schema_words(schema: Mapping[str, Any]) -> str:
    """What is put behind a prompt whose answer has to be JSON of this schema."""
    text = json.dumps(schema, ensure_ascii=False, default=dict)
    return (
        "\n\n## Form of the answer\n\nThe answer is one JSON value and nothing else: no text around it, no code fence."
        f" It conforms to this JSON Schema:\n\n{text}\n"
    )


_STRICT_SCHEMA_MAX_DEPTH = 60
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
_STRICT_SCHEMA_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})


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
    if not isinstance(schema, Mapping) or depth > _STRICT_SCHEMA_MAX_DEPTH or not _UNSAYABLE.isdisjoint(schema):
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
    if not _STRICT_SCHEMA_TYPES.issuperset(kinds):
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
    if depth > _STRICT_SCHEMA_MAX_DEPTH or not isinstance(value, dict | list):
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
    for _ in range(_STRICT_SCHEMA_MAX_DEPTH):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            break
        name = str(schema["$ref"]).removeprefix("#/$defs/")
        schema = root if name == "#" else (root.get("$defs") or {}).get(name)
    return schema if isinstance(schema, Mapping) else {}
