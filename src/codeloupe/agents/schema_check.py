"""Whether an answer is what its JSON Schema asks for, and where it is when it stands in the middle of a text.

Answers are hostile: every step takes time linear in the text, sizes and depths are capped, and nothing named in a
schema is ever fetched. jsonschema is heavy, so it loads late, in `_late`, and for a plain schema only when something is
wrong.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from itertools import islice
from typing import Any

from codeloupe.agents.plain_schema import fits, is_plain
from codeloupe.errors import OutputInvalid
from codeloupe.extraction.json_text import candidates, parsed, refuse_unsound
from codeloupe.model.agent import AgentResult

_MAX_VIOLATIONS = 20
_MAX_MESSAGE_CHARACTERS = 300


class SchemaError(ValueError):
    """What was given as a schema is none; the message says where and why."""


def check_schema(schema: object) -> None:
    """Raises SchemaError unless this is a valid JSON Schema object that needs nothing from outside itself."""
    if not isinstance(schema, Mapping):
        raise SchemaError(f"it is of type {type(schema).__name__}, not a JSON object")
    if not is_plain(schema):
        _compiled(_as_text(schema))


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
        violation = violation_in(result.structured)
    except ValueError as error:
        raise _invalid(result, str(error), said=result.output) from error
    if violation:
        raise _invalid(result, violation, said=json.dumps(result.structured, ensure_ascii=False))
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
    """jsonschema and what comes with it take a fifth of a second to load, so only calls with a schema pay it."""
    return importlib.import_module(name)


def _refuse_unknown_references(schema: Mapping[str, Any], registry: Any, *, dialect: str) -> None:
    specification = _late("referencing.jsonschema").specification_with(dialect)
    resolver = registry.resolver_with_root(specification.create_resource(schema))
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except _late("referencing.exceptions").Unresolvable as error:
            raise SchemaError(f"the $ref {_short(reference)!r} is not in the schema, and nothing is fetched") from error


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
        yield _late("jsonschema").ValidationError("items stand in it more than once")


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return ("object", frozenset((name, _hashable(item)) for name, item in value.items()))
    if isinstance(value, list):
        return ("array", tuple(_hashable(item) for item in value))
    return (type(value) is bool, value)


def _judge(schema: Mapping[str, Any]) -> Callable[[Any], str]:
    """What tells the most telling violation of a schema by a value, in words, or nothing."""
    plain = is_plain(schema)

    @cache
    def validator() -> Any:
        return _compiled(_as_text(schema))

    return lambda value: "" if plain and fits(value, schema) else _violation(value, validator())


def _violation(value: Any, validator: Any) -> str:
    try:
        worst = _late("jsonschema.exceptions").best_match(islice(validator.iter_errors(value), _MAX_VIOLATIONS))
    except RecursionError:
        return "the schema refers to itself without end"
    except OverflowError as error:
        return f"it holds a number that is too large: {error}"
    except _late("referencing.exceptions").Unresolvable as error:
        return f"the schema refers to what is not in it: {_short(str(error))}"
    return f"at {worst.json_path}: {_short(worst.message)}" if worst else ""


def _found_in(text: str, violation_in: Callable[[Any], str]) -> Any:
    """The JSON value in a text that conforms: the whole text, else the longest such part. Raises ValueError."""
    violation = unreadable = ""
    for candidate in candidates(text):
        try:
            value = parsed(candidate)
        except ValueError as error:
            unreadable = unreadable or str(error)
            continue
        found = violation_in(value)
        if not found:
            return value
        violation = violation or found
        if candidate == text:
            break
    raise ValueError(violation or unreadable)


def _short(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARACTERS else f"{text[:_MAX_MESSAGE_CHARACTERS]} ..."
