"""Whether an answer is what its JSON Schema asks for, and where it is when it stands in the middle of a text.

Answers are hostile: every step takes time linear in the text, and sizes and depths are capped. For a plain schema
jsonschema, which is heavy, loads only when something is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from msgspec.structs import replace

from codeloupe.agents.calls.plain_schema import fits, is_plain
from codeloupe.agents.calls.schemas import SchemaError, validator_for, violation
from codeloupe.errors import OutputInvalid
from codeloupe.model.agent import AgentResult
from codeloupe.system.json_text import candidates, parsed, refuse_unsound


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
