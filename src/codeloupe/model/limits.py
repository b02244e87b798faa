"""What is asked of the limits that many processes share, and what they answer."""

from __future__ import annotations

from msgspec import Struct


class MonthlyBudget(Struct, frozen=True):
    """Money for a calendar month, in UTC: of all, of a team or of a repository. None: it is only counted.

    `name` is the same for all who spend of it; `label` is what a person calls it, and `setting` what raises it.
    """

    name: str
    label: str
    setting: str
    limit_usd: float | None = None


class LimitedRequest(Struct, frozen=True, kw_only=True):
    """A request that wants to start. `account` is the agent with its key, as `account_of` names it.

    The lower the `priority`, the sooner its turn. `expected_usd` is what it may cost, None when no price is known, and
    `max_usd` at what the agent itself stops.
    """

    id: str
    agent: str
    account: str
    priority: int
    budgets: tuple[MonthlyBudget, ...]
    concurrency: int | None = None
    per_minute: int | None = None
    expected_usd: float | None = None
    max_usd: float | None = None

    @property
    def limits_money(self) -> bool:
        """Whether one of its budgets has a limit."""
        return any(budget.limit_usd is not None for budget in self.budgets)


class Waiting(Struct, frozen=True, kw_only=True):
    """How long a request waits, or None if that is not known. The service asked for `pause_seconds` of it.

    `turn` orders the requests of one priority: the smallest starts first.
    """

    turn: int
    seconds: float | None = None
    pause_seconds: float = 0.0


class Ending(Struct, frozen=True, kw_only=True):
    """How a request ended and what it cost. `next_usd` is what the next answer may cost, None after no answer.

    With `refused` the service had no room; `pause_seconds` is how long no other request may start.
    """

    usd: float = 0.0
    requests: int = 1
    unknown_costs: int = 0
    next_usd: float | None = None
    succeeded: bool = False
    refused: bool = False
    pause_seconds: float = 0.0
