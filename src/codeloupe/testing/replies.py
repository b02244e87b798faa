"""What the stand-in server can do with a request: answers, failures, and silence."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct, convert, field

from codeloupe.errors import ConfigError
from codeloupe.model.agent import TokenUsage

Then = TypeVar("Then")
Step = TypeVar("Step")


class ReplyKind(Struct, frozen=True, tag_field="reply", tag=str.lower, forbid_unknown_fields=True):
    """What all replies are; in a script each is named by its class."""


class Text(ReplyKind, frozen=True):
    """The model answers in plain text. `Text("")` is a well-formed answer without content."""

    text: str
    usage: TokenUsage | None = None


class Json(ReplyKind, frozen=True):
    """The model answers with a value, as its API delivers structured output.

    A request that carries a tool for its structured output (the claude program sends `StructuredOutput`) is
    answered by a call of that tool; any other in plain text that is JSON. `as_text` answers in text in either case.
    """

    value: Any
    as_text: bool = False
    usage: TokenUsage | None = None


class ToolUse(ReplyKind, frozen=True):
    """The model calls a tool; what follows the tool's result is the next reply of the script.

    An input that is text is for the tools of codex that take text instead of JSON (its `exec`).
    """

    name: str
    input: Mapping[str, Any] | str = field(default_factory=dict)
    text: str = ""
    usage: TokenUsage | None = None


class MaxTokens(ReplyKind, frozen=True):
    """The model's answer ends in the middle, since the tokens it may write are used up."""

    text: str = "The answer ends in the mid"
    usage: TokenUsage | None = None


class Refusal(ReplyKind, frozen=True):
    """The model refuses to answer."""

    text: str = "This cannot be answered."
    usage: TokenUsage | None = None


class Status(ReplyKind, frozen=True):
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


class Hang(ReplyKind, frozen=True):
    """The request is taken and never answered."""


class Stall(ReplyKind, frozen=True):
    """The answer begins, and stops for ever after this text. The connection stays open."""

    after_text: str = "The beginning of an answer"


class Garbage(ReplyKind, frozen=True):
    """The status is 200, and the body is not what the API speaks."""

    body: str = "<html><body>This is not the API.</body></html>"


class Empty(ReplyKind, frozen=True):
    """The status is 200, and there is no body at all."""


class Cut(ReplyKind, frozen=True):
    """The connection is closed in the middle of an answer: after so many bytes of its body, or at once with 0."""

    after_bytes: int = 0
    of: Text | Json | ToolUse = Text("An answer that is cut off.")


class Delay(ReplyKind, Generic[Then], frozen=True):
    """Nothing happens for a while, and then another reply."""

    seconds: float
    then: Then


REPLY_NAMES = sorted(kind.__name__ for kind in ReplyKind.__subclasses__())
Answered = Text | Json | ToolUse | MaxTokens | Refusal
Immediate = Answered | Status | Hang | Stall | Garbage | Empty | Cut
Reply: TypeAlias = "Immediate | Delay[Reply]"


def checked(reply: Reply) -> Reply:
    """The same reply. Raises TypeError for what is none, such as a plain string."""
    if isinstance(reply, ReplyKind):
        return reply
    raise TypeError(f"a stand-in server cannot use {reply!r} as a reply; it accepts: {', '.join(REPLY_NAMES)}")


class Script(Generic[Step]):
    """Steps in order, for any thread. When they are used up comes `last`, or the last one again if it `repeats`."""

    def __init__(self, steps: Iterable[Step], *, last: Step, repeats: bool) -> None:
        self.steps = deque(steps)
        self._last = last
        self._repeats = repeats

    def next_step(self) -> Step:
        """Take the next step."""
        try:
            step = self.steps.popleft()
        except IndexError:
            return self._last
        if self._repeats:
            self._last = step
        return step


def read_script(path: Path) -> list[Reply]:
    """Return the replies in a JSON file. Raise ConfigError, which names the file and the wrong reply.

    The file holds a list. A string is a text; an object names its kind and gives the fields of that reply:
    `{"reply": "status", "code": 429, "retry_after": 3}`, `{"reply": "delay", "seconds": 2, "then": "hello"}`.
    """
    where, replies = str(path), list[Reply]()
    try:
        for number, item in enumerate(convert(json.loads(path.read_bytes()), list[Any]), start=1):
            where = f"{path}, reply {number}"
            replies.append(_reply(item))
    except (OSError, ValueError) as error:
        hint = 'A script is a JSON list such as ["hello", {"reply": "status", "code": 429, "retry_after": 3}]'
        hint = f"{hint}; a reply is one of: {', '.join(REPLY_NAMES).lower()}."
        raise ConfigError(f"cannot read the script {where}: {error}", hint=hint) from error
    return replies


def _reply(item: Any) -> Any:
    if isinstance(item, str):
        return Text(item)
    if isinstance(item, dict):
        inner = {name: _reply(item[name]) for name in ("then", "of") if name in item}
        item = {**item, "reply": str(item.get("reply")).lower(), **inner}
    return convert(item, Immediate | Delay[Any])
