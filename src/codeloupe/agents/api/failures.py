"""Which error a failed call of a model's API is, and in which words it is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from codeloupe.errors import (
    AgentError,
    ConnectionFailed,
    InvalidRequest,
    NotLoggedIn,
    OutputInvalid,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Refused,
    TimedOut,
)

_MAX_TEXT_CHARACTERS = 500
_MAX_BODY_CHARACTERS = 4000
_MAX_CAUSES = 10


class AskedOf(Struct, frozen=True, kw_only=True):
    """Who was asked for what, for the words of an error. `idle_seconds` is the limit of silence that was set."""

    agent: str
    model: str
    url: str
    set_key: str
    idle_seconds: float


class _Kind(NamedTuple):
    error: type[AgentError]
    what: str
    hint: str


_NOT_LOGGED_IN = _Kind(
    NotLoggedIn, "has no key that the service accepts, or no credit left", "{set_key} to a key that is valid"
)
_LIMITED = _Kind(RateLimited, "sent too many requests", "wait a while, or use another agent")
_OVERLOADED = _Kind(Overloaded, "found the service overloaded or failing", "try again later, or another model")
_UNREACHED = _Kind(ConnectionFailed, "got no usable reply from {url}", "check the network, the proxy and api_base_url")
_TOO_LONG = _Kind(PromptTooLong, "was given a prompt that is too long for {model}", "send less at once")
_WRONG = _Kind(
    InvalidRequest, "sent a request that the service rejected", "check the model, which was {model}, and {url}"
)
_SILENT = _Kind(
    TimedOut, "got nothing from {url} for {idle_seconds:g} s", "raise the limit of silence, or ask a faster model"
)

_BY_STATUS = {
    401: _NOT_LOGGED_IN,
    402: _NOT_LOGGED_IN,
    403: _NOT_LOGGED_IN,
    408: _UNREACHED,
    413: _TOO_LONG,
    429: _LIMITED,
}
# Services tell these apart in words alone; a refused request holds no words of a model.
_BY_TEXT = {
    "api key not valid": _NOT_LOGGED_IN,
    "api_key_invalid": _NOT_LOGGED_IN,
    "credit balance is too low": _NOT_LOGGED_IN,
    "insufficient_quota": _NOT_LOGGED_IN,
    "prompt is too long": _TOO_LONG,
    "context_length_exceeded": _TOO_LONG,
    "maximum context length": _TOO_LONG,
    "context window": _TOO_LONG,
    "exceeds the maximum number of tokens": _TOO_LONG,
    "overloaded": _OVERLOADED,
}
_REFUSED = _Kind(Refused, "was refused an answer by the model or its safeguards", "rephrase it, or ask another model")
# By the name of the exception or of one of its causes, since the packages they come from are loaded late.
_BY_NAME = {
    "ReadTimeout": _SILENT,
    "WriteTimeout": _SILENT,
    "ContentFilterError": _REFUSED,
    "UserError": _WRONG,
    "InvalidURL": _WRONG,
    "UnsupportedProtocol": _WRONG,
}
_BY_ENDING = {
    "length": _Kind(OutputInvalid, "was cut off in the middle of its answer", "ask for a shorter answer"),
    "content_filter": _REFUSED,
    "error": _Kind(OutputInvalid, "got an error from the model", "try again, or another model"),
}


def call_failed(error: Exception, asked: AskedOf) -> AgentError:
    """The error that an exception of pydantic-ai, or of a package below it, is."""
    body = getattr(error, "body", None)
    status = getattr(error, "status_code", None)
    text = _message_in(body) or str(error)
    kind = _kind(error, status, f"{text} {body or ''}")
    return _told(
        kind,
        asked,
        about=f"{'' if status is None else f' ({status})'}: {_short(text)}",
        raw_output="" if body is None else str(body)[:_MAX_BODY_CHARACTERS],
        retry_after_seconds=getattr(error, "retry_after", None),
    )


def bad_ending(finish_reason: str | None, asked: AskedOf, *, text: str) -> AgentError | None:
    """The error of an answer that did not end well; None when it did. `text` is the answer."""
    if finish_reason is None:
        return _told(_UNREACHED, asked, about=": the reply does not say how the answer ended", raw_output=text)
    kind = _BY_ENDING.get(finish_reason)
    if kind is None:
        return None
    error = _told(kind, asked, about="", raw_output=text)
    if isinstance(error, OutputInvalid):
        error.output, error.cut_off = text, finish_reason == "length"
    return error


def no_answer(why: str, asked: AskedOf, *, text: str) -> OutputInvalid:
    """The error of an answer that ended well and is none."""
    return OutputInvalid(
        f"{asked.agent} got no answer from {asked.model}: {why}",
        agent=asked.agent,
        hint="try again, or another model",
        raw_output=text,
        output=text,
    )


def _kind(error: Exception, status: int | None, text: str) -> _Kind:
    if status is None:
        names = (type(cause).__name__ for cause in _causes(error))
        return next((_BY_NAME[name] for name in names if name in _BY_NAME), _UNREACHED)
    if status in (400, 403, 422, 429) and (known := _said_in(text)):
        return known
    if status >= 500:
        return _OVERLOADED
    return _BY_STATUS.get(status, _WRONG)


def _said_in(text: str) -> _Kind | None:
    lowered = text.lower()
    return next((kind for phrase, kind in _BY_TEXT.items() if phrase in lowered), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_MAX_CAUSES):
        if error is None:
            return
        yield error
        error = error.__cause__


def _told(
    kind: _Kind, asked: AskedOf, *, about: str, raw_output: str, retry_after_seconds: float | None = None
) -> AgentError:
    words = {
        "url": asked.url,
        "model": asked.model,
        "set_key": asked.set_key,
        "idle_seconds": asked.idle_seconds,
    }
    more: dict[str, Any] = {"hint": kind.hint.format(**words), "raw_output": raw_output}
    if kind.error is RateLimited:
        more["retry_after_seconds"] = retry_after_seconds
    return kind.error(f"{asked.agent} {kind.what.format(**words)}{about}", agent=asked.agent, **more)


def _message_in(body: object) -> str:
    """What a service says in the body of an error, as the vendors word such bodies."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    message = inner.get("message") if isinstance(inner, Mapping) else inner
    return message if isinstance(message, str) else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_TEXT_CHARACTERS else f"{line[:_MAX_TEXT_CHARACTERS]} ..."
