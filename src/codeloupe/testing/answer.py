"""An answer of a model before it takes the shape of one vendor's API, and what every such API can do with it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from codeloupe.model.agent import TokenUsage
from codeloupe.testing.recording import RecordedRequest
from codeloupe.testing.replies import Status

_PIECE_CHARACTERS = 4096
_NO_MODEL = "stand-in"


class Ending(Enum):
    """Why a model stopped."""

    DONE = auto()
    TOOL = auto()
    MAX_TOKENS = auto()
    REFUSAL = auto()


class ToolCall(Struct, frozen=True, kw_only=True):
    """A tool that the model wants to be used."""

    name: str
    input: dict[str, Any] | str

    @property
    def fields(self) -> dict[str, Any]:
        """The input for an API that knows no other than JSON objects."""
        return self.input if isinstance(self.input, dict) else {"input": self.input}


class Answer(Struct, frozen=True, kw_only=True):
    """What a model says. `number` tells the answers of one server apart."""

    number: int
    model: str
    text: str
    ending: Ending
    usage: TokenUsage
    tool: ToolCall | None = None

    def pieces(self) -> list[str]:
        """The text in parts, as a stream delivers it; an empty text has none."""
        return [self.text[at : at + _PIECE_CHARACTERS] for at in range(0, len(self.text), _PIECE_CHARACTERS)]


class Stream(NamedTuple):
    """An answer as server-sent events: up to the last piece of its text, and what follows."""

    begun: list[bytes]
    rest: list[bytes]


class Api(Protocol):
    """One vendor's way of asking a model and of answering. All of it is pure; bodies of requests are objects."""

    @property
    def name(self) -> str:
        """Its short name."""

    def model(self, request: RecordedRequest) -> str:
        """The model that is asked for."""

    def is_streamed(self, request: RecordedRequest) -> bool:
        """Whether the client wants server-sent events."""

    def tools(self, request: RecordedRequest) -> frozenset[str]:
        """The names of the tools that the request offers to the model."""

    def stream(self, answer: Answer) -> Stream:
        """The answer as server-sent events, one an item."""

    def whole(self, answer: Answer) -> bytes:
        """The answer as one JSON document."""

    def error(self, status: Status) -> bytes:
        """An error as one JSON document."""

    def error_event(self, status: Status) -> bytes:
        """An error as a server-sent event in an answer that began well."""


def model_in_body(request: RecordedRequest) -> str:
    """The `model` of the body."""
    return str(request.body.get("model", _NO_MODEL))


def is_streamed_by_body(request: RecordedRequest) -> bool:
    """Whether `stream` of the body is true."""
    return request.body.get("stream") is True


def objects(value: Any) -> Iterable[dict[str, Any]]:
    """The JSON objects in what should be a list of them."""
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()
