from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from codeloupe.errors import ForgeError
from codeloupe.forges.forge import MOST_LIMITED, Patience
from codeloupe.forges.github.answers import Reply, is_failure, is_limited, limit_seconds
from tests.publish_material import Sleeper
from tests.rows import each

NOW = 1_000_000.0


def reply(status: int, body: Any = None, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, named, json.dumps(body or {}).encode())


SECONDARY = reply(403, {"message": "You have exceeded a secondary rate limit. Please wait."})


@each(
    ("answer", "limited"),
    [
        (reply(429), True),
        (SECONDARY, True),
        (reply(403, {"message": "API rate limit exceeded for user"}), True),
        (reply(403, retry_after="5"), True),
        (reply(403, x_ratelimit_remaining="0"), True),
        (reply(403, {"message": "Resource not accessible by integration"}, x_ratelimit_remaining="12"), False),
        (reply(200, {"errors": [{"type": "RATE_LIMITED", "message": "wait"}]}), True),
        (reply(200, {"data": None, "errors": [{"type": "RATE_LIMIT"}]}), True),
        (reply(200, {"data": {"body": '"RATE_LIMITED" is what it says'}}), False),
        (Reply(200, {}, b'"RATE_LIMITED"'), False),
        (Reply(200, {}, b'{"RATE_LIMIT'), False),
        (reply(422, {"message": "Validation Failed", "errors": [{"message": "was submitted too quickly"}]}), True),
        (reply(422, {"message": "Validation Failed"}), False),
        (reply(401), False),
        (reply(502), False),
    ],
)
def test_a_limit_is_told_from_a_refusal(answer: Reply, *, limited: bool) -> None:
    assert is_limited(answer) is limited


def test_only_what_fails_on_their_side_is_a_failure() -> None:
    assert [status for status in (200, 403, 429, 499, 500, 502, 503, 599) if is_failure(reply(status))] == [
        500,
        502,
        503,
        599,
    ]


@each(
    ("answer", "times", "seconds"),
    [
        (reply(429, retry_after="7"), 1, 7.0),
        (reply(403, retry_after="0"), 1, 0.0),
        (reply(429, retry_after="Mon, 12 Jan 1970 13:47:00 GMT"), 1, 20.0),
        (reply(429, retry_after="nonsense"), 1, 60.0),
        (reply(403, x_ratelimit_remaining="0", x_ratelimit_reset="1000030"), 1, 31.0),
        (reply(403, x_ratelimit_remaining="0", x_ratelimit_reset="5"), 1, 1.0),
        (reply(403, x_ratelimit_remaining="3", x_ratelimit_reset="1000030"), 1, 60.0),
        (SECONDARY, 1, 60.0),
        (SECONDARY, 3, 240.0),
    ],
)
def test_how_long_to_wait(answer: Reply, times: int, seconds: float) -> None:
    assert limit_seconds(answer, times=times, now=NOW) == seconds


def test_a_wait_that_is_too_long_is_told_instead() -> None:
    sleeper = Sleeper()
    patience = Patience(most_seconds=100.0, sleep=sleeper, clock=lambda: NOW)
    asyncio.run(patience.after_limit(60.0, times=1, whose="GitHub", status=429))
    with pytest.raises(ForgeError, match="asks to wait 1 min 0 s more") as raised:
        asyncio.run(patience.after_limit(60.0, times=2, whose="GitHub", status=429))
    assert raised.value.exit_code == 3
    assert sleeper.seconds == [60.0]


def test_a_limit_that_never_ends_is_given_up() -> None:
    patience = Patience(sleep=Sleeper(), clock=lambda: NOW)
    with pytest.raises(ForgeError, match="rate limit"):
        asyncio.run(patience.after_limit(0.0, times=MOST_LIMITED, whose="GitHub", status=429))


def test_pauses_after_failures_double() -> None:
    sleeper = Sleeper()
    for attempt in (1, 2, 3):
        asyncio.run(Patience(sleep=sleeper).after_failure(attempt))
    for base, slept in zip((1, 2, 4), sleeper.seconds, strict=True):
        assert 0.5 * base <= slept <= 1.5 * base
