"""Which error a failure of the gemini program is.

Its exit code is the HTTP status modulo 256, or a number of its own; the status is also in its stderr and often in its
sentences.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from codeloupe.agents.calls.program import (
    EMPTY,
    INVALID,
    LIMITED,
    NOT_LOGGED_IN,
    OVERLOADED,
    REFUSED,
    TOO_LONG,
    TOO_OLD,
    UNREACHED,
    WITHOUT_NODE,
    Failure,
    Kind,
    crashed,
    error_of,
    kind_in,
    kind_of_status,
    retry_after_in,
)
from codeloupe.errors import AgentError, Crashed, InvalidRequest, TurnsExhausted

SENT_NOTHING = replace(
    TOO_LONG, what="ended at once and sent nothing, as it does when a prompt does not fit the window of the model"
)
_TURNS = Kind(TurnsExhausted, "used all its turns without an answer", "allow more turns, or ask for less")
_UNKNOWN = Kind(Crashed, "ended without an answer", "try again; the raw output is kept")
_SETTINGS = Kind(
    InvalidRequest,
    "cannot read its settings, which may be those in the working directory",
    "mend .gemini/settings.json there, or use another agent",
)
_BY_EXIT_CODE = {41: NOT_LOGGED_IN, 42: INVALID, 52: _SETTINGS, 53: _TURNS, 55: TOO_OLD}
_STATUS_IN_TEXT = re.compile(r'"code":\s?([45]\d\d)\b')
_STATUS_IN_STDERR = re.compile(r"^\s{0,4}(?:status|code): ([45]\d\d)\b", re.MULTILINE)
_DELAY_MS = re.compile(r"^\s{0,4}retryDelayMs: (\d{1,12})", re.MULTILINE)


def _compiled(*rows: tuple[str, Kind]) -> tuple[tuple[re.Pattern[str], Kind], ...]:
    return tuple((re.compile(words, re.IGNORECASE), kind) for words, kind in rows)


# These words say more than a status does.
_ABOVE_STATUS = _compiled(
    (r"max session turns", _TURNS),
    (r"api[ _]key[ _](?:not valid|invalid|expired)|must specify the GEMINI_API_KEY", NOT_LOGGED_IN),
    (
        r"error authenticating|authorization is required|requires billing|billing (?:account )?is (?:disabled|not)",
        NOT_LOGGED_IN,
    ),
    (r"maximum number of tokens|token count .{0,40}exceeds|context window|request payload size exceeds", TOO_LONG),
    (r"blocked due to|prohibited content|recitation|blocklist", REFUSED),
    (r"returned an empty response", EMPTY),
)
_BELOW_STATUS = _compiled(
    (r"quota|rate limit|resource.?exhausted|too many requests", LIMITED),
    (r"overloaded|high demand|unavailable|no capacity", OVERLOADED),
    (r"model .{0,80}not found|is not found for api version", INVALID),
    (r"without a finish reason|malformed|incomplete json|invalid stream|unexpected token|not valid json", UNREACHED),
    (r"fetch failed|terminated|socket|econn|enotfound|eai_again|etimedout|certificate|network|timed? ?out", UNREACHED),
)
_BY_STDERR = _compiled(
    (r"unknown arguments?:", TOO_OLD),
    (r"node.{0,3}: no such file", WITHOUT_NODE),
)


def failed(failure: Failure, *, exit_code: int, stderr: str) -> AgentError:
    """The error of a run that told a failure, whatever its exit code."""
    status = _status(failure.text, exit_code, stderr)
    kind = (
        kind_in(failure.text, _ABOVE_STATUS)
        or kind_of_status(status)
        or kind_in(failure.text, _BELOW_STATUS)
        or _BY_EXIT_CODE.get(exit_code, _UNKNOWN)
    )
    return error_of(kind, replace(failure, status=status, retry_after_seconds=_retry_after(failure.text, stderr)))


def ended_without_result(failure: Failure, *, exit_code: int, stderr: str) -> AgentError:
    """The error of a program that ended before it told how it went, whatever its exit code."""
    words = stderr.strip()
    known = kind_in(words, _BY_STDERR) or (_BY_EXIT_CODE.get(exit_code) if exit_code else None)
    if known is not None:
        return error_of(known, replace(failure, text=words))
    if exit_code and _status("", exit_code, stderr) is not None:
        return failed(replace(failure, text=words), exit_code=exit_code, stderr=stderr)
    return crashed(failure, exit_code=exit_code, stderr=stderr)


def _status(text: str, exit_code: int, stderr: str) -> int | None:
    told = _STATUS_IN_TEXT.findall(text) or _STATUS_IN_STDERR.findall(stderr)
    if told:
        return int(told[-1])
    # Exit codes from 41 to 55 are the program's own; a status from 400 to 511 leaves 144 to 255, and 529 leaves 17.
    by_code = exit_code + 256
    if exit_code == 529 % 256:
        return 529
    return by_code if 400 <= by_code < 512 else None


def _retry_after(text: str, stderr: str) -> float | None:
    told = _DELAY_MS.findall(stderr)
    return int(told[-1]) / 1000 if told else retry_after_in(text)
