"""JSON Schemas, for answers that nobody trusts: whether a value conforms, and how a schema is said to a model.

Nothing that a schema names is ever fetched, every step takes time linear in the value, and sizes and depths are
capped. jsonschema takes a fifth of a second to load, and nearly every answer is what its schema asks for: so plain
schemas are judged here, and jsonschema loads only for others and for the words about what is wrong.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec.structs import replace

from codeloupe.agents.calls.failures import one_line
from codeloupe.errors import OutputInvalid
from codeloupe.model.agent import AgentResult
from codeloupe.system.json_values import exact_value, refuse_unsound

_MAX_STRICT_DEPTH = 60
_SHOWN_CHARACTERS = 200
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "array": (list,), "object": (dict,),
}  # fmt: skip
_PLAIN_WORDS = frozenset(
    {"type", "description", "title", "enum", "properties", "required", "additionalProperties", "items"}
)
_STRICT_WORDS = (
    "description", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minItems", "maxItems",
)  # fmt: skip
# These shape an answer in ways that strict mode cannot say.
_UNSAYABLE = frozenset({
    "allOf", "not", "if", "dependentSchemas", "dependentRequired", "patternProperties", "propertyNames", "prefixItems",
    "contains", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "definitions",
})  # fmt: skip


class SchemaError(ValueError):
    """What was given as a schema is none; the message says where and why."""


class UnknownReference(SchemaError):
    """A schema refers to what is not in it."""


def validator_for(schema: Mapping[str, Any]) -> Any:
    """What judges values by a schema, for `violation`. Raises SchemaError as `check_schema` does."""

    def plain(value: object) -> dict[str, Any]:
        if isinstance(value, Mapping):
            return dict(value)
        raise TypeError(f"{type(value).__name__} is not a JSON type")

    try:
        text = json.dumps(schema, allow_nan=False, default=plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"it cannot be written as JSON: {error}") from error
    return _compiled(text)


def violation(value: Any, validator: Any) -> str:
    """A sentence about the worst violation of a schema by a value, or nothing."""
    try:
        worst = importlib.import_module("jsonschema.exceptions").best_match(islice(validator.iter_errors(value), 20))
    except RecursionError:
        return "the schema refers to itself without end"
    except OverflowError as error:
        return f"it contains a number that is too large: {error}"
    except importlib.import_module("referencing.exceptions").Unresolvable as error:
        return f"the schema refers to something that is not in it: {one_line(str(error))}"
    return f"at {worst.json_path}: {one_line(worst.message)}" if worst else ""


@lru_cache(maxsize=64)
def _compiled(schema_text: str) -> Any:
    """A validator for a schema given as text: checking a schema costs far more than using it."""
    jsonschema, schema = importlib.import_module("jsonschema"), json.loads(schema_text)
    try:
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise SchemaError(f"at {error.json_path}: {one_line(error.message)}") from error
    except (TypeError, RecursionError) as error:
        raise SchemaError(f"it cannot be read as a schema: {error}") from error
    registry = importlib.import_module("jsonschema_specifications").REGISTRY
    specification = importlib.import_module("referencing.jsonschema").specification_with(kind.META_SCHEMA["$schema"])
    resolver = registry.resolver_with_root(specification.create_resource(schema))
    left = [schema]
    while left:
        item = left.pop()
        left.extend(item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        references = [item.get(name) for name in ("$ref", "$dynamicRef")] if isinstance(item, dict) else []
        for reference in (one for one in references if isinstance(one, str)):
            try:
                resolver.lookup(reference)
            except importlib.import_module("referencing.exceptions").Unresolvable as error:
                words = f"the $ref {one_line(reference)!r} is not in the schema, and nothing is fetched"
                raise UnknownReference(words) from error

    def unique_items(_validator: Any, wanted: bool, items: Any, _schema: Any) -> Iterator[Any]:  # noqa: FBT001 - given
        """Unlike the one it replaces, this takes linear time for objects too."""
        if wanted and isinstance(items, list) and len({_hashable(item) for item in items}) < len(items):
            yield jsonschema.ValidationError("items occur in it more than once")

    # Without a registry of ours, what a $ref names would be fetched.
    return jsonschema.validators.extend(kind, {"uniqueItems": unique_items})(schema, registry=registry)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return ("object", frozenset((name, _hashable(item)) for name, item in value.items()))
    if isinstance(value, list):
        return ("array", tuple(_hashable(item) for item in value))
    return (type(value) is bool, value)


def is_plain(schema: Any, *, depth: int = 0) -> bool:
    """Whether this is surely a valid schema, of words that `fits` knows: each part has one type, choices are texts."""
    if not isinstance(schema, Mapping) or depth > 20 or not _PLAIN_WORDS.issuperset(schema):
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


def _is_list_of_names(value: Any) -> bool:
    is_list = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    return is_list and len(set(value)) == len(value)


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value surely conforms to a plain schema. What is not known for sure is left to jsonschema."""
    if type(value) not in _TYPES[schema["type"]]:
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        return (
            all(name in value for name in schema.get("required", ()))
            and (schema.get("additionalProperties", True) or properties.keys() >= value.keys())
            and all(fits(item, properties[name]) for name, item in value.items() if name in properties)
        )
    if isinstance(value, list):
        return "items" not in schema or all(fits(item, schema["items"]) for item in value)
    return "enum" not in schema or value in schema["enum"]


def check_schema(schema: object) -> None:
    """Raises SchemaError unless this is a valid JSON Schema object that needs nothing from outside itself."""
    if not isinstance(schema, Mapping):
        raise SchemaError(f"it is of type {type(schema).__name__}, not a JSON object")
    if not is_plain(schema):
        validator_for(schema)


