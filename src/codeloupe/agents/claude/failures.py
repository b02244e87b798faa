"""Which error a failure of the claude program is."""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from codeloupe.agents.calls.program_failures import (
    CUT_OFF,
    INVALID,
    LIMITED,
    NOT_LOGGED_IN,
    OVERLOADED,
    REFUSED,
    TOO_LONG,
    TOO_OLD,
    UNREACHED,
    Failure,
    Kind,
    crashed,
    error_of,
    kind_in,
    kind_of_status,
)
from codeloupe.errors import AgentError, BudgetExhausted, Crashed, InvalidRequest, OutputInvalid, TurnsExhausted

_TAIL_CHARACTERS = 4000
_UNKNOWN_SESSION = Kind(
    InvalidRequest, "does not know the session that is to be resumed", "leave resume_session out, or keep sessions"
)
_AS_ROOT = Kind(InvalidRequest, "does not bypass permissions for the user root", "run as another user")
_SCHEMA_REFUSED = Kind(InvalidRequest, "does not take this schema", "use a simpler schema")

_BY_REASON = {
    "max_turns": Kind(TurnsExhausted, "used all its turns without an answer", "allow more turns, or ask for less"),
    "budget_exhausted": Kind(BudgetExhausted, "spent all that the call may cost", "allow more, or ask for less"),
    "structured_output_retry_exhausted": Kind(
        OutputInvalid, "gave no answer that fits the schema", "make the schema simpler, or ask another model"
    ),
    "prompt_too_long": TOO_LONG,
    "blocking_limit": TOO_LONG,
}
_REASON_OF_SUBTYPE = {
    "error_max_turns": "max_turns",
    "error_max_budget_usd": "budget_exhausted",
    "error_max_structured_output_retries": "structured_output_retry_exhausted",
}
_BY_CAUSE = {"connection_failed": UNREACHED, "max_output_tokens": CUT_OFF}
# Only where no field tells. These are sentences of the program or the service, not of the model: it has not answered.
_BY_TEXT = tuple(
    (re.compile(words, re.IGNORECASE), kind)
    for words, kind in (
        ("not logged in|invalid api key|please run /login|credit balance is too low", NOT_LOGGED_IN),
        ("usage limit|limit reached|hit your limit", LIMITED),
        ("overloaded", OVERLOADED),
        ("prompt is too long", TOO_LONG),
        ("no conversation found|requires a valid session", _UNKNOWN_SESSION),
    )
)
_BY_STDERR = tuple(
    (re.compile(words, re.IGNORECASE), kind)
    for words, kind in (
        ("unknown option|allowed choices are", TOO_OLD),
        ("no conversation found|requires a valid session", _UNKNOWN_SESSION),
        ("root/sudo privileges", _AS_ROOT),
        ("not a valid json schema", _SCHEMA_REFUSED),
        ("exceeds 10mb", TOO_LONG),
    )
)
_RESETS_AT = re.compile(r"limit reached\|(\d{9,11})\b")


class Signs(Struct, frozen=True, kw_only=True):
    """By what the program tells failures apart: its terminal reason, its subtype, a cause, and a refusal."""

    reason: str = ""
    subtype: str = ""
    cause: str = ""
    refused: bool = False


def failed(failure: Failure, signs: Signs, *, now: float) -> AgentError:
    """The error of a run that told how it failed; `now` is in seconds since the epoch."""
    opens_at = _RESETS_AT.search(failure.text)
    if opens_at and failure.retry_after_seconds is None:
        failure = replace(failure, retry_after_seconds=max(0.0, int(opens_at[1]) - now))
    return error_of(_kind(failure, signs), failure)


def ended_without_result(failure: Failure, *, exit_code: int, stderr: str) -> AgentError:
    """The error of a program that ended without its last message, whatever its exit code."""
    tail = stderr[-_TAIL_CHARACTERS:]
    if known := kind_in(tail, _BY_STDERR):
        return error_of(known, replace(failure, text=tail))
    return crashed(failure, exit_code=exit_code, stderr=stderr)


def _kind(failure: Failure, signs: Signs) -> Kind:
    reason = signs.reason or _REASON_OF_SUBTYPE.get(signs.subtype, "")
    if known := _BY_REASON.get(reason):
        return known
    if signs.refused:
        return REFUSED
    by_status = kind_of_status(failure.status)
    # The service tells some of what is wrong with an account or a prompt by a status for wrong requests.
    if by_status is not None and by_status is not INVALID:
        return by_status
    if known := _BY_CAUSE.get(signs.cause) or kind_in(failure.text, _BY_TEXT) or by_status:
        return known
    # A reply that is empty, or not what the API speaks, has no field of its own.
    if reason == "api_error":
        return UNREACHED
    why = reason or signs.subtype or "no reason is known"
    return Kind(Crashed, f"ended without an answer ({why})", "try again; the raw output is kept")
