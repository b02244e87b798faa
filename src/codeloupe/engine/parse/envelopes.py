"""Where in a JSON value an answer may be: what programs and models put around it.

The claude program gives `{"type": "result", "result": "…"}`, gemini `{"response": "…"}`, codex lines with
`{"item": {"text": "…"}}`; models like to wrap their answer in an object of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codeloupe.engine.parse.items import FAILED_RUN, Fields, shown
from codeloupe.system.json_text import words

# A text in an envelope, in a text in an envelope, is as deep as programs go.
MAX_NESTED_TEXTS = 3
_MAX_VALUES = 10_000
_TEXT_NAMES = words("result response output text content answer message arguments")
# What was said to a model is not what it says.
_OTHERS = ("user", "system", "tool", "developer")
# A message of a run has none of these; what has one is a finding or an answer of its own.
_CLAIMS = {"findings", "issues", "finding", "issue", "severity"}


def walk(value: Any, understood: Callable[[Any], bool]) -> str:
    """Show the values inside a value, from the outside in and in their order; why some were left out, or nothing.

    Strings are shown only where a text of a model may be. Nothing is looked for in a value that was understood.
    """
    left: list[tuple[Any, int]] = [(value, 0)]
    for _ in range(_MAX_VALUES):
        if not left:
            return ""
        part, depth = left.pop()
        if not understood(part) and depth < 8:
            left.extend((inner, depth + 1) for inner in reversed(_parts(part)))
    return f"more than {_MAX_VALUES:,} values in one" if left else ""


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, list):
        return [item for item in final_results(value) if isinstance(item, Mapping | list)]
    if not isinstance(value, Mapping):
        return ()
    fields = Fields(value)
    if fields.get("role") in _OTHERS or fields.get("type") in _OTHERS:
        return ()
    if (structured := fields.get("structured_output")) is not None:
        return [structured]
    texts = [text for name in _TEXT_NAMES if isinstance(text := fields.get(name), str)]
    return [*texts, *(item for item in value.values() if isinstance(item, Mapping | list))]


def final_results(items: Sequence[Any]) -> Sequence[Any]:
    """Of the messages of a run only the result, where there is one: what was said before it is not the answer."""
    messages = [item for item in items if isinstance(item, Mapping)]
    results = [item for item in messages if item.get("type") == "result"]
    # All messages of a run have a type; what has none may be another answer.
    if not results or not all("type" in item for item in messages):
        return items
    if any(item["type"] != "result" and _CLAIMS & set(item) for item in messages):
        return items
    return results[-1:] if {"result", "structured_output", "is_error"} & set(results[-1]) else items


def failure_in(value: Any) -> str | None:
    """The problem that an envelope tells of, which is that of a failed run, or None."""
    if not isinstance(value, Mapping):
        return None
    subtype = value.get("subtype")
    if value.get("type") == "turn.failed":
        error = value.get("error")
        told = error.get("message") if isinstance(error, Mapping) else error
    elif value.get("is_error") is True:
        told = value.get("result") or value.get("errors") or subtype
    elif value.get("type") == "result" and isinstance(subtype, str) and subtype.startswith("error"):
        told = subtype
    else:
        return None
    return FAILED_RUN + shown(told[0] if isinstance(told, list) and told else told)
