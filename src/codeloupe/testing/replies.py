"""What the stand-in server can be told to do with a request: answers, failures, and silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct, field

from codeloupe.model.agent import TokenUsage

Then = TypeVar("Then")


class Text(Struct, frozen=True):
    """The model answers in plain text. `Text("")` is a well-formed answer without content."""

    text: str
    usage: TokenUsage | None = None


class Json(Struct, frozen=True):
    """The model answers with a value, as its API delivers structured output.

    A request that carries a tool for its structured output (the claude program sends `StructuredOutput`) is
    answered by a call of that tool; any other in plain text that is JSON. `as_text` answers in text in either case.
    """

    value: Any
    as_text: bool = False
    usage: TokenUsage | None = None


class ToolUse(Struct, frozen=True):
    """The model calls a tool; what follows the tool's result is the next reply of the script.

    An input that is text is for the tools of codex that take text instead of JSON (its `exec`).
    """

    name: str
    input: Mapping[str, Any] | str = field(default_factory=dict)
    text: str = ""
    usage: TokenUsage | None = None


class MaxTokens(Struct, frozen=True):
    """The model's answer ends in the middle, since the tokens it may write are used up."""

    text: str = "The answer ends in the mid"
    usage: TokenUsage | None = None


class Refusal(Struct, frozen=True):
    """The model refuses to answer."""

    text: str = "This cannot be answered."
    usage: TokenUsage | None = None


class Status(Struct, frozen=True):
    """The service answers with an error, in the body shape of its API.

    `type` is the vendor's word for the error; None takes the one that belongs to the code. `headers` are sent beside
    `retry_after`. With `in_stream` a streamed answer begins well, with status 200, and the error is an event in it.
    """

    code: int
    message: str = "The stand-in server fails on request."
    retry_after: float | None = None
    type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    in_stream: bool = False


class Hang(Struct, frozen=True):
    """The request is taken and never answered."""


class Stall(Struct, frozen=True):
    """The answer begins, and stops for ever behind this text. The connection stays open."""

    after_text: str = "The beginning of an answer"


class Garbage(Struct, frozen=True):
    """The status is 200, and the body is not what the API speaks."""

    body: str = "<html><body>This is not the API.</body></html>"


class Empty(Struct, frozen=True):
    """The status is 200, and there is no body at all."""


class Cut(Struct, frozen=True):
    """The connection is closed in the middle of an answer: behind so many bytes of its body, or at once with 0."""

    after_bytes: int = 0
    of: Text | Json | ToolUse = Text("An answer that is cut off.")


class Delay(Struct, Generic[Then], frozen=True):
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
