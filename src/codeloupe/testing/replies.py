"""What the stand-in server can be told to do with a request: answers, failures, and silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Generic, TypeAlias, TypeVar

from codeloupe.model.agent import TokenUsage
from codeloupe.model.records import dataclass

Then = TypeVar("Then")


@dataclass(frozen=True, slots=True)
class Text:
    """The model answers in plain text. `Text("")` is a well-formed answer without content."""

    text: str
    usage: TokenUsage | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Json:
    """The model answers with a value, as its API delivers structured output.

    A request that carries a tool for its structured output (the claude program sends `StructuredOutput`) is
    answered by a call of that tool; any other in plain text that is JSON. `as_text` answers in text in either case.
    """

    value: Any
    as_text: bool = field(default=False, kw_only=True)
    usage: TokenUsage | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The model calls a tool; what follows the tool's result is the next reply of the script.

    An input that is text is for the tools of codex that take text instead of JSON (its `exec`).
    """

    name: str
    input: Mapping[str, Any] | str = field(default_factory=dict)
    text: str = field(default="", kw_only=True)
    usage: TokenUsage | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class MaxTokens:
    """The model's answer ends in the middle, since the tokens it may write are used up."""

    text: str = "The answer ends in the mid"
    usage: TokenUsage | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model refuses to answer."""

    text: str = "This cannot be answered."
    usage: TokenUsage | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Status:
    """The service answers with an error, in the body shape of its API.

    `type` is the vendor's word for the error; None takes the one that belongs to the code. `headers` are sent beside
    `retry_after`. With `in_stream` a streamed answer begins well, with status 200, and the error is an event in it.
    """

    code: int
    message: str = "The stand-in server fails on request."
    retry_after: float | None = field(default=None, kw_only=True)
    type: str | None = field(default=None, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    in_stream: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Hang:
    """The request is taken and never answered."""


@dataclass(frozen=True, slots=True)
class Stall:
    """The answer begins, and stops for ever behind this text. The connection stays open."""

    after_text: str = "The beginning of an answer"


@dataclass(frozen=True, slots=True)
class Garbage:
    """The status is 200, and the body is not what the API speaks."""

    body: str = "<html><body>This is not the API.</body></html>"


@dataclass(frozen=True, slots=True)
class Empty:
    """The status is 200, and there is no body at all."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed in the middle of an answer: behind so many bytes of its body, or at once with 0."""

    after_bytes: int = 0
    of: Text | Json | ToolUse = field(default=Text("An answer that is cut off."), kw_only=True)


@dataclass(frozen=True, slots=True)
class Delay(Generic[Then]):
    """Nothing happens for a while, and then another reply."""

    seconds: float
    then: Then


REPLY_KINDS: Final = {
    kind.__name__: kind
    for kind in (Text, Json, ToolUse, MaxTokens, Refusal, Status, Hang, Stall, Garbage, Empty, Cut, Delay)
}
_KINDS = tuple(REPLY_KINDS.values())
Answered = Text | Json | ToolUse | MaxTokens | Refusal
Reply: TypeAlias = "Answered | Status | Hang | Stall | Garbage | Empty | Cut | Delay[Reply]"


def checked(reply: object) -> Reply:
    """The same reply. Raises TypeError for what is none, such as a plain string."""
    if isinstance(reply, _KINDS):
        return reply
    raise TypeError(f"a stand-in server was given {reply!r} for a reply; it takes: {', '.join(sorted(REPLY_KINDS))}")
