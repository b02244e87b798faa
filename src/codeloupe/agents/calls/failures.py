"""Failures of vendors' programs that tell them by an HTTP status or in words alone: which error each is."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codeloupe import errors
from codeloupe.model.agent import TokenUsage
from codeloupe.system.regex import regex

_MAX_TEXT_CHARACTERS = 500
_TAIL_CHARACTERS = 4000
_MAX_SEARCHED_CHARACTERS = 20_000
_SECONDS_BY_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RETRY_AFTER = regex(
    r"(?:try again|retry(?:ing)?)\s(?:after|in)\s(\d{1,9}(?:\.\d{1,9})?)\s?(ms|s|m|h|d)", re.IGNORECASE
)


class Program(Struct, frozen=True, kw_only=True):
    """A program as its users know it. `install` is a command; `log_in` says what to set or run."""

    agent: str
    command: str
    install: str
    log_in: str


class Kind(Struct, frozen=True):
    """A kind of failure: its error, what happened in words that follow the agent's name, and what to do next.

    An empty hint stands for the program's own: how to log in, how to install it, or which model was asked for.
    """

    error: type[errors.AgentError]
    what: str
    hint: str = ""


NOT_LOGGED_IN = Kind(errors.NotLoggedIn, "has no login that the service accepts, or no credit")
LIMITED = Kind(errors.RateLimited, "sent too many requests, or used up a quota", "wait a while")
OVERLOADED = Kind(errors.Overloaded, "found the service overloaded or failing", "try again later, or another model")
UNREACHED = Kind(
    errors.ConnectionFailed,
    "got no usable reply from the service",
    "check the network, the proxy and the address of the service",
)
TOO_LONG = Kind(errors.PromptTooLong, "was given a prompt that is too long", "send less at once")
CUT_OFF = Kind(errors.OutputInvalid, "was cut off in the middle of its answer", "ask for a shorter answer")
EMPTY = Kind(errors.OutputInvalid, "ended well, but its answer is empty", "ask again, or with another prompt or model")
REFUSED = Kind(
    errors.Refused, "was refused an answer by the model or its safeguards", "rephrase the request, or ask another model"
)
INVALID = Kind(errors.InvalidRequest, "sent a request that the service rejected")
TOO_OLD = Kind(errors.NotInstalled, "does not know a flag that keeps it safe: it is too old")
WITHOUT_NODE = Kind(errors.NotInstalled, "needs Node.js, which is not on the PATH", "install Node.js 20 or newer")
_BY_STATUS = {
    401: NOT_LOGGED_IN,
    402: NOT_LOGGED_IN,
    403: NOT_LOGGED_IN,
    408: UNREACHED,
    413: TOO_LONG,
    429: LIMITED,
}
Patterns = tuple[tuple[re.Pattern[str], Kind], ...]


class Failure(Struct, frozen=True, kw_only=True):
    """What a program told of a failure. `output` is what the model said before it, without what the program says."""

    program: Program
    text: str = ""
    status: int | None = None
    asked_model: str | None = None
    model: str | None = None
    retry_after_seconds: float | None = None
    session_id: str = ""
    raw_output: str = ""
    output: str = ""
    cost_usd: float | None = None
    usage: TokenUsage | None = None


def patterns(*rows: tuple[str, Kind]) -> Patterns:
    """Which kind of failure some words tell of; the first that is found counts."""
    return tuple((regex(words, re.IGNORECASE), kind) for words, kind in rows)


def kind_of_status(status: int | None) -> Kind | None:
    """What a status means, or None for one that is no failure."""
    if status is None or status < 400:
        return None
    return _BY_STATUS.get(status) or (OVERLOADED if status >= 500 else INVALID)


def kind_in(text: str, known: Patterns) -> Kind | None:
    """The kind of the first pattern that is in the text."""
    searched = text[:_MAX_SEARCHED_CHARACTERS]
    return next((kind for pattern, kind in known if pattern.search(searched)), None)


def error_of(kind: Kind, failure: Failure) -> errors.AgentError:
    """The error of a failure whose kind is known."""
    program, hint = failure.program, kind.hint
    if not hint and kind.error is errors.NotLoggedIn:
        hint = program.log_in
    elif not hint and kind.error is errors.NotInstalled:
        hint = program.install
    status = "" if failure.status is None else f" ({failure.status})"
    text = one_line(failure.text)
    more: dict[str, Any] = {"raw_output": failure.raw_output, "session_id": failure.session_id}
    if kind.error is errors.RateLimited:
        more["retry_after_seconds"] = failure.retry_after_seconds
    if kind.error is errors.OutputInvalid:
        more |= {"output": failure.output, "cut_off": kind is CUT_OFF}
    error = kind.error(
        f"{program.agent} {kind.what}{status}{': ' if text else ''}{text}",
        agent=program.agent,
        hint=hint or f"check the model, which was {failure.asked_model or 'the default of the program'}",
        **more,
    )
    error.cost_usd, error.usage = failure.cost_usd, failure.usage
    if isinstance(error, errors.OutputInvalid):
        error.model = failure.model
    return error


def ended_without_result(failure: Failure, by_stderr: Patterns, *, exit_code: int, stderr: str) -> errors.AgentError:
    """The error of a program that ended before it told how it went, whatever its exit code."""
    stderr = stderr.strip()
    if known := kind_in(stderr, by_stderr):
        return error_of(known, replace(failure, text=stderr))
    tail = stderr[-_TAIL_CHARACTERS:].strip()
    said = f"; it said: {one_line(tail)}" if tail else ""
    return errors.Crashed(
        f"{failure.program.agent} ended without a result, with exit code {exit_code}{said}",
        agent=failure.program.agent,
        status=exit_code,
        stderr_tail=tail,
        hint="run `codeloupe doctor`, and try again; the raw output is kept",
        raw_output=failure.raw_output,
        session_id=failure.session_id,
    )


def retry_after_in(text: str) -> float | None:
    """The seconds that a sentence such as "try again in 1.5s" names."""
    found = _RETRY_AFTER.search(text[:_MAX_SEARCHED_CHARACTERS])
    return float(found[1]) * _SECONDS_BY_UNIT[found[2].lower()] if found else None


def one_line(text: str) -> str:
    """The text on one line, and not too long for a message."""
    line = " ".join(text[:_MAX_SEARCHED_CHARACTERS].split())
    return line if len(line) <= _MAX_TEXT_CHARACTERS else f"{line[:_MAX_TEXT_CHARACTERS]} ..."
