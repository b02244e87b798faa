"""Failures that a vendor's program or service reports by an HTTP status or a sentence alone: which error each is."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from codeloupe import errors
from codeloupe.system.regex import regex

_MAX_SEARCHED_CHARACTERS = 20_000
_SECONDS_BY_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RETRY_AFTER = regex(
    r"(?:try again|retry(?:ing)?)\s(?:after|in)\s(\d{1,9}(?:\.\d{1,9})?)\s?(ms|s|m|h|d)", re.IGNORECASE
)


class Program(Struct, frozen=True):
    """A program as its users know it. `install` is a command; `log_in` says what to set or run."""

    agent: str
    command: str
    install: str
    log_in: str


class Kind(Struct, frozen=True):
    """A kind of failure: its error, what happened, to follow the agent's name, and what to do next.

    Without a hint the program's own is given: how to log in, how to install it, or which model was asked for.
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
TOO_LONG = Kind(
    errors.PromptTooLong,
    "was given a prompt that is too long",
    "shorten the prompt or its context, or use an agent that accepts more; effort: high makes smaller units",
)
CUT_OFF = Kind(errors.OutputInvalid, "was cut off in the middle of its answer", "ask for a shorter answer")
EMPTY = Kind(errors.OutputInvalid, "finished, but its answer is empty", "ask again, or with another prompt or model")
REFUSED = Kind(
    errors.Refused, "got a refusal from the model or its safeguards", "rephrase the request, or ask another model"
)
INVALID = Kind(errors.InvalidRequest, "sent a request that the service rejected")
UNKNOWN_SESSION = Kind(
    *(errors.InvalidRequest, "does not know the session to resume"),
    hint="remove resume_session, or keep sessions and give the session_id of an earlier result",
)
SEVERAL_RESULTS = Kind(errors.Crashed, "gave more than one result", "try again; the raw output is stored")
TURNS = Kind(errors.TurnsExhausted, "used all its turns without an answer", "allow more turns, or ask for less")
TOO_OLD = Kind(errors.NotInstalled, "is too old: it does not know a flag that keeps it safe")
WITHOUT_NODE = Kind(errors.NotInstalled, "needs Node.js, which is not on the PATH", "install Node.js 20 or newer")
_BY_STATUS = {
    **dict.fromkeys((401, 402, 403), NOT_LOGGED_IN), 408: UNREACHED, 413: TOO_LONG, 429: LIMITED,
}  # fmt: skip
Patterns = tuple[tuple[re.Pattern[str], Kind], ...]


def patterns(*rows: tuple[str, Kind]) -> Patterns:
    """Which kind of failure some words mean; the first that is found counts."""
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


def kind_of(text: str, status: int | None, above: Patterns, below: Patterns) -> Kind | None:
    """What a sentence and a status mean: some words say more than the status does, others count only without one."""
    return kind_in(text, above) or kind_of_status(status) or kind_in(text, below)


def error_of(
    kind: Kind, program: Program, text: str = "", *, asked_model: str | None, status: int | None = None, **known: Any
) -> errors.AgentError:
    """The error of a failure of this kind. Of what is known of the run it has what it has a field for."""
    own_hint = {errors.NotLoggedIn: program.log_in, errors.NotInstalled: program.install}.get(kind.error)
    words = one_line(text)
    if kind is EMPTY:
        # The text of an earlier message is not the answer.
        known["output"] = ""
    return kind.error(
        f"{program.agent} {kind.what}{'' if status is None else f' ({status})'}{': ' if words else ''}{words}",
        agent=program.agent,
        hint=kind.hint or own_hint or f"check the model, which was {asked_model or 'the default of the program'}",
        **{name: value for name, value in known.items() if hasattr(kind.error, name)},
    )


def retry_after_in(text: str) -> float | None:
    """The seconds in a sentence such as "try again in 1.5s"."""
    found = _RETRY_AFTER.search(text[:_MAX_SEARCHED_CHARACTERS])
    return float(found[1]) * _SECONDS_BY_UNIT[found[2].lower()] if found else None


def one_line(text: str) -> str:
    """The text on one line, and not too long for a message."""
    line = " ".join(text[:_MAX_SEARCHED_CHARACTERS].split())
    return line if len(line) <= 500 else f"{line[:500]} ..."
