"""Why a call gave nothing, in the words of coverage and errors."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from codeloupe.errors import (
    BudgetExhausted,
    Cancelled,
    CodeloupeError,
    ConnectionFailed,
    Crashed,
    InvalidRequest,
    NotInstalled,
    NotLoggedIn,
    OutputInvalid,
    Overloaded,
    PromptTooLong,
    RateLimited,
    Refused,
    StoreError,
    TimedOut,
    TurnsExhausted,
)

INVALID_ANSWER = "invalid_answer"
NOT_VERIFIED = "not_verified"
UNEXPECTED_ERROR = "unexpected_error"
_LONGEST_REASON = 600
_NAMES: Mapping[type[CodeloupeError], str] = {
    BudgetExhausted: "budget exhausted",
    Cancelled: "cancelled",
    ConnectionFailed: "connection failed",
    Crashed: "agent crashed",
    InvalidRequest: "invalid request",
    NotInstalled: "not installed",
    NotLoggedIn: "not logged in",
    OutputInvalid: "invalid answer",
    Overloaded: "overloaded",
    PromptTooLong: "prompt too long",
    RateLimited: "rate limited",
    Refused: "refused",
    StoreError: "ledger failed",
    TimedOut: "timeout",
    TurnsExhausted: "turns exhausted",
}


class Failure(Struct, frozen=True):
    """`kind` is a short stable word for errors, `reason` the phrase for coverage.

    `files` are those of the unit that it is about; none when it is about all of them.
    """

    kind: str
    reason: str
    files: tuple[str, ...] = ()


def failure_of(error: Exception) -> Failure:
    """The failure that an error means. The reason of a timeout is that one word."""
    if isinstance(error, TimedOut):
        return Failure("timeout", "timeout")
    if not isinstance(error, CodeloupeError):
        return Failure(UNEXPECTED_ERROR, shortened(f"unexpected error: {type(error).__name__}: {error}"))
    name = next((name for kind, name in _NAMES.items() if isinstance(error, kind)), "failed")
    hint = f" ({error.hint})" if error.hint else ""
    return Failure(name.replace(" ", "_"), shortened(f"{name}: {error.message}{hint}"))


def is_cut_off(error: OutputInvalid) -> bool:
    """Whether an answer ended before its end, so that what can be read of it is not all that there was to say."""
    return error.cut_off


def answer_in(error: OutputInvalid) -> str:
    """What the model said, where the error tells it apart; else all that was printed, with its envelope."""
    return error.output or error.raw_output


def shortened(text: str) -> str:
    """One line of bearable length: a message may hold what a program printed, or a whole answer."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]} ..."
