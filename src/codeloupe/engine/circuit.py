"""When to stop asking: a call that fails for a reason that stays makes the next ones pointless."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from codeloupe.engine.failures import Failure, failure_of
from codeloupe.errors import BudgetExhausted, InvalidRequest, NotInstalled, NotLoggedIn, StoreError
from codeloupe.model.agent import AgentEvent, AgentStarted, AttemptFailed, AttemptStarted

# Nobody can log in, install a program or mend a database while the others wait.
_LASTING = (BudgetExhausted, NotInstalled, NotLoggedIn, StoreError)
# One may be the fault of its unit, such as a prompt that a service refuses; two without any answer are not.
_INVALID_REQUESTS = 2
_FAILURES_IN_A_ROW = 3


class CircuitOpen(Exception):
    """The call was not made, since those before it failed; `failure` is theirs."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Circuit:
    """Watches the calls of one run, in one event loop.

    It opens at a failure that lasts, at the second invalid request before any answer, and at three failures in a row.
    Then no call is begun any more, and those that wait for their turn are let go. What is being bought goes on.
    """

    def __init__(self) -> None:
        self._failure: Failure | None = None
        self._answers = 0
        self._invalid_requests = 0
        self._in_a_row = 0
        self._calls: set[_Call] = set()

    def check(self) -> None:
        """Raises CircuitOpen when nothing more is to be asked."""
        if self._failure is not None:
            raise CircuitOpen(self._failure)

    @asynccontextmanager
    async def call(self) -> AsyncIterator[_Call]:
        """Around one call, whose events are to be told to what it gives. Raises CircuitOpen, also for what waited."""
        self.check()
        scope = asyncio.timeout(None)
        call = _Call(scope)
        try:
            async with scope:
                self._calls.add(call)
                try:
                    yield call
                finally:
                    self._calls.discard(call)
        except TimeoutError:
            if scope.expired():
                self.check()
            raise

    def note_answer(self) -> None:
        """Tell that a call was answered in a form that could be read."""
        self._answers += 1
        self._in_a_row = 0

    def note_failure(self, error: Exception) -> None:
        """Tell that a call failed for good, or that its answer could not be read."""
        self._in_a_row += 1
        self._invalid_requests += isinstance(error, InvalidRequest)
        if self._failure is not None or not self._is_pointless(error):
            return
        failure = failure_of(error)
        if not isinstance(error, _LASTING) and self._in_a_row >= _FAILURES_IN_A_ROW:
            reason = f"{self._in_a_row} calls in a row failed, the last one with: {failure.reason}"
            failure = replace(failure, reason=reason)
        self._failure = failure
        # The budget refuses by itself what waits, and lets through what costs nothing.
        if not isinstance(error, BudgetExhausted):
            for call in list(self._calls):
                call.let_go_if_waiting()

    def _is_pointless(self, error: Exception) -> bool:
        refused = not self._answers and self._invalid_requests >= _INVALID_REQUESTS
        return isinstance(error, _LASTING) or refused or self._in_a_row >= _FAILURES_IN_A_ROW


class _Call:
    """One call under way. It waits until an attempt begins, and again between two attempts."""

    def __init__(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self._waits = False
        self.attempts: int | None = None

    def note(self, event: AgentEvent) -> None:
        """Tell what happened in it; `attempts` counts from then on."""
        match event:
            case AgentStarted():
                self._waits, self.attempts = True, self.attempts or 0
            case AttemptStarted():
                self._waits, self.attempts = False, (self.attempts or 0) + 1
            case AttemptFailed():
                self._waits = True

    def let_go_if_waiting(self) -> None:
        """End it unless something is being bought."""
        if self._waits:
            self._waits = False
            self._scope.reschedule(0.0)