def check_output(result: AgentResult, schema: Mapping[str, Any]) -> AgentResult:
    """Return the result with a `structured` value that conforms to the schema. Raise OutputInvalid or SchemaError.

    Without a value from the agent's own channel, the text has to be exactly one JSON value.
    """
    check_schema(schema)
    value = result.structured
    said = result.output
    try:
        if value is None:
            value = exact_value(result.output)
        else:
            refuse_unsound(value)
            said = json.dumps(value, ensure_ascii=False)
        reason = _violation_of(value, schema)
    except ValueError as error:
        reason = str(error)
    if not reason:
        return replace(result, structured=value)
    hint = "make the schema or the prompt simpler, or ask another model; the raw output is stored"
    why = f"does not match the schema: {reason}; it begins with: {_beginning(said)}"
    raise no_answer(result, why, hint, output=said)


def _beginning(text: str) -> str:
    """Return the first words of an answer on one line, for a message."""
    line = one_line(text)
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]} ..."


def _violation_of(value: Any, schema: Mapping[str, Any]) -> str:
    """Return a sentence about the worst violation of the schema, or nothing."""
    if is_plain(schema) and fits(value, schema):
        return ""
    return violation(value, validator_for(schema))


def no_answer(result: AgentResult, why: str, hint: str, **more: Any) -> OutputInvalid:
    """The error of an answer that does not count; it keeps what was said, the session and the cost."""
    return OutputInvalid(
        f"the answer of {result.agent} {why}",
        agent=result.agent,
        hint=hint,
        raw_output=result.raw_output or result.output,
        session_id=result.session_id,
        cost_usd=result.total_cost_usd,
        usage=result.usage,
        **more,
    )


def schema_words(schema: Mapping[str, Any]) -> str:
    """What is put behind a prompt for a program or a model that takes no schema."""
    text = json.dumps(schema, ensure_ascii=False, default=dict)
    return (
        "\n\n## Form of the answer\n\nThe answer is one JSON value and nothing else: no text around it, no code fence."
        f" It conforms to this JSON Schema:\n\n{text}\n"
    )


class _Unsayable(ValueError):
    """A part of a schema that strict mode has no words for."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema as OpenAI's strict mode takes it, or None when that cannot express it: then the prompt describes it.

    Strict mode wants every property of every object to be required and no other to be there. So what was optional may
    be null on the wire, and `without_fillers` leaves such a null out of the answer again. The original schema stays the
    one that the answer is checked against; what strict mode does not know of it may therefore be dropped here.
    """
    try:
        return _strict(schema, 1) if schema.get("type") == "object" else None
    except _Unsayable:
        return None


def _strict(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > _MAX_STRICT_DEPTH or not _UNSAYABLE.isdisjoint(schema):
        raise _Unsayable
    if "$ref" in schema:
        if schema["$ref"] != "#" and not str(schema["$ref"]).startswith("#/$defs/"):
            raise _Unsayable
        return {"$ref": schema["$ref"]}
    strict = {name: schema[name] for name in _STRICT_WORDS if name in schema}
    if choices := _choices(schema):
        # At most one of them may be an object, or nobody could tell whose null it is.
        if sum(not _is_simple(choice) for choice in choices) > 1 or "properties" in schema:
            raise _Unsayable
        return {**strict, "anyOf": [_strict(choice, depth + 1) for choice in choices]}
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else list(kind or [])
    if not _TYPES.keys() >= set(kinds) or not (kinds or {"enum", "const"} & strict.keys()):
        raise _Unsayable
    if kinds:
        strict["type"] = kinds[0] if len(kinds) == 1 else kinds
    if "array" in kinds:
        strict["items"] = _strict(schema.get("items"), depth + 1)
    return strict | _strict_object(schema, depth) if "object" in kinds else strict


def _strict_object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties"), schema.get("required") or ()
    if not isinstance(properties, Mapping) or not properties or schema.get("additionalProperties") not in (None, False):
        raise _Unsayable
    parts = {str(name): _strict(part, depth + 1) for name, part in properties.items()}
    parts = {name: part if name in required else {"anyOf": [part, {"type": "null"}]} for name, part in parts.items()}
    definitions = {str(name): _strict(part, depth) for name, part in (schema.get("$defs") or {}).items()}
    closed = {"properties": parts, "required": list(parts), "additionalProperties": False}
    return {**closed, "$defs": definitions} if definitions else closed


def without_fillers(value: Any, schema: Any, *, root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """Return the answer to a strict schema without the nulls of optional properties, which mean that they are absent.

    The null of a property that the schema does not know stays: the model was not asked for it.
    """
    root = schema if root is None else root
    for _ in range(_MAX_STRICT_DEPTH):
        if not isinstance(schema, Mapping):
            schema = {}
        if "$ref" in schema:
            name = str(schema["$ref"]).removeprefix("#/$defs/")
            schema = root if name == "#" else (root.get("$defs") or {}).get(name)
        else:
            schema = next((choice for choice in _choices(schema) if not _is_simple(choice)), schema)
    if depth > _MAX_STRICT_DEPTH or not isinstance(value, dict | list) or not isinstance(schema, Mapping):
        return value
    if isinstance(value, list):
        return [without_fillers(item, schema.get("items"), root=root, depth=depth + 1) for item in value]
    properties, required = schema.get("properties") or {}, schema.get("required") or ()
    return {
        name: without_fillers(item, properties.get(name), root=root, depth=depth + 1)
        for name, item in value.items()
        if item is not None or name in required or name not in properties
    }


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    return list(schema.get("anyOf") or schema.get("oneOf") or [])


def _is_simple(schema: Any) -> bool:
    return isinstance(schema, Mapping) and not {"$ref", "properties", "items", "anyOf", "oneOf"} & schema.keys()
