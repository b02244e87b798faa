"""The cost of agent calls by month, budget and agent, in SQLite and in Postgres."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from codeloupe.errors import BudgetExhausted
from codeloupe.model.limits import Ending, LimitedRequest, Permit, Waiting
from codeloupe.store.interface import Connection, Database, persistent

_ADD = """
INSERT INTO spending (month, budget, agent, source, label, usd, requests, unknown_costs)
VALUES (?, ?, ?, (SELECT id FROM identity), ?, ?, ?, ?)
ON CONFLICT (month, budget, agent, source) DO UPDATE SET label = excluded.label, usd = spending.usd + excluded.usd,
    requests = spending.requests + excluded.requests, unknown_costs = spending.unknown_costs + excluded.unknown_costs
"""


class Cost(Struct, frozen=True):
    """The cost of some requests. Those of unknown cost are counted in `unknown_costs` and not in `usd`."""

    usd: float = 0.0
    requests: int = 0
    unknown_costs: int = 0

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        return Cost(self.usd + other.usd, self.requests + other.requests, self.unknown_costs + other.unknown_costs)


class SpendingRow(Struct, frozen=True):
    """The cost of one agent in a month, counted for one budget."""

    budget: str
    label: str
    agent: str
    cost: Cost


def month_of(seconds: float) -> str:
    """Return the month (UTC) of a time in seconds since 1970, such as 2026-11."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m}"


def add_spending(
    connection: Connection, month: str, agent: str, *, budgets: Iterable[tuple[str, str]], cost: Cost
) -> None:
    """Add the cost of requests to budgets, given by name and label. A cost without requests changes nothing."""
    if not cost.requests:
        return
    rows: list[tuple[object, ...]] = []
    for name, label in budgets:
        rows.append((month, name, agent, label, cost.usd, cost.requests, cost.unknown_costs))
    connection.executemany(_ADD, rows)


def spent_from(connection: Connection, month: str, budgets: Sequence[str]) -> dict[str, Cost]:
    """Return what was spent from each budget in a month, by all agents and counted in all databases."""
    spent = dict.fromkeys(budgets, Cost())
    rows = connection.execute(
        "SELECT budget, usd, requests, unknown_costs FROM spending"  # noqa: S608 - our words
        f" WHERE month = ? AND budget IN ({marks(budgets)})",
        (month, *budgets),
    )
    for budget, *cost in rows.fetchall():
        spent[budget] = spent[budget].plus(Cost(*cost))
    return spent


def marks(values: Sequence[object]) -> str:
    """Return a placeholder for each value, as in `IN (?, ?)`."""
    return ", ".join("?" for _ in values)


class Spending:
    """The stored spending, for display. Methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @persistent
    def rows(self, month: str) -> tuple[SpendingRow, ...]:
        """Return the spending of a month, sorted by budget and agent."""
        found = self.database.select(
            "SELECT budget, max(label), agent, sum(usd), CAST(sum(requests) AS BIGINT),"
            " CAST(sum(unknown_costs) AS BIGINT) FROM spending WHERE month = ?"
            " GROUP BY budget, agent ORDER BY budget, agent",
            (month,),
        )
        return tuple(SpendingRow(budget, label, agent, Cost(*cost)) for budget, label, agent, *cost in found)

    @persistent
    def months(self) -> dict[str, Cost]:
        """Return the cost of each month, the newest first."""
        found = self.database.select(
            "SELECT month, usd, requests, unknown_costs FROM spending WHERE budget = 'all' ORDER BY month DESC"
        )
        months: dict[str, Cost] = {}
        for month, *cost in found:
            months[month] = months.get(month, Cost()).plus(Cost(*cost))
        return months


class SpendingCounter:
    """Counts the cost of requests and limits nothing: for a database that other machines do not share."""

    lease_seconds = 30.0

    def __init__(self, database: Database) -> None:
        self.database = database

    def now(self) -> float:
        """Return the time by the clock of the database."""
        return self.database.clock()

    def start(self, requests: Iterable[LimitedRequest]) -> dict[str, Permit | Waiting | BudgetExhausted]:
        """Let all requests start, without the database."""
        return {request.id: Permit(0.0) for request in requests}

    @persistent
    def end(self, request: LimitedRequest, ending: Ending) -> None:
        """Count the cost of a request. Raise StoreError."""
        cost = Cost(ending.usd, ending.requests, ending.unknown_costs)
        if not cost.requests:
            return
        budgets = [(budget.name, budget.label) for budget in request.budgets]
        with self.database.writing() as connection:
            month = month_of(self.database.clock())
            add_spending(connection, month, request.agent, budgets=budgets, cost=cost)

    def renew(self) -> None:
        """Do nothing: no other process has to know that this one is alive."""
