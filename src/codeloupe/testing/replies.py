"""What the stand-in server can do with a request: answers, failures, and silence."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct, field

from codeloupe.errors import ConfigError
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
    """The answer begins, and stops for ever after this text. The connection stays open."""

    after_text: str = "The beginning of an answer"


class Garbage(Struct, frozen=True):
    """The status is 200, and the body is not what the API speaks."""

    body: str = "<html><body>This is not the API.</body></html>"


class Empty(Struct, frozen=True):
    """The status is 200, and there is no body at all."""


class Cut(Struct, frozen=True):
    """The connection is closed in the middle of an answer: after so many bytes of its body, or at once with 0."""

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


Step = TypeVar("Step")


class Script(Generic[Step]):
    """Steps in order. Safe to use from any thread.

    When they are used up, the last one repeats, or comes `afterwards` where that is given. A script without steps
    gives `default`.
    """

    def __init__(self, steps: Iterable[Step], *, default: Step, afterwards: Step | None = None) -> None:
        self._waiting = deque(steps)
        self._afterwards = afterwards
        self._last = default if afterwards is None else afterwards
        self._lock = threading.Lock()

    def extend(self, steps: Iterable[Step]) -> None:
        """Add steps at the end."""
        with self._lock:
            self._waiting.extend(steps)

    def next_step(self) -> Step:
        """Take the next step."""
        with self._lock:
            if not self._waiting:
                return self._last
            step = self._waiting.popleft()
            if self._afterwards is None:
                self._last = step
            return step


def read_script(path: Path) -> list[Reply]:
    """The replies in a JSON file. Raises ConfigError with the file and the place of what is wrong.

    The file holds a list. A string is a text; an object names its kind and gives the fields of that reply:
    `{"reply": "status", "code": 429, "retry_after": 3}`, `{"reply": "delay", "seconds": 2, "then": "hello"}`.
    """
    hint = 'A script is a JSON list such as ["hello", {"reply": "status", "code": 429, "retry_after": 3}].'
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a script: {error}", hint=hint) from error
    if not isinstance(items, list):
        raise ConfigError(f"{path} holds no list of replies", hint=hint)
    replies = []
    for number, item in enumerate(items, start=1):
        try:
            replies.append(_reply(item))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{path}, reply {number}: {error}", hint=hint) from error
    return replies


def _reply(item: Any) -> Reply:
    kinds = {name.lower(): kind for name, kind in REPLY_KINDS.items()}
    if isinstance(item, str):
        item = {"reply": "text", "text": item}
    if not isinstance(item, dict) or str(item.get("reply")).lower() not in kinds:
        raise ValueError(f"{json.dumps(item)[:80]} is no reply; the kinds are: {', '.join(sorted(kinds))}")
    fields = {name: value for name, value in item.items() if name != "reply"}
    fields |= {name: _reply(fields[name]) for name in ("then", "of") if name in fields}
    if "usage" in fields:
        fields["usage"] = TokenUsage(**fields["usage"])
    return checked(kinds[str(item["reply"]).lower()](**fields))
