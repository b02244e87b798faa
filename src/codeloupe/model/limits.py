"""Requests to agents under limits that many processes share, and the answers of the limits."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


class QuotaWait(Enum):
    """Whether a call waits for a quota that is used up."""

    NO = "no"
    # The wait is part of the time of the call: a later reset is not waited for.
    WITHIN_TIMEOUT = "within timeout"
    # The time of the call begins again after the wait. Only the deadline of the run bounds it.
    UNTIL_RESET = "until reset"


class MonthlyBudget(Struct, frozen=True):
    """Money for a calendar month (UTC): of all work, of a repository or of a team. With None it is only counted.

    `kind` is "all", "repository" or "team". `key` is the same for everyone who spends from the budget, `label` is its
    name for people, and `setting` is the setting that raises it.
    """

    kind: str
    key: str
    label: str
    setting: str
    limit_usd: float | None = None

    @property
    def name(self) -> str:
        """The name in the database."""
        return f"{self.kind} {self.key}".rstrip()

    @property
    def description(self) -> str:
        """The name in a message."""
        return "all work" if self.kind == "all" else f"the {self.kind} {self.label}"


class LimitedRequest(Struct, frozen=True, kw_only=True):
    """A request that wants to start. `account` is the agent with its key, as `account_of` returns it.

    Requests with a lower `priority` start first. `expected_usd` is the most that it is likely to cost, None if no price
    is known, and `max_usd` the amount at which the agent itself stops.
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


class Permit(Struct, frozen=True):
    """The request may be sent at `starts_at`, in seconds since 1970 by the clock of the database."""

    starts_at: float


class Waiting(Struct, frozen=True, kw_only=True):
    """The request has to wait: for so many seconds, or until another request ends if that is None.

    The service asked for `pause_seconds` of it.
    """

    seconds: float | None = None
    pause_seconds: float = 0.0


class Ending(Struct, frozen=True, kw_only=True):
    """The end of a request and its cost. `next_usd` is what the next answer may cost, None if there was no answer.

    With `refused` the service had no capacity; no other request may start for `pause_seconds`.
    """

    usd: float = 0.0
    requests: int = 1
    unknown_costs: int = 0
    next_usd: float | None = None
    succeeded: bool = False
    refused: bool = False
    pause_seconds: float = 0.0
