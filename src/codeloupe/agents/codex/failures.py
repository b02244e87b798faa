"""Which error a failure of the codex program is. It tells an HTTP status only in its sentences."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from msgspec.structs import replace

from codeloupe.agents.calls.program import (
    CUT_OFF,
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
from codeloupe.errors import AgentError, Crashed, InvalidRequest

LOG_FILTER = "error,codex_http_client::client=debug"
"""What the program writes to its log: beside errors, a line for each reply, since it tells no status elsewhere."""

_BROKEN = Kind(Crashed, "failed inside", "try again; the raw output is kept")
_UNKNOWN_SESSION = Kind(
    InvalidRequest, "does not know the session that is to be resumed", "leave resume_session out, or use another"
)
_STATUS = re.compile(r"(?:unexpected status|last status:) (\d{3})\b")
# Lines of the log that the program is told to keep, see LOG_FILTER.
_LOGGED = re.compile(r"^\S+ +DEBUG codex_http_client.*$", re.MULTILINE)
_REPLIED = re.compile(r": Request completed method=POST .{0,2000}? status=(\d{3})\b")
_RETRY_AFTER = re.compile(r'"retry-after": "(\d{1,7})"')


def _compiled(*rows: tuple[str, Kind]) -> tuple[tuple[re.Pattern[str], Kind], ...]:
    return tuple((re.compile(words, re.IGNORECASE), kind) for words, kind in rows)


# These words say more than a status does.
_ABOVE_STATUS = _compiled(
    (r"reason: max_output_tokens", CUT_OFF),
    (r"reason: content_filter|flagged (?:for|as)\b|usage polic", REFUSED),
    (r"missing environment variable|could not be refreshed|log ?in again|sign in again", NOT_LOGGED_IN),
    (r"current quota|quota exceeded|out of credits|spend cap|upgrade to plus: ", NOT_LOGGED_IN),
    (r"context window|context_length_exceeded|maximum context length|exceeds the maximum length", TOO_LONG),
)
# Where neither tells, it is the sentence of the service about a request that it does not take, such as one for an
# unknown model: the program passes such a sentence on as it came.
_BELOW_STATUS = _compiled(
    (r"usage limit|rate limit|too many requests", LIMITED),
    (r"high demand|at capacity|high load|capacity (?:is )?unavailable|overloaded", OVERLOADED),
    (r"stream disconnected|connection failed|error sending request|error while reading the server", UNREACHED),
    (r"request timed out|workspace routing discovery failed|network error|idle timeout", UNREACHED),
    (r"^(?:fatal|internal|sandbox) error|agent loop died|^turn aborted|^interrupted|no thread with id", _BROKEN),
)
_BY_STDERR = _compiled(
    (r"unexpected argument|unrecognized subcommand|invalid value .* for '--", TOO_OLD),
    (r"exceeds the maximum length", TOO_LONG),
    (r"no rollout found|no saved session|thread/resume failed|CODEX_HOME points to", _UNKNOWN_SESSION),
    (r"node.{0,3}: no such file", WITHOUT_NODE),
    (r"not logged in|codex login", NOT_LOGGED_IN),
)
_TRY_AGAIN_AT = re.compile(
    r"try again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?(\d{1,2}:\d{2} [AP]M)", re.IGNORECASE
)


def failed(failure: Failure, *, stderr: str, now: datetime) -> AgentError:
    """The error of a turn that failed, by the sentence about it and the log of the last reply of the service.

    `now` is local time, as such sentences tell it.
    """
    status, asked_wait = _last_reply(stderr)
    if status is None and (found := _STATUS.search(failure.text)):
        status = int(found[1])
    kind = (
        kind_in(failure.text, _ABOVE_STATUS)
        or kind_of_status(status)
        or kind_in(failure.text, _BELOW_STATUS)
        or INVALID
    )
    if kind is LIMITED and asked_wait is None:
        asked_wait = _retry_after(failure.text, now)
    return error_of(kind, replace(failure, status=status, retry_after_seconds=asked_wait))


def ended_without_result(failure: Failure, *, exit_code: int, stderr: str) -> AgentError:
    """The error of a program that ended before it told how its turn went, whatever its exit code."""
    words = _LOGGED.sub("", stderr).strip()
    kind = kind_in(words, _BY_STDERR)
    if kind is not None:
        return error_of(kind, replace(failure, text=words))
    return crashed(failure, exit_code=exit_code, stderr=words)


def _last_reply(stderr: str) -> tuple[int | None, float | None]:
    """The status of the last reply of the service, if it refused, and the seconds after which to come back."""
    *_, last = ("", *_LOGGED.findall(stderr))
    replied = _REPLIED.search(last)
    status = int(replied[1]) if replied else 0
    wait = _RETRY_AFTER.search(last)
    return (status, float(wait[1]) if wait else None) if status >= 400 else (None, None)


def _retry_after(text: str, now: datetime) -> float | None:
    found = _TRY_AGAIN_AT.search(text)
    if found is None:
        return retry_after_in(text)
    month, day, year, moment = found.groups()
    local = now.replace(tzinfo=None)
    date = f"{month} {day} {year}" if month else local.strftime("%b %d %Y")
    try:
        opens = datetime.strptime(f"{date} {moment}", "%b %d %Y %I:%M %p")  # noqa: DTZ007 - local time, as it was told
    except ValueError:
        return None
    # A time without a date that has just passed is the minute we are in, told without its seconds.
    if not month and opens < local - timedelta(hours=1):
        opens += timedelta(days=1)
    return max(0.0, (opens - local).total_seconds())
