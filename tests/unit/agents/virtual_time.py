"""An event loop whose time jumps to the next timer instead of passing, so that hours of waiting take no time."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple

from codeloupe.agents.calls.limiter import Timing

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")
MIDNIGHT = datetime(2030, 1, 1, tzinfo=UTC)


class StalledError(Exception):
    """Nothing is ready, no timer runs and no thread works: the program waits for what can never come."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.busy_threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 or self.busy_threads:
            return super().select(timeout if timeout == 0 else 0.05)
        if timeout is None:
            raise StalledError
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything can be done, threads included."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Arguments], _Result], *args: *_Arguments
    ) -> asyncio.Future[_Result]:
        self._virtual.busy_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        # Waits for threads of which it does not tell; from Python 3.12 on it is called with a time limit.
        self._virtual.busy_threads += 1
        await super().shutdown_default_executor()
        self._virtual.busy_threads -= 1

    def _thread_ended(self, _future: asyncio.Future[Any]) -> None:
        self._virtual.busy_threads -= 1


def run_virtually(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """Run to the end in virtual time that begins at 0."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def virtual_clock() -> float:
    return asyncio.get_running_loop().time()


def virtual_timing(**other: Any) -> Timing:
    """Timing in the virtual loop, which begins at `MIDNIGHT`; waits are spread by nothing."""

    def now() -> datetime:
        return MIDNIGHT + timedelta(seconds=virtual_clock())

    return Timing(**{"clock": virtual_clock, "now": now, "chance": lambda: 0.5, **other})


def virtually(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test to its end in virtual time."""

    @functools.wraps(test)
    def run(*given: Any, **named: Any) -> None:
        run_virtually(test(*given, **named))

    return run
