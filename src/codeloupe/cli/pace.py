"""The estimate in the progress display: how long the rest of a review or a sweep takes, and what it costs."""

from __future__ import annotations

from codeloupe.model import agent
from codeloupe.reports.wording import dollars, duration

_ENOUGH = 3


class Pace:
    """Estimates the rest as the mean of the finished units times the units left, from the third finished unit on.

    A unit of a sweep is a commit. Answers from the ledger are not counted as work. The mean time is the time since the
    work began divided by the finished units, so that it includes concurrency. The cost of the rest is estimated only if
    every finished call stated its cost. Verification comes after the units and is not part of the estimate.
    """

    def __init__(self, began: float) -> None:
        self.spent = 0.0
        self._began = began
        self._finished = 0
        self._is_priced = True

    def begin(self, now: float) -> None:
        """Count the time from now on, unless a unit is finished already."""
        if not self._finished:
            self._began = now

    def take_call(self, call: agent.AgentFinished) -> None:
        """Add the cost of a finished call."""
        if call.from_ledger:
            return
        if call.cost_usd is None:
            self._is_priced = False
        else:
            self.spent += call.cost_usd

    def take_unit(self) -> None:
        """Count a unit that was not answered from the ledger."""
        self._finished += 1

    def left(self, units: int, now: float) -> str:
        """Return `about 2 min 10 s and $0.40 left` for so many units; empty before there is an estimate."""
        if units <= 0 or self._finished < _ENOUGH:
            return ""
        seconds = (now - self._began) / self._finished * units
        cost = ""
        if self._is_priced and self.spent:
            cost = f" and {dollars(self.spent / self._finished * units)}"
        return f"about {_rounded(seconds)}{cost} left"


def _rounded(seconds: float) -> str:
    """Return a duration without a precision that an estimate does not have."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    if seconds < 3600:
        return duration(round(seconds, -1))
    hours, rest = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {rest} min"
