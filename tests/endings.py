"""What has to end or to come to pass, and how long a test waits for it. Nothing here measures speed.

The times are far above what anything takes on a busy machine, and what must not be waited for has to take far longer.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from codeloupe.errors import CodeloupeError

PATIENCE_SECONDS = 30.0
# Whoever is waited for wrongly takes at least so long: a sleep, a delay, a time limit that must not be what ends it.
FAR_TOO_LONG_SECONDS = 300.0
_TIME_LIMITS_SECONDS = (0.6, 2.0, 6.0, 15.0)

OutcomeT = TypeVar("OutcomeT")
TimedOutT = TypeVar("TimedOutT", bound=CodeloupeError)


@contextmanager
def ends_soon() -> Iterator[None]:
    """Fail when the block was held up; what could hold it up takes `FAR_TOO_LONG_SECONDS`, or has no end."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < PATIENCE_SECONDS, "it waited for what it must not wait for"


def comes_to_pass(condition: Callable[[], bool]) -> bool:
    """Whether something becomes true, be it late."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return met


def with_enough_time(
    work: Callable[[float], OutcomeT],
    *,
    ready: Callable[[OutcomeT], bool],
    seconds: tuple[float, ...] = _TIME_LIMITS_SECONDS,
) -> OutcomeT:
    """What comes of work that never finishes by itself, with a time limit that let it get as far as it should.

    How long a program takes until then depends on what else the machine does, so a short limit is tried first.
    """
    for limit in seconds:
        if ready(outcome := work(limit)):
            return outcome
    pytest.fail(f"it was not ready within {seconds[-1]:g} s")


def timed_out(
    kind: type[TimedOutT],
    work: Callable[[float], object],
    *,
    ready: Callable[[TimedOutT], bool],
    words: str = r"did not finish within \d",
) -> TimedOutT:
    """The error with which such work is ended at its time limit; `words` are those of the limit."""

    def error_of(seconds: float) -> TimedOutT:
        with pytest.raises(kind, match=words) as caught:
            work(seconds)
        return caught.value

    return with_enough_time(error_of, ready=ready)


def before_its_limit(kind: type[CodeloupeError], work: Callable[[float], OutcomeT]) -> OutcomeT:
    """What comes of work that has to be done before its time limit ends it, with a limit that let it be."""
    for seconds in _TIME_LIMITS_SECONDS[:-1]:
        with contextlib.suppress(kind):
            return work(seconds)
    return work(_TIME_LIMITS_SECONDS[-1])
