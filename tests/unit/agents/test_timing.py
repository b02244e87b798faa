from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from codeloupe.agents.calls.limiter import Timing, in_words

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_a_length_of_time_is_told_in_words(subtests: pytest.Subtests) -> None:
    rows: list[tuple[float, str]] = [
        (0, "0 s"),
        (45.4, "45 s"),
        (119, "119 s"),
        (600, "10 minutes"),
        (3 * 3600, "3.0 hours"),
        (3 * 86400, "3.0 days"),
    ]
    for seconds, words in rows:
        with subtests.test(str((seconds, words))[:80]):
            assert in_words(seconds) == words


def test_an_opening_is_told_with_its_moment_and_how_long_that_is() -> None:
    timing = Timing(now=lambda: NOON)
    assert timing.moment(90) == NOON + timedelta(seconds=90)
    assert timing.opening(5400) == "it opens again at 2030-01-01 13:30:00 UTC (in 90 minutes)"


def test_a_moment_that_no_calendar_holds_is_none(subtests: pytest.Subtests) -> None:
    for seconds in [-1.0, 1e12, float("inf"), float("nan")]:
        with subtests.test(str(seconds)[:80]):
            timing = Timing(now=lambda: NOON)
            assert timing.moment(seconds) is None
            assert timing.opening(seconds) == "it does not open again in our time"


def test_by_itself_it_is_the_time_of_the_machine() -> None:
    timing = Timing()
    assert timing.clock() <= timing.clock()
    assert timing.moment(0) is not None
    assert 0 <= timing.chance() < 1
