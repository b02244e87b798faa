"""Where in a JSON value an answer may stand: what programs and models put around it.

The claude program gives `{"type": "result", "result": "…"}`, gemini `{"response": "…"}`, codex lines with
`{"item": {"text": "…"}}`; models like to wrap their answer in an object of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from codeloupe.engine.parse.fields import Fields
from codeloupe.engine.parse.reasons import failed_run

_MAX_VALUES = 10_000
_MAX_DEPTH = 8
_TEXT_NAMES = ("result", "response", "output", "text", "content", "answer", "message", "arguments")
# What was said to a model is not what it says.
_OTHERS = ("user", "system", "tool", "developer")
# A message of a run has none of these; what has one is a finding or an answer of its own.
_CLAIMS = {"findings", "issues", "finding", "issue", "severity"}


class Walk:
    """The values inside a value, from the outside in and in their order.

    Strings are given only where a text of a model may stand. Nothing is looked for in a value that was `taken`.
    """

    def __init__(self, value: Any) -> None:
        self._left: list[tuple[Any, int]] = [(value, 0)]
        self._taken = False
        self._seen = 0

    def __iter__(self) -> Iterator[Any]:
        while self._left and self._seen < _MAX_VALUES:
            value, depth = self._left.pop()
            self._seen += 1
            self._taken = False
            yield value
            if not self._taken and depth < _MAX_DEPTH:
                self._left.extend((part, depth + 1) for part in reversed(_parts(value)))

    @property
    def left_out(self) -> str:
        """Why some values were not given, once all others were."""
        return f"more than {_MAX_VALUES:,} values in one" if self._left else ""

    def take(self) -> None:
        """The value that was given last is understood."""
        self._taken = True


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
    results = [item for item in items if isinstance(item, Mapping) and item.get("type") == "result"]
    if not all("type" in item for item in items if isinstance(item, Mapping)):
        # No run: a run's messages all have a type, and what has none may be another answer.
        return items
    if any(_CLAIMS & set(item) for item in items if isinstance(item, Mapping) and item.get("type") != "result"):
        return items
    is_told = bool(results) and any(name in results[-1] for name in ("result", "structured_output", "is_error"))
    return results[-1:] if is_told else items


def failure_in(value: Any) -> str | None:
    """The problem that an envelope tells of, which is that of a failed run, or None."""
    if not isinstance(value, Mapping):
        return None
    if value.get("type") == "turn.failed":
        error = value.get("error")
        return failed_run(error.get("message") if isinstance(error, Mapping) else error)
    subtype = value.get("subtype")
    is_error = value.get("type") == "result" and isinstance(subtype, str) and subtype.startswith("error")
    if value.get("is_error") is not True and not is_error:
        return None
    if is_error and value.get("is_error") is not True:
        return failed_run(subtype)
    told = value.get("result") or value.get("errors") or value.get("subtype")
    return failed_run(told[0] if isinstance(told, list) else told)
