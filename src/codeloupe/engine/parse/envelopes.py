"""Where in a JSON value an answer may be: what programs and models put around it.

The claude program gives `{"type": "result", "result": "…"}`, gemini `{"response": "…"}`, codex lines with
`{"item": {"text": "…"}}`; models like to wrap their answer in an object of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from codeloupe.engine.parse.items import (
    EMPTY_OUTPUT,
    NO_JSON,
    ONLY_REASONING,
    TRUNCATED_JSON,
    Fields,
    failed_run,
    invalid_json,
    missing_field,
)
from codeloupe.engine.parse.loose_json import flaw_of, scan_json, text_in_text, text_outside
from codeloupe.engine.parse.statements import sign_around
from codeloupe.system.json_text import behind_reasoning

T = TypeVar("T")
Answer = TypeVar("Answer")
# A text in an envelope, in a text in an envelope, is as deep as programs go.
MAX_NESTED_TEXTS = 3
DECORATION = "#>*_`~- \t\r\n\ufeff"
_MAX_VALUES = 10_000
_MAX_DEPTH = 8
_TEXT_NAMES = ("result", "response", "output", "text", "content", "answer", "message", "arguments")
# What was said to a model is not what it says.
_OTHERS = ("user", "system", "tool", "developer")
# A message of a run has none of these; what has one is a finding or an answer of its own.
_CLAIMS = {"findings", "issues", "finding", "issue", "severity"}


class Walk:
    """The values inside a value, from the outside in and in their order.

    Strings are given only where a text of a model may be. Nothing is looked for in a value that was `taken`.
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
    messages = [item for item in items if isinstance(item, Mapping)]
    # All messages of a run have a type; what has none may be another answer.
    if not all("type" in item for item in messages):
        return items
    results = [item for item in messages if item["type"] == "result"]
    if any(item["type"] != "result" and _CLAIMS & set(item) for item in messages):
        return items
    is_told = bool(results) and any(name in results[-1] for name in ("result", "structured_output", "is_error"))
    return results[-1:] if is_told else items


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
    return failed_run(told[0] if isinstance(told, list) and told else told)


class Claim(Struct, Generic[T], frozen=True):
    """What one object says, or why it must not count; a grave problem counts, whatever other objects say."""

    said: T | None = None
    problem: str = ""
    is_grave: bool = False


class ClaimReader(ABC, Generic[T, Answer]):
    """Reads an answer that is one object: a verification or a critique. Takes linear time and never raises.

    `field` is the name of what must be there. With `plain_may_be_cut`, an answer in plain words may quote JSON that is
    not whole; with `takes_whole`, nothing inside an object that was read is an answer of its own.
    """

    field: str
    plain_may_be_cut: bool
    takes_whole: bool

    @abstractmethod
    def in_object(self, value: Mapping[str, Any]) -> Claim[T] | None:
        """What an object says, or None when it says nothing of this kind."""

    @abstractmethod
    def in_words(self, text: str) -> Claim[T] | None:
        """What a text without JSON says, or None."""

    @abstractmethod
    def judged(self, said: Sequence[T], around: str) -> Answer | str:
        """The one answer that all claims (at least one) and the words around them give together, or a problem."""

    @abstractmethod
    def failed(self, problem: str) -> Answer:
        """The answer that is none."""

    def read(self, output: str, structured: Any = None) -> Answer:
        """What was said. A structured value counts first, if it says something."""
        problem = ""
        if structured is not None:
            claims = self._in_text(structured) if isinstance(structured, str) else self._in_value(structured)
            first = self._answer(list(claims), missing_field(self.field))
            if not isinstance(first, str):
                return first
            problem = first
        second = self._read_text(output)
        return self.failed(problem or second) if isinstance(second, str) else second

    def _read_text(self, text: str) -> Answer | str:
        said = behind_reasoning(text)
        if said is None:
            return ONLY_REASONING
        if not said.strip(DECORATION):
            return EMPTY_OUTPUT
        inner = text_in_text(said)
        if inner is not None and flaw_of(inner):
            return TRUNCATED_JSON
        said = said if inner is None else inner
        scan = scan_json(said)
        if scan.stopped:
            return invalid_json(scan.stopped)
        claims = [claim for value in final_results([v.value for v in scan.values]) for claim in self._in_value(value)]
        plain = None if claims else self.in_words(said)
        if scan.is_cut and not (plain and self.plain_may_be_cut):
            return TRUNCATED_JSON
        has_objects = any(isinstance(found.value, dict) for found in scan.values)
        return self._answer(
            [plain] if plain else claims,
            missing_field(self.field) if has_objects else NO_JSON,
            text_outside(said, scan.values) if scan.values else "",
        )

    def _answer(self, claims: Sequence[Claim[T]], nothing: str, around: str = "") -> Answer | str:
        if grave := next((claim.problem for claim in claims if claim.is_grave), ""):
            return grave
        said = [claim.said for claim in claims if claim.said is not None]
        return self.judged(said, around) if said else next((claim.problem for claim in claims), nothing)

    def _in_text(self, text: str, nested: int = MAX_NESTED_TEXTS) -> Iterator[Claim[T]]:
        scan = scan_json(text)
        if scan.stopped:
            yield Claim(problem=invalid_json(scan.stopped), is_grave=True)
        for value in final_results([found.value for found in scan.values]):
            yield from self._in_value(value, nested)

    def _in_value(self, value: Any, nested: int = MAX_NESTED_TEXTS) -> Iterator[Claim[T]]:
        walk = Walk(value)
        for part in walk:
            if isinstance(part, str):
                claims = list(self._in_text(part, nested - 1)) if nested else []
                plain = self.in_words(part) if nested and not claims else None
                claims = [plain] if plain else claims
                yield from [Claim[T](problem=TRUNCATED_JSON, is_grave=True)] if claims and flaw_of(part) else claims
            elif failure := failure_in(part):
                yield Claim(problem=failure, is_grave=True)
                walk.take()
            elif isinstance(part, Mapping) and (claim := self.in_object(part)):
                yield claim
                if self.takes_whole:
                    walk.take()
            elif sign := sign_around(part):
                yield Claim(problem=sign, is_grave=True)
        if walk.left_out:
            yield Claim(problem=invalid_json(walk.left_out), is_grave=True)
